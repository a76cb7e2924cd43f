//! Checks of the arguments of a collective, before it starts.

use ringwork_isa::{Barrier, Error, ErrorKind, In, Out, Rank, Result, Shared, Site, part_range};
use std::ops::Range;
use std::panic::Location;

/// `what` must have `wanted` elements.
#[track_caller]
pub(crate) fn same_length(what: &'static str, got: usize, wanted: usize) -> Result<()> {
    Error::check_length(what, got as u64, wanted as u64, Location::caller())
}

/// `each * ranks`, the elements of a buffer with `each` for every rank.
#[track_caller]
pub(crate) fn times_ranks(each: usize, ranks: usize) -> Result<usize> {
    each.checked_mul(ranks).ok_or_else(|| {
        Error::failed(format!(
            "{each} elements for each of {ranks} ranks are too many to count"
        ))
    })
}

/// `root` must be a member of a domain of `ranks`.
#[track_caller]
pub(crate) fn member(root: Rank, ranks: usize) -> Result<()> {
    if (root.0 as usize) < ranks {
        return Ok(());
    }
    Err(ErrorKind::NoSuchRank {
        rank: root,
        ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
        site: Site::caller(),
    }
    .into())
}

/// `x` must be part `me` of the gathered `y`, in length.
#[track_caller]
pub(crate) fn one_part(x: &In, y: &Out, (me, ranks): (usize, usize)) -> Result<()> {
    let part = part_range(y.len(), ranks, me).len();
    same_length("`x`, my part of the gathered `y`,", x.len(), part)
}

/// `y` must be part `me` of the reduced `x`, in length. Returns that part.
#[track_caller]
pub(crate) fn my_part(x: &In, y: &Out, (me, ranks): (usize, usize)) -> Result<Range<usize>> {
    let mine = part_range(x.len(), ranks, me);
    same_length("`y`, my part of the reduced `x`,", y.len(), mine.len())?;
    Ok(mine)
}

/// `y` must hold part `me` of `x` from every rank. Returns that part.
#[track_caller]
pub(crate) fn dealt_part(x: &In, y: &Out, (me, ranks): (usize, usize)) -> Result<Range<usize>> {
    let mine = part_range(x.len(), ranks, me);
    let wanted = times_ranks(mine.len(), ranks)?;
    same_length("`y`, my part of `x` from every rank,", y.len(), wanted)?;
    Ok(mine)
}

/// Of a broadcast, `root` must be a member, and on it `x` must be as long as `y`. Returns whether this is the root.
#[track_caller]
pub(crate) fn rooted((me, ranks): (Rank, u32), x: &In, y: &Out, root: Rank) -> Result<bool> {
    member(root, ranks as usize)?;
    let is_root = me == root;
    if is_root {
        same_length("`x` on the root", x.len(), y.len())?;
    }
    Ok(is_root)
}

/// A window buffer and a barrier must be handles of the same rank of the same domain, and the buffer my
/// own and not a peer's.
#[track_caller]
pub(crate) fn same_domain(what: &str, buffer: &Shared, meet: &Barrier) -> Result<()> {
    let (mine, theirs) = ((buffer.me(), buffer.ranks()), (meet.rank(), meet.ranks()));
    if mine != theirs {
        return Err(Error::failed(format!(
            "{what} is held by rank {} of {}, the barrier by rank {} of {}; open both on one domain",
            mine.0, mine.1, theirs.0, theirs.1
        )));
    }
    if buffer.rank() != buffer.me() {
        return Err(Error::failed(format!(
            "{what} is that of rank {}, but this is rank {}; pass the buffer itself, without `on`",
            buffer.rank(),
            buffer.me()
        )));
    }
    Ok(())
}
