//! The maker of this processor, for tuning that its instruction set does not decide.

use std::sync::OnceLock;

/// Whether it is one of Intel's; looked up once per process.
pub(crate) fn is_intel() -> bool {
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
