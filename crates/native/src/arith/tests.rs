//! Every level against `Element`, bit for bit; nothing else written; races harmless.

use super::Isa;
use proptest::prelude::*;
use ringwork_isa::{Dtype, Element, ReduceOp, with_dtype};
use ringwork_testkit::Rng;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

const CANARY: u8 = 0xA5;
const CANARY_BYTES: usize = 128;
const ALIGNED_BYTES: usize = 64;

/// Memory at a chosen distance from a cache line, with canaries on both sides.
struct Memory {
    words: Vec<u64>,
    start: usize,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize, misaligned_bytes: usize) -> Self {
        let all = bytes + misaligned_bytes + 2 * CANARY_BYTES + ALIGNED_BYTES;
        let words = vec![u64::from_ne_bytes([CANARY; 8]); all.div_ceil(8)];
        let start = words.as_ptr().addr().wrapping_neg() % ALIGNED_BYTES + CANARY_BYTES + misaligned_bytes;
        Memory { words, start, bytes }
    }

    fn holding(contents: &[u8], misaligned_bytes: usize) -> Self {
        let mut memory = Memory::new(contents.len(), misaligned_bytes);
        let at = memory.ptr();
        // SAFETY: `ptr` is the start of that many bytes.
        unsafe { at.copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
        memory
    }

    fn ptr(&mut self) -> *mut u8 {
        // SAFETY: `start` is inside the allocation.
        unsafe { self.words.as_mut_ptr().cast::<u8>().add(self.start) }
    }

    /// The contents, after checking that the canaries live.
    fn contents(&self) -> Vec<u8> {
        let all: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (before, rest) = all.split_at(self.start);
        let (contents, after) = rest.split_at(self.bytes);
        assert!(
            before.iter().chain(after).all(|&byte| byte == CANARY),
            "wrote outside the destination"
        );
        contents.to_vec()
    }
}

/// The bits of one element: special, small, or anything.
fn element(rng: &mut Rng, dtype: Dtype) -> u64 {
    let special = specials(dtype);
    match rng.below(8) {
        0 | 1 => special[rng.below(special.len())],
        2..=4 => with_dtype!(dtype, T => bits(T::from_i64(rng.below(41) as i64 - 20))),
        _ => rng.next_u64(),
    }
}

fn elements(rng: &mut Rng, dtype: Dtype, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| element(rng, dtype).to_le_bytes().into_iter().take(dtype.bytes()))
        .collect()
}

/// Zeros, units, extremes; for floats also infinities, NaNs (quiet, signalling, signed), subnormals and ties.
fn specials(dtype: Dtype) -> Vec<u64> {
    let sign = 1u64 << (dtype.bytes() * 8 - 1);
    if !dtype.is_float() {
        return vec![0, 1, u64::MAX, sign, sign - 1, sign + 1];
    }
    let mantissa_bits = dtype.exact_integers().ilog2() - 1;
    let unit = 1u64 << mantissa_bits;
    let infinity = sign - unit;
    let quiet = unit >> 1;
    let magnitudes = [
        0,
        1,
        unit - 1,
        unit,
        infinity - 1,
        infinity,
        infinity + quiet,
        infinity + 1,
        infinity + quiet + 3,
    ];
    let one = with_dtype!(dtype, T => bits(T::from_i64(1)));
    let ties = [one, one + 1, one + 2, one + (unit >> 7)];
    magnitudes
        .into_iter()
        .chain(ties)
        .flat_map(|m| [m, m | sign])
        .collect()
}

fn bits<T: Element>(value: T) -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: an element is plain bytes, at most 8 of them.
    unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(value) };
    u64::from_le_bytes(bytes)
}

