//! The calls of a `Comm` on arrays.

use super::{Comm, dtype_of};
use crate::errors::{argument, raised};
use crate::pending::Pending;
use crate::seam::arrays::{Borrowed, Holder, Use, borrow};
use pyo3::prelude::*;
use ringwork_communicator::{Call, Operands};
use ringwork_isa::{Dtype, ReduceOp};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;
type Data = (Operands, [Option<Holder>; 2], usize);
type Outcome = PyResult<Option<Pending>>;

fn in_place(data: Borrowed) -> Data {
    (
        Operands::in_place(data.operand),
        [Some(data.holder), None],
        data.bytes,
    )
}

fn reading(data: Borrowed) -> Data {
    (
        Operands::reading(data.operand),
        [Some(data.holder), None],
        data.bytes,
    )
}

fn between(py: Python<'_>, input: Borrowed, output: Borrowed) -> PyResult<Data> {
    let bytes = input.bytes.max(output.bytes);
    let operands = Operands::between(input.operand, output.operand).map_err(|error| raised(py, &error))?;
    Ok((operands, [Some(input.holder), Some(output.holder)], bytes))
}

fn reducer(py: Python<'_>, call: &str, op: &str, is_bool: bool) -> PyResult<ReduceOp> {
    let op = match op {
        "sum" => ReduceOp::Sum,
        "avg" => ReduceOp::Avg,
        other => other
            .parse()
            .map_err(|error: String| argument(py, call, &error))?,
    };
    match op {
        ReduceOp::Sum if is_bool => Ok(ReduceOp::Max),
        ReduceOp::Prod if is_bool => Ok(ReduceOp::Min),
        ReduceOp::Avg if is_bool => Err(argument(py, call, "truth values have no average")),
        op => Ok(op),
    }
}

fn asked(call: &str, dtype: Option<Object<'_, '_>>) -> PyResult<Option<Dtype>> {
    dtype.map(|dtype| dtype_of(dtype, call)).transpose()
}

