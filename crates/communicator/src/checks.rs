//! The checks of a call's arguments before it begins.

use crate::error::{Error, Result};
use crate::station::Station;
use ringwork_isa::{Algorithm, Dtype, ReduceOp};

impl Station {
    /// A buffer in the window must be one of this communicator's.
    #[inline]
    pub(crate) fn check_home(&self, call: &'static str, home: Option<u64>) -> Result<()> {
        if home.is_none_or(|home| home == self.home.layout().nonce) {
            return Ok(());
        }
        let problem = "the window buffer was allocated by another communicator; allocate one with this one";
        Err(Error::arguments(call, problem))
    }

    /// The typed calls cannot get this wrong.
    #[inline]
    pub(crate) fn check_dtypes(&self, call: &'static str, input: Dtype, output: Dtype) -> Result<()> {
        if input == output {
            return Ok(());
        }
        let problem = format!("the input is of {input}, the output of {output}; both must be of one type");
        Err(Error::arguments(call, problem))
    }

    pub(crate) fn check_rank(&self, call: &'static str, rank: u32) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let problem = format!("there is no rank {rank} among {}", self.size());
        Err(Error::arguments(call, problem))
    }

    pub(crate) fn check_dealing(&self, len: usize) -> Result<()> {
        let ranks = self.size();
        if len.is_multiple_of(ranks as usize) {
            return Ok(());
        }
        let problem = format!("{len} elements cannot be dealt to {ranks} ranks equally; use all_to_all_v");
        Err(Error::arguments("all_to_all", problem))
    }

    pub(crate) fn check_peer(&self, call: &'static str, peer: u32) -> Result<()> {
        self.check_rank(call, peer)?;
        if peer == self.place.me.0 {
            let problem = format!("rank {peer} is this rank itself; copy instead");
            return Err(Error::arguments(call, problem));
        }
        Ok(())
    }

    pub(crate) fn times(&self, call: &'static str, len: usize) -> Result<usize> {
        len.checked_mul(self.size() as usize)
            .ok_or_else(|| Error::arguments(call, "more elements than can be counted"))
    }

    /// `buffer` is the name of the one whose length is wrong.
    pub(crate) fn same(&self, call: &'static str, buffer: &str, got: usize, wanted: usize) -> Result<()> {
        if got == wanted {
            return Ok(());
        }
        let ranks = self.size();
        let problem =
            format!("the {buffer} has {got} elements where {wanted} are needed, with {ranks} ranks");
        Err(Error::arguments(call, problem))
    }
}

/// Whether elements of this type can be reduced by `op` in this way.
#[inline(always)]
pub(crate) fn check_op(call: &'static str, op: ReduceOp, dtype: Dtype, way: Algorithm) -> Result<()> {
    if op.is_for(dtype) && (op != ReduceOp::Avg || way.is_exact()) {
        return Ok(());
    }
    Err(no_reduction(call, op, dtype, way))
}

#[cold]
fn no_reduction(call: &'static str, op: ReduceOp, dtype: Dtype, way: Algorithm) -> Error {
    let problem = op
        .check(dtype)
        .err()
        .unwrap_or_else(|| format!("`{way}` adds two at a time and cannot average; use a direct algorithm"));
    Error::arguments(call, problem)
}
