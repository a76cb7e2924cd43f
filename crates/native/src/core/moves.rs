//! Moving data: copy, reduce, load and store, on memory that was resolved when they were issued.

use super::lent::{self, Source};
use super::store_policy::Route;
use super::{At, NativeCore, not_mapped};
use crate::arith;
use crate::trace::progress::Doing;
use ringwork_isa::{Destinations, Error, ErrorKind, MAX_RANKS, ReduceOp, Result, Sources, Span, TileValues};

impl NativeCore {
    #[inline(always)]
    pub(super) fn copy_now(&self, dst: &Span, src: &Span, at: At) -> Result<()> {
        self.say(Doing::Copy, at);
        Error::check_operands("the source", src, dst, at)?;
        let (to, from) = (
            self.resolve(dst, true, at)?,
            self.resolve(src, false, at)?.cast_const(),
        );
        let bytes = span_bytes(dst);
        if check_overlap(to, from, bytes, 0, at)? || bytes == 0 {
            return Ok(());
        }
        // SAFETY: both were resolved to `bytes` bytes of attached segments, which live as long as self, and
        // do not overlap. Other processes may write them meanwhile: see `arith`.
        self.timed(Doing::Copy, bytes, || unsafe {
            if lent::must_be_copied(src) {
                lent::copy_by_blocks(to, from, bytes);
            } else {
                let route = Route::of(dst, src, self.lent.output_bytes(dst));
                self.store_policy.copy(route, to, from, bytes);
            }
        });
        Ok(())
    }

    /// Reduces into all destinations, in one pass if possible.
    #[inline(always)]
    pub(super) fn reduce_now<T>(
        &self,
        dsts: &impl Destinations<T>,
        sources: &impl Sources<T>,
        op: ReduceOp,
        at: At,
    ) -> Result<()> {
        if let (Some(to), Some(from)) = (dsts.on_every_rank(), sources.on_every_rank())
            && to == from
        {
            return self.reduce_on_all_ranks(&to, op, at);
        }
        match dsts.count() {
            1 => self.reduce_to_one(&dsts.destination(0), sources, op, at),
            2 => self.reduce_to_both(&dsts.destination(0), &dsts.destination(1), sources, op, at),
            count => {
                let first = dsts.destination(0);
                self.reduce_to_one(&first, sources, op, at)?;
                (1..count).try_for_each(|index| self.copy_now(&dsts.destination(index), &first, at))
            }
        }
    }

    fn reduce_to_one<T>(&self, dst: &Span, sources: &impl Sources<T>, op: ReduceOp, at: At) -> Result<()> {
        self.say(Doing::Reduce, at);
        let to = self.resolve(dst, true, at)?;
        self.with_sources(dst, &[to], sources, at, |from| {
            // SAFETY: `to` was resolved to `dst.len` aligned elements of an attached segment, which lives as long as self;
            // the sources are as `with_sources` says.
            unsafe { arith::reduce(dst.dtype, op, to, from, dst_len(dst)) }
        })
    }

    /// Reduces into two places: in one pass, or in two if the second place is faster with streaming stores.
    fn reduce_to_both<T>(
        &self,
        dst: &Span,
        shared: &Span,
        sources: &impl Sources<T>,
        op: ReduceOp,
        at: At,
    ) -> Result<()> {
        Error::check_operands("the second destination", shared, dst, at)?;
        let places = [self.resolve(dst, true, at)?, self.resolve(shared, true, at)?];
        let same = check_overlap(places[0], places[1], span_bytes(dst), 0, at)?;
        if same || self.store_policy.stages_past_the_caches(span_bytes(shared)) {
            self.reduce_to_one(dst, sources, op, at)?;
            return self.copy_now(shared, dst, at);
        }
        self.say(Doing::Reduce, at);
        self.with_sources(dst, &places, sources, at, |from| {
            // SAFETY: both places were resolved as in `reduce_to_one`, and do not overlap.
            unsafe { arith::reduce_to_each(dst.dtype, op, &places, from, dst_len(dst)) }
        })
    }

    /// Resolves what a reduction to these places reads, and does it. Each source is as many aligned elements as `dst` has, of
    /// an attached segment, which lives as long as self; each place is one of the sources or overlaps none. Other processes
    /// may write them meanwhile: see `arith`.
    #[inline(always)]
    fn with_sources<T>(
        &self,
        dst: &Span,
        places: &[*mut u8],
        sources: &impl Sources<T>,
        at: At,
        work: impl FnOnce(&[*const u8]),
    ) -> Result<()> {
        let count = sources.count();
        if count == 0 || count > MAX_RANKS as usize {
            let message = match count {
                0 => "a reduction needs at least one source".to_owned(),
                _ => format!("a reduction takes at most {MAX_RANKS} sources, not {count}"),
            };
            return Err(ErrorKind::Failed {
                message,
                site: at.into(),
            }
            .into());
        }
        let (mut room, mut kept) = (Pointers::new(std::ptr::null()), Vec::new());
        let from = room.of(count);
        for (i, slot) in from.iter_mut().enumerate() {
            let source = sources.source(i);
            Error::check_operands("a source", &source, dst, at)?;
            *slot = self.resolve(&source, false, at)?.cast_const();
            for place in places {
                check_overlap(*place, *slot, span_bytes(dst), i, at)?;
            }
            // SAFETY: it was just resolved to as many bytes as `dst` has.
            let (readable, copy) = unsafe { Source::of(&source, *slot, span_bytes(dst)) };
            *slot = readable;
            kept.extend(copy);
        }
        self.timed(Doing::Reduce, span_bytes(dst).saturating_mul(count), || {
            work(from)
        });
        Ok(())
    }

