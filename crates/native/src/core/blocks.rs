//! Moving blocks: copy, load and store of rows with gaps between them. The extent of a block is resolved once; then
//! its rows are copied one by one. Row numbers are checked again here: only rows that fit the extent lie in resolved
//! memory (BLK-1).

use super::{At, NativeCore, lent, not_mapped};
use crate::arith;
use crate::trace::progress::Doing;
use ringwork_isa::{BlockSpan, ErrorKind, Place, Result, TileValues, block_operands};

/// The rows of a block in memory: the address of the first, and the bytes from one row to the next.
#[derive(Clone, Copy)]
struct Rows<P> {
    first: P,
    pitch: usize,
}

impl NativeCore {
    pub(super) fn copy_block_now<T>(&self, dst: &impl Place<T>, src: &impl Place<T>, at: At) -> Result<()> {
        self.say(Doing::Copy, at);
        let (dst, src) = block_operands(dst, src, at)?;
        let (to, from) = (
            self.resolve_block(&dst, true, at)?,
            self.resolve_block(&src, false, at)?,
        );
        let [ours, theirs] =
            [(&dst, to), (&src, from)].map(|(block, rows)| block.byte_rows_at(rows.first as u64));
        if ours == theirs {
            return Ok(());
        }
        if ours.overlaps(&theirs) {
            let (source_index, site) = (0, at.into());
            return Err(ErrorKind::Overlap { source_index, site }.into());
        }
        let (rows, row_bytes) = size(&dst);
        // SAFETY: both were resolved to these rows, in attached segments, which live as long as self, and do not overlap.
        // Other processes may write these bytes meanwhile: see `arith`.
        self.timed(Doing::Copy, rows * row_bytes, || unsafe {
            copy_rows(
                to,
                from.cast_const(),
                (rows, row_bytes),
                lent::must_be_copied(&src.extent),
            );
        });
        Ok(())
    }

    pub(super) fn load_block_now<V: TileValues>(&self, src: &BlockSpan, at: At) -> Result<V> {
        self.say(Doing::Load, at);
        let from = self.resolve_block(src, false, at)?;
        let (rows, row_bytes) = size(src);
        let columns = row_bytes / src.extent.dtype.bytes();
        let tile = V::filled(src.extent.dtype, rows * columns, |bytes| {
            assert_eq!(bytes.len(), rows * row_bytes);
            let to = Rows {
                first: bytes.as_mut_ptr(),
                pitch: row_bytes,
            };
            let copied = lent::must_be_copied(&src.extent);
            // SAFETY: resolved as in `copy_block_now`; `bytes` is private, and has room for all rows.
            unsafe { copy_rows(to, from.cast_const(), (rows, row_bytes), copied) }
        });
        Ok(tile.with_shape(rows, columns))
    }

    pub(super) fn store_block_now<V: TileValues>(&self, dst: &BlockSpan, tile: &V, at: At) -> Result<()> {
        self.say(Doing::Store, at);
        dst.check_tile(tile, at)?;
        let to = self.resolve_block(dst, true, at)?;
        let (rows, row_bytes) = size(dst);
        if tile.bytes().len() != rows * row_bytes {
            return Ok(()); // A tile without values: nothing is written.
        }
        arith::readable(tile.bytes(), |first| {
            let from = Rows {
                first,
                pitch: row_bytes,
            };
            // SAFETY: resolved as in `copy_block_now`; the tile is private and has all rows.
            unsafe { copy_rows(to, from, (rows, row_bytes), false) }
        });
        Ok(())
    }

    /// The memory of a block, all rows of which are inside its segment.
    fn resolve_block(&self, block: &BlockSpan, writing: bool, at: At) -> Result<Rows<*mut u8>> {
        if !block.is_sound() {
            return Err(not_mapped(block.extent.segment, block.extent.byte_range(), at));
        }
        let pitch = usize::try_from(block.pitch).unwrap_or(0);
        Ok(Rows {
            first: self.resolve(&block.extent, writing, at)?,
            pitch: pitch.saturating_mul(block.extent.dtype.bytes()),
        })
    }
}

impl Rows<*mut u8> {
    fn cast_const(self) -> Rows<*const u8> {
        Rows {
            first: self.first.cast_const(),
            pitch: self.pitch,
        }
    }
}

/// Rows of a resolved block, and the bytes of each row.
fn size(block: &BlockSpan) -> (usize, usize) {
    let number = |number: u64| usize::try_from(number).unwrap_or(0);
    let row_bytes = number(block.columns).saturating_mul(block.extent.dtype.bytes());
    (number(block.rows), row_bytes)
}

/// Copies rows one by one.
///
/// # Safety
/// As [`lent::copy`], for each row.
unsafe fn copy_rows(to: Rows<*mut u8>, from: Rows<*const u8>, (rows, bytes): (usize, usize), copied: bool) {
    if bytes == 0 {
        return;
    }
    for row in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            lent::copy(
                to.first.add(row * to.pitch),
                copied,
                from.first.add(row * from.pitch),
                bytes,
            );
        }
    }
}
