//! Parent processes to be killed: this program, started again to play a host.

use super::team::Reducers;
use ringwork_runtime::{Device, Node};
use ringwork_testkit::Rng;
use ringwork_testkit::process::{adopting_orphans, reap_all};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Says which role to play, and with how many chips.
const ROLE: &str = "RINGWORK_TEST_ROLE";

/// Plays a role if this process was started to; otherwise returns.
pub fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let (name, chips) = role.split_once(' ').expect("a name and a number");
    let chips = 0..chips.parse::<u32>().expect("a number");
    match name {
        "run" => {
            let node = Node::builder().devices(chips).launch().unwrap();
            let reducers = Reducers::open(&node, &node.devices(), 1000).unwrap();
            say("up");
            let error = reducers.reduce_forever(&node, &mut Rng::from_environment());
            panic!("nobody was killed, and yet: {error}");
        }
        "bring-up" => {
            let reported = |_: Device, _: u32, step: &str| say(step);
            let _node = Node::builder().devices(chips).on_step(reported).launch().unwrap();
            say("up");
            std::thread::park();
        }
        "session" => super::storm::session(chips.len()),
        other => panic!("no role `{other}`"),
    }
    Some(ExitCode::SUCCESS)
}

/// How a role says a line.
pub type Say<'a> = &'a dyn Fn(&str);

/// The same, with one more role.
pub fn play_also(role: &str, play_it: fn(Say<'_>)) -> Option<ExitCode> {
    let asked = std::env::var(ROLE).ok()?;
    if asked.split_once(' ').is_none_or(|(name, _)| name != role) {
        return play();
    }
    play_it(&say);
    Some(ExitCode::SUCCESS)
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Starts this program again in a role.
pub fn start(role: &str, chips: usize) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .env(ROLE, format!("{role} {chips}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// When a parent is killed.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// After it has said this many lines.
    Lines(usize),
    /// This long after it was started.
    After(Duration),
}

/// Starts a parent, SIGKILLs it at that moment and waits for the last of its children to be gone; returns
/// how many it had and how long that took.
pub fn kill_parent(role: &str, chips: usize, moment: Moment) -> (usize, Duration) {
    adopting_orphans(|| {
        let mut parent = start(role, chips).spawn().unwrap();
        match moment {
            Moment::Lines(lines) => hear(&mut parent, lines),
            Moment::After(time) => std::thread::sleep(time),
        }
        let killed_at = Instant::now();
        parent.kill().unwrap();
        parent.wait().unwrap();
        (reap_all(), killed_at.elapsed())
    })
}

fn hear(parent: &mut Child, lines: usize) {
    let mut heard = BufReader::new(parent.stdout.take().unwrap()).lines();
    for _ in 0..lines {
        heard.next().expect("it says more").unwrap();
    }
}
