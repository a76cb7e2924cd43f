//! Which MPI library to load, and which dialect it speaks.

use crate::api::{Api, Calls, Loaded};
use crate::error::{Error, Result};
use std::fmt;
use std::path::Path;

/// Names the library to load, instead of those that the launcher's variables suggest.
pub const LIBRARY_VARIABLE: &str = "RINGWORK_MPI_LIB";

/// The numbers and handle types of a family of libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The ABI that MPI 5 standardises: `libmpi_abi.so.1`.
    Standard,
    /// MPICH, Intel MPI, MVAPICH and Cray: `libmpi.so.12`, on Debian `libmpich.so.12`.
    Mpich,
    /// Open MPI 4 and 5: `libmpi.so.40`.
    OpenMpi,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Standard => "the standard ABI",
            Dialect::Mpich => "the MPICH family",
            Dialect::OpenMpi => "the Open MPI family",
        })
    }
}

const STANDARD: &str = "libmpi_abi.so.1";
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
const OPEN_MPI: &str = "libmpi.so.40";

/// A loaded MPI library.
#[derive(Debug)]
pub struct Library {
    name: String,
    version: String,
    dialect: Dialect,
    pub(crate) calls: Box<dyn Calls>,
}

impl Library {
    /// Loads the MPI that this process was started by: what `RINGWORK_MPI_LIB` names, else by the launcher's variables. Its
    /// symbols become visible to libraries that are loaded later, which the plugins of Open MPI need.
    ///
    /// # Errors
    /// If there is none, or it is not an MPI that this crate knows.
    pub fn find() -> Result<Library> {
        let mut tried = Vec::new();
        let names = candidates(|name| std::env::var(name).ok());
        let beside = names.iter().filter_map(|name| beside_launcher(name));
        for name in beside.chain(names.iter().cloned()) {
            match Loaded::open(&name, true) {
                Ok(loaded) => return Library::of(name, loaded),
                Err(cause) => tried.push(cause),
            }
        }
        Err(Error::NotFound {
            tried: tried.join("; "),
        })
    }

    /// Every MPI library that can be loaded here by its usual name, without making its symbols visible to others.
    #[must_use]
    pub fn installed() -> Vec<Library> {
        let load = |name: String| Library::of(name.clone(), Loaded::open(&name, false).ok()?).ok();
        let mut found: Vec<Library> = Vec::new();
        for library in candidates(|name| std::env::var(name).ok().filter(|_| name == LIBRARY_VARIABLE))
            .into_iter()
            .filter_map(load)
        {
            // Debian's MPICH has two names.
            if !found
                .iter()
                .any(|known| (&known.version, known.dialect) == (&library.version, library.dialect))
            {
                found.push(library);
            }
        }
        found
    }

    fn of(name: String, loaded: Loaded) -> Result<Library> {
        let unknown = |problem: String| Error::Unknown {
            library: name.clone(),
            problem,
        };
        let version = loaded.version().map_err(unknown)?;
        let dialect = dialect_of(&name, &version, loaded.is_open_mpi()).ok_or_else(|| {
            unknown(format!(
                "it calls itself `{version}`, whose numbers are not known"
            ))
        })?;
        let calls: Box<dyn Calls> = match dialect {
            Dialect::Standard => Box::new(Api::standard(&loaded).map_err(unknown)?),
            Dialect::Mpich => Box::new(Api::mpich(&loaded).map_err(unknown)?),
            Dialect::OpenMpi => Box::new(Api::open_mpi(&loaded).map_err(unknown)?),
        };
        Ok(Library {
            name,
            version,
            dialect,
            calls,
        })
    }

    /// The name it was loaded by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it calls itself: product and version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The dialect it speaks.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.version, self.name, self.dialect)
    }
}

/// The names to try, in this order. A library of another family than the launcher's would start every process alone.
fn candidates(get: impl Fn(&str) -> Option<String>) -> Vec<String> {
    if let Some(named) = get(LIBRARY_VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named];
    }
    let is_set = |names: &[&str]| names.iter().any(|name| get(name).is_some());
    let open_mpi = is_set(&["OMPI_COMM_WORLD_SIZE", "PMIX_RANK"]);
    let mpich = !open_mpi && is_set(&["PMI_RANK", "PMI_SIZE", "HYDI_CONTROL_FD"]);
    let mut names = Vec::new();
    if open_mpi {
        names.extend([OPEN_MPI, STANDARD]);
    } else {
        names.push(STANDARD);
        names.extend(MPICH);
        names.extend((!mpich).then_some(OPEN_MPI));
    }
    names.into_iter().map(str::to_owned).collect()
}

/// The library of that name that was installed with the launcher, in the folder `lib` beside that of its programs: its daemon
/// on this host is the parent of this process. So a launcher in an environment of Python finds its own library.
fn beside_launcher(name: &str) -> Option<String> {
    let parent = std::os::unix::process::parent_id();
    let daemon = std::fs::read_link(format!("/proc/{parent}/exe")).ok()?;
    let library = daemon.parent()?.parent()?.join("lib").join(name);
    library.is_file().then(|| library.to_string_lossy().into_owned())
}

fn dialect_of(name: &str, version: &str, is_open_mpi: bool) -> Option<Dialect> {
    let file = |path: &Path| {
        path.file_name()
            .is_some_and(|file| file.to_string_lossy().starts_with("libmpi_abi"))
    };
    // A link may have another name than the library that it leads to.
    let standard = file(Path::new(name)) || std::fs::canonicalize(name).is_ok_and(|path| file(&path));
    let of_mpich = ["MPICH", "Intel", "MVAPICH", "CRAY MPICH"];
    if is_open_mpi {
        Some(Dialect::OpenMpi)
    } else if standard {
        Some(Dialect::Standard)
    } else if of_mpich.iter().any(|family| version.starts_with(family)) {
        Some(Dialect::Mpich)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[&str]) -> Vec<String> {
        candidates(|name| variables.contains(&name).then(|| "4".to_owned()))
    }

    #[test]
    fn the_launcher_decides_which_family_is_tried() {
        assert_eq!(names(&["OMPI_COMM_WORLD_SIZE", "PMI_RANK"]), [OPEN_MPI, STANDARD]);
        assert_eq!(names(&["PMI_RANK"]), [STANDARD, MPICH[0], MPICH[1]]);
        assert_eq!(names(&[]).len(), 4);
        assert_eq!(names(&["PMI_RANK", LIBRARY_VARIABLE]), ["4"]);
    }

    #[test]
    fn the_dialect_follows_from_symbols_name_and_version() {
        let version = "MPICH Version: 5.0.2";
        assert_eq!(
            dialect_of("libmpi_abi.so.1", version, false),
            Some(Dialect::Standard)
        );
        assert_eq!(dialect_of("libmpi.so.12", version, false), Some(Dialect::Mpich));
        assert_eq!(
            dialect_of("libmpi.so.40", "Open MPI v4", true),
            Some(Dialect::OpenMpi)
        );
        assert_eq!(dialect_of("libfoo.so", "Foo MPI 1", false), None);
    }

    #[test]
    fn a_library_that_is_not_there_or_is_not_mpi_is_named() {
        let missing = Loaded::open("/no/such/libmpi.so", false).map(drop);
        assert!(missing.is_err_and(|cause| cause.contains("/no/such/libmpi.so")));
        let not_mpi = Loaded::open("libc.so.6", false).unwrap_or_else(|cause| panic!("{cause}"));
        let error = Library::of("libc.so.6".into(), not_mpi).map(drop).unwrap_err();
        assert!(error.to_string().contains("MPI_Get_library_version"), "{error}");
    }
}
