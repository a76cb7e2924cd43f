//! Memory that several processes or threads share: mapped from a descriptor, or plain heap.
//!
//! The seam under everything: windows, mailboxes and cores are written against [`Memory`] and cannot
//! tell which kind they have, so Miri and unit tests run the shipped code on heap memory.
//!
//! # Invariants
//! - **MEM-1 (alive).** `base..base + len` is mapped, readable and writable as long as the `Memory` lives:
//!   descriptors are sealed against shrinking before they are mapped.
//! - **MEM-2 (no references).** No reference or slice to plain data inside it is ever made. Access is by
//!   atomics, or by copying bytes through raw pointers into private memory and looking at them there.
//! - **MEM-3 (checked).** Every access is checked against `len`, with arithmetic that cannot overflow.

use crate::cell::Cell;
use crate::error::{Error, Result};
use ringwork_layout::{MAX_BYTES, PAGE_BYTES};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::alloc::Layout;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Everything is aligned to this and sized in multiples of it.
const PAGE_LEN: usize = 4096;
const _: () = assert!(PAGE_LEN as u64 == PAGE_BYTES);

/// A piece of shared memory.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Mapped,
    Heap(Layout),
}

// SAFETY: the memory is valid from every thread (MEM-1), and all access goes through atomics or raw copies
// that expect concurrent writers (MEM-2).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed heap memory, for threads of one process.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is none.
    pub fn heap(bytes: u64) -> Result<Memory> {
        let refused = || Error::OutOfMemory {
            what: "heap memory".into(),
            need_bytes: bytes,
            have_bytes: available_bytes(),
        };
        let len = usize::try_from(bytes).map_err(|_| refused())?;
        let layout = Layout::from_size_align(len.max(1), PAGE_LEN).map_err(|_| refused())?;
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        Ok(Memory {
            base: NonNull::new(base).ok_or_else(refused)?,
            len,
            backing: Backing::Heap(layout),
        })
    }

    /// Maps a sealed descriptor of exactly `bytes` bytes and faults its pages in.
    ///
    /// # Errors
    /// If the descriptor is not sealed, has another size, or cannot be mapped.
    pub fn map(fd: impl AsFd, bytes: u64) -> Result<Memory> {
        check_sealed(fd.as_fd(), bytes)?;
        let len = usize::try_from(bytes).map_err(|_| too_large(bytes))?;
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice; it overlaps nothing of ours.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) }
            .map_err(Error::system("mapping shared memory"))?;
        // Windows can be large and hold user data: keep them out of core dumps. Harmless if refused.
        // SAFETY: exactly the mapping just made.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontDump) };
        let base = NonNull::new(base.cast()).ok_or_else(|| too_large(bytes))?;
        Ok(Memory {
            base,
            len,
            backing: Backing::Mapped,
        })
    }

    /// Bytes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to `bytes` bytes at `offset`, if they are all inside (MEM-3) and aligned to `align`.
    #[must_use]
    #[inline(always)]
    pub fn pointer(&self, offset: u64, bytes: u64, align: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        let offset = usize::try_from(offset).ok()?;
        // Alignments are powers of two; a division would cost as much as the rest of an instruction.
        debug_assert!(align.is_power_of_two());
        if end > self.len as u64 || offset & (align - 1) != 0 {
            return None;
        }
        // SAFETY: `offset` is at most `len`, inside or one past the end of the allocation (MEM-1).
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    /// Where `offset` would be, inside or not: for hints, which access nothing.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whatever it is, nothing is accessed there"
    )]
    pub(crate) fn hint(&self, offset: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// [`pointer`](Memory::pointer) to bytes that are known to be inside.
    ///
    /// # Safety
    /// `offset` is at most [`len`](Memory::len).
    #[must_use]
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most the length, which is a usize"
    )]
    pub unsafe fn pointer_inside(&self, offset: u64, align: usize) -> Option<*mut u8> {
        debug_assert!(offset <= self.len as u64 && align.is_power_of_two());
        let offset = offset as usize;
        // SAFETY: the caller's promise: inside or one past the end of the allocation (MEM-1).
        (offset & (align - 1) == 0).then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// [`cell`](Memory::cell) where there is known to be room for one.
    ///
    /// # Safety
    /// A cell at `offset` lies inside, and `offset` is a multiple of its size.
    #[must_use]
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most the length, which is a usize"
    )]
    pub unsafe fn cell_inside(&self, offset: u64) -> &Cell {
        debug_assert!(self.cell(offset).is_some());
        // SAFETY: as in `cell`, by the caller's promise.
        unsafe { &*self.base.as_ptr().add(offset as usize).cast::<Cell>() }
    }

    /// The signal cell at `offset`.
    #[must_use]
    #[inline(always)]
    pub fn cell(&self, offset: u64) -> Option<&Cell> {
        let pointer = self.pointer(offset, size_of::<Cell>() as u64, align_of::<Cell>())?;
        // SAFETY: inside, aligned, alive as long as self (MEM-1); a Cell is all atomics, for which any
        // bit pattern is valid and any concurrent access is defined.
        Some(unsafe { &*pointer.cast::<Cell>() })
    }

    /// The atomic word at `offset`.
    #[must_use]
    #[inline(always)]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words::<1>(offset).map(|[word]| word)
    }

    /// The atomic words from `offset`, checked once for all of them.
    #[must_use]
    #[inline(always)]
    pub fn words<const N: usize>(&self, offset: u64) -> Option<&[AtomicU64; N]> {
        let pointer = self.pointer(
            offset,
            size_of::<[AtomicU64; N]>() as u64,
            align_of::<AtomicU64>(),
        )?;
        // SAFETY: inside, aligned, alive as long as self (MEM-1), only ever accessed as atomics, for which any bit
        // pattern is valid and any concurrent access is defined.
        Some(unsafe { &*pointer.cast::<[AtomicU64; N]>() })
    }

    /// Copies bytes out. Returns false, having done nothing, if they are not all inside.
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(from) = self.pointer(offset, into.len() as u64, 1) else {
            return false;
        };
        // SAFETY: inside (MEM-3) and alive (MEM-1); `into` is private memory, so they cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies bytes in. Returns false, having done nothing, if they do not fit.
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(into) = self.pointer(offset, from.len() as u64, 1) else {
            return false;
        };
        // SAFETY: inside (MEM-3) and alive (MEM-1); `from` is private memory, so they cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: mapped by `map` with this length; no reference outlives self.
            Backing::Mapped => drop(unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) }),
            // SAFETY: allocated by `heap` with this layout; no reference outlives self.
            Backing::Heap(layout) => unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) },
        }
    }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Creates anonymous, zeroed, sealed memory of `bytes` bytes.
