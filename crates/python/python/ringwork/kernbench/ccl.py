"""`ccl.yaml`: which algorithm runs which collective, and among how many ranks."""

from __future__ import annotations

import difflib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError

TOP = ("defaults", "collectives", "choices", "algorithms")
SETTINGS = (
    "algorithm",
    "world_size",
    "n_elem",
    "dtype",
    "scratch",
    "memory",
    "slots",
    "slot",
    "slot_memory",
)
#: The algorithms of `all_reduce` that a simulated node has; they share memory.
ALGORITHMS = ("onephase", "twophase", "staged-ring", "packet")


def _refuse(where: str, problem: str) -> ArgumentError:
    return ArgumentError(f"{where}: {problem}", call=where, problem=problem)


def _known(where: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean `{near[0]}`? " if near else ""
        raise _refuse(where, f"there is no `{name}`; {hint}(valid: {', '.join(known)})")


def load_ccl_config(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The contents of a `ccl.yaml`; of no file, nothing. Keys that mean nothing are refused."""
    if path is None:
        return {}
    import yaml

    where = os.fspath(path)
    try:
        config = yaml.safe_load(pathlib.Path(path).read_text()) or {}
    except yaml.YAMLError as error:
        raise _refuse(where, str(error)) from None
    for key, value in _table(where, config).items():
        _known(where, key, TOP)
        if key == "defaults":
            _settings(f"{where}: defaults", value)
        elif key in ("collectives", "algorithms"):
            for name, settings in _table(f"{where}: {key}", value).items():
                _settings(f"{where}: {key}: {name}", settings)
    return dict(config)


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refuse(where, f"{value!r} is not a table of keys and values")
    return value


def _settings(where: str, value: Any) -> None:
    for key, setting in _table(where, value).items():
        _known(where, key, SETTINGS)
        if key in ("world_size", "n_elem") and not (type(setting) is int and setting > 0):
            raise _refuse(f"{where}: {key}", f"{setting!r} is not a number from 1 on")


def resolve_algorithm_config(
    config: Mapping[str, Any], algorithm: str | None = None, collective: str = "all_reduce"
) -> dict[str, Any]:
    """The settings of one algorithm: its own, over those of the collective, over the defaults.

    Without a name it is the collective's algorithm, else the default one, else `twophase`. The result has the key
    `algorithm`. Its `world_size` is an explicit one or missing; the default one is `default_world_size`. The list `choices` is
    not looked at: it is for calls whose size is known.
    """
    defaults = dict(config.get("defaults", {}))
    of_collective = config.get("collectives", {}).get(collective, {})
    name = algorithm or of_collective.get("algorithm") or defaults.get("algorithm") or "twophase"
    _known("algorithm", name, ALGORITHMS)
    resolved = {**defaults, **of_collective, **config.get("algorithms", {}).get(name, {}), "algorithm": name}
    resolved.pop("world_size", None)
    explicit = config.get("algorithms", {}).get(name, {}).get("world_size", of_collective.get("world_size"))
    if explicit is not None:
        resolved["world_size"] = explicit
    if "world_size" in defaults:
        resolved["default_world_size"] = defaults["world_size"]
    return resolved


def resolve_world_size(resolved: Mapping[str, Any], sips: int, pes_per_sip: int = 1) -> int:
    """How many ranks: what the algorithm or the collective says, else the default, else the number of SIPs.

    More ranks than SIPs are placed on the PEs inside them; more than there are PEs are refused.
    """
    explicit, default = resolved.get("world_size"), resolved.get("default_world_size")
    size, source = next(
        (size, source)
        for size, source in ((explicit, "explicit"), (default, "the default"), (sips, "the SIPs"))
        if size is not None
    )
    if size > sips * pes_per_sip:
        problem = (
            f"{size} ({source}) is more than the {sips} SIPs of {pes_per_sip} PEs; ask for fewer ranks or a larger "
            "machine"
        )
        raise _refuse("world size", problem)
    return int(size)
