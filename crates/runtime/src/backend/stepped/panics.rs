//! Panics and exits of kernels on a machine's thread.
//!
//! A panic is not printed but reported to the host, with its line. `std::process::exit` cannot be caught: it ends the
//! host program, because the kernel runs in its process. But it runs the destructors of the calling thread, and one of
//! these prints a line that names the kernel.

use ringwork_isa::Site;
use ringwork_registry::SteppedKernel;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Context, Poll};

thread_local! {
    static RUNS: Runs = const { Runs(RefCell::new(None)) };
    static HEARS: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// The kernel that runs on this thread now, if any.
struct Runs(RefCell<Option<Rc<str>>>);

impl Drop for Runs {
    fn drop(&mut self) {
        if let Some(kernel) = self.0.get_mut() {
            let line = format!(
                "ringwork: kernel `{kernel}` ended the whole program with `std::process::exit`; return an error from it \
                 instead\n"
            );
            // If standard error is closed there is nobody left to tell.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// What a kernel panicked with, and where.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Panic {
    pub(super) message: String,
    pub(super) site: Site,
}

/// From now on panics of this thread are recorded; the hook that was set before handles those of other threads.
pub(super) fn hear_on_this_thread() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !HEARS.get() {
                return before(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without a message");
            let site = info.location().map_or_else(Site::caller, |at| Site {
                file: at.file().to_owned().into(),
                line: at.line(),
            });
            let message = message.to_owned();
            LAST.with_borrow_mut(|last| *last = Some(Panic { message, site }));
        }));
    });
    HEARS.set(true);
}

/// A kernel whose panic ends only itself.
pub(in crate::backend) struct Guarded {
    pub(super) kernel: SteppedKernel,
    /// What to call it.
    pub(super) name: Rc<str>,
    /// Its panic, if that is how it ended.
    pub(super) panicked: Rc<RefCell<Option<Panic>>>,
}

impl Future for Guarded {
    type Output = ringwork_isa::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outer = RUNS.with(|runs| runs.0.replace(Some(self.name.clone())));
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| self.kernel.as_mut().poll(cx)));
        RUNS.with(|runs| runs.0.replace(outer));
        polled.unwrap_or_else(|_| {
            *self.panicked.borrow_mut() = LAST.take();
            Poll::Ready(Err(ringwork_isa::Error::failed("the kernel panicked")))
        })
    }
}
