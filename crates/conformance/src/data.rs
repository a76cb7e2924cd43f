//! Data instructions: what they do, and that a refused one has written nothing.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::refused::refused;
use crate::{DATA_BYTES, Machine, Seat};
use ringwork_isa::{
    Core, Dtype, Element, MAX_RANKS, Rank, ReduceOp, Region, Result, Segment, Shared, Span, Tile, TileOps,
    Window, with_dtype,
};

fn tile<T: Element>(values: impl IntoIterator<Item = i64>) -> Tile<T> {
    Tile::new(values.into_iter().map(T::from_i64).collect())
}

/// Eight words that hold 0, 1, ... 7, at the beginning of the data.
async fn count<C: Core>(core: &C, seat: Seat) -> Result<Shared<i32>> {
    let all = seat.buffer::<i32>(0, 8);
    core.store(all, &tile(0..8)).await?;
    Ok(all)
}

async fn holds<C: Core>(core: &C, all: Shared<i32>, wanted: [i32; 8]) -> Result<()> {
    assert_eq!(core.load(all).await?.values(), wanted);
    Ok(())
}

const UNTOUCHED: [i32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

pub fn what_is_stored_is_loaded_for_every_dtype<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(1).run_well(async |core, seat| {
            let (some, next) = (seat.buffer::<T>(16, 5), seat.buffer::<T>(16 + 5 * size_of::<T>() as u64, 1));
            let wanted = tile([-3, 0, 7, 100, -128]);
            core.store(some, &wanted).await?;
            assert_eq!(core.load(some).await?, wanted);
            assert_eq!(core.load(next).await?, tile([0]), "written past the end");
            Ok(())
        }));
    }
}

pub fn a_copy_moves_its_elements_and_nothing_else<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        core.copy(all.slice(1..3)?, all.slice(5..7)?).await?;
        holds(core, all, [0, 5, 6, 3, 4, 5, 6, 7]).await?;
        core.copy(all.slice(3..6)?, all.slice(0..3)?).await?;
        holds(core, all, [0, 5, 6, 0, 5, 6, 6, 7]).await
    });
}

pub fn a_copy_of_another_length_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (dst, src) = (all.slice(0..4)?, all.slice(4..7)?);
        refused!(
            core.copy(dst, src),
            "{site}: the source has 3 elements where 4 are needed"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_copy_onto_itself_does_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        core.copy(all, all).await?;
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_copy_that_partly_overlaps_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        for (dst, src) in [(0..4, 3..7), (3..7, 0..4), (1..8, 0..7)] {
            let (dst, src) = (all.slice(dst)?, all.slice(src)?);
            refused!(
                core.copy(dst, src),
                "{site}: the destination overlaps source 0 without being the same place; use disjoint regions"
            );
        }
        holds(core, all, UNTOUCHED).await
    });
}

/// Values for which the order, the width of the accumulator and the rounding all show.
fn rough<T: Element>(rank: u32) -> Tile<T> {
    // Where the next integer is no longer exact: 2^24 is infinite for an f16, and infinities give NaN. Products of 8-bit floats
    // must stay below their largest value.
    let large = T::DTYPE.exact_integers().min(1 << 24);
    let wide = [large, 1, -large, 3][rank as usize % 4];
    let sixteen_bits = [large.min(2048), 1, 1, 1][rank as usize % 4];
    let middle = if large < 100 { 5 } else { 100 };
    tile([
        wide,
        sixteen_bits,
        i64::from(rank) - 2,
        middle + i64::from(rank),
        -7,
    ])
}

pub fn a_reduction_is_folded_in_order_wide_and_rounded_once<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(3).run_well(async |core, seat| {
            let (mine, result) = (seat.buffer::<T>(0, 5), seat.buffer::<T>(64, 5));
            core.store(mine, &rough(seat.me.0)).await?;
            seat.barrier().arrive_and_wait(core).await?;
            for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(T::DTYPE)) {
                core.reduce(result, mine.on_all(), op).await?;
                assert_eq!(core.load(result).await?, folded(op), "{op} of {}", T::DTYPE);
            }
            Ok(())
        }));
    }
}

