//! The task graph: a pure state machine that takes tasks in and gives them out in an order that follows from
//! the memory they touch. It is the layer between `isa`, of which it uses only [`Compare`], and the runtime. It
//! never contains a thread, a clock, I/O, or anything about chips and platforms.
//!
//! A *driver* (a node over its chips, a chip over its cores, a pod over its nodes, a simulation) submits
//! tasks, asks which task is [`ready`](Engine::ready), runs it, and reports that it
//! [completed](Engine::complete) or [failed](Engine::fail). The same calls in the same order always give the
//! same answers.
//!
//! * A task says which [views](View) of which buffers it reads and writes. It comes after every earlier
//!   task that touches the same bytes where one of the two writes; disjoint views run at once.
//! * Task slots and intermediate memory are rings: a full one is an [outcome](Outcome), not an error; one
//!   that can never have room again is an [error](Error::RingStuck) that says what to raise.
//! * A group starts on all its executors at once (see `ready.rs` for why that cannot deadlock).
//! * Conditions on signals hold a task back before it starts, or before it counts as done.
//! * A failure cancels what needs the lost data; the rest finishes, and the next run starts clean.
//! * The same submissions can be [captured](Capture) once and [replayed](Engine::replay) cheaply.
//!
//! ```
//! use ringwork_engine::{BufferId, Config, Engine, Kind, Outcome, Place, Spec, View};
//!
//! // Two executors that are alike, and no intermediate memory.
//! let mut engine = Engine::<&str>::new(&Config::new().executors(Kind(0), 2))?;
//! let (x, y) = (BufferId::new(1), BufferId::new(2));
//! let anywhere = || Spec::new(Place::Any(Kind(0)));
//! // Two halves of x, then a task that reads both.
//! engine.submit(&anywhere().output_existing(x, View::range(0..32)), "left")?;
//! engine.submit(&anywhere().output_existing(x, View::range(32..64)), "right")?;
//! engine.submit(&anywhere().input(x, View::range(0..64)).output_existing(y, View::range(0..4)), "sum")?;
//!
//! let mut order = Vec::new();
//! while engine.live() > 0 {
//!     let mut started = Vec::new();
//!     while let Some(dispatch) = engine.ready() {
//!         order.push(*engine.payload(dispatch.task).unwrap());
//!         started.push(dispatch);
//!     }
//!     for dispatch in started {
//!         engine.complete(dispatch.task, dispatch.executor)?;
//!     }
//! }
//! assert_eq!(order, ["left", "right", "sum"]);
//! assert_eq!(engine.end_run()?.completed, 3);
//! # Ok::<(), ringwork_engine::Error>(())
//! ```
//!
//! # Invariants
//! - **ENG-1 (as if in order).** However tasks are run and reported, the memory ends as if they had been run
//!   one by one in the order of submission, provided that tasks touch no more than they say.
//! - **ENG-2 (no false wait).** Two tasks are ordered only if a chain of overlapping accesses, explicit
//!   edges or groups' executors connects them; see VIEW-2 and, for replays, GRAPH-2.
//! - **ENG-3 (bounded).** Memory follows the configuration and the most that was live at once.
//! - **ENG-4 (refused is unchanged).** A call that returns an error or `Full` has changed nothing.
//!
//! The parts have invariants of their own: VIEW, GRID, INDEX, SLOT, ARENA, SCOPE, COND, READY, FIN, GRAPH.

#![forbid(unsafe_code)]

mod access_index;
mod arena;
mod complete;
mod edges;
mod engine;
mod error;
mod fail;
mod graph;
mod ids;
mod queries;
mod ready;
mod replay;
mod scope;
mod signal_conditions;
mod slots;
mod spatial_grid;
mod spec;
mod stall_report;
mod view;

pub use complete::Completion;
pub use engine::{Dispatch, Engine};
pub use error::{Cancelled, Error, Failure, Fill, Outcome, Ring, RunReport, Status};
pub use graph::{Capture, Graph};
pub use ids::{Arena, BufferId, Executor, Kind, SignalId, TaskId};
pub use replay::{Binding, Bindings};
pub use ringwork_isa::Compare;
pub use scope::MAX_SCOPES;
pub use signal_conditions::Watched;
pub use spec::{Access, AccessKind, Condition, Config, Place, Placement, Spec};
pub use stall_report::{Chain, Link, Stall, Waiting};
pub use view::View;