    /// Reduces a region of every rank to all of them in one pass.
    fn reduce_on_all_ranks(&self, span: &Span, op: ReduceOp, at: At) -> Result<()> {
        self.say(Doing::Reduce, at);
        let segment = self.segment(span.segment);
        let first = segment.and_then(|segment| segment.resolve_on_all(span));
        let (Some(first), 1..=MAX_RANKS) = (first, span.ranks) else {
            return Err(not_mapped(span.segment, span.byte_range(), at));
        };
        let (ranks, stride) = (span.ranks as usize, usize::try_from(span.stride).unwrap_or(0));
        let (mut places, mut sources) = (Pointers::new(first), Pointers::new(first.cast_const()));
        let (places, sources) = (places.of(ranks), sources.of(ranks));
        for (rank, (place, source)) in places.iter_mut().zip(sources.iter_mut()).enumerate() {
            // SAFETY: every rank's region was resolved, in one mapping, each a stride after the one before.
            *place = unsafe { first.add(rank * stride) };
            *source = place.cast_const();
        }
        // SAFETY: every place was resolved to `span.len` aligned elements, of one rank's window each, which live as
        // long as self and do not overlap. Other processes may write them meanwhile: see `arith`.
        self.timed(Doing::Reduce, span_bytes(span).saturating_mul(ranks), || unsafe {
            arith::reduce_to_each(span.dtype, op, places, sources, dst_len(span))
        });
        Ok(())
    }

    pub(super) fn load_now<V: TileValues>(&self, src: &Span, at: At) -> Result<V> {
        self.say(Doing::Load, at);
        let from = self.resolve(src, false, at)?;
        Ok(V::filled(src.dtype, dst_len(src), |bytes| {
            debug_assert_eq!(bytes.len(), span_bytes(src));
            // SAFETY: resolved as in `copy_now`; `bytes` is private, and no longer than what was resolved.
            unsafe {
                let len = bytes.len().min(span_bytes(src));
                lent::copy(bytes.as_mut_ptr(), lent::must_be_copied(src), from, len);
            }
        }))
    }

    pub(super) fn store_now<V: TileValues>(&self, dst: &Span, tile: &V, at: At) -> Result<()> {
        self.say(Doing::Store, at);
        Error::check_length("the tile", tile.elements() as u64, dst.len, at)?;
        let to = self.resolve(dst, true, at)?;
        let len = tile.bytes().len().min(span_bytes(dst));
        arith::readable(tile.bytes(), |from| {
            // SAFETY: resolved as in `copy_now`; the tile is private and has `len` bytes.
            unsafe { arith::copy(to, from, len) }
        });
        Ok(())
    }
}

/// The operand pointers of a reduction. Usually there are few, and clearing space for the maximum takes as long as
/// reducing a few elements.
pub(super) struct Pointers<P> {
    few: [P; 4],
    many: Option<[P; MAX_RANKS as usize]>,
}

impl<P: Copy> Pointers<P> {
    #[inline(always)]
    pub(super) fn new(null: P) -> Pointers<P> {
        Pointers {
            few: [null; 4],
            many: None,
        }
    }

    /// Space for `count` operands, at most `MAX_RANKS`.
    #[inline(always)]
    pub(super) fn of(&mut self, count: usize) -> &mut [P] {
        if count <= self.few.len() {
            return &mut self.few[..count];
        }
        &mut self.many.insert([self.few[0]; MAX_RANKS as usize])[..count]
    }
}

/// The elements of a resolved span, which fit memory.
#[inline]
pub(super) fn dst_len(span: &Span) -> usize {
    usize::try_from(span.len).unwrap_or(0)
}

/// The bytes of a resolved span, which fit memory.
#[inline]
pub(super) fn span_bytes(span: &Span) -> usize {
    dst_len(span).saturating_mul(span.dtype.bytes())
}

/// Whether the two are the same place.
#[inline]
pub(super) fn check_overlap(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    index: usize,
    at: At,
) -> Result<bool> {
    let (a, b) = (to as usize, from as usize);
    if a == b || a + bytes <= b || b + bytes <= a {
        return Ok(a == b);
    }
    Err(ErrorKind::Overlap {
        source_index: u32::try_from(index).unwrap_or(u32::MAX),
        site: at.into(),
    }
    .into())
}
