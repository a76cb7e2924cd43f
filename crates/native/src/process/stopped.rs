//! Whether a process is stopped (SIGSTOP, SIGTSTP, a debugger): it lives, so its pidfd is silent, and does nothing.

/// Whether a process is stopped by a signal or held by a debugger; false if it is gone or `/proc` is not there.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| matches!(state(&stat), Some('T' | 't')))
}

/// The state in a line of `/proc/PID/stat`. The name before it is in parentheses and may itself contain any character.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::state;

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state("12 (ringwork) S 1 12"), Some('S'));
        assert_eq!(state("12 (a) T) T 1 12"), Some('T'));
        assert_eq!(state("12 (a"), None);
        assert_eq!(state(""), None);
    }
}
