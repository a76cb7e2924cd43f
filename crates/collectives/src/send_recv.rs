//! Send and receive: data from one rank to another, independent of all other ranks.
//!
//! Model: in its own window, every rank has a slot for each peer, with two halves. Count all chunks ever sent from
//! `s` to `d`: chunk `k` lies in half `k & 1` of slot `d` of `s`. `s` counts in `sent[d]` the chunks that it has put,
//! `d` counts in `taken[s]` those that it has copied out. So `s` may be two chunks ahead, and waits for credit before
//! the next.
//!
//! Every chunk has a label with its message, so that ranks that disagree get an error. An empty message is one chunk:
//! it is still a message.
//!
//! Traffic, for `S` bytes: `S` staged, `S` pulled; one signal each way per chunk.
//!
//! # Invariants
//! - **POST-1 (one writer).** `sent[d]` of `s` is written by `s` only, `taken[s]` of `d` by `d` only.
//! - **POST-2 (credit).** Chunk `k` is put when `taken >= k - 1`: then chunk `k - 2`, which was in the same half, has
//!   been taken.

use crate::arguments::member;
use crate::chunk::chunks;
use ringwork_isa::{
    Compare, Core, Dtype, Error, ErrorKind, In, Notify, Out, Rank, Result, Shared, Signal, Signals, Tile,
};
use std::ops::Range;

/// Words of a label: what the elements are, and how many the whole message has.
const LABEL_WORDS: usize = 2;

/// The memory that the members of a domain share to send data to each other. A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    slots: Shared,
    labels: Shared<i64>,
    sent: Signals,
    taken: Signals,
}

impl Post {
    /// Words of labels that a domain of `ranks` needs on every rank.
    #[must_use]
    pub const fn label_words(ranks: u32) -> usize {
        ranks as usize * 2 * LABEL_WORDS
    }

    /// A post over memory and signals that only posts use, also those of other element types: slots, of which each peer
    /// gets an equal part, [`label_words`](Post::label_words) of labels, and a signal for each rank in `sent` and in
    /// `taken`.
    ///
    /// # Errors
    /// If they are not of one domain, or too few.
    #[track_caller]
    pub fn new(slots: Shared, labels: Shared<i64>, sent: Signals, taken: Signals) -> Result<Post> {
        let (me, ranks) = (slots.me(), slots.ranks());
        let one_domain = [
            (labels.me(), labels.ranks()),
            (sent.me, sent.ranks),
            (taken.me, taken.ranks),
        ];
        if one_domain.iter().any(|place| *place != (me, ranks)) {
            return Err(Error::failed("slots, labels and signals are not of one domain"));
        }
        let enough = slots.len() >= 2 * ranks as usize
            && labels.len() >= Self::label_words(ranks)
            && sent.count.min(taken.count) >= ranks;
        if !enough {
            return Err(Error::failed(format!(
                "a post of {ranks} ranks needs two elements of slots, {} words of labels and two signals for each",
                2 * LABEL_WORDS
            )));
        }
        Ok(Post {
            slots,
            labels,
            sent,
            taken,
        })
    }

    /// Elements of a chunk.
    fn each(&self) -> usize {
        self.slots.len() / self.slots.ranks() as usize / 2
    }

    /// Cuts a message into chunks; an empty message has one.
    fn cut(&self, len: usize) -> impl Iterator<Item = Range<usize>> {
        let empty = (len == 0).then_some(0..0);
        empty.into_iter().chain(chunks(len, self.each()))
    }

    /// Half `count & 1` of my slot for `peer`, and its label.
    #[track_caller]
    fn half(&self, peer: Rank, count: i32) -> Result<(Shared, Shared<i64>)> {
        let index = peer.0 as usize * 2 + usize::from(count & 1 != 0);
        let slot = self.slots.slice(index * self.each()..(index + 1) * self.each())?;
        let label = self
            .labels
            .slice(index * LABEL_WORDS..(index + 1) * LABEL_WORDS)?;
        Ok((slot, label))
    }

    fn peer(&self, peer: Rank) -> Result<Rank> {
        member(peer, self.slots.ranks() as usize)?;
        if peer == self.slots.me() {
            return Err(Error::failed("a rank cannot send to itself; copy instead"));
        }
        Ok(peer)
    }
}

/// One message on its way out.
struct Outgoing {
    post: Post,
    x: In,
    to: Rank,
    sent: Signal,
    taken: Signal,
    count: i32,
}

impl Outgoing {
    async fn open<C: Core>(core: &C, post: Post, x: In, to: Rank) -> Result<Outgoing> {
        let to = post.peer(to)?;
        let sent = post.sent.own(to.0)?;
        Ok(Outgoing {
            post,
            x,
            to,
            sent: sent.signal(),
            taken: post.taken.at(post.slots.me().0)?.on(to)?,
            count: core.own_value(sent).await?,
        })
    }

