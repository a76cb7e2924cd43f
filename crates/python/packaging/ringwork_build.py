"""The build backend of the package: maturin, after the programs that ship beside the extension.

A wheel holds three things that cargo builds: the extension, `ringwork-chip` (what the chips of a node run) and `ringwork`
(the command). Run as a script it only builds the two programs and puts them where maturin takes them from. The profile of
cargo is `release` unless `RINGWORK_BUILD_PROFILE` says another.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "python" / "ringwork" / "bin"

# With the features of the extension, so that cargo builds what both are made of once.
CHIP = ["-p", "ringwork-python", "--features", "extension", "--bin", "ringwork-chip"]
COMMAND = ["-p", "ringwork-cli", "--bin", "ringwork"]


def build_programs():
    """Builds both programs and copies them into the package."""
    cargo = shutil.which("cargo")
    if cargo is None:
        sys.exit(
            "ringwork is built from its source here, which needs Rust: install it from https://rustup.rs and try "
            "again, or install a wheel (pip install --only-binary=:all: ringwork)"
        )
    profile = os.environ.get("RINGWORK_BUILD_PROFILE", "release")
    PROGRAMS.mkdir(exist_ok=True)
    for package in (CHIP, COMMAND):
        command = [cargo, "build", "--locked", "--profile", profile, *package, "--message-format", "json-render-diagnostics"]
        built = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode:
            sys.exit(f"`{' '.join(command)}` failed with exit code {built.returncode}; its reasons are above")
        program = _executable(built.stdout, package[-1])
        shutil.copy2(program, PROGRAMS / package[-1])
        if strip := shutil.which("strip"):
            subprocess.run([strip, PROGRAMS / package[-1]], check=True)


def _executable(messages, name):
    """Where cargo says that it put a program."""
    import json

    for line in messages.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    sys.exit(f"cargo did not say where it put `{name}`")


def _maturin():
    import maturin

    profile = os.environ.get("RINGWORK_BUILD_PROFILE")
    if profile and "MATURIN_PEP517_ARGS" not in os.environ:
        os.environ["MATURIN_PEP517_ARGS"] = f"--profile {profile}"
    return maturin


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    build_programs()
    return _maturin().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660."""
    build_programs()
    return _maturin().build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517."""
    return _maturin().build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings=None):
    """PEP 517: what is needed beside `requires`."""
    if shutil.which("cargo") is None:
        build_programs()  # says what is missing
    return []


def get_requires_for_build_editable(config_settings=None):
    """PEP 660."""
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    """PEP 517."""
    return []


if __name__ == "__main__":
    build_programs()
