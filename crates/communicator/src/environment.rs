//! The rank and size of this process, from the variables that its starter has set.

use crate::error::{Error, Result, parse_duration};
use ringwork_isa::{MAX_RANKS, Rank};
use std::time::Duration;

/// A process's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// The address where the ranks meet.
    pub(crate) rendezvous: String,
    pub(crate) timeout: Duration,
}

/// A starter of ranks: the variables it sets.
struct Starter {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    /// Together they identify the job. Variables that are not set count as empty.
    job: &'static [&'static str],
}

/// The order matters: a specific starter inside a general one wins.
const STARTERS: [Starter; 5] = [
    Starter {
        name: "ringwork",
        rank: "RINGWORK_RANK",
        size: "RINGWORK_SIZE",
        job: &["RINGWORK_RENDEZVOUS"],
    },
    Starter {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        job: &["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"],
    },
    Starter {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
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
        job: &["PMI_ID_MAP", "PMI_PORT", "HYDI_CONTROL_FD", "PMI_JOBID"],
    },
    Starter {
        name: "slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
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
        if size == 0 || size > MAX_RANKS {
            return Err(bad(
                starter.size,
                &size.to_string(),
                format!("a job has 1 to {MAX_RANKS} ranks"),
            ));
        }
        if rank >= size {
            return Err(bad(
                starter.rank,
                &rank.to_string(),
                format!("there are {size} ranks, from 0"),
            ));
        }
        let job: Vec<String> = starter
            .job
            .iter()
            .map(|name| get(name).unwrap_or_default())
            .collect();
        if size > 1 && job.iter().all(String::is_empty) {
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
            rendezvous,
            timeout,
        })
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
