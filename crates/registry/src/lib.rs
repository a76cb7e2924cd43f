//! Every kernel of the program, found at link time.
//!
//! `#[kernel]` puts an entry here for each kernel of every crate that is linked in. A chip is the same
//! program, so it has the same entries, and looks up the kernels it is asked to run by identity.
//!
//! The registry knows no platform. An entry has two functions: one for platforms that step, which all share
//! [`SteppedCore`], and one that takes the core of a platform that runs kernels directly, as [`Any`]. The code that
//! `#[kernel]` writes turns that back into the core's own type ([`core_as`]): one comparison per task.
#![forbid(unsafe_code)]

use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Arg, Error, KernelId, Param, Result};
use std::any::{Any, type_name};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

/// All kernels. Filled by `#[kernel]`; look them up with [`find`].
#[linkme::distributed_slice]
pub static KERNELS: [KernelEntry];

/// A kernel on a platform that steps.
pub type SteppedKernel = Pin<Box<dyn Future<Output = Result<()>>>>;

/// One kernel of the program.
#[derive(Debug)]
pub struct KernelEntry {
    /// `crate::module::name`.
    pub name: &'static str,
    /// Hash of its parameter list.
    pub signature: u64,
    /// Its parameters.
    pub params: &'static [Param],
    /// Runs it to its end, on a core of the platform that the program was built for.
    pub run: fn(&dyn Any, &[Arg]) -> Result<()>,
    /// Makes it ready to be stepped.
    pub step: fn(SteppedCore, Vec<Arg>) -> SteppedKernel,
}

impl KernelEntry {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> KernelId {
        KernelId {
            name: self.name.into(),
            signature: self.signature,
        }
    }
}

/// Why a kernel cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum UnknownKernel {
    /// No kernel has this name.
    #[error("kernel `{name}` is not linked into this program; add the crate that defines it")]
    Name {
        /// The name.
        name: String,
    },
    /// A kernel has this name and other parameters.
    #[error(
        "kernel `{name}` has signature {here:016x} here and {asked:016x} where it was submitted; rebuild both sides"
    )]
    Signature {
        /// The name.
        name: String,
        /// What was asked for.
        asked: u64,
        /// What there is.
        here: u64,
    },
}

/// The kernel with this identity.
///
/// # Errors
/// [`UnknownKernel`]: says which part of the identity is unknown.
pub fn find(id: &KernelId) -> std::result::Result<&'static KernelEntry, UnknownKernel> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static KernelEntry>> =
        LazyLock::new(|| KERNELS.iter().map(|entry| (entry.name, entry)).collect());
    let Some(entry) = BY_NAME.get(id.name.as_ref()).copied() else {
        return Err(UnknownKernel::Name {
            name: id.name.to_string(),
        });
    };
    if entry.signature != id.signature {
        let name = id.name.to_string();
        return Err(UnknownKernel::Signature {
            name,
            asked: id.signature,
            here: entry.signature,
        });
    }
    Ok(entry)
}

/// The core that a kernel was given, as its own type. Used by `#[kernel]`.
///
/// # Errors
/// If it is another type of core: the program submits to a platform that its kernels were not built for.
#[inline]
#[track_caller]
pub fn core_as<'a, C: Any>(kernel: &'static str, core: &'a dyn Any) -> Result<&'a C> {
    match core.downcast_ref() {
        Some(core) => Ok(core),
        None => Err(Error::failed(format!(
            "kernel `{kernel}` was built for cores of type `{}` and was given another; build it with the crate that \
             runs it",
            type_name::<C>()
        ))),
    }
}

/// What the code written by `#[kernel]` refers to, except for the core.
#[doc(hidden)]
pub mod __kernel {
    pub use crate::{KERNELS, KernelEntry, SteppedKernel, core_as};
    pub use linkme;
    pub use ringwork_isa::stepped::SteppedCore;
    pub use ringwork_isa::{
        Arg, Argument, Element, Error, Float, KernelId, Param, Parameter, Result, Task, decode, dtype_of,
        float_needed, signature_hash, with_dtype, with_float,
    };
}
