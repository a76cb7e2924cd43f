//! The command line that starts each peer with settings that do it justice.
//!
//! Shared memory only, one rank per core while they fit; when they do not, no binding by the launcher
//! and the settings with which the library yields while it waits.

use super::job::Job;
use super::library::{Library, Peer};
use std::path::Path;

/// The launcher of `peer` with `ranks` ranks; the program and its arguments go behind it.
pub(crate) fn launcher(peer: Peer, ranks: u32, cores: usize, dir: &Path) -> Job {
    let crowded = ranks as usize > cores;
    let root = peer.library.root(dir);
    let n = ranks.to_string();
    match peer.library {
        Library::OpenMpi4 => {
            let job = Job::new([root.join("bin/mpiexec.openmpi")]).and(["--allow-run-as-root", "-np", &n]);
            let job = job.and(["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]);
            let job = job.and(["--mca", "btl_base_warn_component_unused", "0"]);
            open_mpi(job, peer, crowded, &["--oversubscribe", "--bind-to", "none"])
        }
        Library::OpenMpi5 => {
            let job = Job::new([root.join("bin/mpiexec")]).and(["--allow-run-as-root", "-np", &n]);
            let job = job.and(["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]);
            open_mpi(
                job,
                peer,
                crowded,
                &["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"],
            )
        }
        Library::Mpich4 => mpich(Job::new([root.join("bin/mpiexec.mpich")]), peer, &n, crowded),
        Library::Mpich5 => mpich(Job::new([root.join("bin/mpiexec")]), peer, &n, crowded),
        Library::IntelMpi => intel(&root, &n, crowded),
        Library::OneCcl => {
            let job = intel(&root, &n, crowded)
                .with("CCL_ROOT", &root)
                .with("CCL_LOG_LEVEL", "error");
            let job = job
                .with("CCL_PLUGIN", "ONECCL_LEGACY_CPU")
                .with("CCL_ATL_TRANSPORT", "mpi");
            // Collectives run in the calling thread: a worker thread would share its core.
            job.with("CCL_WORKER_OFFLOAD", "0")
        }
    }
}

fn open_mpi(job: Job, peer: Peer, crowded: bool, when_crowded: &[&str]) -> Job {
    let job = job.and(["--mca", "mpi_yield_when_idle", if crowded { "1" } else { "0" }]);
    let job = if peer.tuned {
        job.and(["--mca", "coll_sm_priority", "100"])
    } else {
        job
    };
    if crowded {
        job.and(when_crowded.iter().copied())
    } else {
        job.and(["--bind-to", "core"])
    }
}

fn mpich(job: Job, peer: Peer, n: &str, crowded: bool) -> Job {
    let job = job.and(["-n", n]).with("UCX_LOG_LEVEL", "error");
    let job = if crowded {
        job
    } else {
        job.and(["-bind-to", "core"])
    };
    if !peer.tuned {
        return job;
    }
    let release_gather = [
        "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM",
        "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM",
        "MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM",
    ];
    let job = job.with("MPIR_CVAR_COLL_SHM_LIMIT_PER_NODE", "262144");
    let job = job.with("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "auto");
    release_gather
        .into_iter()
        .fold(job, |job, name| job.with(name, "release_gather"))
}

fn intel(root: &Path, n: &str, crowded: bool) -> Job {
    let job = Job::new([root.join("bin/mpiexec.hydra")]).and(["-n", n]);
    let job = job
        .with("I_MPI_ROOT", root)
        .with("LD_LIBRARY_PATH", root.join("lib"));
    let job = job.with("FI_PROVIDER_PATH", root.join("opt/mpi/libfabric/lib/prov"));
    // The benchmark pins its ranks itself.
    let job = job.with("I_MPI_FABRICS", "shm").with("I_MPI_PIN", "0");
    if crowded {
        job.with("I_MPI_WAIT_MODE", "0").with("I_MPI_THREAD_YIELD", "2")
    } else {
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(peer: &str, ranks: u32) -> String {
        let (peer, dir): (Peer, _) = (peer.parse().unwrap(), Path::new("/c"));
        let job = launcher(peer, ranks, 2, dir).and([peer.library.benchmark(dir)]);
        let env = job
            .env
            .iter()
            .map(|(name, value)| format!("{name}={}", value.display()));
        env.chain(job.words.iter().map(|word| word.display().to_string()))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn ranks_that_fit_are_bound_and_do_not_yield() {
        let ompi = line("ompi5", 2);
        assert!(
            ompi.starts_with("/c/venv-ompi5/bin/mpiexec --allow-run-as-root -np 2 "),
            "{ompi}"
        );
        assert!(
            ompi.contains("mpi_yield_when_idle 0 --bind-to core /c/bin/bench-ompi5"),
            "{ompi}"
        );
        assert!(line("mpich4", 2).ends_with("/usr/bin/mpiexec.mpich -n 2 -bind-to core /c/bin/bench-mpich4"));
        assert!(!line("impi", 2).contains("I_MPI_THREAD_YIELD"));
    }

    #[test]
    fn ranks_that_do_not_fit_yield_where_the_library_can() {
        for peer in ["ompi4", "ompi5"] {
            let line = line(peer, 4);
            assert!(
                line.contains("mpi_yield_when_idle 1") && line.contains("--bind-to none"),
                "{line}"
            );
        }
        assert!(line("impi", 4).contains("I_MPI_THREAD_YIELD=2"));
        assert!(!line("mpich5", 4).contains("-bind-to"));
    }

    #[test]
    fn tuned_peers_use_their_shared_memory_collectives() {
        assert!(line("ompi4-sm", 2).contains("coll_sm_priority 100"));
        assert!(!line("ompi4", 2).contains("coll_sm_priority"));
        assert!(line("mpich5-rg", 2).contains("MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM=release_gather"));
        assert!(!line("mpich5", 2).contains("release_gather"));
    }
}
