//! What a user may ask for, and what that means.

use super::job::Priority;
use super::library::Peer;
use super::placement::Thresholds;
use super::sample::{Mode, Op};
use super::{ringwork, size};
use std::path::PathBuf;
use std::time::Duration;

/// Installs other libraries, builds one benchmark against each, runs them and ringwork in turns on this
/// machine, and prints the best peer beside ringwork at every size, apart for each core placement.
#[derive(Debug, clap::Args)]
pub(crate) struct PeersArguments {
    /// A short look: 2 ranks, 5 sizes, 3 rounds
    #[arg(long)]
    quick: bool,
    /// Python instead: NumPy beside mpi4py, torch.distributed beside gloo; all-reduce, and steps of DDP and FSDP2
    #[arg(long, conflicts_with_all = ["ops", "modes", "peers"])]
    pub(crate) python: bool,
    /// The wheel of ringwork to measure, instead of building it
    #[arg(long, value_name = "FILE", requires = "python")]
    pub(crate) wheel: Option<PathBuf>,
    /// A Python that has torch and into which the wheel is installed, instead of installing torch (5.4 GB)
    #[arg(long, value_name = "PROGRAM", requires = "python")]
    pub(crate) torch: Option<PathBuf>,
    /// Operations [default: all]
    #[arg(long, value_delimiter = ',', value_name = "OP,..")]
    ops: Vec<Op>,
    /// Modes: oop, inp, use [default: inp,use; a barrier has but one]
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    modes: Vec<Mode>,
    /// Numbers of ranks [default: 2,4]
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Peers to run: ompi4, ompi4-sm, ompi5, ompi5-sm, mpich4, mpich5, mpich5-rg, impi, ccl [default: all,
    /// but with more ranks than cores only those that yield]
    #[arg(long, value_delimiter = ',', value_name = "PEER,..")]
    peers: Vec<Peer>,
    /// How often everyone runs everything; 0 only installs and builds [default: 5]
    #[arg(long)]
    rounds: Option<usize>,
    /// The smallest size [default: 4]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    min: Option<u64>,
    /// The largest size [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max: Option<u64>,
    /// From one size to the next [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    factor: Option<u64>,
    /// How long the timed calls of one line should take together [default: 15]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    target_ms: Option<u32>,
    /// After how long no operation is begun any more, whatever rounds are left
    #[arg(long, value_name = "MINUTES", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    budget: u64,
    /// After how long one run of one benchmark is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) limit_s: u64,
    /// How the scheduler treats every benchmark
    #[arg(long, value_enum, default_value_t = Priority::Auto)]
    pub(crate) priority: Priority,
    /// A hop above this many nanoseconds is near; below it, two threads share one core
    #[arg(long, value_name = "NS", default_value_t = Thresholds::default().near_above_ns)]
    near_above: f64,
    /// A hop below this many nanoseconds is near
    #[arg(long, value_name = "NS", default_value_t = Thresholds::default().near_below_ns)]
    near_below: f64,
    /// A hop above this many nanoseconds is far
    #[arg(long, value_name = "NS", default_value_t = Thresholds::default().far_above_ns)]
    far_above: f64,
    /// Where the libraries and benchmarks go [default: ~/.cache/ringwork-peers]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use only what is already installed
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Measure this `ringwork` instead of building the one here
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) ringwork: Option<PathBuf>,
    /// Rewrite the section of this page that shows the tables
    #[arg(long, value_name = "PAGE")]
    pub(crate) write: Option<PathBuf>,
    /// Where the raw lines go [default: beside the page, or target/peers.csv]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Measure nothing; show what these raw lines say
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "csv"])]
    pub(crate) from: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) ops: Vec<Op>,
    pub(crate) modes: Vec<Mode>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) rounds: usize,
    /// Smallest, largest, and the factor between.
    pub(crate) sizes: (u64, u64, u64),
    pub(crate) target_ms: u32,
    /// After this no operation is begun.
    pub(crate) budget: Duration,
}

