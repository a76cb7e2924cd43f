//! Kills at random moments inside collectives: every survivor learns who died, and goes on with the rest.

use super::spmd::{Rng, done, ends, here, is_well, long, rank};
use ringwork_communicator::{Communicator, Result};
use ringwork_isa::ReduceOp;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const RANKS: u32 = 6;

/// One of many calls, the same on every rank.
fn some_call(comm: &Communicator, rng: &mut Rng) -> Result<()> {
    let n = comm.size() as usize;
    let (me, count) = (comm.rank(), [1, 33, 700, 5000, 60_000][rng.below(5)]);
    match rng.below(9) {
        0 => comm.barrier(),
        1 => comm.all_gather(&vec![1f32; count], &mut vec![0f32; count * n]),
        2 => comm.broadcast(&mut vec![1u8; count], rng.below(n) as u32),
        3 => comm.reduce_scatter(&vec![1i64; count * n], &mut vec![0; count], ReduceOp::Max),
        4 => comm.all_to_all(&vec![1i32; count * n], &mut vec![0i32; count * n]),
        5 if n > 1 => {
            let (next, before) = ((me + 1) % n as u32, (me + n as u32 - 1) % n as u32);
            comm.exchange((&vec![1f64; count], next), (&mut vec![0f64; count], before))
        }
        6 => {
            let mut window = comm.alloc::<f32>(count)?;
            comm.all_reduce(&mut window, ReduceOp::Sum)
        }
        7 => {
            let half = comm.split(me % 2, me)?;
            // Its error counts ranks otherwise; the next call of the whole fails too, and names by its own.
            match half.all_reduce(&mut vec![1f32; count], ReduceOp::Sum) {
                Ok(()) => Ok(()),
                Err(_) => comm.barrier(),
            }
        }
        _ => {
            let mut data = vec![1f32; count];
            comm.all_reduce(&mut data, ReduceOp::Sum)?;
            assert!(data.iter().all(|sum| *sum == n as f32));
            comm.all_reduce_start(data, ReduceOp::Max).wait().map(drop)
        }
    }
}

/// A rank: calls until it is alone, saying whom it heard to be dead.
#[expect(clippy::print_stdout, reason = "read by the test")]
fn survive() {
    let mut comm = Communicator::from_env().unwrap();
    let mut names = vec![0i32; comm.size() as usize];
    comm.all_gather(&[comm.rank() as i32], &mut names).unwrap();
    let me = names[comm.rank() as usize];
    println!("\nready");
    while comm.size() > 1 {
        let mut rng = Rng(comm.size().into());
        let error = loop {
            if let Err(error) = some_call(&comm, &mut rng) {
                break error;
            }
        };
        let dead = error
            .dead_rank()
            .unwrap_or_else(|| panic!("nobody named: {error}"));
        println!("\ndead {}", names[dead.0 as usize]);
        comm = comm.shrink().unwrap();
        let mut alive = vec![0i32; comm.size() as usize];
        // Somebody may die just now: then the names are learnt after the next shrink.
        while comm.all_gather(&[me], &mut alive).is_err() {
            comm = comm.shrink().unwrap();
            alive = vec![0i32; comm.size() as usize];
        }
        names = alive;
    }
    println!("\nalone");
}

struct Survivor {
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Survivor {
    fn read_until(&mut self, wanted: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.next().expect("it goes on").unwrap();
            if line == wanted {
                return lines;
            }
            lines.push(line);
        }
    }
}

fn storm(test: &str, seed: u64) -> usize {
    let mut rng = Rng(seed);
    let start = |rank: u32| -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("RINGWORK_RANK", rank.to_string())
            .env("RINGWORK_SIZE", RANKS.to_string())
            .env(
                "RINGWORK_RENDEZVOUS",
                format!("storm-{}-{seed}", std::process::id()),
            )
            .env("RINGWORK_TIMEOUT", "40")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut children: Vec<Child> = (0..RANKS).map(start).collect();
    let survivor = rng.below(RANKS as usize);
    let mut victims: Vec<usize> = (0..RANKS as usize).filter(|rank| *rank != survivor).collect();
    // The others' pipes hold what they say; nobody reads it.
    let lines = BufReader::new(children[survivor].stdout.take().unwrap()).lines();
    let mut told = Survivor { lines };
    told.read_until("ready");
    let mut killed = Vec::new();
    while !victims.is_empty() {
        let victim = victims.swap_remove(rng.below(victims.len()));
        // Often at once, sometimes while the last death is still being dealt with.
        let pause = [0, 300, 3_000, 20_000][rng.below(4)];
        std::thread::sleep(Duration::from_micros(rng.below(pause + 1) as u64));
        children[victim].kill().unwrap();
        killed.push(victim);
    }
    for line in told.read_until("alone") {
        if let Some(dead) = line.strip_prefix("dead ") {
            let dead: usize = dead.parse().unwrap();
            assert!(
                killed.contains(&dead),
                "rank {dead} was named, {killed:?} were killed"
            );
        }
    }
    let statuses = ends(children);
    assert!(is_well(&statuses[survivor]), "seed {seed}: {statuses:?}");
    killed.len()
}

#[test]
fn two_hundred_kills_inside_collectives_are_all_survived() {
    if rank().is_some() {
        survive();
        done();
    }
    let wanted = if long() { 10_000 } else { 200 };
    let (mut kills, mut seed) = (0, 1);
    while kills < wanted {
        kills += storm(here!(), seed);
        seed += 1;
    }
    let left = std::fs::read_dir("/dev/shm").map_or(0, |entries| {
        let ours = |name: &std::ffi::OsStr| name.to_string_lossy().contains("ringwork");
        entries.flatten().filter(|entry| ours(&entry.file_name())).count()
    });
    assert_eq!(left, 0, "something was left in /dev/shm");
}
