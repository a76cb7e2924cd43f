//! Small collectives over `Core`: the algorithms whose exact times are known.

use super::Domain;
use ringwork_isa::{Compare, Core, Element, Notify, ReduceOp, Result};

/// Which way a ring goes, which signals and which part of the buffer it uses.
#[derive(Clone, Copy)]
pub struct Ring {
    pub forward: bool,
    pub signal: usize,
    pub lanes: (usize, usize),
}

pub const RING: Ring = Ring {
    forward: true,
    signal: 0,
    lanes: (1, 0),
};

impl Ring {
    fn next(self, me: usize, n: usize) -> usize {
        if self.forward {
            (me + 1) % n
        } else {
            (me + n - 1) % n
        }
    }
    /// The chunk that is `back` members behind.
    fn chunk(self, me: usize, n: usize, back: usize) -> usize {
        if self.forward {
            (me + n - back % n) % n
        } else {
            (me + back) % n
        }
    }
}

pub async fn ring_reduce_scatter<T: Element, C: Core>(core: &C, d: Domain<T>, ring: Ring) -> Result<()> {
    let whole = d.scratch.slice(0..d.buffer.len())?;
    let (buffer, scratch) = (
        d.buffer.part(ring.lanes.0, ring.lanes.1)?,
        whole.part(ring.lanes.0, ring.lanes.1)?,
    );
    let next = d.rank(ring.next(d.me, d.n));
    let (there, came_in) = (scratch.on(next)?, d.signal(ring.signal));
    let sent = came_in.on(next)?;
    for step in 0..d.n - 1 {
        let out = ring.chunk(d.me, d.n, step);
        core.copy(there.part(d.n, out)?, buffer.part(d.n, out)?).await?;
        core.notify(sent, Notify::Add(1)).await?;
        core.wait(came_in, Compare::Ge, i32::try_from(step + 1).unwrap())
            .await?;
        let came = ring.chunk(d.me, d.n, step + 1);
        let (into, from) = (buffer.part(d.n, came)?, scratch.part(d.n, came)?);
        core.reduce(into, [into, from], ReduceOp::Sum).await?;
    }
    Ok(())
}

pub async fn ring_all_gather<T: Element, C: Core>(
    core: &C,
    d: Domain<T>,
    ring: Ring,
    ahead: usize,
) -> Result<()> {
    let buffer = d.buffer.part(ring.lanes.0, ring.lanes.1)?;
    let next = d.rank(ring.next(d.me, d.n));
    let (there, came_in) = (buffer.on(next)?, d.signal(ring.signal + 1));
    let sent = came_in.on(next)?;
    for step in 0..d.n - 1 {
        // After a reduce-scatter, my finished chunk is the one `ahead` further.
        let out = ring.chunk(d.me, d.n, step + d.n - ahead);
        core.copy(there.part(d.n, out)?, buffer.part(d.n, out)?).await?;
        core.notify(sent, Notify::Add(1)).await?;
        core.wait(came_in, Compare::Ge, i32::try_from(step + 1).unwrap())
            .await?;
    }
    Ok(())
}

pub async fn ring_all_reduce<T: Element, C: Core>(core: &C, d: Domain<T>, ring: Ring) -> Result<()> {
    ring_reduce_scatter(core, d, ring).await?;
    ring_all_gather(core, d, ring, 1).await
}

/// Each rank sends part `i` to rank `i`, adds what it got in rank order, and sends that to all.
pub async fn direct_all_reduce<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    let slot = |rank: usize| d.scratch.part(d.n, rank);
    for k in 1..d.n {
        let to = (d.me + k) % d.n;
        let part = d.buffer.part(d.n, to)?;
        d.send(core, to, slot(d.me)?.slice(0..part.len())?, part, 0)
            .await?;
    }
    d.recv(core, 0, d.n - 1).await?;
    let mine = d.buffer.part(d.n, d.me)?;
    let mut sources = Vec::new();
    for rank in 0..d.n {
        sources.push(if rank == d.me {
            mine
        } else {
            slot(rank)?.slice(0..mine.len())?
        });
    }
    core.reduce(mine, sources.as_slice(), ReduceOp::Sum).await?;
    for k in 1..d.n {
        d.send(core, (d.me + k) % d.n, mine, mine, 1).await?;
    }
    d.recv(core, 1, d.n - 1).await
}

/// Everybody sends everything to everybody; each adds in rank order.
pub async fn one_shot_all_reduce<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    for k in 1..d.n {
        d.send(core, (d.me + k) % d.n, d.scratch.part(d.n, d.me)?, d.buffer, 0)
            .await?;
    }
    d.recv(core, 0, d.n - 1).await?;
    let mut sources = Vec::new();
    for rank in 0..d.n {
        sources.push(if rank == d.me {
            d.buffer
        } else {
            d.scratch.part(d.n, rank)?
        });
    }
    core.reduce(d.buffer, sources.as_slice(), ReduceOp::Sum).await
}

pub async fn direct_all_gather<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    let mine = d.buffer.part(d.n, d.me)?;
    for k in 1..d.n {
        d.send(core, (d.me + k) % d.n, mine, mine, 0).await?;
    }
    d.recv(core, 0, d.n - 1).await
}

/// Whole vectors with partners at distance 1, 2, 4, ...; n is a power of two.
pub async fn recursive_doubling<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    let rounds = d.n.trailing_zeros() as usize;
    for round in 0..rounds {
        let slot = d
            .scratch
            .slice(round * d.buffer.len()..(round + 1) * d.buffer.len())?;
        d.send(core, d.me ^ (1 << round), slot, d.buffer, round).await?;
        d.recv(core, round, 1).await?;
        core.reduce(d.buffer, [d.buffer, slot], ReduceOp::Sum).await?;
    }
    Ok(())
}