impl PeersArguments {
    /// What is asked for, with the defaults of a long or a quick run.
    pub(crate) fn plan(&self) -> Plan {
        let (ranks, rounds, max, factor, target_ms) = if self.quick {
            (vec![2], 3, 1 << 20, 16, 5)
        } else if self.python {
            (vec![2], 5, 64 << 20, 4, 15)
        } else {
            (vec![2, 4], 5, 64 << 20, 4, 15)
        };
        Plan {
            ops: given_or(&self.ops, &Op::ALL),
            modes: given_or(&self.modes, &[Mode::Inp, Mode::Use]),
            ranks: given_or(&self.ranks, &ranks),
            rounds: self.rounds.unwrap_or(rounds),
            sizes: (
                self.min.unwrap_or(4).max(4),
                self.max.unwrap_or(max),
                self.factor.unwrap_or(factor),
            ),
            target_ms: self.target_ms.unwrap_or(target_ms),
            budget: Duration::from_secs(60 * self.budget),
        }
    }

    /// The peers to try, and whether they were named.
    pub(crate) fn peers(&self) -> (Vec<Peer>, bool) {
        let all: Vec<Peer> = Peer::all().collect();
        (given_or(&self.peers, &all), !self.peers.is_empty())
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds {
            near_above_ns: self.near_above,
            near_below_ns: self.near_below,
            far_above_ns: self.far_above,
        }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        let home = || std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from);
        self.dir.clone().unwrap_or_else(|| cache.join("ringwork-peers"))
    }

    /// Where the raw lines go.
    pub(crate) fn csv(&self) -> PathBuf {
        let beside = || self.write.as_ref().map(|page| page.with_extension("csv"));
        self.csv.clone().or_else(beside).unwrap_or_else(|| {
            ringwork::target_dir().join(if self.python {
                "peers-python.csv"
            } else {
                "peers.csv"
            })
        })
    }
}

fn given_or<T: Clone>(given: &[T], otherwise: &[T]) -> Vec<T> {
    if given.is_empty() {
        otherwise.to_vec()
    } else {
        given.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        peers: PeersArguments,
    }

    fn arguments(line: &str) -> PeersArguments {
        Line::try_parse_from(format!("xtask {line}").split_whitespace())
            .unwrap()
            .peers
    }

    #[test]
    fn a_quick_look_is_smaller_but_what_is_named_wins() {
        let (long, quick) = (arguments("").plan(), arguments("--quick").plan());
        assert_eq!((long.ranks, long.sizes), (vec![2, 4], (4, 64 << 20, 4)));
        assert_eq!((quick.ranks, quick.sizes), (vec![2], (4, 1 << 20, 16)));
        assert_eq!(long.budget, Duration::from_secs(20 * 60));
        assert_eq!(arguments("--budget 3").plan().budget, Duration::from_secs(180));
        let named = arguments("--quick --ops barrier,bcast --max 16M --rounds 1 --ranks 3").plan();
        assert_eq!(named.ops, [Op::Barrier, Op::Broadcast]);
        assert_eq!((named.sizes.1, named.rounds, named.ranks), (16 << 20, 1, vec![3]));
    }

    #[test]
    fn raw_lines_go_beside_the_page() {
        assert_eq!(
            arguments("--write docs/data/peers.md").csv(),
            PathBuf::from("docs/data/peers.csv")
        );
        assert_eq!(
            arguments("--write a.md --csv b.csv").csv(),
            PathBuf::from("b.csv")
        );
        assert!(arguments("").csv().ends_with("peers.csv"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--ranks 1",
            "--ops hug",
            "--modes x",
            "--peers gloo",
            "--factor 1",
            "--min x",
            "--from a --quick",
        ] {
            assert!(
                Line::try_parse_from(format!("xtask {line}").split_whitespace()).is_err(),
                "{line}"
            );
        }
    }
}