///
/// It has no name in any file system: when the last descriptor and mapping are gone, so is it, however
/// the processes ended.
///
/// # Errors
/// [`Error::OutOfMemory`] before anything is taken, if that much is not free.
pub fn create_sealed(what: &str, bytes: u64) -> Result<OwnedFd> {
    let have_bytes = available_bytes();
    if bytes > have_bytes || bytes > MAX_BYTES {
        return Err(Error::OutOfMemory {
            what: what.into(),
            need_bytes: bytes,
            have_bytes,
        });
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("ringwork", flags).map_err(Error::system("creating shared memory"))?;
    let reserve =
        || rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, bytes.max(PAGE_BYTES));
    rustix::io::retry_on_intr(reserve).map_err(|error| match error {
        // Somebody else took it meanwhile.
        Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory {
            what: what.into(),
            need_bytes: bytes,
            have_bytes: available_bytes(),
        },
        _ => Error::system(format!("reserving {bytes} bytes of shared memory for {what}"))(error),
    })?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(Error::system("sealing shared memory"))?;
    Ok(fd)
}

fn check_sealed(fd: impl AsFd, bytes: u64) -> Result<()> {
    let invalid = |field: &'static str, got: String, wanted: String| {
        Error::Invalid(ringwork_isa::Error::corrupt(
            "a shared memory descriptor",
            field,
            got,
            wanted,
        ))
    };
    let seals =
        rustix::fs::fcntl_get_seals(&fd).map_err(Error::system("reading the seals of shared memory"))?;
    if !seals.contains(SEALS) {
        return Err(invalid("seals", format!("{seals:?}"), format!("{SEALS:?}")));
    }
    let stat = rustix::fs::fstat(&fd).map_err(Error::system("reading the size of shared memory"))?;
    if u64::try_from(stat.st_size).ok() != Some(bytes) {
        return Err(invalid("size", stat.st_size.to_string(), bytes.to_string()));
    }
    Ok(())
}

fn too_large(bytes: u64) -> Error {
    Error::OutOfMemory {
        what: "a mapping".into(),
        need_bytes: bytes,
        have_bytes: available_bytes(),
    }
}

