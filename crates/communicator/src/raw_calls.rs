//! Calls that are values, made now or begun; see [`raw`](crate::raw).

use crate::Communicator;
use crate::buffer::Target;
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::pending::Pending;
use crate::raw::{AnyWindow, Call, Operands};
use ringwork_isa::{Collective, Dtype, ReduceOp};
use ringwork_native::WaitObserver;
use std::sync::Arc;
use std::time::Duration;

impl CallContext {
    #[inline(always)]
    pub(crate) fn call_raw(&self, call: &Call, data: &Operands) -> Result<()> {
        if let Call::AllReduce(op) = call
            && data.are_one()
            && !data.may_be_either()
        {
            // Checked first: at 4 bytes this is a third of the time of the whole call.
            return self.all_reduce(data.output(call)?, *op, None);
        }
        self.call_raw_other(call, data)
    }

    #[inline(never)]
    fn call_raw_other(&self, call: &Call, data: &Operands) -> Result<()> {
        if data.may_be_either() {
            let data = data.settled(self.agreed(data.places())?);
            return self.call_raw(call, &data);
        }
        let one = data.are_one();
        if data.are_same() && !matches!(call, Call::AllToAll | Call::Collective { .. }) {
            let problem = "the input and the output are the same memory; this call needs two buffers";
            return Err(Error::arguments(call.name(), problem));
        }
        let output = data.output(call)?;
        match call {
            Call::AllReduce(op) => self.all_reduce_into(data.input(), output, *op),
            Call::AllGather if one => self.all_gather_in_place(output),
            Call::AllGather => self.all_gather(data.input(), output),
            Call::ReduceScatter(op) if one => self.reduce_scatter_in_place(output, *op),
            Call::ReduceScatter(op) => self.reduce_scatter(data.input(), output, *op),
            Call::Broadcast { root } => self.broadcast(output, *root),
            Call::Reduce { op, root } => self.collective(Collective::Reduce, None, output, *op, *root),
            Call::Gather { root } => self.gather(data.input(), output, *root),
            Call::Scatter { root } => self.scatter(data.input(), output, *root),
            Call::AllToAll if one => self.all_to_all_in_place(output),
            Call::AllToAll => self.all_to_all(data.input(), output),
            Call::AllToAllV { sends, receives } => {
                self.all_to_all_v_agreeing((data.input(), sends), (output, receives))
            }
            Call::Send { to } => self.send(data.input(), *to),
            Call::Recv { from } => self.recv(output, *from),
            Call::Exchange { to, from } => self.exchange(data.input(), output, *to, *from),
            Call::Barrier => self.barrier(),
            Call::Collective { collective, op, root } => {
                let input = (!one).then(|| data.input());
                self.collective(*collective, input, output, *op, *root)
            }
        }
    }
}

impl CallContext {
    /// Whether the input lies at the same place of the window on every rank, and whether the output does.
    fn agreed(&self, places: [i64; 4]) -> Result<[bool; 2]> {
        let [a, b, c, d] = places;
        // The largest of all x, and the least of all x as the largest of all !x.
        let mut words = [a, b, c, d, !a, !b, !c, !d];
        self.all_reduce(words[..].output().into(), ReduceOp::Max, None)?;
        let same = |index: usize| words[index] != -1 && words[index] == !words[index + 4];
        Ok([same(0) && same(1), same(2) && same(3)])
    }
}

impl Communicator {
    /// Makes a call whose kind, type and memory are values.
    ///
    /// # Errors
    /// As the method of that name; or if the operands do not fit the call.
    #[inline]
    pub fn call(&self, call: &Call, data: &Operands) -> Result<()> {
        self.station()?.call_raw(call, data)
    }

    /// Begins a call whose kind, type and memory are values. The call has its operands and then `owner`, which keeps their
    /// memory, until it is done: also if the handle is dropped (RAW-1). `then` is called on the worker's thread when the
    /// outcome can be had.
    pub fn begin_call<O: Send + 'static>(
        &self,
        call: Call,
        data: Operands,
        owner: O,
        then: impl FnOnce() + Send + 'static,
    ) -> Pending<O> {
        self.begin_then(
            (data, owner),
            move |station, (data, _)| station.call_raw(&call, data),
            |(data, owner)| {
                drop(data);
                owner
            },
            then,
        )
    }

    /// Zeroed elements in the window, of a type that is a value; as [`alloc`](Communicator::alloc).
    ///
    /// # Errors
    /// As [`alloc`](Communicator::alloc).
    pub fn alloc_any(&self, dtype: Dtype, len: usize) -> Result<AnyWindow> {
        Ok(AnyWindow::new(self.alloc_held(dtype, len)?))
    }

    /// Waits at most `limit` for the pending calls; returns whether they are all done, so that a blocking call begins at once.
    pub fn settle(&self, limit: Duration) -> bool {
        let mut station = self.station.borrow_mut();
        if station.is_some() {
            return true;
        }
        let worker = self.worker.borrow();
        let Some(worker) = worker.as_ref() else {
            return true;
        };
        match worker.recall_within(limit) {
            Ok(back) => {
                *station = back;
                true
            }
            Err(_) => false,
        }
    }

    /// Tells `observer` of waits in calls of this communicator, on the thread that waits: that of the caller, or the worker's.
    /// Waits for what is pending.
    ///
    /// # Errors
    /// If the worker is lost.
    pub fn set_wait_observer(&self, observer: Option<Arc<dyn WaitObserver>>) -> Result<()> {
        self.station()?.here_mut().set_wait_observer(observer);
        Ok(())
    }
}
