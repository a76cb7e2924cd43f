//! Whose line an instruction is: for functions that issue several on behalf of their caller.

use std::cell::Cell;
use std::panic::Location;

/// A core's note of the line that its instructions are attributed to. Part of every core.
///
/// An `async` block cannot say who called it, so a function made of several instructions takes note of its
/// caller before its block begins, and attributes what the block does to it:
///
/// ```
/// # use ringwork_isa::{Core, Notify, Result, Signal};
/// # use std::future::Future;
/// #[track_caller]
/// fn twice<C: Core>(core: &C, signal: Signal) -> impl Future<Output = Result<()>> {
///     let at = core.attribution().site();
///     async move {
///         let _mine = core.attribution().to(at);
///         core.notify(signal, Notify::Add(1)).await?;
///         core.notify(signal, Notify::Add(1)).await
///     }
/// }
/// ```
///
/// The outermost of such functions decides.
#[derive(Debug, Default)]
pub struct Attribution(Cell<Option<&'static Location<'static>>>);

impl Attribution {
    /// The line that an instruction issued here belongs to: the caller's, unless somebody answers for it.
    #[track_caller]
    #[inline]
    pub fn site(&self) -> &'static Location<'static> {
        match self.0.get() {
            None => Location::caller(),
            Some(at) => at,
        }
    }

    /// Attributes all instructions to `at`, until what this returns is dropped.
    #[must_use = "the attribution ends when this is dropped"]
    pub fn to(&self, at: &'static Location<'static>) -> Attributed<'_> {
        Attributed {
            before: self.0.replace(Some(at)),
            of: self,
        }
    }
}

/// While this lives, instructions are attributed to somebody. See [`Attribution::to`].
#[derive(Debug)]
pub struct Attributed<'a> {
    of: &'a Attribution,
    before: Option<&'static Location<'static>>,
}

impl Drop for Attributed<'_> {
    fn drop(&mut self) {
        self.of.0.set(self.before);
    }
}
