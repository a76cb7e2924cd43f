//! Workers: the node and above. Bring-up, domains, memory on chips, tasks, and a clean end.
//!
//! A layer without unsafe code and without a platform of its own: it decides what runs where, in which
//! order, and what becomes of it when something fails.
#![forbid(unsafe_code)]

mod buffer;
pub mod chip;
mod config;
mod context;
mod domain;
pub mod engine;
mod error;
mod extent;
mod flight;
mod host;
mod intermediate;
mod kernel_port;
mod log;
mod machine;
mod node;
mod orchestrator;
mod platform;
mod pod;
mod segments;
mod settle;
mod submission;
mod tensor;
mod timeline;
mod work;

pub use buffer::{Buffer, Part, SignalRow};
pub use chip::{Captured, ChipOrchestrator, CoreKind};
pub use config::NodeBuilder;
pub use context::{ChipContext, DomainContext};
pub use domain::{BufferPlace, Domain, DomainSpec};
pub use engine::TaskId;
pub use error::{Cause, Error, Result, TaskFailure};
pub use intermediate::Intermediate;
pub use kernel_port::{KernelPort, Message, Response, Slot};
pub use node::Node;
pub use orchestrator::Orchestrator;
pub use platform::{Clock, Platform, Simulated, Simulation};
pub use pod::{Pod, PodDomain, PodOrchestrator, PodSubmission, PodTensor, Worker};
pub use ringwork_isa::{Device, Level, Rank};
pub use ringwork_native::{Failure, Interrupter, Program};
pub use submission::Submission;
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