pub async fn halving_doubling<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    let rounds = d.n.trailing_zeros() as usize;
    let (mut start, mut len) = (0, d.buffer.len());
    for round in 0..rounds {
        // Scratch of its own for each round: the next partner may be ahead of me.
        let scratch = d
            .scratch
            .slice(round * d.buffer.len()..(round + 1) * d.buffer.len())?;
        let distance = d.n >> (round + 1);
        let upper = d.me & distance != 0;
        let (keep, give) = if upper {
            (start + len / 2, start)
        } else {
            (start, start + len / 2)
        };
        len /= 2;
        let out = d.buffer.slice(give..give + len)?;
        d.send(
            core,
            d.me ^ distance,
            scratch.slice(give..give + len)?,
            out,
            round,
        )
        .await?;
        d.recv(core, round, 1).await?;
        start = keep;
        let (into, from) = (
            d.buffer.slice(start..start + len)?,
            scratch.slice(start..start + len)?,
        );
        core.reduce(into, [into, from], ReduceOp::Sum).await?;
    }
    for round in (0..rounds).rev() {
        let distance = d.n >> (round + 1);
        let mine = d.buffer.slice(start..start + len)?;
        d.send(core, d.me ^ distance, mine, mine, 64 + round).await?;
        d.recv(core, 64 + round, 1).await?;
        start -= if d.me & distance != 0 { len } else { 0 };
        len *= 2;
    }
    Ok(())
}

/// From rank 0 down the line, in `k` segments; each waits until the one before has arrived if `blocking`.
pub async fn chain_broadcast<T: Element, C: Core>(
    core: &C,
    d: Domain<T>,
    k: usize,
    blocking: bool,
) -> Result<()> {
    for segment in 0..k {
        if d.me > 0 {
            d.recv(core, 0, segment + 1).await?;
        }
        if d.me + 1 < d.n {
            let part = d.buffer.part(k, segment)?;
            d.send(core, d.me + 1, part, part, 0).await?;
            if blocking {
                // My own signal follows my own transfers: it is seen when they have arrived.
                core.notify(d.signal(1), Notify::Add(1)).await?;
                d.recv(core, 1, segment + 1).await?;
            }
        }
    }
    Ok(())
}

/// Down a binomial tree, one peer at a time.
pub async fn binomial_broadcast<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    let (mut have, mut first) = (d.me == 0, 0);
    let rounds = d.n.next_power_of_two().trailing_zeros();
    for round in 0..rounds {
        let distance = 1 << round;
        if d.me < distance && d.me + distance < d.n {
            d.send(core, d.me + distance, d.buffer, d.buffer, 0).await?;
            core.notify(d.signal(1), Notify::Add(1)).await?;
            core.wait(
                d.signal(1),
                Compare::Ge,
                i32::try_from(round + 1).unwrap() - first,
            )
            .await?;
        } else if !have && d.me < 2 * distance {
            d.recv(core, 0, 1).await?;
            have = true;
            first = i32::try_from(round + 1).unwrap();
        }
    }
    Ok(())
}

pub async fn all_to_all<T: Element, C: Core>(core: &C, d: Domain<T>) -> Result<()> {
    for k in 1..d.n {
        let to = (d.me + k) % d.n;
        let part = d.buffer.part(d.n, to)?;
        d.send(
            core,
            to,
            d.scratch.part(d.n, d.me)?.slice(0..part.len())?,
            part,
            0,
        )
        .await?;
    }
    d.recv(core, 0, d.n - 1).await
}

/// A ring among the ranks with the same other coordinates. Scratch is this dimension's own: who is ahead already
/// writes for the next.
pub async fn dimension<C: Core>(
    core: &C,
    d: Domain<u8>,
    (stride, size): (usize, usize),
    part: std::ops::Range<usize>,
    signal: usize,
    gather: bool,
) -> Result<std::ops::Range<usize>> {
    let at = d.me / stride % size;
    let next = d.me - at * stride + (at + 1) % size * stride;
    let len = part.len() / size;
    let piece = |i: usize| part.start + i % size * len..part.start + i % size * len + len;
    for step in 0..size - 1 {
        let out = if gather {
            at + size + 1 - step
        } else {
            at + size - step
        };
        let chunk = d.buffer.slice(piece(out))?;
        let place = if gather {
            chunk
        } else {
            d.scratch.slice(piece(out))?
        };
        d.send(core, next, place, chunk, signal).await?;
        d.recv(core, signal, step + 1).await?;
        if !gather {
            let came = piece(out + size - 1);
            let into = d.buffer.slice(came.clone())?;
            core.reduce(into, [into, d.scratch.slice(came)?], ReduceOp::Sum)
                .await?;
        }
    }
    Ok(piece(at + 1))
}

/// Takes scratch for every dimension.
pub async fn by_dimensions<C: Core>(core: &C, d: Domain<u8>, dims: &[(usize, usize)]) -> Result<()> {
    let mut parts = Vec::new();
    parts.push(0..d.buffer.len());
    let of = |i: usize| {
        d.scratch
            .part(dims.len(), i)
            .map(|scratch| Domain { scratch, ..d })
    };
    for (i, dim) in dims.iter().enumerate() {
        let part = parts[i].clone();
        parts.push(dimension(core, of(i)?, *dim, part, i, false).await?);
    }
    for (i, dim) in dims.iter().enumerate().rev() {
        dimension(core, d, *dim, parts[i].clone(), 16 + i, true).await?;
    }
    Ok(())
}
