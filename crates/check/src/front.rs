//! A detector in front of another engine: it sees each instruction of a core as soon as that engine has answered it.
//!
//! Virtual time orders nothing: what the detector is not told by signals and by who uses it is not ordered.

use crate::detector::{AgentId, Detector};
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, Payload, SteppedCore};
use ringwork_isa::{Compare, Result, Signal};
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

type At = &'static Location<'static>;

/// The engine of one such core.
struct Front {
    inner: Rc<dyn Engine>,
    agent: AgentId,
    detector: Rc<RefCell<Detector>>,
    /// An instruction that was not answered yet.
    pending: RefCell<Option<(Instruction, At)>>,
}

/// The same core, whose instructions a detector sees. The detector keeps no memory.
#[must_use]
pub fn watched(core: &SteppedCore, agent: AgentId, detector: Rc<RefCell<Detector>>) -> SteppedCore {
    core.through(|inner| {
        Rc::new(Front {
            inner,
            agent,
            detector,
            pending: RefCell::default(),
        })
    })
}

impl Front {
    fn note(&self, instruction: &Instruction, at: At, answer: &Result<Answer>) {
        if let Ok(answer) = answer {
            self.detector
                .borrow_mut()
                .note(self.agent, instruction, at, answer);
        }
    }
}

/// An instruction as the detector sees it: what is stored does not matter, and may be long.
fn without_data(instruction: &Instruction) -> Instruction {
    let data = Payload::Hollow;
    match instruction {
        Instruction::Store { dst, .. } => Instruction::Store { dst: *dst, data },
        Instruction::StoreBlock { dst, .. } => Instruction::StoreBlock { dst: *dst, data },
        other => other.clone(),
    }
}

impl Engine for Front {
    fn issue(&self, core: CoreId, instruction: Instruction, at: At) -> Poll<Result<Answer>> {
        // A notification is on its way now: who sees it later learns what was known when it was sent.
        let is_early = matches!(
            instruction,
            Instruction::Notify { .. } | Instruction::Put { .. } | Instruction::PutPacket { .. }
        );
        if is_early {
            self.note(&instruction, at, &Ok(Answer::Done));
        }
        let seen = (!is_early).then(|| without_data(&instruction));
        let answer = self.inner.issue(core, instruction, at);
        match (&answer, seen) {
            (Poll::Ready(answer), Some(seen)) => self.note(&seen, at, answer),
            (Poll::Pending, Some(seen)) => *self.pending.borrow_mut() = Some((seen, at)),
            (_, None) => {}
        }
        answer
    }

    fn wait_beside(&self, core: CoreId, signal: &Signal, wanted: (Compare, i32), at: At) -> Poll<Result<()>> {
        let wait = Instruction::Wait {
            signal: *signal,
            compare: wanted.0,
            operand: wanted.1,
        };
        match self.inner.wait_beside(core, signal, wanted, at) {
            Poll::Ready(done) => {
                self.note(&wait, at, &done.clone().map(|()| Answer::Done));
                Poll::Ready(done)
            }
            Poll::Pending => {
                *self.pending.borrow_mut() = Some((wait, at));
                Poll::Pending
            }
        }
    }

    fn answer(&self, core: CoreId) -> Poll<Result<Answer>> {
        let answer = self.inner.answer(core);
        if let Poll::Ready(answer) = &answer
            && let Some((instruction, at)) = self.pending.borrow_mut().take()
        {
            self.note(&instruction, at, answer);
        }
        answer
    }
}
