//! What the environment says about algorithms is obeyed, said, and compared between ranks.

use super::spmd::{done, here, rank, start};
use ringwork_communicator::Communicator;
use ringwork_isa::ReduceOp;
use std::process::{Command, Stdio};

/// One rank that reduces, with these variables: what it says on stderr.
fn said(test: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .envs([
            ("RINGWORK_RANK", "0"),
            ("RINGWORK_SIZE", "1"),
            ("RINGWORK_RENDEZVOUS", test),
        ])
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn debug_says_what_was_chosen_and_why() {
    if rank().is_some() {
        let comm = Communicator::from_env().unwrap();
        for _ in 0..3 {
            comm.all_reduce(&mut [1f32; 4], ReduceOp::Sum).unwrap();
        }
        done();
    }
    let test = here!();
    let text = said(test, &[("RINGWORK_DEBUG", "1")]);
    assert_eq!(text.matches("all_reduce of 16 bytes").count(), 1, "{text}");
    assert!(text.contains("packet (row 1 of the built-in table)"), "{text}");
    let asked = said(
        test,
        &[("RINGWORK_DEBUG", "1"), ("RINGWORK_ALGO", "all_reduce=two-shot")],
    );
    assert!(
        asked.contains("twophase (RINGWORK_ALGO or RINGWORK_CCL asks for it)"),
        "{asked}"
    );
    let path = std::env::temp_dir().join(format!("ringwork-table-{}", std::process::id()));
    std::fs::write(&path, "choices: [{collective: all_reduce, algorithm: onephase}]").unwrap();
    let file = path.to_string_lossy().into_owned();
    let tuned = said(test, &[("RINGWORK_DEBUG", "1"), ("RINGWORK_CCL", &file)]);
    std::fs::remove_file(&path).unwrap();
    assert!(tuned.contains("onephase (row 1 of"), "{tuned}");
    assert!(said(test, &[]).is_empty());
}

#[test]
fn ranks_that_would_choose_differently_learn_of_it() {
    if let Some(me) = rank() {
        if me == 1 {
            // As if this rank had been started with another environment.
            let again = std::env::var("RINGWORK_ALGO").is_err();
            if again {
                let status = Command::new(std::env::current_exe().unwrap())
                    .args([here!(), "--exact", "--nocapture", "--test-threads=1"])
                    .env("RINGWORK_ALGO", "all_reduce=onephase")
                    .stdout(Stdio::null())
                    .status()
                    .unwrap();
                std::process::exit(status.code().unwrap_or(1));
            }
        }
        let comm = Communicator::from_env().unwrap();
        let error = comm
            .all_reduce(&mut [1f32; 4], ReduceOp::Sum)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sum, packet") && error.contains("sum, onephase"),
            "{error}"
        );
        done();
    }
    super::spmd::all_well(&super::spmd::ends(start(here!(), 2, &[])));
}