fn read<T: Element>(bytes: &[u8], index: usize) -> T {
    let bytes = &bytes[index * size_of::<T>()..][..size_of::<T>()];
    // SAFETY: an element is plain bytes, and there are enough.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// What `isa` says the result is.
fn reference<T: Element>(op: ReduceOp, sources: &[Vec<u8>], count: usize) -> Vec<u8> {
    let fold = |i| {
        let first = read::<T>(&sources[0], i).widen();
        let wide = sources[1..]
            .iter()
            .fold(first, |acc, s| T::combine(op, acc, read::<T>(s, i).widen()));
        T::narrow(T::finish(op, wide, sources.len()))
    };
    (0..count)
        .flat_map(|i| bits(fold(i)).to_le_bytes().into_iter().take(size_of::<T>()))
        .collect()
}

/// Equal to the bit, except that `Sum`, `Prod` and `Avg` may keep the payload of another NaN.
fn assert_same<T: Element>(op: ReduceOp, got: &[u8], wanted: &[u8], what: &dyn std::fmt::Debug) {
    for i in 0..wanted.len() / size_of::<T>() {
        let (got, wanted) = (read::<T>(got, i), read::<T>(wanted, i));
        // Miri also makes up payloads when NEON converts f16.
        let any_nan = cfg!(miri) || matches!(op, ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg);
        let both_nan = got.to_f64().is_nan() && wanted.to_f64().is_nan();
        let (got, wanted) = (bits(got), bits(wanted));
        assert!(
            got == wanted || (any_nan && both_nan),
            "{what:?}: element {i} is {got:x}, not {wanted:x}"
        );
    }
}

fn levels() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

/// Every dtype, operator and level on one shape; `alias` makes that source the destination.
fn check_reduce(seed: u64, count: usize, sources: usize, alias: Option<usize>) {
    for dtype in Dtype::ALL {
        let mut rng = Rng(seed);
        let contents: Vec<_> = (0..sources).map(|_| elements(&mut rng, dtype, count)).collect();
        for op in ReduceOp::ALL {
            let wanted = with_dtype!(dtype, T => reference::<T>(op, &contents, count));
            for isa in levels() {
                let mut place = || rng.below(ALIGNED_BYTES / dtype.bytes()) * dtype.bytes();
                let mut memories: Vec<_> = contents.iter().map(|c| Memory::holding(c, place())).collect();
                let mut separate = Memory::new(count * dtype.bytes(), place());
                let pointers: Vec<_> = memories.iter_mut().map(|m| m.ptr().cast_const()).collect();
                let dst = alias.map_or(separate.ptr(), |source| pointers[source].cast_mut());
                // SAFETY: every memory holds `count` elements and `dst` is one of them or its own.
                unsafe { isa.reduce(dtype, op, dst, &pointers, count) };
                for (index, (memory, before)) in memories.iter().zip(&contents).enumerate() {
                    let after = memory.contents();
                    assert!(alias == Some(index) || after == *before, "a source changed");
                }
                let got = alias.map_or(&separate, |source| &memories[source]).contents();
                let what = (dtype, op, isa, count, sources, alias);
                with_dtype!(dtype, T => assert_same::<T>(op, &got, &wanted, &what));
                let mut everywhere: Vec<_> = contents.iter().map(|c| Memory::holding(c, place())).collect();
                let places: Vec<_> = everywhere.iter_mut().map(Memory::ptr).collect();
                let sources: Vec<_> = places.iter().map(|place| place.cast_const()).collect();
                // SAFETY: every memory holds `count` elements and is its own.
                unsafe { isa.reduce_to_each(dtype, op, &places, &sources, count) };
                for memory in &everywhere {
                    with_dtype!(dtype, T => assert_same::<T>(op, &memory.contents(), &wanted, &what));
                }
            }
        }
    }
}

fn cases(many: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { many },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn longest() -> usize {
    if cfg!(miri) { 12 } else { 200 }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_level_equals_the_reference(seed: u64, count in 0..=longest(), sources in 1usize..=9) {
        check_reduce(seed, count, sources, None);
    }

    #[test]
    fn the_destination_may_be_any_source(seed: u64, count in 0..=longest(), sources in 1usize..=9, pick: prop::sample::Index) {
        check_reduce(seed, count, sources, Some(pick.index(sources)));
    }

    #[test]
    fn copies_are_exact_and_stay_inside(
        seed: u64, bytes in 0..=20 * longest(), from in 0..64usize, to in 0..64usize
    ) {
        let contents = elements(&mut Rng(seed), Dtype::U8, bytes);
        let check = |way: &str, copy: &dyn Fn(*mut u8, *const u8)| {
            let mut src = Memory::holding(&contents, from);
            let mut dst = Memory::new(bytes, to);
            copy(dst.ptr(), src.ptr());
            prop_assert_eq!(dst.contents(), &contents[..], "{}", way);
            Ok(())
        };
        for isa in levels() {
            // SAFETY: both hold `bytes`.
            check(&format!("{isa:?}"), &|dst, src| unsafe { isa.copy(dst, src, bytes) })?;
            // SAFETY: as above.
            check(&format!("{isa:?} streaming"), &|dst, src| unsafe { isa.copy_streaming(dst, src, bytes) })?;
        }
        // SAFETY: as above.
        check("the fastest", &|dst, src| unsafe { super::copy(dst, src, bytes) })?;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above.
        check("by string", &|dst, src| unsafe { super::rep_movsb::copy(dst, src, bytes) })?;
    }

    /// The contract of the collectives, NaN payloads included.
    #[test]
    fn chunking_changes_no_bit(seed: u64, count in 0..=longest(), cut: prop::sample::Index, sources in 1usize..=5) {
        for dtype in Dtype::ALL {
            let mut rng = Rng(seed);
            let mut memories: Vec<_> =
                (0..sources).map(|_| Memory::holding(&elements(&mut rng, dtype, count), 0)).collect();
            let pointers: Vec<_> = memories.iter_mut().map(|m| m.ptr().cast_const()).collect();
            let cut = cut.index(count + 1);
            for (op, isa) in ReduceOp::ALL.into_iter().flat_map(|op| levels().map(move |isa| (op, isa))) {
                let mut whole = Memory::new(count * dtype.bytes(), 0);
                let mut parts = Memory::new(count * dtype.bytes(), 0);
                // SAFETY: every memory holds `count` elements, and `cut` is one of them or the end.
                unsafe {
                    let offset = cut * dtype.bytes();
                    let later: Vec<_> = pointers.iter().map(|p| p.add(offset)).collect();
                    isa.reduce(dtype, op, whole.ptr(), &pointers, count);
                    isa.reduce(dtype, op, parts.ptr(), &pointers, cut);
                    isa.reduce(dtype, op, parts.ptr().add(offset), &later, count - cut);
                }
                let (whole, parts, what) = (whole.contents(), parts.contents(), (dtype, op, isa, cut));
                with_dtype!(dtype, T => assert_same::<T>(op, &parts, &whole, &what));
                // Miri makes up a new payload for every NaN, as Rust allows; processors do not.
                prop_assert!(cfg!(miri) || whole == parts, "{:?}: a NaN changed", what);
            }
        }
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "takes minutes, and differs from nine sources in nothing Miri sees"
)]
fn sixty_four_sources_are_folded_in_order() {
    check_reduce(7, 150, 64, Some(63));
}

#[test]
fn all_pairs_of_special_values_equal_the_reference() {
    for dtype in Dtype::ALL {
        let special = specials(dtype);
        let pack = |values: Vec<u64>| -> Vec<u8> {
            values
                .into_iter()
                .flat_map(|v| v.to_le_bytes().into_iter().take(dtype.bytes()))
                .collect()
        };
        let count = special.len() * special.len();
        let left = pack(special.iter().flat_map(|&v| vec![v; special.len()]).collect());
        let right = pack((0..special.len()).flat_map(|_| special.clone()).collect());
        let sources = [left, right];
        let mut memories = sources.clone().map(|s| Memory::holding(&s, 0));
        let pointers = memories.each_mut().map(|m| m.ptr().cast_const());
        for op in ReduceOp::ALL {
            let wanted = with_dtype!(dtype, T => reference::<T>(op, &sources, count));
            let mut by_vectors = None;
            for isa in levels() {
                let mut dst = Memory::new(count * dtype.bytes(), 0);
                // SAFETY: all three hold `count` elements.
                unsafe { isa.reduce(dtype, op, dst.ptr(), &pointers, count) };
                let got = dst.contents();
                with_dtype!(dtype, T => assert_same::<T>(op, &got, &wanted, &(dtype, op, isa)));
                if isa != Isa::Plain {
                    let before = by_vectors.get_or_insert_with(|| got.clone());
                    assert!(*before == got, "{dtype} {op}: {isa:?} keeps another NaN");
                }
            }
        }
    }
}

/// All 2^32 sums would take minutes; this is every f32 that is near a 16-bit one, which is where rounding is.
#[test]
#[cfg_attr(miri, ignore = "a million elements")]
fn rounding_of_every_sixteen_bit_sum_with_a_tie_equals_the_reference() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut all = Memory::holding(&every, 0);
        for other in specials(dtype)
            .into_iter()
            .chain([0x0001, 0x0400, 0x1400, 0x3f7f, 0x4b00])
        {
            let others: Vec<u8> = (0..=u16::MAX)
                .flat_map(|_| other.to_le_bytes().into_iter().take(2))
                .collect();
            let mut right = Memory::holding(&others, 0);
            let sources = [every.clone(), others];
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg] {
                let wanted = with_dtype!(dtype, T => reference::<T>(op, &sources, 1 << 16));
                for isa in levels() {
                    let mut dst = Memory::new(2 << 16, 0);
                    // SAFETY: all three hold 2^16 elements.
                    unsafe { isa.reduce(dtype, op, dst.ptr(), &[all.ptr(), right.ptr()], 1 << 16) };
                    let what = (dtype, op, isa, other);
                    with_dtype!(dtype, T => assert_same::<T>(op, &dst.contents(), &wanted, &what));
                }
            }
        }
    }
}