    async fn put<C: Core>(&mut self, core: &C, chunk: Range<usize>) -> Result<()> {
        // POST-2
        core.wait(self.taken, Compare::Ge, self.count.wrapping_sub(1))
            .await?;
        let (slot, label) = self.post.half(self.to, self.count)?;
        core.store(label, &Tile::new(label_of(self.x.dtype(), self.x.len()).to_vec()))
            .await?;
        if !chunk.is_empty() {
            core.copy(slot.slice(0..chunk.len())?, self.x.slice(chunk)?)
                .await?;
        }
        self.count = self.count.wrapping_add(1);
        core.notify(self.sent, Notify::Set(self.count)).await
    }
}

/// One message on its way in.
struct Incoming {
    post: Post,
    y: Out,
    from: Rank,
    sent: Signal,
    taken: Signal,
    count: i32,
}

impl Incoming {
    async fn open<C: Core>(core: &C, post: Post, y: Out, from: Rank) -> Result<Incoming> {
        let from = post.peer(from)?;
        let taken = post.taken.own(from.0)?;
        Ok(Incoming {
            post,
            y,
            from,
            sent: post.sent.at(post.slots.me().0)?.on(from)?,
            taken: taken.signal(),
            count: core.own_value(taken).await?,
        })
    }

    async fn take<C: Core>(&mut self, core: &C, chunk: Range<usize>) -> Result<()> {
        let me = self.post.slots.me();
        core.wait(self.sent, Compare::Ge, self.count.wrapping_add(1))
            .await?;
        let (slot, label) = self.post.half(me, self.count)?;
        let label = core.load(label.on(self.from)?).await?;
        let wanted = label_of(self.y.dtype(), self.y.len());
        if !label.is_hollow() && label.values() != wanted {
            return Err(ErrorKind::Mismatch {
                me,
                mine: format!("recv of {} from rank {}", describe(&wanted), self.from),
                peer: self.from,
                theirs: format!("send of {} to rank {me}", describe(label.values())),
            }
            .into());
        }
        if !chunk.is_empty() {
            let source = slot.slice(0..chunk.len())?.on(self.from)?;
            core.copy(self.y.slice(chunk)?, source).await?;
        }
        self.count = self.count.wrapping_add(1);
        core.notify(self.taken, Notify::Set(self.count)).await
    }
}

fn label_of(dtype: Dtype, len: usize) -> [i64; LABEL_WORDS] {
    [dtype.index() as i64, i64::try_from(len).unwrap_or(i64::MAX)]
}

fn describe(label: &[i64]) -> String {
    let dtype = |code: i64| Dtype::ALL.into_iter().find(|dtype| dtype.index() as i64 == code);
    match label {
        [code, count, ..] => dtype(*code).map_or_else(
            || "something unknown".into(),
            |dtype| format!("{count} x {dtype}"),
        ),
        _ => "nothing".into(),
    }
}

/// Sends `x` to `to`, which must [`recv`] as many elements of the same type. Returns when all data was taken or lies
/// in the window; then `x` may be changed.
///
/// # Errors
/// If `to` is not another member, or as [`Core::wait`].
pub async fn send<C: Core>(core: &C, post: Post, x: In, to: Rank) -> Result<()> {
    let mut out = Outgoing::open(core, post, x, to).await?;
    for chunk in post.cut(x.len()) {
        out.put(core, chunk).await?;
    }
    Ok(())
}

/// Receives `y` from `from`, which must [`send`] it.
///
/// # Errors
/// If `from` is not another member or sends something else, or as [`Core::wait`].
pub async fn recv<C: Core>(core: &C, post: Post, y: Out, from: Rank) -> Result<()> {
    let mut incoming = Incoming::open(core, post, y, from).await?;
    for chunk in post.cut(y.len()) {
        incoming.take(core, chunk).await?;
    }
    Ok(())
}

/// Sends `x` to `to` and receives `y` from `from`, chunk by chunk in turn, so that ranks that all do this never
/// wait for each other in a circle.
///
/// # Errors
/// As [`send`] and [`recv`].
pub async fn exchange<C: Core>(
    core: &C,
    post: Post,
    (x, to): (In, Rank),
    (y, from): (Out, Rank),
) -> Result<()> {
    let mut out = Outgoing::open(core, post, x, to).await?;
    let mut incoming = Incoming::open(core, post, y, from).await?;
    let (mut put, mut take) = (post.cut(x.len()), post.cut(y.len()));
    loop {
        let (next_out, next_in) = (put.next(), take.next());
        if next_out.is_none() && next_in.is_none() {
            return Ok(());
        }
        if let Some(chunk) = next_out {
            out.put(core, chunk).await?;
        }
        if let Some(chunk) = next_in {
            incoming.take(core, chunk).await?;
        }
    }
}
