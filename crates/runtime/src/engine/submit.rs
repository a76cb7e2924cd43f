//! What an orchestration needs of whoever it submits to: an engine, or the capture of a graph.

use super::error::{Error, Outcome};
use super::graph::Capture;
use super::ids::{Arena, BufferId, TaskId};
use super::machine::Engine;
use super::spec::Spec;

/// Takes tasks. One orchestration, written over this, runs at once or is captured.
pub trait Submit<P> {
    /// See [`Engine::submit`].
    ///
    /// # Errors
    /// As there.
    fn submit(&mut self, spec: &Spec, payload: P) -> Result<Outcome<TaskId, P>, Error>;

    /// See [`Engine::allocate`].
    ///
    /// # Errors
    /// As there.
    fn allocate(&mut self, arena: Arena, bytes: u64) -> Result<Outcome<BufferId>, Error>;

    /// See [`Engine::add_edge`].
    ///
    /// # Errors
    /// As there.
    fn add_edge(&mut self, before: TaskId, after: TaskId) -> Result<(), Error>;

    /// See [`Engine::begin_scope`].
    ///
    /// # Errors
    /// As there.
    fn begin_scope(&mut self) -> Result<(), Error>;

    /// See [`Engine::end_scope`].
    ///
    /// # Errors
    /// As there.
    fn end_scope(&mut self) -> Result<(), Error>;
}

macro_rules! forward {
    ($([$($generics:tt)*] $target:ty;)*) => {$(
        impl<$($generics)*> Submit<P> for $target {
            fn submit(&mut self, spec: &Spec, payload: P) -> Result<Outcome<TaskId, P>, Error> {
                <$target>::submit(self, spec, payload)
            }
            fn allocate(&mut self, arena: Arena, bytes: u64) -> Result<Outcome<BufferId>, Error> {
                <$target>::allocate(self, arena, bytes)
            }
            fn add_edge(&mut self, before: TaskId, after: TaskId) -> Result<(), Error> {
                <$target>::add_edge(self, before, after)
            }
            fn begin_scope(&mut self) -> Result<(), Error> {
                <$target>::begin_scope(self)
            }
            fn end_scope(&mut self) -> Result<(), Error> {
                <$target>::end_scope(self)
            }
        }
    )*};
}
forward! {
    [P, E] Engine<P, E>;
    [P] Capture<P>;
}
