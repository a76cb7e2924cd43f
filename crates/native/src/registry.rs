//! Every kernel of the program, found at link time.
//!
//! `#[kernel]` puts an entry here for each kernel of every crate that is linked in. A chip is the same
//! program, so it has the same entries, and looks up the kernels it is asked to run by identity.

use crate::core::NativeCore;
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Arg, Dtype, ErrorKind, KernelId, Param, Result};
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
    /// Runs it here and now.
    pub run: fn(&NativeCore, &[Arg]) -> Result<()>,
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

/// The dtype of argument `index`, for kernels that are generic over their element. Used by `#[kernel]`.
///
/// # Errors
/// [`ErrorKind::BadArgument`] if it is missing or has no elements.
pub fn dtype_of(kernel: &'static str, args: &[Arg], index: usize, name: &'static str) -> Result<Dtype> {
    args.get(index).and_then(Arg::dtype).ok_or_else(|| {
        ErrorKind::BadArgument {
            kernel: kernel.into(),
            index,
            name: name.into(),
            expected: "a region".into(),
            got: if index < args.len() {
                "a value".into()
            } else {
                "nothing".into()
            },
        }
        .into()
    })
}
