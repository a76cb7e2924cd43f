//! The collectives that move data and reduce nothing. Inside they know bytes only.

use super::messages::{Incoming, Messages};
use super::owned::{input as reading, output as writing};
use super::{Hosts, SMALL_BYTES, described};
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use ringwork_isa::{Collective, Dtype, Operation, part_range};
use ringwork_mpi::Buffer;
use std::ops::Range;

/// The bytes that rank `index` of `ranks` on a host sends to, or receives for, the others of its host.
fn share(bytes: usize, ranks: usize, index: usize) -> Range<usize> {
    if bytes > SMALL_BYTES {
        part_range(bytes, ranks, index)
    } else if index == 0 {
        0..bytes
    } else {
        0..0
    }
}

pub(super) fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

impl Hosts {
    /// Brings a block that every rank of its host has to every rank of the others. `blocks[i]` is that of host `i`, or is not
    /// to be brought.
    fn deliver(&self, messages: &mut Messages<'_>, blocks: &mut [Option<Buffer>]) -> Result<()> {
        let spread = &self.spread;
        let (mine, local, ranks) = (spread.mine, spread.local, spread.here().len());
        let mut coming: Vec<(usize, usize, Incoming)> = Vec::new();
        for (index, host) in spread.others() {
            let Some(block) = &blocks[index] else { continue };
            let wanted = share(block.len(), ranks, local);
            for (place, rank) in host.ranks.iter().enumerate() {
                let part = common(&wanted, &share(block.len(), host.ranks.len(), place));
                if !part.is_empty() {
                    coming.push((index, part.start, messages.expect(*rank, part.len())?));
                }
            }
        }
        if let Some(block) = &blocks[mine] {
            let given = share(block.len(), ranks, local);
            for (_, host) in spread.others() {
                for (place, rank) in host.ranks.iter().enumerate() {
                    let part = common(&given, &share(block.len(), host.ranks.len(), place));
                    if !part.is_empty() {
                        messages.send(*rank, &block.bytes()[part])?;
                    }
                }
            }
        }
        for (index, start, incoming) in coming {
            let arrived = messages.take(incoming)?;
            if let Some(block) = &mut blocks[index] {
                block.bytes_mut()[start..start + arrived.bytes().len()].copy_from_slice(arrived.bytes());
            }
        }
        messages.finish()?;
        let others = blocks.iter_mut().enumerate().filter(|(index, _)| *index != mine);
        for block in others.filter_map(|(_, block)| block.as_mut()) {
            let small = block.len() <= SMALL_BYTES;
            let bytes = writing(Dtype::U8, block.bytes_mut());
            if small {
                self.here.broadcast(bytes, 0)?;
            } else {
                self.here.all_gather_in_place(bytes)?;
            }
        }
        Ok(())
    }

    /// The `part` of every rank, which are equally long, in rank order.
    pub(super) fn collect(&self, messages: &mut Messages<'_>, part: &[u8]) -> Result<Buffer> {
        let each = part.len();
        let hosts = self.spread.hosts.iter();
        let mut blocks: Vec<Option<Buffer>> = hosts
            .map(|host| Some(Buffer::zeroed(each * host.ranks.len())))
            .collect();
        if let Some(block) = &mut blocks[self.spread.mine] {
            let block = writing(Dtype::U8, block.bytes_mut());
            self.here.all_gather(reading(Dtype::U8, part), block)?;
        }
        self.deliver(messages, &mut blocks)?;
        let mut all = Buffer::zeroed(each * self.size() as usize);
        for (host, block) in self.spread.hosts.iter().zip(blocks.iter().flatten()) {
            for (rank, part) in host.ranks.iter().zip(block.bytes().chunks_exact(each.max(1))) {
                let at = *rank as usize * each;
                all.bytes_mut()[at..at + each].copy_from_slice(part);
            }
        }
        Ok(all)
    }

    /// From every rank its part for this one, in rank order; `parts` are this rank's for all, equally long.
    pub(super) fn deal(&self, messages: &mut Messages<'_>, parts: &[u8]) -> Result<Buffer> {
        let (spread, each) = (&self.spread, parts.len() / self.size() as usize);
        let place = |rank: u32| rank as usize * each..(rank as usize + 1) * each;
        let mut dealt = Buffer::zeroed(parts.len());
        let coming = spread
            .strangers()
            .map(|rank| Ok((rank, messages.expect(rank, each)?)))
            .collect::<Result<Vec<_>>>()?;
        for rank in spread.strangers() {
            messages.send(rank, &parts[place(rank)])?;
        }
        let _moving = messages.keep_moving();
        let mut mine = Buffer::zeroed(each * spread.here().len());
        for (part, rank) in mine.bytes_mut().chunks_exact_mut(each.max(1)).zip(spread.here()) {
            part.copy_from_slice(&parts[place(*rank)]);
        }
        self.here
            .all_to_all_in_place(writing(Dtype::U8, mine.bytes_mut()))?;
        for (part, rank) in mine.bytes().chunks_exact(each.max(1)).zip(spread.here()) {
            dealt.bytes_mut()[place(*rank)].copy_from_slice(part);
        }
        for (rank, incoming) in coming {
            dealt.bytes_mut()[place(rank)].copy_from_slice(messages.take(incoming)?.bytes());
        }
        Ok(dealt)
    }

