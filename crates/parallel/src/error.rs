//! What can go wrong in a parallel layer.

use std::fmt;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something cannot be dealt to the ranks equally.
    #[error("{what}: {size} cannot be divided among {ranks} ranks; make it a multiple of {ranks}")]
    Division {
        /// What was to be divided.
        what: &'static str,
        /// How much of it there is.
        size: usize,
        /// Ranks of the tensor-parallel group.
        ranks: usize,
    },
    /// A matrix that does not fit.
    #[error("{what} is {got} and must be {wanted}")]
    Shape {
        /// Which matrix.
        what: &'static str,
        /// Its shape.
        got: Shape,
        /// The shape that it must have.
        wanted: Shape,
    },
    /// The world cannot be divided into these groups.
    #[error(
        "a world of {world} ranks cannot be divided into tensor groups of {tensor} and pipelines of {pipeline}: \
         {tensor} x {pipeline} must divide {world}"
    )]
    Grid {
        /// Ranks of the world.
        world: u32,
        /// Ranks of a tensor group that were asked for.
        tensor: u32,
        /// Ranks of a pipeline that were asked for.
        pipeline: u32,
    },
    /// A number that says what to compute makes no sense.
    #[error("{what}: {problem}")]
    Argument {
        /// Which.
        what: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A call of the communicator failed.
    #[error(transparent)]
    Communicator(Box<ringwork_communicator::Error>),
    /// The node failed.
    #[error(transparent)]
    Node(Box<ringwork_runtime::Error>),
    /// A kernel failed in this process.
    #[error(transparent)]
    Kernel(#[from] ringwork_isa::Error),
    /// There is no memory for a matrix.
    #[error(transparent)]
    Memory(#[from] ringwork_native::Error),
    /// A kernel of this crate is not linked into the program.
    #[error(transparent)]
    UnknownKernel(#[from] ringwork_registry::UnknownKernel),
}

impl From<ringwork_communicator::Error> for Error {
    fn from(error: ringwork_communicator::Error) -> Error {
        Error::Communicator(Box::new(error))
    }
}

impl From<ringwork_runtime::Error> for Error {
    fn from(error: ringwork_runtime::Error) -> Error {
        Error::Node(Box::new(error))
    }
}

/// So that `?` works inside an orchestration.
impl From<Error> for ringwork_runtime::Error {
    fn from(error: Error) -> ringwork_runtime::Error {
        match error {
            Error::Node(error) => *error,
            other => ringwork_runtime::Error::Platform(Box::new(other)),
        }
    }
}

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Elements of each row.
    pub columns: usize,
}

impl Shape {
    /// Number of elements.
    #[must_use]
    pub fn elements(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }

    /// Rows as columns.
    #[must_use]
    pub fn turned(self) -> Shape {
        Shape {
            rows: self.columns,
            columns: self.rows,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.rows, self.columns)
    }
}

/// A share of `size` for each of `ranks`.
pub(crate) fn divide(what: &'static str, size: usize, ranks: usize) -> Result<usize> {
    match size.checked_rem(ranks) {
        Some(0) => Ok(size / ranks),
        _ => Err(Error::Division { what, size, ranks }),
    }
}
