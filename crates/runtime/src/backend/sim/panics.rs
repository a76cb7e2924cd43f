//! Panics of kernels on the simulator's thread: reported to the host with their line, instead of printed.

use ringwork_isa::Site;
use ringwork_registry::SteppedKernel;
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Context, Poll};

thread_local! {
    static HEARS: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// The message and the line of a kernel's panic.
#[derive(Clone, Debug)]
pub(super) struct Panic {
    pub(super) message: String,
    pub(super) site: Site,
}

/// From now on panics on this thread are recorded; those of other threads are handled as before.
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

/// A kernel whose panic ends it, and nobody else.
pub(super) struct Guarded {
    pub(super) kernel: SteppedKernel,
    /// Its panic, if it ended by one.
    pub(super) panicked: Rc<RefCell<Option<Panic>>>,
}

impl Future for Guarded {
    type Output = ringwork_isa::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| self.kernel.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            *self.panicked.borrow_mut() = LAST.take();
            Poll::Ready(Err(ringwork_isa::Error::failed("the kernel panicked")))
        })
    }
}
