//! The matrix product on this processor: the one loop of `isa`, compiled for its vectors.
//!
//! The loop works on tiles, which are private memory, and is safe code; the compiler makes its vectors. No
//! fused instruction can come of it: the bits are those of every other platform.

use super::Isa;
use ringwork_isa::Float;
#[cfg(target_arch = "x86_64")]
use ringwork_isa::product_in_blocks;

/// As [`ringwork_isa::product`], at the fastest level of this processor.
pub fn product<T: Float>(c: &mut [T::Wide], a: &[T], b: &[T], shape: [usize; 3]) {
    match Isa::best() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `best` is available (ARITH-1).
        Isa::Avx512 => unsafe { avx512(c, a, b, shape) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `best` is available (ARITH-1).
        Isa::Avx2 => unsafe { avx2(c, a, b, shape) },
        // NEON is part of every aarch64, as SSE2 is of every x86-64: the compiler uses them anyway.
        _ => ringwork_isa::product(c, a, b, shape),
    }
}

/// Blocks of 8 x 16: eight registers hold sums of f32, sixteen of f64.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<T: Float>(c: &mut [T::Wide], a: &[T], b: &[T], shape: [usize; 3]) {
    product_in_blocks::<T, 8, 16>(c, a, b, shape);
}

/// Blocks of 6 x 16: twelve of the 16 registers hold sums of f32.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn avx2<T: Float>(c: &mut [T::Wide], a: &[T], b: &[T], shape: [usize; 3]) {
    product_in_blocks::<T, 6, 16>(c, a, b, shape);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork_isa::{bf16, f16};

    fn same_bits<T: Float>() {
        let rough = |len: usize, seed: usize| -> Vec<T> {
            (0..len)
                .map(|i| T::from_f64(((i * 7919 + seed) % 2003) as f64 / 97.0 - 10.0))
                .collect()
        };
        for shape in [[0, 0, 0], [1, 1, 1], [1, 300, 70], [17, 33, 65], [9, 0, 5]] {
            let [m, k, n] = shape;
            let (a, b) = (rough(m * k, 5), rough(k * n, 11));
            let mut wanted = vec![T::wide(0.5); m * n];
            ringwork_isa::product(&mut wanted, &a, &b, shape);
            let check = |name: &str, with: &dyn Fn(&mut [T::Wide])| {
                let mut got = vec![T::wide(0.5); m * n];
                with(&mut got);
                assert_eq!(got, wanted, "{name} {shape:?}");
            };
            check("best", &|c| product(c, &a, &b, shape));
            #[cfg(target_arch = "x86_64")]
            if Isa::Avx2.available() {
                // SAFETY: it is available (ARITH-1).
                check("avx2", &|c| unsafe { avx2(c, &a, &b, shape) });
            }
        }
    }

    #[test]
    fn every_level_has_the_bits_of_the_portable_loop() {
        same_bits::<f32>();
        same_bits::<f16>();
        same_bits::<bf16>();
        same_bits::<f64>();
    }
}
