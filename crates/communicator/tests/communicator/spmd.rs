//! Tests that are several processes: each starts this test program again, once for every rank.

use ringwork_communicator::Communicator;
pub(crate) use ringwork_testkit::{Rng, long};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The path of the test that this is used in.
macro_rules! here {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        path.strip_suffix("::here").unwrap().split_once("::").unwrap().1
    }};
}
pub(crate) use here;

/// The rank that this process is, if it is one.
pub(crate) fn rank() -> Option<u32> {
    std::env::var("RINGWORK_RANK").ok()?.parse().ok()
}

/// What a rank that got through its test ends with: a program that ran no test at all ends with 0.
const DONE: i32 = 77;

/// Ends a rank that got through its test.
pub(crate) fn done() -> ! {
    std::process::exit(DONE)
}

/// Whether a rank got through its test.
pub(crate) fn is_well(status: &ExitStatus) -> bool {
    status.code() == Some(DONE)
}

/// Starts the ranks of a job, with more variables.
pub(crate) fn start(test: &str, size: u32, variables: &[(&str, &str)]) -> Vec<Child> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job = format!(
        "{test}-{}-{}",
        std::process::id(),
        JOBS.fetch_add(1, Ordering::Relaxed)
    );
    let one = |rank: u32| {
        Command::new(std::env::current_exe().unwrap())
            .args([
                test,
                "--exact",
                "--include-ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("RINGWORK_RANK", rank.to_string())
            .env("RINGWORK_SIZE", size.to_string())
            .env("RINGWORK_RENDEZVOUS", &job)
            .env("RINGWORK_TIMEOUT", "40")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    (0..size).map(one).collect()
}

/// Waits for all ranks of a job.
pub(crate) fn ends(children: Vec<Child>) -> Vec<ExitStatus> {
    children
        .into_iter()
        .map(|mut child| child.wait().unwrap())
        .collect()
}

/// Runs `body` in `size` processes, once per test; in the ranks it does not return.
pub(crate) fn spmd(test: &str, size: u32, body: impl FnOnce(&mut Communicator)) -> Vec<ExitStatus> {
    if rank().is_some() {
        let mut comm = Communicator::from_env().expect("joining");
        body(&mut comm);
        drop(comm);
        done();
    }
    ends(start(test, size, &[]))
}

pub(crate) fn all_well(statuses: &[ExitStatus]) {
    assert!(statuses.iter().all(is_well), "{statuses:?}");
}
