//! The limit on file sizes (`ulimit -f`): an error to be named instead of a silent death by SIGXFSZ.

const SIGXFSZ: i32 = 25;
const DEFAULT: usize = 0;
const IGNORE: usize = 1;

unsafe extern "C" {
    /// `signal(2)` of the C library, which the standard library links.
    fn signal(number: i32, handler: usize) -> usize;
}

/// From now on a write beyond the limit fails with `EFBIG`, in this process and in the chips that it starts.
///
/// For `main` of a program. Programs that [`ranks::run`](crate::ranks::run) starts die of the signal as usual.
pub fn fail_beyond_file_size_limit() {
    // SAFETY: the number is a signal's, and to ignore it needs no handler of ours.
    unsafe { signal(SIGXFSZ, IGNORE) };
}

/// Undoes it, between fork and exec.
pub(crate) fn kills_again() {
    // SAFETY: as above; `signal` may be called between fork and exec (async-signal-safe).
    unsafe { signal(SIGXFSZ, DEFAULT) };
}
