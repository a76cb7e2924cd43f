//! The engine: tasks in, an order out that follows from the memory they touch.
//!
//! A pure state machine. It has no threads, no clock and does no I/O: whoever drives it (a node over its
//! chips, a chip over its cores, a pod over its nodes, a simulation) submits tasks, asks what is
//! [`ready`](Engine::ready), runs that by whatever means it has, and reports what
//! [completed](Engine::complete) or [failed](Engine::fail). The same calls in the same order give the same
//! answers, always.
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
//! use ringwork_runtime::engine::{BufferId, Config, Engine, Kind, Outcome, Place, Spec, View};
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
//! # Ok::<(), ringwork_runtime::engine::Error>(())
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
//! The parts have invariants of their own: VIEW, GRID, MAP, SLOT, ARENA, SCOPE, WATCH, READY, FIN, GRAPH.

mod arena;
mod ask;
mod edges;
mod error;
mod fail;
mod finish;
mod graph;
mod grid;
mod ids;
mod machine;
mod map;
mod ready;
mod replay;
mod report;
mod scope;
mod slots;
mod spec;
mod submit;
mod view;
mod watch;

pub(crate) use arena::ByteRing;
pub use error::{Cancelled, Error, Failure, Fill, Outcome, Ring, RunReport, Status};
pub use finish::Completion;
pub use graph::{Capture, Graph};
pub use ids::{Arena, BufferId, Executor, Kind, SignalId, TaskId};
pub use machine::{Dispatch, Engine};
pub use replay::{Binding, Bindings, Location};
pub use report::{Chain, Link, Stall, Waiting};
pub use scope::MAX_SCOPES;
pub use spec::{Access, AccessKind, Condition, Config, Place, Placement, Spec};
pub use submit::Submit;
pub use view::View;
pub use watch::Watched;
