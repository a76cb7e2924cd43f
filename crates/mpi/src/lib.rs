//! MPI for ringwork, found at run time: the messages between hosts.
//!
//! Nothing is needed to build this: the MPI that the launcher belongs to is loaded when a program joins a job over several
//! hosts. Three dialects are understood, because the numbers in `mpi.h` differ: the standard ABI, the MPICH family (MPICH,
//! Intel MPI, MVAPICH, Cray) and the Open MPI family.
//!
//! ```no_run
//! # fn main() -> Result<(), ringwork_mpi::Error> {
//! let world = ringwork_mpi::World::join()?; // `mpirun ./program`
//! let next = (world.rank() + 1) % world.size();
//! let mut sending = world.send(ringwork_mpi::Buffer::of(&[1, 2, 3]), next, 0)?;
//! # Ok(())
//! # }
//! ```
//!
//! This layer sends bytes from process to process. It never contains a collective algorithm.
//!
//! # Invariants
//! - **MPI-1 (signatures).** Every function pointer has the signature that the MPI standard gives the function whose name it
//!   was looked up by, with the handle type of the library's dialect.
//! - **MPI-2 (alive).** A library is never unloaded, and the memory of a message is owned by its request: it is freed only
//!   when MPI has said that the request is complete, and is leaked otherwise.
//! - **MPI-3 (one at a time).** Between initialisation and the end of the process, calls are made under one lock: the library
//!   needs `MPI_THREAD_SERIALIZED` and no more.
//! - **MPI-4 (ends once).** MPI is finalised at the exit of a process that initialised it here, unless a peer has died: then
//!   no MPI function is called any more, because it may wait for ever.

mod api;
mod buffer;
mod error;
mod library;
mod world;

pub use buffer::Buffer;
pub use error::{Error, Result};
pub use library::{Dialect, LIBRARY_VARIABLE, Library};
pub use world::{Moving, Receiving, Sending, World};
