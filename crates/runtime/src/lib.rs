//! Workers: the node and above. Bring-up, domains, memory on chips, tasks, and a clean end.
//!
//! This layer decides what runs where, in which order, and what happens when something fails. The order is worked
//! out by [`engine`]; how a chip runs is up to a backend, which is processes ([`ringwork_native`]) or a simulation
//! (`ringwork_sim`, with the feature `sim`). It never contains unsafe code, a system call, an instruction or an algorithm.
#![forbid(unsafe_code)]

mod backend;
mod buffer;
pub mod chip;
mod chip_context;
mod config;
mod dispatch;
mod domain;
mod erased;
mod error;
mod failures;
mod handle_ops;
mod host_tasks;
mod intermediate;
mod kernel_port;
mod node;
mod orchestrator;
mod platform;
mod pod;
mod run_to_completion;
mod segments;
mod submission;
mod task_binding;
mod task_history;
mod tensor;
mod timeline;

pub use backend::{Failure, Interrupter};
#[cfg(feature = "collectives")]
pub use buffer::TeamHandle;
pub use buffer::{Buffer, Part, SignalRow};
pub use chip::{Captured, ChipOrchestrator, CoreKind};
pub use chip_context::{ChipContext, DomainContext};
pub use config::NodeBuilder;
#[cfg(feature = "collectives")]
pub use domain::TeamSpec;
pub use domain::{BufferPlace, Domain, DomainSpec};
pub use erased::{AnyBuffer, AnyIntermediate, AnyPart, AnyTensor};
pub use error::{Cause, Error, Result, Stopped, TaskFailure};
pub use intermediate::Intermediate;
pub use kernel_port::{KernelPort, Message, Response, Slot};
pub use node::Node;
pub use orchestrator::{Orchestrator, Run};
#[cfg(feature = "sim")]
pub use platform::Simulation;
pub use platform::{Clock, Platform, Simulated};
pub use pod::{Pod, PodDomain, PodOrchestrator, PodTensor, Worker};
pub use ringwork_engine as engine;
pub use ringwork_engine::TaskId;
pub use ringwork_isa::{Device, Level, Rank};
pub use ringwork_native::Program;
pub use tensor::Tensor;
pub use timeline::{Recent, RecentChip};

#[doc(hidden)]
pub use ringwork_native::__kernel;

/// What the code written by `#[orchestration]` refers to.
#[doc(hidden)]
pub mod __orchestration {
    pub use crate::chip::{ChipOrchestrator, ORCHESTRATIONS, OrchestrationEntry, run, step};
    pub use ringwork_native::__kernel::*;
}
