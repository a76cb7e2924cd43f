//! Calls on addresses, for `ringwork.torch`: a tensor's address costs 70 ns, its array 2 us.

use crate::comm::{Comm, LONG_BYTES, parse_dtype};
use crate::errors::{argument, raised};
use crate::pending::{Owner, Pending};
use crate::seam::lock::thread;
use crate::window::Window;
use pyo3::prelude::*;
use ringwork_communicator::{Call, Operand, Operands, RawBuffer};
use ringwork_isa::{Dtype, ReduceOp};

/// An address and a number of elements.
type Place = (usize, usize);

fn operand(dtype: Dtype, (address, len): Place, writable: bool, window: Option<&Window>) -> Operand {
    let pointer = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller of `_call_at` vouches for the addresses, and gave their owner, which the call has until it is done (PY-1,
    // RAW-1). This is the one method of the package that can break memory; its name says that it is not for users.
    let raw = unsafe { RawBuffer::new(dtype, pointer, len, writable) };
    let Some(window) = window.map(|window| &window.window) else {
        return raw.into();
    };
    let offset = address.checked_sub(window.pointer() as usize);
    let part = offset.and_then(|offset| window.part(dtype, offset, len));
    Operand::Either(raw, part)
}

#[pymethods]
impl Comm {
    /// A call on memory that `owner` keeps. Not for users: a wrong address breaks the process. With `window`, the memory may
    /// lie in it, on each rank or not; every rank gives it then.
    #[pyo3(signature = (name, dtype, data, out, owner, *, op=None, root=0, peer=0, sends=None, receives=None, window=None,
        wait=true, then=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "one entry for every call, used by one module of ours"
    )]
    fn _call_at(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        data: Option<Place>,
        out: Option<Place>,
        owner: Option<Py<PyAny>>,
        op: Option<&str>,
        root: u32,
        peer: u32,
        sends: Option<Vec<usize>>,
        receives: Option<Vec<usize>>,
        window: Option<PyRef<'_, Window>>,
        wait: bool,
        then: Option<Py<PyAny>>,
    ) -> PyResult<Option<Pending>> {
        let dtype = parse_dtype(py, "_call_at", dtype)?;
        let op = match op {
            None => ReduceOp::Sum,
            Some(op) => op
                .parse()
                .map_err(|error: String| argument(py, "_call_at", &error))?,
        };
        let call = match name {
            "all_reduce" => Call::AllReduce(op),
            "all_gather" => Call::AllGather,
            "reduce_scatter" => Call::ReduceScatter(op),
            "broadcast" => Call::Broadcast { root },
            "reduce" => Call::Reduce { op, root },
            "gather" => Call::Gather { root },
            "scatter" => Call::Scatter { root },
            "all_to_all" => Call::AllToAll,
            "all_to_all_v" => Call::AllToAllV {
                sends: sends.unwrap_or_default(),
                receives: receives.unwrap_or_default(),
            },
            "send" => Call::Send { to: peer },
            "recv" => Call::Recv { from: peer },
            "exchange" => Call::Exchange { to: peer, from: root },
            "barrier" => Call::Barrier,
            other => {
                let unknown = |_| argument(py, "_call_at", &format!("there is no call `{other}`"));
                let collective = other.parse().map_err(unknown)?;
                Call::Collective { collective, op, root }
            }
        };
        let bytes = data
            .map_or(0, |place| place.1)
            .max(out.map_or(0, |place| place.1));
        let bytes = bytes.saturating_mul(dtype.bytes());
        let reading = |place| operand(dtype, place, false, window.as_deref());
        let writing = |place| operand(dtype, place, true, window.as_deref());
        let operands = match (data, out) {
            (None, None) => Operands::none(),
            (Some(data), None) => Operands::reading(reading(data)),
            (None, Some(out)) => Operands::in_place(writing(out)),
            (Some(data), Some(out)) => {
                Operands::between(reading(data), writing(out)).map_err(|error| raised(py, &error))?
            }
        };
        if wait {
            self.with(py, bytes > LONG_BYTES, |comm| comm.call(&call, &operands))?;
            drop(operands);
            drop(owner);
            return Ok(None);
        }
        let owner = Owner {
            holders: [None, None],
            object: owner,
        };
        self.begin(py, call, operands, owner, then).map(Some)
    }

    /// Whether this thread is in a call of this communicator: in a signal handler.
    #[getter]
    fn _in_call(&self) -> bool {
        self.user.load(std::sync::atomic::Ordering::Relaxed) == thread()
    }
}
