//! Blocks: rows and columns of a matrix, loaded, stored and copied; what reaches outside.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::refused::refused;
use crate::{Machine, Seat};
use ringwork_isa::{Block, Core, Rank, Result, Shared, Tile, TileOps};

/// A matrix of 4 x 6 at the beginning of the data: row 2, column 3 holds 23.
async fn matrix<C: Core>(core: &C, seat: Seat) -> Result<Block<Shared<i32>>> {
    let all = seat.buffer::<i32>(0, 24);
    core.store(all, &Tile::new(untouched().concat())).await?;
    all.shaped(4, 6)
}

fn untouched() -> Vec<Vec<i32>> {
    (0..4)
        .map(|row| (0..6).map(|column| 10 * row + column).collect())
        .collect()
}

/// The matrix holds these, and nothing was written behind it.
async fn holds<C: Core>(core: &C, seat: Seat, wanted: &[Vec<i32>]) -> Result<()> {
    let all = core.load(seat.buffer::<i32>(0, 25)).await?;
    assert_eq!(all.values()[..24], wanted.concat());
    assert_eq!(all.values()[24], 0, "written past the end");
    Ok(())
}

fn tile(rows: usize, columns: usize, values: &[i32]) -> Tile<i32> {
    Tile::new(values.to_vec()).shaped(rows, columns).unwrap()
}

pub fn a_block_is_loaded_as_a_tile_of_its_shape<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        let block = core.load(x.rows(1..3)?.columns(2..5)?).await?;
        assert_eq!(block, tile(2, 3, &[12, 13, 14, 22, 23, 24]));
        let column = core.load(x.columns(5..6)?).await?;
        assert_eq!(column, tile(4, 1, &[5, 15, 25, 35]));
        let rows = core.load(x.rows(2..4)?).await?;
        assert_eq!(
            rows,
            tile(2, 6, &[20, 21, 22, 23, 24, 25, 30, 31, 32, 33, 34, 35])
        );
        let (none, empty) = (
            core.load(x.rows(2..2)?).await?,
            core.load(x.columns(6..6)?).await?,
        );
        assert_eq!((none.rows(), none.columns()), (0, 6));
        assert_eq!((empty.rows(), empty.columns()), (4, 0));
        Ok(())
    });
}

pub fn a_tile_is_stored_to_its_block_and_nowhere_else<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        let block = x.rows(1..4)?.columns(1..3)?;
        core.store(block, &tile(3, 2, &[-1, -2, -3, -4, -5, -6])).await?;
        let mut wanted = untouched();
        for (row, values) in [(1, [-1, -2]), (2, [-3, -4]), (3, [-5, -6])] {
            wanted[row][1..3].copy_from_slice(&values);
        }
        holds(core, seat, &wanted).await?;
        // A row of a block is a region again.
        core.copy(block.row(0)?, block.row(2)?).await?;
        wanted[1][1..3].copy_from_slice(&[-5, -6]);
        holds(core, seat, &wanted).await
    });
}

pub fn a_tile_of_another_shape_than_its_block_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let block = matrix(core, seat).await?.columns(0..3)?;
        refused!(
            core.store(block, &tile(3, 4, &[0; 12])),
            "{site}: the tile is 3x4 where 4x3 is needed"
        );
        refused!(
            core.store(block, &tile(3, 3, &[0; 9])),
            "{site}: the tile has 9 elements where 12 are needed"
        );
        holds(core, seat, &untouched()).await
    });
}

pub fn blocks_are_copied_to_blocks_of_their_shape_and_to_regions_of_their_length<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        // Side by side: the extents overlap, the blocks do not.
        core.copy(x.columns(0..2)?, x.columns(4..6)?).await?;
        let mut wanted = untouched();
        for (row, values) in (0..).zip(&mut wanted) {
            values[..2].copy_from_slice(&[10 * row + 4, 10 * row + 5]);
        }
        holds(core, seat, &wanted).await?;
        // To a row, and back from it to another shape of the same elements.
        let row = seat.buffer::<i32>(256, 6);
        core.copy(row, x.rows(1..4)?.columns(2..4)?).await?;
        assert_eq!(core.load(row).await?.values(), [12, 13, 22, 23, 32, 33]);
        core.copy(x.rows(0..2)?.columns(3..6)?, row).await?;
        wanted[0][3..].copy_from_slice(&[12, 13, 22]);
        wanted[1][3..].copy_from_slice(&[23, 32, 33]);
        holds(core, seat, &wanted).await?;
        core.copy(x.columns(1..4)?, x.columns(1..4)?).await?;
        holds(core, seat, &wanted).await?;
        // From another rank's window.
        let mine = seat.buffer::<i32>(512, 4);
        core.store(mine, &Tile::full(1, 4, seat.me.0.cast_signed()))
            .await?;
        seat.barrier().arrive_and_wait(core).await?;
        let other = Rank(1 - seat.me.0);
        core.copy(x.columns(0..1)?, mine.on(other)?).await?;
        for values in &mut wanted {
            values[0] = other.0.cast_signed();
        }
        holds(core, seat, &wanted).await
    });
}