/// All codes with all codes: every way in which two 8-bit floats can be added, multiplied, compared and rounded.
#[test]
#[cfg_attr(miri, ignore = "a million elements")]
fn every_pair_of_eight_bit_floats_equals_the_reference() {
    for dtype in [Dtype::F8E4M3, Dtype::F8E5M2] {
        let left: Vec<u8> = (0..=u8::MAX).flat_map(|code| [code; 256]).collect();
        let right: Vec<u8> = (0..=u8::MAX).flat_map(|_| 0..=u8::MAX).collect();
        let sources = [left, right];
        let mut memories = sources.clone().map(|source| Memory::holding(&source, 0));
        let pointers = memories.each_mut().map(|memory| memory.ptr().cast_const());
        for op in ReduceOp::ALL {
            let wanted = with_dtype!(dtype, T => reference::<T>(op, &sources, 1 << 16));
            for isa in levels() {
                let mut dst = Memory::new(1 << 16, 0);
                // SAFETY: all three hold 2^16 elements.
                unsafe { isa.reduce(dtype, op, dst.ptr(), &pointers, 1 << 16) };
                with_dtype!(dtype, T => assert_same::<T>(op, &dst.contents(), &wanted, &(dtype, op, isa)));
            }
        }
    }
}

/// Set on drop, so that a failed assertion ends the other thread too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_kernel_that_races_gets_old_or_new_numbers_and_nothing_else() {
    let shared: Vec<AtomicI32> = (0..67).map(|_| AtomicI32::new(1)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in (1..=2).cycle().take_while(|_| !stop.load(Relaxed)) {
                shared.iter().for_each(|cell| cell.store(value, Relaxed));
            }
        });
        let _stop = SetOnDrop(&stop);
        for round in 0..if cfg!(miri) { 4 } else { 2000 } {
            // By the letter of Rust's rules, which Miri follows, only `plain` may race: see the module's doc.
            for isa in levels().filter(|&isa| !cfg!(miri) || isa == Isa::Plain) {
                let mut dst = Memory::new(67 * 4, 4 * (round % 16));
                let source = shared.as_ptr().cast::<u8>();
                // SAFETY: both hold 67 elements; the other thread writes by relaxed atomics of their size.
                unsafe { isa.reduce(Dtype::I32, ReduceOp::Sum, dst.ptr(), &[source, source], 67) };
                let got = dst.contents();
                assert!(
                    (0..67).all(|i| (2..=4).contains(&read::<i32>(&got, i))),
                    "{isa:?}"
                );
            }
        }
    });
}