/// What the [`rough`] values of three ranks give.
fn folded<T: Element>(op: ReduceOp) -> Tile<T> {
    let inputs = [0, 1, 2].map(rough::<T>);
    let fold = |i: usize| {
        let [a, b, c] = [0, 1, 2].map(|rank: usize| inputs[rank].values()[i].widen());
        T::narrow(T::finish(op, T::combine(op, T::combine(op, a, b), c), 3))
    };
    Tile::new((0..5).map(fold).collect())
}

pub fn a_reduction_to_all_is_the_same_reduction_on_every_rank<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(3).run_well(async |core, seat| {
            let (data, meet) = (seat.buffer::<T>(0, 5), seat.barrier());
            for (round, op) in (0..).zip(ReduceOp::ALL.into_iter().filter(|op| op.is_for(T::DTYPE))) {
                core.store(data, &rough(seat.me.0)).await?;
                meet.arrive_and_wait(core).await?;
                if seat.me == Rank(round % 3) {
                    core.reduce(data.on_all(), data.on_all(), op).await?;
                }
                meet.arrive_and_wait(core).await?;
                assert_eq!(core.load(data).await?, folded(op), "{op} of {}", T::DTYPE);
            }
            Ok(())
        }));
    }
}

pub fn a_reduction_to_both_is_the_same_reduction_in_two_places<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(3).run_well(async |core, seat| {
            let (shared, own, meet) = (seat.buffer::<T>(0, 5), seat.buffer::<T>(64, 5), seat.barrier());
            for (round, op) in (0..).zip(ReduceOp::ALL.into_iter().filter(|op| op.is_for(T::DTYPE))) {
                // The reducing rank has its own elsewhere, and nothing of use where the others have theirs.
                let reduces = seat.me == Rank(round % 3);
                core.store(if reduces { own } else { shared }, &rough(seat.me.0)).await?;
                meet.arrive_and_wait(core).await?;
                if reduces {
                    core.reduce((own, shared), shared.on_others(own), op).await?;
                    for place in [own, shared] {
                        assert_eq!(core.load(place).await?, folded(op), "{op} of {}", T::DTYPE);
                    }
                }
                meet.arrive_and_wait(core).await?;
            }
            Ok(())
        }));
    }
}

pub fn a_reduction_to_places_of_unequal_lengths_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (dst, other, source) = (all.slice(0..2)?, all.slice(2..5)?, all.slice(5..7)?);
        refused!(
            core.reduce((dst, other), [source], ReduceOp::Sum),
            "{site}: the second destination has 3 elements where 2 are needed"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_reduction_may_write_one_of_its_sources<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (a, b) = (all.slice(0..3)?, all.slice(4..7)?);
        core.reduce(b, [a, b], ReduceOp::Sum).await?;
        holds(core, all, [0, 1, 2, 3, 4, 6, 8, 7]).await?;
        core.reduce(a, [a, a, b], ReduceOp::Sum).await?;
        holds(core, all, [4, 8, 12, 3, 4, 6, 8, 7]).await
    });
}

