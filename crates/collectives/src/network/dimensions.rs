//! All-reduce dimension by dimension: rings inside rings.
//!
//! In each dimension of a grid the members of a line form a ring. First a reduce-scatter around the innermost ring,
//! then each member with its part around the next, and so on; then all-gathers in reverse order. The sizes may be
//! those of a torus, or of groups and their members: first inside a group, then between groups with the remaining
//! part of the data.
//!
//! A single lane uses one link of a member at a time. With [`Lanes::All`] the data is cut into one lane for each
//! port, that is two for each dimension, one in each direction. Each lane begins in another dimension, so in a grid
//! of equal sides every port is busy in every step.
//!
//! Not exact: sums are rounded at every step.

use super::{check, combine, refuse_average};
use crate::chunk::chunks;
use ringwork_isa::{Core, Error, In, Out, Port, Queues, Rank, ReduceOp, Result, part_range};
use std::ops::Range;

/// How many ports are used at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One.
    One,
    /// All of them.
    All,
}

/// `y[i]` becomes `x[i]` reduced over all members of a grid, on every one of them, ring by ring.
///
/// `sizes` and ranks are as for [`centre`](super::centre()), except that lines are closed to rings. `queues` has two
/// ports for each dimension, in order: to the place before, and to the one after.
///
/// # Errors
/// If `x` and `y` are not equally long, the sizes do not multiply to the ranks, there are too few ports, `op` is an
/// average, or as [`Core::wait`].
pub async fn by_dimensions<C: Core>(
    core: &C,
    queues: Queues,
    sizes: &[u32],
    lanes: Lanes,
    x: In,
    y: Out,
    op: ReduceOp,
) -> Result<()> {
    let ports = u32::try_from(sizes.len()).unwrap_or(u32::MAX).saturating_mul(2);
    check(&queues, x, y, ports, 1)?;
    refuse_average(op)?;
    let rings = rings(queues, sizes)?;
    let count = match lanes {
        Lanes::One => 1,
        Lanes::All => (2 * rings.len()).max(1),
    };
    // The largest message of a lane is a part of its first ring.
    let smallest = rings.iter().map(|ring| ring.size as usize).min().unwrap_or(1);
    let each = queues.slot_len().saturating_mul(count).saturating_mul(smallest);
    for chunk in chunks(x.len(), each) {
        let mut tile = core.load(x.slice(chunk.clone())?).await?;
        let lanes: Vec<Vec<Step>> = (0..count)
            .map(|lane| steps(&rings, lane, part_range(tile.len(), count, lane)))
            .collect();
        for index in 0..lanes.first().map_or(0, Vec::len) {
            let now: Vec<&Step> = lanes.iter().filter_map(|steps| steps.get(index)).collect();
            // With unequal sides two lanes use the same port at the same time; one after the other they need no more
            // than a slot.
            let alike = |step: &Step| now.iter().filter(|s| s.way() == step.way()).count();
            let most = now.iter().map(|step| alike(step)).max().unwrap_or(0);
            let together = if most > queues.depth() as usize {
                1
            } else {
                now.len()
            };
            for steps in now.chunks(together.max(1)) {
                for step in steps {
                    let (to, _) = step.ports(&rings);
                    core.send(to, &tile.slice(step.out.clone())?).await?;
                }
                for step in steps {
                    let (_, from) = step.ports(&rings);
                    let mut theirs = core.recv(from, step.come.len()).await?;
                    if step.adds {
                        theirs = combine(core, &tile.slice(step.come.clone())?, &theirs, op).await?;
                    }
                    tile.replace(step.come.start, &theirs)?;
                }
            }
        }
        core.store(y.slice(chunk)?, &tile).await?;
    }
    Ok(())
}

/// My place in the ring of one dimension.
struct Ring {
    place: u32,
    size: u32,
    before: Port,
    after: Port,
}

fn rings(queues: Queues, sizes: &[u32]) -> Result<Vec<Ring>> {
    let (me, mut stride) = (queues.rank().0, 1u32);
    let mut rings = Vec::with_capacity(sizes.len());
    for (dimension, &size) in (0u32..).zip(sizes) {
        let place = me / stride.max(1) % size.max(1);
        let first = me - place * stride;
        let at = |place: u32| Rank(first + place * stride);
        // A dimension of size one has no peer; in one of size two, both neighbours are the same peer.
        if size > 1 {
            rings.push(Ring {
                place,
                size,
                before: queues.port(2 * dimension, at((place + size - 1) % size), 2 * dimension + 1)?,
                after: queues.port(2 * dimension + 1, at((place + 1) % size), 2 * dimension)?,
            });
        }
        stride = stride.saturating_mul(size);
    }
    if stride != queues.ranks() {
        return Err(Error::failed(format!(
            "a grid of {sizes:?} has {stride} members, the domain {}; say the sizes of all its dimensions",
            queues.ranks()
        )));
    }
    Ok(rings)
}

/// One step of a lane: the part to send, and the part to receive and add or keep. There are many steps, so they are
/// small.
struct Step {
    ring: usize,
    /// Around the ring to the place after, or to the one before.
    up: bool,
    adds: bool,
    out: Range<usize>,
    come: Range<usize>,
}

impl Step {
    /// Steps in the same direction use the same port.
    fn way(&self) -> (usize, bool) {
        (self.ring, self.up)
    }

    /// The ports to send to and to receive from.
    fn ports(&self, rings: &[Ring]) -> (Port, Port) {
        let Ring { before, after, .. } = rings[self.ring];
        if self.up { (after, before) } else { (before, after) }
    }
}

/// All steps of a lane on its range. Lane `2i` begins in dimension `i` and goes up, lane `2i + 1` goes down.
fn steps(rings: &[Ring], lane: usize, range: Range<usize>) -> Vec<Step> {
    let up = lane.is_multiple_of(2);
    let order = (0..rings.len()).map(|i| (i + lane / 2) % rings.len());
    let (mut scatter, mut gather) = (Vec::new(), Vec::new());
    let mut range = range;
    for ring in order {
        let (size, place) = (rings[ring].size as usize, rings[ring].place as usize);
        let place = if up { place } else { size - 1 - place };
        let whole = range.clone();
        let part = |index: usize| {
            let part = part_range(whole.len(), size, index % size);
            whole.start + part.start..whole.start + part.end
        };
        let mut back = Vec::new();
        for step in 0..size - 1 {
            // Partial sums move on by one; the part that I added to last is the one after my place.
            let (out, come) = (part(place + size - step), part(place + 2 * size - step - 1));
            scatter.push(Step {
                ring,
                up,
                adds: true,
                out,
                come,
            });
            let (out, come) = (part(place + size + 1 - step), part(place + size - step));
            back.push(Step {
                ring,
                up,
                adds: false,
                out,
                come,
            });
        }
        gather.push(back);
        range = part(place + 1);
    }
    scatter.extend(gather.into_iter().rev().flatten());
    scatter
}
