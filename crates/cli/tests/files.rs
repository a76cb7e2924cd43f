//! Files that are named on the command line and are not what they should be.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::process::Command;
use support::{Folder, ringwork};

fn fifo(folder: &Folder) -> String {
    let path = folder.path("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn pipes_and_devices_are_refused_as_configuration_at_once() {
    let folder = Folder::new("config-kinds");
    for file in [&fifo(&folder), "/dev/zero"] {
        for command in [
            "topo show FILE",
            "sim sweep FILE",
            "sim all_reduce -t FILE",
            "sim all_reduce -t ring-4 -e 1K --ccl FILE",
        ] {
            let run = ringwork(&command.replace("FILE", file));
            assert_eq!(run.code, Some(2), "{command}: {run:?}");
            assert!(run.stderr.contains("not a regular file"), "{command}: {run:?}");
        }
    }
}

#[test]
fn a_configuration_file_has_at_most_one_mebibyte() {
    let folder = Folder::new("config-size");
    let path = folder.path("large.yaml");
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    let run = ringwork(&format!("topo show {}", path));
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("larger than 1 MiB"), "{run:?}");
}

#[test]
fn a_tuning_table_that_is_not_a_regular_file_is_refused() {
    let folder = Folder::new("tune-kinds");
    let table = fifo(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    command
        .args(["bench", "barrier", "-g", "2"])
        .env("RINGWORK_CCL", &table);
    let run = support::run(&mut command);
    assert_ne!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("not a regular file"), "{run:?}");
}

/// Always on a pipe in a temporary folder: if this fails, the file is lost.
#[test]
fn tune_does_not_replace_what_is_not_a_regular_file() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::new("tune-output");
    let pipe = fifo(&folder);
    let run = ringwork(&format!("tune -g 2 -e 64 -o {pipe}"));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("not a regular file"), "{run:?}");
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn tune_writes_through_a_link() {
    let folder = Folder::new("tune-link");
    let (target, link) = (folder.path("target.tune"), folder.path("link.tune"));
    std::fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let run = ringwork(&format!("tune -g 2 -e 64 -o {}", link));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("all_reduce"));
}
