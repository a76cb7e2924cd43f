//! What is checked before a collective does anything.

use ringwork_isa::{Barrier, Element, Error, ErrorKind, Rank, Result, Shared, Site};

/// `what` must have `wanted` elements.
#[track_caller]
pub(crate) fn same_length(what: &'static str, got: usize, wanted: usize) -> Result<()> {
    if got == wanted {
        return Ok(());
    }
    Err(ErrorKind::LengthMismatch {
        what: what.into(),
        got: got as u64,
        wanted: wanted as u64,
        site: Site::caller(),
    }
    .into())
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

/// A window buffer and a barrier must be handles of the same rank of the same domain, and the buffer my
/// own and not a peer's.
#[track_caller]
pub(crate) fn same_domain<T: Element>(what: &str, buffer: &Shared<T>, meet: &Barrier) -> Result<()> {
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
