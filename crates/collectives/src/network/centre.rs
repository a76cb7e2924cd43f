//! All-reduce through the centre of a grid, over queues between neighbours.
//!
//! The grid is a list of dimensions, the innermost first: columns of cubes in a mesh, rows of cubes, then columns and
//! rows of the chips that hold the meshes; or only the ring of a few chips. In every dimension the members of a line
//! pass their data towards the line's centre, each adding its own; the centres continue in the next dimension. Then
//! the result returns along the same path. Only neighbours exchange messages: no message crosses more than one link,
//! and a torus is used as the mesh that it contains.
//!
//! Steps on the longest path: twice the sum of half the dimensions, 12 for 2 x 3 chips of 4 x 4. Traffic of a member:
//! at most one message in and out of each port in each direction. All members get the same bits; not exact, since
//! partial results are rounded at every step.

use super::{combine, has_ports, refuse_average};
use crate::arguments::same_length;
use crate::chunk::chunks;
use ringwork_isa::{AnyTile, Core, Error, In, Out, Port, Queues, Rank, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all members of a grid, on every one of them.
///
/// `sizes` are the sizes of the dimensions, innermost first; the rank of a member is its place in dimension 0, plus
/// its place in dimension 1 times the size of dimension 0, and so on. `queues` has two ports for each dimension, in
/// order: to the place below, and to the one above. Data longer than a slot is split.
///
/// # Errors
/// If `x` and `y` are not equally long, the sizes do not multiply to the ranks, `op` is an average, or as
/// [`Core::wait`].
pub async fn centre<C: Core>(
    core: &C,
    queues: Queues,
    sizes: &[u32],
    x: In,
    y: Out,
    op: ReduceOp,
) -> Result<()> {
    let ports = u32::try_from(sizes.len()).unwrap_or(u32::MAX).saturating_mul(2);
    same_length("`y`", y.len(), x.len())?;
    has_ports(&queues, ports, x.len())?;
    refuse_average(op)?;
    let lines = lines(queues, sizes)?;
    for chunk in chunks(x.len(), queues.slot_len()) {
        let mine = core.load(x.slice(chunk.clone())?).await?;
        let result = reduce_and_return(core, &lines, mine, op).await?;
        core.store(y.slice(chunk)?, &result).await?;
    }
    Ok(())
}

/// My place in the line of one dimension.
struct Line {
    place: u32,
    size: u32,
    below: Option<Port>,
    above: Option<Port>,
}

impl Line {
    fn centre(&self) -> u32 {
        self.size / 2
    }
}

fn lines(queues: Queues, sizes: &[u32]) -> Result<Vec<Line>> {
    let (me, mut stride) = (queues.rank().0, 1u32);
    let mut lines = Vec::with_capacity(sizes.len());
    for (dimension, &size) in (0u32..).zip(sizes) {
        let (below, above) = (2 * dimension, 2 * dimension + 1);
        let place = me / stride.max(1) % size.max(1);
        let line = Line {
            place,
            size,
            below: (place > 0)
                .then(|| queues.port(below, Rank(me - stride), above))
                .transpose()?,
            above: (place + 1 < size)
                .then(|| queues.port(above, Rank(me + stride), below))
                .transpose()?,
        };
        lines.push(line);
        stride = stride.saturating_mul(size);
    }
    if stride != queues.ranks() {
        return Err(Error::failed(format!(
            "a grid of {sizes:?} has {stride} members, the domain {}; say the sizes of all its dimensions",
            queues.ranks()
        )));
    }
    Ok(lines)
}

async fn reduce_and_return<C: Core>(
    core: &C,
    lines: &[Line],
    mine: AnyTile,
    op: ReduceOp,
) -> Result<AnyTile> {
    let mut tile = mine;
    // A dimension in which I am not the centre: I pass my line's part on, and wait for the result there.
    let mut outermost = lines.len();
    for (dimension, line) in lines.iter().enumerate() {
        let (inward, outward) = match line.place.cmp(&line.centre()) {
            std::cmp::Ordering::Less => (line.above, line.below),
            std::cmp::Ordering::Greater => (line.below, line.above),
            std::cmp::Ordering::Equal => {
                tile = gather(core, line, tile, op).await?;
                continue;
            }
        };
        if let Some(outward) = outward {
            let theirs = core.recv(outward, tile.len()).await?;
            tile = combine(core, &tile, &theirs, op).await?;
        }
        if let Some(inward) = inward {
            core.send(inward, &tile).await?;
            tile = core.recv(inward, tile.len()).await?;
        }
        if let Some(outward) = outward {
            core.send(outward, &tile).await?;
        }
        outermost = dimension;
        break;
    }
    for line in lines[..outermost].iter().rev() {
        // The longer side first, because its data has a longer path.
        for port in [line.below, line.above].into_iter().flatten() {
            core.send(port, &tile).await?;
        }
    }
    Ok(tile)
}

/// Adds the data from both sides at the centre of a line: the nearer end first, since its data arrives first.
async fn gather<C: Core>(core: &C, line: &Line, tile: AnyTile, op: ReduceOp) -> Result<AnyTile> {
    let len = tile.len();
    let (below, above) = (line.centre(), line.size - 1 - line.centre());
    if let (true, Some(lower), Some(upper)) = (below == above, line.below, line.above) {
        let [lower, upper] = core.recv_all([lower, upper], len).await?;
        let tile = combine(core, &tile, &lower, op).await?;
        return combine(core, &tile, &upper, op).await;
    }
    let mut tile = tile;
    // The centre is never nearer to the lower end.
    for port in [line.above, line.below].into_iter().flatten() {
        let theirs = core.recv(port, len).await?;
        tile = combine(core, &tile, &theirs, op).await?;
    }
    Ok(tile)
}
