//! What kernels see of a machine: the engine that takes their instructions.

use super::Inner;
use super::issue::Progress;
use super::state::Wanted;
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction};
use ringwork_isa::{Compare, Notify, ReduceOp, Result, Signal, Span};
use std::panic::Location;
use std::task::Poll;

impl Engine for Inner {
    fn issue(
        &self,
        core: CoreId,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> Poll<Result<Answer>> {
        self.state.borrow_mut().issue(core.0, instruction, at)
    }

    fn answer(&self, core: CoreId) -> Poll<Result<Answer>> {
        self.state.borrow_mut().answer(core.0)
    }

    fn copy(&self, core: CoreId, dst: &Span, src: &Span, at: &'static Location<'static>) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        let again = || Instruction::Copy { dst: *dst, src: *src };
        if state.is_computing(core.0) {
            return state.issue(core.0, again(), at).map(|done| done.map(drop));
        }
        state.core(core.0).at = Some(at);
        let progress = state.copy(core.0, dst, src);
        if let Ok(Progress::Done) = progress {
            state.schedule_wakes();
            return Poll::Ready(Ok(()));
        }
        state.begun(core.0, progress, again).map(|done| done.map(drop))
    }

    fn reduce(
        &self,
        core: CoreId,
        dst: &Span,
        sources: &[Span],
        op: ReduceOp,
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        let again = || Instruction::Reduce {
            dst: *dst,
            sources: sources.to_vec(),
            op,
        };
        if state.is_computing(core.0) {
            return state.issue(core.0, again(), at).map(|done| done.map(drop));
        }
        state.core(core.0).at = Some(at);
        let progress = state.reduce(core.0, dst, sources, op);
        state.begun(core.0, progress, again).map(|done| done.map(drop))
    }

    fn notify(
        &self,
        core: CoreId,
        signal: &Signal,
        how: Notify,
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        if state.is_computing(core.0) {
            let notify = Instruction::Notify { signal: *signal, how };
            return state.issue(core.0, notify, at).map(|done| done.map(drop));
        }
        state.core(core.0).at = Some(at);
        let done = state.notify(core.0, signal, how);
        state.schedule_wakes();
        // A notification is posted: it has to wait for nothing else.
        Poll::Ready(done.map(drop))
    }

    fn wait(
        &self,
        core: CoreId,
        signal: &Signal,
        wanted: (Compare, i32),
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        if state.is_computing(core.0) {
            let wait = Instruction::Wait {
                signal: *signal,
                compare: wanted.0,
                operand: wanted.1,
            };
            return state.issue(core.0, wait, at).map(|done| done.map(drop));
        }
        state.core(core.0).at = Some(at);
        let progress = state.wait(core.0, signal, Wanted::Until(wanted.0, wanted.1));
        state.waits(core.0, progress)
    }

    fn wait_beside(
        &self,
        core: CoreId,
        signal: &Signal,
        wanted: (Compare, i32),
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.core(core.0).at = Some(at);
        let progress = state.wait_beside(core.0, signal, Wanted::Until(wanted.0, wanted.1));
        state.waits(core.0, progress)
    }

    fn waited(&self, core: CoreId) -> Poll<Result<()>> {
        self.state.borrow_mut().wait_answer(core.0)
    }
}