pub fn a_reduction_that_partly_overlaps_a_source_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (dst, apart, across) = (all.slice(0..3)?, all.slice(4..7)?, all.slice(2..5)?);
        refused!(
            core.reduce(dst, [apart, across], ReduceOp::Max),
            "{site}: the destination overlaps source 1 without being the same place; use disjoint regions"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_reduction_of_nothing_or_unequal_lengths_is_refused<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (dst, src) = (all.slice(0..2)?, all.slice(4..6)?);
        let nothing: [Shared<i32>; 0] = [];
        refused!(
            core.reduce(dst, nothing, ReduceOp::Sum),
            "{site}: a reduction needs at least one source"
        );
        let longer = all.slice(4..7)?;
        refused!(
            core.reduce(dst, [src, longer], ReduceOp::Sum),
            "{site}: a source has 3 elements where 2 are needed"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_reduction_of_too_many_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let too_many = [all.slice(4..6)?; MAX_RANKS as usize + 1];
        refused!(
            core.reduce(all.slice(0..2)?, too_many, ReduceOp::Sum),
            "{site}: a reduction takes at most 64 sources, not 65"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_tile_of_another_length_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let long = tile(0..9);
        refused!(
            core.store(all, &long),
            "{site}: the tile has 9 elements where 8 are needed"
        );
        holds(core, all, UNTOUCHED).await
    });
}

pub fn empty_regions_are_fine_everywhere<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        let (none, end) = (all.slice(3..3)?, seat.buffer::<i32>(DATA_BYTES, 0));
        core.copy(none, end).await?;
        core.copy(end, none).await?;
        core.reduce(none, [none, end], ReduceOp::Sum).await?;
        let tile = core.load(none).await?;
        assert!(tile.is_empty() && core.add(&tile, &tile).await?.is_empty());
        core.store(end, &tile).await?;
        holds(core, all, UNTOUCHED).await
    });
}

/// Handles that are not data of the window, and the bytes that each names.
fn strays(seat: Seat) -> Vec<Shared<i32>> {
    let good = seat.buffer::<i32>(0, 2).span();
    let stray = |change: &dyn Fn(&mut Span)| -> Region<i32, Window> {
        let mut span = good;
        change(&mut span);
        Region::from_span(span).unwrap()
    };
    vec![
        stray(&|span| span.segment = Segment(99)),
        stray(&|span| span.start = DATA_BYTES / 4 - 1),
        stray(&|span| span.len = u64::MAX / 8),
        stray(&|span| span.len = u64::MAX),
        stray(&|span| span.start = u64::MAX),
        stray(&|span| span.base -= 4),
        stray(&|span| span.base = 0),
        stray(&|span| span.base = u64::MAX - 3),
        stray(&|span| span.base += 2),
        stray(&|span| span.stride = u64::MAX),
        stray(&|span| (span.rank, span.ranks) = (Rank(2), 3)),
        stray(&|span| span.ranks = 0),
    ]
}

pub fn handles_that_reach_outside_the_data_are_refused_and_write_nothing<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        if seat.me != Rank(1) {
            return Ok(());
        }
        let all = count(core, seat).await?;
        for stray in strays(seat) {
            let span = stray.span();
            let bytes = span.byte_range().unwrap_or(0..0);
            let message = format!(
                "{{site}}: segment {} is not mapped here at bytes {}..{}; the handle is stale or belongs to another chip",
                span.segment, bytes.start, bytes.end
            );
            refused!(core.load(stray), &message);
            if span.len == 2 {
                let (near, far) = (all.slice(0..2)?, all.slice(4..6)?);
                refused!(core.store(stray, &tile(8..10)), &message);
                refused!(core.copy(stray, near), &message);
                refused!(core.copy(near, stray), &message);
                refused!(core.reduce(stray, [near, far], ReduceOp::Sum), &message);
                refused!(core.reduce(near, [far, stray], ReduceOp::Sum), &message);
            }
            refused!(core.copy(stray, stray), &message);
        }
        holds(core, all, UNTOUCHED).await
    });
}

pub fn a_slice_past_the_end_and_a_rank_past_the_domain_are_refused<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let all = count(core, seat).await?;
        refused!(
            async { core.load(all.slice(6..9)?).await },
            "{site}: elements 6..9 are outside a region of 8; make the buffer larger or split the transfer"
        );
        refused!(
            async { core.load(all.on(Rank(2))?).await },
            "{site}: there is no rank 2 in a domain of 2"
        );
        holds(core, all, UNTOUCHED).await
    });
}
