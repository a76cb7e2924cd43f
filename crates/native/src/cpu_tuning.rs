//! Numbers that are true of some processors only, each with its source. `core/README.md` has the measurements.
//!
//! From which size another kind of store pays is in `core/store_policy.rs`, which learns while it runs what it can.

use std::sync::OnceLock;

/// Stores to nowhere after a packet. Together with the stores of the call they fill the store buffer: 64 entries on Zen 4
/// (AMD's optimisation guide 57647), 72 on Ice Lake (Intel's optimisation manual 248966).
pub(crate) const STORES_TO_NOWHERE: u32 = 56;

/// Lines that a core can request without stalling: Ice Lake has 12 fill buffers (Intel's manual), of which the call itself
/// uses some.
pub(crate) const FEW_LINES: usize = 8;

/// Copies that are shorter end before a string instruction has started up; measured on Ice Lake.
#[cfg(target_arch = "x86_64")]
pub(crate) const LEAST_STRING_BYTES: usize = 2 << 10;

/// How a core prefetches the lines of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchPolicy {
    /// Whether many requests stall the core. Then it prefetches the lines of its next packet after it has read the
    /// others' packets, and not right after its own put.
    pub(crate) few_at_once: bool,
    /// Whether it prefetches a peer's packet before it looks for it.
    pub(crate) before_looking: bool,
}

impl PrefetchPolicy {
    /// Intel cores have about ten requests in flight and stall on one more: prefetching the 17 lines of 1 KiB after a
    /// put took 86 ns of a call of 465 ns. From put to look they need 75 ns, and the peers' packets arrive after 30
    /// ns, so these are prefetched meanwhile. Other processors were not measured. Between far cores no prefetch is
    /// early enough.
    pub(crate) fn of_this_processor() -> PrefetchPolicy {
        let intel = is_intel();
        PrefetchPolicy {
            few_at_once: intel,
            before_looking: intel,
        }
    }
}

/// Whether the string instruction is the fastest copy on this processor; looked up once per process. It was measured on
/// Intel's alone.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn copies_by_string() -> bool {
    static FASTEST: OnceLock<bool> = OnceLock::new();
    *FASTEST.get_or_init(|| is_intel() && has_enhanced_string())
}

/// "Enhanced `rep movsb`": bit 9 of ebx in leaf 7.
#[cfg(target_arch = "x86_64")]
fn has_enhanced_string() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 9) != 0
}

/// Whether it is one of Intel's; looked up once per process.
fn is_intel() -> bool {
    static INTEL: OnceLock<bool> = OnceLock::new();
    *INTEL.get_or_init(made_by_intel)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn made_by_intel() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx]
        .map(u32::to_le_bytes)
        .as_flattened()
        == b"GenuineIntel"
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn made_by_intel() -> bool {
    false
}
