//! What can go wrong with an MPI library.

use crate::library::LIBRARY_VARIABLE;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why MPI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library could be loaded.
    #[error(
        "no MPI library was found ({tried}); install the MPI that the launcher belongs to, or set {LIBRARY_VARIABLE} to its \
         library"
    )]
    NotFound {
        /// Each name, and why it could not be loaded.
        tried: String,
    },
    /// A library that is not an MPI this crate knows.
    #[error("{library} cannot be used as MPI: {problem}; set {LIBRARY_VARIABLE} to another library")]
    Unknown {
        /// The file, or the name it was found by.
        library: String,
        /// What is missing.
        problem: String,
    },
    /// An MPI function failed.
    #[error("{call} failed: {message}")]
    Call {
        /// The function.
        call: &'static str,
        /// What MPI says.
        message: String,
    },
    /// MPI was initialised for fewer threads than are needed.
    #[error(
        "MPI was initialised without MPI_THREAD_SERIALIZED; initialise it with that level or MPI_THREAD_MULTIPLE, or join the \
         communicator before anything else initialises MPI"
    )]
    Threads,
    /// MPI has been finalised, or a peer has died.
    #[error("MPI is not used any more in this process: {reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// An argument that MPI cannot express.
    #[error("{what} is more than MPI can express")]
    TooLarge {
        /// What.
        what: String,
    },
}