/// Bytes that can be taken without pushing this machine, or a control group of this process, out of memory.
#[must_use]
pub fn available_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let host = field(&meminfo, "MemAvailable:").map_or(MAX_BYTES, |kib| kib.saturating_mul(1024));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups.lines().filter_map(group_directory);
    // A limit anywhere above counts too.
    let free = groups.flat_map(|(group, files)| {
        let above: Vec<_> = group.ancestors().map(Path::to_owned).collect();
        above
            .into_iter()
            .filter_map(move |group| group_free_bytes(&group, files))
    });
    free.fold(host, u64::min)
}

/// The number after a name, in files that have one of each per line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Names of a control group's limit, use, and the part of its use that is only cache.
type GroupFiles = [&'static str; 3];

/// Where a line of `/proc/self/cgroup` says that memory is accounted, if it does.
fn group_directory(line: &str) -> Option<(PathBuf, GroupFiles)> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (root, files) = match controllers {
        "" => (
            "/sys/fs/cgroup",
            ["memory.max", "memory.current", "inactive_file "],
        ),
        "memory" => (
            "/sys/fs/cgroup/memory",
            [
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            ],
        ),
        _ => return None,
    };
    Some((Path::new(root).join(path.trim_start_matches('/')), files))
}

/// What a control group's limit leaves; `None` if it has none.
fn group_free_bytes(group: &Path, [limit, used, cache]: GroupFiles) -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    left(
        &read(limit)?,
        &read(used)?,
        &read("memory.stat").unwrap_or_default(),
        cache,
    )
}

/// A limit less what is used. Cache does not count: it is given back when it is needed.
fn left(limit: &str, used: &str, stat: &str, cache: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let cached = field(stat, cache).unwrap_or(0);
    Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_past_the_end_is_refused_and_touches_nothing() {
        let memory = Memory::heap(PAGE_BYTES).unwrap();
        assert!(memory.write(PAGE_BYTES - 2, &[1, 2]));
        assert!(!memory.write(PAGE_BYTES - 1, &[9, 9]));
        assert!(!memory.write(u64::MAX, &[9]));
        let mut last = [0; 2];
        assert!(memory.read(PAGE_BYTES - 2, &mut last));
        assert_eq!(last, [1, 2]);
        assert!(memory.cell(PAGE_BYTES - 128).is_some());
        assert!(memory.cell(PAGE_BYTES - 64).is_none());
        assert!(memory.word(4).is_none(), "misaligned");
    }

    #[test]
    #[cfg_attr(miri, ignore = "memfd does not exist under Miri")]
    fn mapped_memory_is_zeroed_shared_and_sealed() {
        let fd = create_sealed("a test", 8192).unwrap();
        let (a, b) = (Memory::map(&fd, 8192).unwrap(), Memory::map(&fd, 8192).unwrap());
        let mut byte = [1];
        assert!(a.read(5000, &mut byte) && byte == [0]);
        assert!(a.write(5000, &[7]) && b.read(5000, &mut byte));
        assert_eq!(byte, [7]);
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(Memory::map(&fd, 4096).is_err(), "another size than announced");
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let directory =
            |line: &str| group_directory(line).map(|(path, files)| (path.display().to_string(), files[0]));
        assert_eq!(directory("0::/"), Some(("/sys/fs/cgroup/".into(), "memory.max")));
        assert_eq!(
            directory("0::/a/b"),
            Some(("/sys/fs/cgroup/a/b".into(), "memory.max"))
        );
        let v1 = ("/sys/fs/cgroup/memory/job".into(), "memory.limit_in_bytes");
        assert_eq!(directory("4:memory:/job"), Some(v1));
        assert_eq!(directory("3:cpuset:/"), None);
        assert_eq!(directory("nonsense"), None);
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_its_use_but_for_cache() {
        let stat = "anon 1\ninactive_file 300\n";
        assert_eq!(left("1000\n", "900\n", "", "inactive_file "), Some(100));
        assert_eq!(left("1000\n", "900\n", stat, "inactive_file "), Some(400));
        assert_eq!(left("1000\n", "2000\n", stat, "inactive_file "), Some(0));
        assert_eq!(left("max\n", "900\n", stat, "inactive_file "), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "memfd does not exist under Miri")]
    fn more_memory_than_there_is_is_refused_with_both_numbers() {
        let error = create_sealed("a window", MAX_BYTES).unwrap_err().to_string();
        assert!(error.contains("a window needs 1.0 TiB of memory"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "memfd does not exist under Miri")]
    fn an_unsealed_descriptor_is_refused() {
        let fd = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(Memory::map(&fd, 4096).unwrap_err().to_string().contains("seals"));
    }
}
