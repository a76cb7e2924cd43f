//! Ctrl-C: the first ends the run in order, the second ends the program at once. So does the first if the program is
//! blocked in writing its output.

use crate::EXIT_INTERRUPTED;
use crate::output::is_printing;
use ringwork::runtime::Interrupter;
use std::sync::{Mutex, PoisonError};

static CURRENT: Mutex<Vec<Interrupter>> = Mutex::new(Vec::new());

/// From now on Ctrl-C and SIGTERM interrupt what [`watch`] was told of; chips die with this process.
pub(crate) fn install() {
    let handler = || {
        let current = std::mem::take(&mut *CURRENT.lock().unwrap_or_else(PoisonError::into_inner));
        if current.is_empty() || is_printing() {
            std::process::exit(EXIT_INTERRUPTED.into());
        }
        current.iter().for_each(Interrupter::interrupt);
    };
    // If it cannot be installed, Ctrl-C kills this process, and the chips with it: as clean, less polite.
    let _ = ctrlc::set_handler(handler);
}

/// What Ctrl-C interrupts, too.
pub(crate) fn watch(interrupter: Interrupter) {
    CURRENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(interrupter);
}