pub fn a_copy_of_blocks_that_do_not_fit_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        let (tall, wide) = (x.columns(0..2)?, x.rows(0..2)?.columns(2..6)?);
        refused!(
            core.copy(tall, wide),
            "{site}: the source is 2x4 where 4x2 is needed"
        );
        let row = seat.buffer::<i32>(256, 7);
        refused!(
            core.copy(row, tall),
            "{site}: the source has 8 elements where 7 are needed"
        );
        refused!(
            core.copy(x.columns(1..3)?, tall),
            "{site}: the destination overlaps source 0 without being the same place; use disjoint regions"
        );
        refused!(
            core.copy(x.row(3)?.shaped(3, 2)?, x.rows(1..4)?.columns(0..2)?),
            "{site}: the destination overlaps source 0 without being the same place; use disjoint regions"
        );
        holds(core, seat, &untouched()).await
    });
}

pub fn rows_and_columns_that_there_are_not_are_refused<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        refused!(
            async { core.load(x.rows(3..5)?).await },
            "{site}: rows 3..5 are outside a region of 4; make the buffer larger or split the transfer"
        );
        refused!(
            async { core.store(x.columns(5..8)?, &tile(4, 3, &[0; 12])).await },
            "{site}: columns 5..8 are outside a region of 6; make the buffer larger or split the transfer"
        );
        refused!(
            async { core.load(seat.buffer::<i32>(0, 24).shaped(5, 5)?).await },
            "{site}: the region has 24 elements where 25 are needed"
        );
        holds(core, seat, &untouched()).await
    });
}

pub fn a_block_of_memory_that_is_not_there_is_refused_and_writes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        matrix(core, seat).await?;
        // It begins inside the window, and its last row is far outside of it.
        let stray = seat.buffer::<i32>(0, 1 << 20).shaped(1 << 10, 1 << 10)?.columns(0..2)?;
        let bytes = stray.span().extent.byte_range().unwrap();
        let message = format!(
            "{{site}}: segment {} is not mapped here at bytes {}..{}; the handle is stale or belongs to another chip",
            stray.span().extent.segment, bytes.start, bytes.end
        );
        refused!(core.load(stray), &message);
        refused!(core.store(stray, &Tile::zeros(1 << 10, 2)), &message);
        refused!(core.copy(stray, stray), &message);
        holds(core, seat, &untouched()).await
    });
}

pub fn what_is_clipped_is_filled_when_loaded_and_left_out_when_stored<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let x = matrix(core, seat).await?;
        let corner = x.clipped(3..5, 4..8)?;
        assert_eq!(
            core.load_clipped(corner, -9).await?,
            tile(2, 4, &[34, 35, -9, -9, -9, -9, -9, -9])
        );
        let inside = core.load_clipped(x.clipped(0..2, 0..2)?, -9).await?;
        assert_eq!(inside, tile(2, 2, &[0, 1, 10, 11]));
        let nothing = core.load_clipped(x.clipped(4..5, 0..2)?, -9).await?;
        assert_eq!(nothing, tile(1, 2, &[-9, -9]));
        let twice = core.load_clipped(corner, 0).await?;
        core.store_clipped(corner, &core.add(&twice, &twice).await?)
            .await?;
        let mut wanted = untouched();
        wanted[3][4..].copy_from_slice(&[68, 70]);
        holds(core, seat, &wanted).await?;
        refused!(
            core.store_clipped(corner, &tile(1, 2, &[0, 0])),
            "{site}: the tile is 1x2 where 2x4 is needed"
        );
        holds(core, seat, &wanted).await
    });
}
