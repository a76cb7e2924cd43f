//! A clock that all processes of a machine share, read in a few nanoseconds.
//!
//! For measuring hundreds of nanoseconds across processes: ticks of different processes can be
//! compared. On x86-64 it is the time stamp counter, where the processor says that it runs at one rate on all
//! cores; elsewhere it is the system's monotonic clock.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Now. Everything before it has been executed; what comes after may have begun.
#[inline]
#[must_use]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if counter_is_constant() {
        let mut core = 0;
        // SAFETY: every 64-bit x86 that has a constant time stamp counter has `rdtscp`; it only reads, and writes
        // the number of the core to a variable of ours.
        return unsafe { std::arch::x86_64::__rdtscp(&raw mut core) };
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds_ns = time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
    seconds_ns.wrapping_add(time.tv_nsec.cast_unsigned())
}

/// Now, for the trace: faster, but the processor may read it a few instructions early or late.
#[inline]
#[must_use]
pub fn about_now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if counter_is_constant() {
        // SAFETY: every 64-bit x86 has `rdtsc`; it only reads.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    now()
}

/// Nanoseconds per tick. Takes 20 ms: ask once.
#[must_use]
pub fn ns_per_tick() -> f64 {
    let (start, before) = (Instant::now(), now());
    while start.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (after, elapsed) = (now(), start.elapsed());
    elapsed.as_nanos() as f64 / after.saturating_sub(before).max(1) as f64
}

/// Whether the counter runs at one rate, on all cores, whatever they do.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter_is_constant() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // Asked of the processor, not of /proc: every chip asks when it comes up, and with hundreds of processors
    // that file takes milliseconds.
    *ANSWER.get_or_init(|| {
        use std::arch::x86_64::__cpuid;
        const EXTENDED: u32 = 0x8000_0000;
        if __cpuid(EXTENDED).eax < EXTENDED + 7 {
            return false;
        }
        let has_rdtscp = __cpuid(EXTENDED + 1).edx & (1 << 27) != 0;
        let is_invariant = __cpuid(EXTENDED + 7).edx & (1 << 8) != 0;
        has_rdtscp && is_invariant
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_grow_and_are_about_as_long_as_they_say() {
        let scale = ns_per_tick();
        let (start, before) = (Instant::now(), now());
        std::thread::sleep(Duration::from_millis(30));
        let (ticks, real) = (now() - before, start.elapsed());
        let measured = ticks as f64 * scale / real.as_nanos() as f64;
        assert!((0.8..1.25).contains(&measured), "{measured}");
    }
}
