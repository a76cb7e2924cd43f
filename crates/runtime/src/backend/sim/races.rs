//! A simulated core whose instructions a detector sees, as soon as the simulator has answered them.
//!
//! Virtual time orders nothing: what the detector is not told by signals and by the graph is not ordered.

use ringwork_check::{AgentId, Detector};
use ringwork_isa::Result;
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, SteppedCore};
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

type At = &'static Location<'static>;

/// The engine of one such core.
pub(super) struct Racing {
    inner: Rc<dyn Engine>,
    agent: AgentId,
    detector: Rc<RefCell<Detector>>,
    /// An instruction that was not answered yet.
    pending: RefCell<Option<(Instruction, At)>>,
}

impl Racing {
    /// A core that is this one for the simulator.
    pub(super) fn core(core: &SteppedCore, agent: AgentId, detector: Rc<RefCell<Detector>>) -> SteppedCore {
        core.through(|inner| {
            Rc::new(Racing {
                inner,
                agent,
                detector,
                pending: RefCell::default(),
            })
        })
    }

    fn note(&self, instruction: &Instruction, at: At, answer: &Result<Answer>) {
        if let Ok(answer) = answer {
            self.detector
                .borrow_mut()
                .note(self.agent, instruction, at, answer);
        }
    }
}

impl Engine for Racing {
    fn issue(&self, core: CoreId, instruction: Instruction, at: At) -> Poll<Result<Answer>> {
        // A notification is on its way now: who sees it later learns what was known when it was sent. Data moves now too.
        let is_early = matches!(
            instruction,
            Instruction::Notify { .. } | Instruction::Put { .. } | Instruction::PutPacket { .. }
        );
        if is_early {
            self.note(&instruction, at, &Ok(Answer::Done));
        }
        match self.inner.issue(core, instruction.clone(), at) {
            Poll::Ready(answer) => {
                if !is_early {
                    self.note(&instruction, at, &answer);
                }
                Poll::Ready(answer)
            }
            Poll::Pending => {
                *self.pending.borrow_mut() = (!is_early).then_some((instruction, at));
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