    /// `block` becomes what it is on `root`, on every rank.
    pub(super) fn spread_from(
        &self,
        messages: &mut Messages<'_>,
        block: Buffer,
        root: u32,
    ) -> Result<Buffer> {
        let spread = &self.spread;
        let source = spread
            .hosts
            .iter()
            .position(|host| host.ranks.contains(&root))
            .unwrap_or(0);
        let mut block = block;
        if let Some(root) = spread.local_of(root) {
            self.here.broadcast(writing(Dtype::U8, block.bytes_mut()), root)?;
        }
        let mut blocks: Vec<Option<Buffer>> = spread.hosts.iter().map(|_| None).collect();
        blocks[source] = Some(block);
        self.deliver(messages, &mut blocks)?;
        Ok(blocks.swap_remove(source).unwrap_or_default())
    }

    pub(crate) fn all_gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_buffers("all_gather", &input, &output)?;
        self.same("all_gather", "output", output.len(), self.times(input.len()))?;
        let call = described(Collective::AllGather, output.dtype(), output.len());
        self.call(call, |messages| {
            let own = self.read(input)?;
            let all = self.collect(messages, own.bytes())?;
            self.write(output, all.bytes())
        })
    }

    /// The parts may differ by an element, so they cross in rooms for the longest.
    pub(crate) fn all_gather_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.here.check_home("all_gather_in_place", data.home())?;
        let (dtype, len, ranks) = (data.dtype(), data.len(), self.size() as usize);
        let call = described(Collective::AllGather, dtype, len);
        self.call(call, |messages| {
            let (size, mut own) = (dtype.bytes(), self.read(data.as_input())?);
            let place = |rank: usize| {
                let part = part_range(len, ranks, rank);
                part.start * size..part.end * size
            };
            let mine = place(self.spread.me as usize);
            let mut part = Buffer::zeroed(len.div_ceil(ranks) * size);
            part.bytes_mut()[..mine.len()].copy_from_slice(&own.bytes()[mine]);
            let all = self.collect(messages, part.bytes())?;
            for (rank, part) in all.bytes().chunks_exact(part.len()).enumerate() {
                let place = place(rank);
                own.bytes_mut()[place.clone()].copy_from_slice(&part[..place.len()]);
            }
            self.write(data, own.bytes())
        })
    }

    pub(crate) fn broadcast(&self, data: AnyOutput<'_>, root: u32) -> Result<()> {
        self.here.check_home("broadcast", data.home())?;
        self.check_rank("broadcast", root)?;
        let call = described(Collective::Broadcast, data.dtype(), data.len());
        self.call(
            |sequence| call(sequence).rooted(root),
            |messages| {
                let own = self.read(data.as_input())?;
                let all = self.spread_from(messages, own, root)?;
                self.write(data, all.bytes())
            },
        )
    }

    pub(crate) fn gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_buffers("gather", &input, &output)?;
        self.check_rank("gather", root)?;
        let spread = &self.spread;
        if spread.me == root {
            self.same("gather", "output", output.len(), self.times(input.len()))?;
        }
        let call = described(Collective::Gather, input.dtype(), input.len());
        self.call(
            |sequence| call(sequence).rooted(root),
            |messages| {
                let own = self.read(input)?;
                let each = own.len();
                let Some(local) = spread.local_of(root) else {
                    return messages.send(root, own.bytes());
                };
                let at_root = spread.me == root;
                let strangers = spread.strangers().filter(|_| at_root);
                let coming = strangers
                    .map(|rank| Ok((rank, messages.expect(rank, each)?)))
                    .collect::<Result<Vec<_>>>()?;
                let mut here = Buffer::zeroed(if at_root { each * spread.here().len() } else { 0 });
                let block = writing(Dtype::U8, here.bytes_mut());
                self.here.gather(reading(Dtype::U8, own.bytes()), block, local)?;
                if !at_root {
                    return Ok(());
                }
                let mut all = Buffer::zeroed(each * self.size() as usize);
                for (rank, part) in spread.here().iter().zip(here.bytes().chunks_exact(each)) {
                    all.bytes_mut()[*rank as usize * each..][..each].copy_from_slice(part);
                }
                for (rank, incoming) in coming {
                    let arrived = messages.take(incoming)?;
                    all.bytes_mut()[rank as usize * each..][..each].copy_from_slice(arrived.bytes());
                }
                self.write(output, all.bytes())
            },
        )
    }

    pub(crate) fn scatter(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_buffers("scatter", &input, &output)?;
        self.check_rank("scatter", root)?;
        let spread = &self.spread;
        if spread.me == root {
            self.same("scatter", "input", input.len(), self.times(output.len()))?;
        }
        let call = described(Collective::Scatter, output.dtype(), output.len());
        self.call(
            |sequence| call(sequence).rooted(root),
            |messages| {
                let each = output.bytes();
                let mut mine = Buffer::zeroed(each);
                let Some(local) = spread.local_of(root) else {
                    let arrived = messages.take(messages.expect(root, each)?)?;
                    return self.write(output, arrived.bytes());
                };
                let mut here = Buffer::default();
                if spread.me == root {
                    let all = self.read(input)?;
                    let part = |rank: u32| &all.bytes()[rank as usize * each..][..each];
                    for rank in spread.strangers() {
                        messages.send(rank, part(rank))?;
                    }
                    messages.finish()?;
                    here = Buffer::zeroed(each * spread.here().len());
                    for (place, rank) in here.bytes_mut().chunks_exact_mut(each).zip(spread.here()) {
                        place.copy_from_slice(part(*rank));
                    }
                }
                let to = writing(Dtype::U8, mine.bytes_mut());
                self.here.scatter(reading(Dtype::U8, here.bytes()), to, local)?;
                self.write(output, mine.bytes())
            },
        )
    }

    fn check_dealing(&self, len: usize) -> Result<()> {
        let ranks = self.size();
        if len.is_multiple_of(ranks as usize) {
            return Ok(());
        }
        let problem = format!("{len} elements cannot be dealt to {ranks} ranks equally; use all_to_all_v");
        Err(Error::arguments("all_to_all", problem))
    }

    pub(crate) fn all_to_all(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_buffers("all_to_all", &input, &output)?;
        self.same("all_to_all", "output", output.len(), Some(input.len()))?;
        self.check_dealing(input.len())?;
        let call = described(Collective::AllToAll, input.dtype(), input.len());
        self.call(call, |messages| {
            let own = self.read(input)?;
            let dealt = self.deal(messages, own.bytes())?;
            self.write(output, dealt.bytes())
        })
    }

    pub(crate) fn all_to_all_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.here.check_home("all_to_all_in_place", data.home())?;
        self.check_dealing(data.len())?;
        let call = described(Collective::AllToAll, data.dtype(), data.len());
        self.call(call, |messages| {
            let own = self.read(data.as_input())?;
            let dealt = self.deal(messages, own.bytes())?;
            self.write(data, dealt.bytes())
        })
    }

    /// `counts[from * ranks + to]` elements go from rank to rank; agreed upon by all ranks.
    pub(crate) fn all_to_all_v(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        counts: &[usize],
    ) -> Result<()> {
        self.check_buffers("all_to_all_v", &input, &output)?;
        let (spread, ranks, me) = (&self.spread, self.size(), self.spread.me);
        let (dtype, size) = (input.dtype(), input.dtype().bytes());
        let count = |from: u32, to: u32| counts[(from * ranks + to) as usize];
        let total = counts
            .iter()
            .fold(0usize, |sum, count| sum.saturating_add(*count));
        let sends = places(size, (0..ranks).map(|to| count(me, to)));
        let receives = places(size, (0..ranks).map(|from| count(from, me)));
        self.call(described(Operation::AllToAllV, dtype, total), |messages| {
            let own = self.read(input)?;
            let mut all = Buffer::zeroed(receives.last().map_or(0, |last| last.end));
            let mut coming = Vec::new();
            for rank in spread.strangers() {
                let place = &receives[rank as usize];
                if !place.is_empty() {
                    coming.push((place, messages.expect(rank, place.len())?));
                }
            }
            for rank in spread.strangers() {
                let place = sends[rank as usize].clone();
                if !place.is_empty() {
                    messages.send(rank, &own.bytes()[place])?;
                }
            }
            let _moving = messages.keep_moving();
            let mine: Vec<u8> = spread
                .here()
                .iter()
                .flat_map(|rank| &own.bytes()[sends[*rank as usize].clone()])
                .copied()
                .collect();
            let bytes = |places: &[Range<usize>]| -> usize {
                spread
                    .here()
                    .iter()
                    .map(|rank| places[*rank as usize].len())
                    .sum()
            };
            let mut theirs = Buffer::zeroed(bytes(&receives));
            let here = spread.here();
            let among: Vec<usize> = here
                .iter()
                .flat_map(|from| here.iter().map(move |to| count(*from, *to) * size))
                .collect();
            let to = writing(Dtype::U8, theirs.bytes_mut());
            self.here.all_to_all_v(reading(Dtype::U8, &mine), to, &among)?;
            let mut rest = theirs.bytes();
            for rank in here {
                let place = receives[*rank as usize].clone();
                let (part, after) = rest.split_at(place.len());
                all.bytes_mut()[place].copy_from_slice(part);
                rest = after;
            }
            for (place, incoming) in coming {
                all.bytes_mut()[place.clone()].copy_from_slice(messages.take(incoming)?.bytes());
            }
            self.write(output, all.bytes())
        })
    }
}

/// Where parts of these numbers of elements lie, one after the other, in bytes.
fn places(size: usize, counts: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut at = 0;
    counts
        .map(|count| {
            let start = at;
            at += count * size;
            start..at
        })
        .collect()
}
