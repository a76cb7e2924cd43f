//! The rank and size of this process, from the variables that its starter has set.

use crate::error::{Error, Result, parse_duration};
use ringwork_isa::{MAX_RANKS, Rank};
use std::time::Duration;

/// A process's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// Whether the starter says that some of the ranks are on other hosts.
    pub(crate) over_hosts: bool,
    /// Who started it, and the variable that says how many ranks there are.
    pub(crate) starter: &'static Starter,
    /// The address where the ranks meet.
    pub(crate) rendezvous: String,
    pub(crate) timeout: Duration,
}

/// A starter of ranks: the variables it sets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Starter {
    pub(crate) name: &'static str,
    rank: &'static str,
    pub(crate) size: &'static str,
    /// How many ranks are on this host, or how many hosts there are.
    hosts: Hosts,
    /// Whether its ranks can meet by MPI.
    pub(crate) has_mpi: bool,
    /// Together they identify the job. Variables that are not set count as empty.
    job: &'static [&'static str],
}

/// How a starter tells of hosts.
#[derive(Debug, PartialEq, Eq)]
enum Hosts {
    /// All ranks are on one.
    One,
    /// The variable has the number of ranks on this host.
    RanksHere(&'static str),
    /// The first of the variables that is set has the number of hosts.
    Count([&'static str; 2]),
}

/// The order matters: a specific starter inside a general one wins.
const STARTERS: [Starter; 5] = [
    Starter {
        name: "ringwork",
        rank: "RINGWORK_RANK",
        size: "RINGWORK_SIZE",
        hosts: Hosts::One,
        has_mpi: false,
        job: &["RINGWORK_RENDEZVOUS"],
    },
    Starter {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        hosts: Hosts::RanksHere("LOCAL_WORLD_SIZE"),
        has_mpi: false,
        job: &["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"],
    },
    Starter {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        hosts: Hosts::RanksHere("OMPI_COMM_WORLD_LOCAL_SIZE"),
        has_mpi: true,
        job: &[
            "PMIX_NAMESPACE",
            "OMPI_MCA_ess_base_jobid",
            "OMPI_MCA_orte_hnp_uri",
        ],
    },
    Starter {
        name: "pmi",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        hosts: Hosts::RanksHere("MPI_LOCALNRANKS"),
        has_mpi: true,
        job: &[
            "PMI_ID_MAP",
            "PMI_PORT",
            "HYDI_CONTROL_FD",
            "PMI_JOBID",
            "I_MPI_HYDRA_UUID",
        ],
    },
    Starter {
        name: "slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        hosts: Hosts::Count(["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]),
        has_mpi: true,
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// The default limit of an operation.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Environment {
    /// Reads the variables; `get` is `std::env::var`, except in tests.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Environment> {
        let timeout = timeout(&get)?;
        let Some(starter) = STARTERS
            .iter()
            .find(|starter| get(starter.rank).is_some() && get(starter.size).is_some())
        else {
            let missing = "neither RINGWORK_RANK and RINGWORK_SIZE nor those of torchrun, Open MPI, PMI or Slurm are set";
            return Err(Error::NoEnvironment {
                missing: missing.into(),
            });
        };
        let number = |name: &str| {
            let value = get(name).unwrap_or_default();
            value
                .parse::<u32>()
                .map_err(|_| bad(name, &value, "it is no number".into()))
        };
        let (rank, size) = (number(starter.rank)?, number(starter.size)?);
        let over_hosts = starter.over_hosts(size, &get);
        if size == 0 || size > MAX_RANKS && !over_hosts {
            return Err(bad(
                starter.size,
                &size.to_string(),
                format!("a job has 1 to {MAX_RANKS} ranks on a host"),
            ));
        }
        if rank >= size {
            return Err(bad(
                starter.rank,
                &rank.to_string(),
                format!("there are {size} ranks, from 0"),
            ));
        }
        let mut job: Vec<String> = starter
            .job
            .iter()
            .map(|name| get(name).unwrap_or_default())
            .collect();
        if starter.name == "pmi" && job.iter().all(String::is_empty) {
            // MPICH 4 names no job, but all ranks of one on a host have the same parent.
            job.push(std::os::unix::process::parent_id().to_string());
        }
        // Over several hosts MPI gives the job its name.
        if size > 1 && !over_hosts && job.iter().all(String::is_empty) {
            let missing = format!(
                "{} says rank {rank} of {size}, but none of {} is set",
                starter.name,
                starter.job.join(", ")
            );
            return Err(Error::NoEnvironment { missing });
        }
        let hash = ringwork_isa::signature_hash(&job.join("\n"));
        let rendezvous = format!("ringwork-{}-{hash:016x}", starter.name);
        Ok(Environment {
            rank: Rank(rank),
            size,
            over_hosts,
            starter,
            rendezvous,
            timeout,
        })
    }
}

impl Starter {
    /// Whether it says that some of the `size` ranks are on other hosts. What it does not say is taken for no.
    fn over_hosts(&self, size: u32, get: impl Fn(&str) -> Option<String>) -> bool {
        let number = |name: &str| get(name).and_then(|value| value.parse::<u32>().ok());
        match &self.hosts {
            Hosts::One => false,
            Hosts::RanksHere(name) => number(name).is_some_and(|here| here < size),
            Hosts::Count(names) => names
                .iter()
                .find_map(|name| number(name))
                .is_some_and(|hosts| hosts > 1),
        }
    }
}

/// Reads a variable of this process's environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Refuses variables that are set but are not UTF-8: they would be taken for not set.
pub(crate) fn check_encoding() -> Result<()> {
    let names = [
        "RINGWORK_TIMEOUT",
        "RINGWORK_ALGO",
        "RINGWORK_CCL",
        "RINGWORK_DEBUG",
    ];
    let starters = STARTERS.iter().flat_map(|starter| {
        let own = [starter.rank, starter.size];
        own.into_iter().chain(starter.job.iter().copied())
    });
    for name in names.into_iter().chain(starters) {
        if let Err(std::env::VarError::NotUnicode(value)) = std::env::var(name) {
            let problem = "it is not UTF-8; set it again, or unset it";
            return Err(bad(name, &value.to_string_lossy(), problem.into()));
        }
    }
    Ok(())
}

/// The limit of an operation, from `RINGWORK_TIMEOUT`.
pub(crate) fn timeout(get: impl Fn(&str) -> Option<String>) -> Result<Duration> {
    match get("RINGWORK_TIMEOUT") {
        None => Ok(DEFAULT_TIMEOUT),
        Some(value) => parse_duration(&value).map_err(|problem| bad("RINGWORK_TIMEOUT", &value, problem)),
    }
}

fn bad(name: &str, value: &str, problem: String) -> Error {
    Error::BadEnvironment {
        name: name.into(),
        value: value.into(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::read(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_starter_is_understood_and_jobs_are_told_apart() {
        let torch = |port| {
            read(&[
                ("RANK", "1"),
                ("WORLD_SIZE", "4"),
                ("MASTER_ADDR", "localhost"),
                ("MASTER_PORT", port),
            ])
            .unwrap()
        };
        assert_eq!((torch("29500").rank, torch("29500").size), (Rank(1), 4));
        assert_eq!(torch("29500").rendezvous, torch("29500").rendezvous);
        assert_ne!(torch("29500").rendezvous, torch("29501").rendezvous);
        assert!(
            read(&[
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "2"),
                ("SLURM_JOB_ID", "7")
            ])
            .is_ok()
        );
        assert!(
            read(&[
                ("OMPI_COMM_WORLD_RANK", "0"),
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("PMIX_NAMESPACE", "7")
            ])
            .is_ok()
        );
        // Intel MPI 2021.18 sets no other that tells one job from another.
        assert!(
            read(&[
                ("PMI_RANK", "0"),
                ("PMI_SIZE", "2"),
                ("I_MPI_HYDRA_UUID", "d67a0000")
            ])
            .is_ok()
        );
    }

    #[test]
    fn ranks_on_other_hosts_are_noticed_and_may_be_many() {
        let open_mpi = |size: &str, here: &str| {
            read(&[
                ("OMPI_COMM_WORLD_RANK", "0"),
                ("OMPI_COMM_WORLD_SIZE", size),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", here),
                ("PMIX_NAMESPACE", "7"),
            ])
        };
        assert!(open_mpi("4", "2").unwrap().over_hosts);
        assert!(!open_mpi("4", "4").unwrap().over_hosts);
        assert!(open_mpi("100", "50").is_ok());
        assert!(open_mpi("100", "100").is_err());
        let slurm = |nodes: &str| {
            let job = [
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "4"),
                ("SLURM_JOB_ID", "7"),
            ];
            read(&[&job[..], &[("SLURM_NNODES", nodes)]].concat())
        };
        assert!(slurm("2").unwrap().over_hosts && !slurm("1").unwrap().over_hosts);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |variables: &[(&str, &str)]| read(variables).unwrap_err().to_string();
        assert!(error(&[]).contains("ringwork launch"));
        assert!(error(&[("RANK", "x"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")]).contains("RANK=`x`"));
        assert!(
            error(&[("RANK", "2"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")]).contains("there are 2 ranks")
        );
        assert!(error(&[("RANK", "0"), ("WORLD_SIZE", "65"), ("MASTER_PORT", "1")]).contains("1 to 64"));
        assert!(error(&[("RANK", "0"), ("WORLD_SIZE", "2")]).contains("MASTER_ADDR"));
        assert!(error(&[("RINGWORK_TIMEOUT", "soon")]).contains("RINGWORK_TIMEOUT"));
    }
}