#[pymethods]
impl Comm {
    /// `data` becomes its reduction over all ranks, on every rank, in place; or `out` does, and `data` stays.
    ///
    /// `op` is "sum", "max", "min", "prod" or "avg". With `wait=False` the call is begun and a `Pending` returned.
    /// `dtype="bf16"` says that an array of uint16 holds bf16.
    #[pyo3(signature = (data, op="sum", *, out=None, dtype=None, wait=true))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        op: &str,
        out: Option<Object<'_, '_>>,
        dtype: Option<Object<'_, '_>>,
        wait: bool,
    ) -> Outcome {
        let dtype = asked("all_reduce", dtype)?;
        let input = borrow(data, "all_reduce", (Use::Reduce, out.is_none()), dtype)?;
        let call = Call::AllReduce(reducer(py, "all_reduce", op, input.is_bool)?);
        let data = match out {
            None => in_place(input),
            Some(out) => {
                let out = borrow(out, "all_reduce", (Use::Reduce, true), dtype)?;
                between(py, input, out)?
            }
        };
        self.make(py, call, data, wait)
    }

    /// `out` becomes everybody's `data`, one after the other in rank order. Without `out`, part `r` of `data` becomes what
    /// it is on rank `r`.
    #[pyo3(signature = (data, out=None, *, wait=true))]
    fn all_gather(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        out: Option<Object<'_, '_>>,
        wait: bool,
    ) -> Outcome {
        let input = borrow(data, "all_gather", (Use::Move, out.is_none()), None)?;
        let data = match out {
            None => in_place(input),
            Some(out) => between(py, input, borrow(out, "all_gather", (Use::Move, true), None)?)?,
        };
        self.make(py, Call::AllGather, data, wait)
    }

    /// `out` becomes this rank's part of the reduction of everybody's `data`. Without `out`, that part of `data` itself does.
    #[pyo3(signature = (data, out=None, op="sum", *, dtype=None, wait=true))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        out: Option<Object<'_, '_>>,
        op: &str,
        dtype: Option<Object<'_, '_>>,
        wait: bool,
    ) -> Outcome {
        let dtype = asked("reduce_scatter", dtype)?;
        let input = borrow(data, "reduce_scatter", (Use::Reduce, out.is_none()), dtype)?;
        let call = Call::ReduceScatter(reducer(py, "reduce_scatter", op, input.is_bool)?);
        let data = match out {
            None => in_place(input),
            Some(out) => {
                let out = borrow(out, "reduce_scatter", (Use::Reduce, true), dtype)?;
                between(py, input, out)?
            }
        };
        self.make(py, call, data, wait)
    }

    /// `data` becomes what it is on `root`, on every rank.
    #[pyo3(signature = (data, root=0, *, wait=true))]
    fn broadcast(&self, py: Python<'_>, data: Object<'_, '_>, root: u32, wait: bool) -> Outcome {
        // The root's own is read only, but every rank must be able to be it.
        let data = borrow(data, "broadcast", (Use::Move, true), None)?;
        self.make(py, Call::Broadcast { root }, in_place(data), wait)
    }

    /// `root`'s `data` becomes its reduction over all ranks; the others' stays.
    #[pyo3(signature = (data, root=0, op="sum", *, dtype=None, wait=true))]
    fn reduce(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        root: u32,
        op: &str,
        dtype: Option<Object<'_, '_>>,
        wait: bool,
    ) -> Outcome {
        let dtype = asked("reduce", dtype)?;
        let data = borrow(data, "reduce", (Use::Reduce, true), dtype)?;
        let op = reducer(py, "reduce", op, data.is_bool)?;
        self.make(py, Call::Reduce { op, root }, in_place(data), wait)
    }

    /// `root`'s `out` becomes everybody's `data`, one after the other; other ranks give no `out`.
    #[pyo3(signature = (data, out=None, root=0, *, wait=true))]
    fn gather(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        out: Option<Object<'_, '_>>,
        root: u32,
        wait: bool,
    ) -> Outcome {
        let input = borrow(data, "gather", (Use::Move, false), None)?;
        let data = match out {
            None => reading(input),
            Some(out) => between(py, input, borrow(out, "gather", (Use::Move, true), None)?)?,
        };
        self.make(py, Call::Gather { root }, data, wait)
    }

    /// `out` becomes this rank's part of `root`'s `data`; other ranks give None as `data`.
    #[pyo3(signature = (data, out, root=0, *, wait=true))]
    fn scatter(
        &self,
        py: Python<'_>,
        data: Option<Object<'_, '_>>,
        out: Object<'_, '_>,
        root: u32,
        wait: bool,
    ) -> Outcome {
        let out = borrow(out, "scatter", (Use::Move, true), None)?;
        let data = match data {
            None => in_place(out),
            Some(data) => between(py, borrow(data, "scatter", (Use::Move, false), None)?, out)?,
        };
        self.make(py, Call::Scatter { root }, data, wait)
    }

    /// `out` becomes this rank's part of everybody's `data`, one after the other. With `sends` and `receives`, which count
    /// elements, parts have different lengths. Without `out`, in place.
    #[pyo3(signature = (data, out=None, *, sends=None, receives=None, wait=true))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        out: Option<Object<'_, '_>>,
        sends: Option<Vec<usize>>,
        receives: Option<Vec<usize>>,
        wait: bool,
    ) -> Outcome {
        let input = borrow(data, "all_to_all", (Use::Move, out.is_none()), None)?;
        let scale = input.scale;
        let counts = |counts: Vec<usize>| counts.iter().map(|count| count.saturating_mul(scale)).collect();
        let call = match (sends, receives) {
            (None, None) => Call::AllToAll,
            (Some(sends), Some(receives)) if out.is_some() => Call::AllToAllV {
                sends: counts(sends),
                receives: counts(receives),
            },
            _ => {
                let problem = "counts need all of `out`, `sends` and `receives`";
                return Err(argument(py, "all_to_all", problem));
            }
        };
        let data = match out {
            None => in_place(input),
            Some(out) => between(py, input, borrow(out, "all_to_all", (Use::Move, true), None)?)?,
        };
        self.make(py, call, data, wait)
    }

    /// Sends `data` to rank `to`, which must `recv` as many elements of the same type.
    #[pyo3(signature = (data, to, *, wait=true))]
    fn send(&self, py: Python<'_>, data: Object<'_, '_>, to: u32, wait: bool) -> Outcome {
        let data = borrow(data, "send", (Use::Move, false), None)?;
        self.make(py, Call::Send { to }, reading(data), wait)
    }

    /// Receives `data` from rank `source`, which must `send` it.
    #[pyo3(signature = (data, source, *, wait=true))]
    fn recv(&self, py: Python<'_>, data: Object<'_, '_>, source: u32, wait: bool) -> Outcome {
        let data = borrow(data, "recv", (Use::Move, true), None)?;
        self.make(py, Call::Recv { from: source }, in_place(data), wait)
    }

    /// Sends `data` to rank `to` while it receives `out` from rank `source`: for rings and pairs.
    #[pyo3(signature = (data, to, out, source, *, wait=true))]
    fn exchange(
        &self,
        py: Python<'_>,
        data: Object<'_, '_>,
        to: u32,
        out: Object<'_, '_>,
        source: u32,
        wait: bool,
    ) -> Outcome {
        let input = borrow(data, "exchange", (Use::Move, false), None)?;
        let data = between(py, input, borrow(out, "exchange", (Use::Move, true), None)?)?;
        self.make(py, Call::Exchange { to, from: source }, data, wait)
    }

    /// Waits until every rank has called this.
    #[pyo3(signature = (*, wait=true))]
    fn barrier(&self, py: Python<'_>, wait: bool) -> Outcome {
        self.make(py, Call::Barrier, (Operands::none(), [None, None], 0), wait)
    }
}
