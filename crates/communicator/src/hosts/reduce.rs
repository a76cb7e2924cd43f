//! The collectives that reduce.

use super::messages::{Arrived, Incoming, Messages};
use super::moves::common;
use super::owned::{combine, folded, narrowed, output as writing, partial, widened};
use super::{Hosts, SMALL_BYTES, described};
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use ringwork_isa::{Algorithm, Collective, Dtype, ReduceOp, part_range};
use ringwork_mpi::Buffer;
use std::ops::Range;

/// Bytes of each rank's share of a chunk. Two chunks are under way at a time: while one crosses, the next is reduced here.
const SHARE_BYTES: usize = 256 << 10;
/// Bytes of a piece of a scan, which goes from rank to rank.
const PIECE_BYTES: usize = 256 << 10;

/// A chunk of a large all-reduce whose partial results are crossing. Ranges are of elements.
struct Crossing {
    chunk: Range<usize>,
    /// What this rank has reduced for its host.
    share: Range<usize>,
    /// Partial results of other hosts: host, elements.
    coming: Vec<(usize, Range<usize>, Incoming)>,
}

impl Hosts {
    /// Whether a reduction must be made in rank order: an exact algorithm was asked for (HOSTS-3).
    fn is_exact(&self, collective: Collective, asked: Option<Algorithm>) -> bool {
        let asked = asked.or_else(|| self.here.chooser.asked(collective));
        asked.is_some_and(Algorithm::is_exact)
    }

    fn check_op(&self, call: &'static str, op: ReduceOp, dtype: Dtype) -> Result<()> {
        op.check(dtype)
            .map_err(|problem| Error::arguments(call, problem))?;
        if op == ReduceOp::Avg && dtype.bytes() == 1 && self.size() > 127 {
            let problem = format!("an average of {dtype} is of at most 127 ranks");
            return Err(Error::arguments(call, problem));
        }
        Ok(())
    }

    pub(crate) fn all_reduce(
        &self,
        data: AnyOutput<'_>,
        op: ReduceOp,
        asked: Option<Algorithm>,
    ) -> Result<()> {
        self.here.check_home("all_reduce", data.home())?;
        let (dtype, exact) = (data.dtype(), self.is_exact(Collective::AllReduce, asked));
        self.check_op("all_reduce", op, dtype)?;
        let call = described(Collective::AllReduce, dtype, data.len());
        self.call(
            |sequence| call(sequence).reducing(op).by(way(exact)),
            |messages| {
                let own = self.read(data.as_input())?;
                let sum = self.reduced(messages, own, dtype, op, exact)?;
                self.write(data, sum.bytes())
            },
        )
    }

    pub(crate) fn all_reduce_into(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(Collective::AllReduce, Some(input), output, op, 0)
    }

    /// A collective of equal input and output on every rank.
    pub(crate) fn collective(
        &self,
        collective: Collective,
        input: Option<AnyInput<'_>>,
        output: AnyOutput<'_>,
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        let (name, dtype, len) = (collective.name(), output.dtype(), output.len());
        self.here.check_home(name, output.home())?;
        if let Some(input) = &input {
            self.here.check_home(name, input.home())?;
            self.here.check_dtypes(name, input.dtype(), dtype)?;
            self.same(name, "output", len, Some(input.len()))?;
        }
        if collective == Collective::Barrier {
            return self.barrier();
        }
        if collective.has_parts() {
            return Err(Error::arguments(
                name,
                "this collective has a call of its own; use that",
            ));
        }
        if collective.has_root() {
            self.check_rank(name, root)?;
        }
        if collective.reduces() {
            self.check_op(name, op, dtype)?;
        }
        let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        if scans && op == ReduceOp::Avg {
            return Err(Error::arguments(
                name,
                "partial results are not averages; use a sum",
            ));
        }
        let exact = self.is_exact(collective, None);
        let describe = |sequence| {
            let mut call = described(collective, dtype, len)(sequence);
            if collective.reduces() {
                call = call.reducing(op);
            }
            if collective.has_root() {
                call = call.rooted(root);
            }
            if collective == Collective::AllReduce {
                call = call.by(way(exact));
            }
            call
        };
        self.call(describe, |messages| {
            let own = match input {
                Some(input) => self.read(input)?,
                None => self.read(output.as_input())?,
            };
            let me = self.spread.me;
            match collective {
                Collective::Scan | Collective::ExclusiveScan => {
                    let before = collective == Collective::ExclusiveScan;
                    match self.scanned(messages, own, (dtype, op), before)? {
                        Some(sum) => self.write(output, sum.bytes()),
                        None => Ok(()),
                    }
                }
                Collective::Broadcast => {
                    let all = self.spread_from(messages, own, root)?;
                    self.write(output, all.bytes())
                }
                _ => {
                    let sum = self.reduced(messages, own, dtype, op, exact)?;
                    if collective == Collective::Reduce && me != root {
                        return Ok(());
                    }
                    self.write(output, sum.bytes())
                }
            }
        })
    }

    /// The reduction of everybody's `own`.
    fn reduced(
        &self,
        messages: &mut Messages<'_>,
        own: Buffer,
        dtype: Dtype,
        op: ReduceOp,
        exact: bool,
    ) -> Result<Buffer> {
        let ranks = self.size() as usize;
        if exact {
            let (len, part) = (own.len(), own.len() / dtype.bytes());
            let part = part.div_ceil(ranks) * dtype.bytes();
            let mut parts = Buffer::zeroed(part * ranks);
            parts.bytes_mut()[..len].copy_from_slice(own.bytes());
            let dealt = self.deal(messages, parts.bytes())?;
            let mine = folded(dtype, op, dealt.bytes(), ranks);
            let all = self.collect(messages, mine.bytes())?;
            return Ok(Buffer::of(&all.bytes()[..len]));
        }
        let (wide, folding) = partial(dtype, op);
        let mut sum = widened(dtype, wide, own);
        if sum.len() <= SMALL_BYTES {
            self.reduce_by_leaders(messages, &mut sum, wide, folding)?;
        } else {
            self.reduce_by_shares(messages, &mut sum, wide, folding)?;
        }
        Ok(narrowed(dtype, wide, sum, op, ranks))
    }

    /// One rank of each host exchanges its host's partial result with those of the others.
    fn reduce_by_leaders(
        &self,
        messages: &mut Messages<'_>,
        sum: &mut Buffer,
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<()> {
        let (spread, mut coming) = (&self.spread, Vec::new());
        if spread.leads() {
            for (index, host) in spread.others() {
                coming.push((index, messages.expect(host.ranks[0], sum.len())?));
            }
        }
        self.here.all_reduce(writing(dtype, sum.bytes_mut()), op, None)?;
        if spread.leads() {
            for (_, host) in spread.others() {
                messages.send(host.ranks[0], sum.bytes())?;
            }
            let mut parts: Vec<Option<Arrived>> = spread.hosts.iter().map(|_| None).collect();
            for (index, incoming) in coming {
                parts[index] = Some(messages.take(incoming)?);
            }
            let parts: Vec<Option<&[u8]>> = parts
                .iter()
                .map(|part| part.as_ref().map(Arrived::bytes))
                .collect();
            add_in_order(dtype, op, sum.bytes_mut(), &parts);
            messages.finish()?;
        }
        self.here.broadcast(writing(dtype, sum.bytes_mut()), 0)
    }

    /// Every rank exchanges its share of its host's partial result, chunk by chunk.
    fn reduce_by_shares(
        &self,
        messages: &mut Messages<'_>,
        sum: &mut Buffer,
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<()> {
        let size = dtype.bytes();
        let (count, most) = (
            sum.len() / size,
            SHARE_BYTES / size * self.spread.most_on_a_host(),
        );
        let _moving = messages.keep_moving();
        let mut crossing: Option<Crossing> = None;
        for start in (0..count).step_by(most) {
            let chunk = start..count.min(start + most);
            let data = &mut sum.bytes_mut()[bytes_of(&chunk, size)];
            self.here.reduce_scatter_in_place(writing(dtype, data), op)?;
            let begun = self.begin_crossing(messages, sum, chunk, size)?;
            if let Some(before) = crossing.replace(begun) {
                self.end_crossing(messages, sum, before, (dtype, op))?;
            }
        }
        match crossing {
            Some(last) => self.end_crossing(messages, sum, last, (dtype, op)),
            None => Ok(()),
        }
    }

    /// The part of a chunk that rank `place` of `ranks` on a host reduces for it.
    fn share_of(chunk: &Range<usize>, ranks: usize, place: usize) -> Range<usize> {
        let part = part_range(chunk.len(), ranks, place);
        chunk.start + part.start..chunk.start + part.end
    }

    /// The part of a chunk that host `index` adds up: of two hosts each adds all of it, which saves a message.
    fn added_by(&self, chunk: &Range<usize>, index: usize) -> Range<usize> {
        match self.spread.hosts.len() {
            2 => chunk.clone(),
            hosts => Self::share_of(chunk, hosts, index),
        }
    }

    fn begin_crossing(
        &self,
        messages: &mut Messages<'_>,
        sum: &Buffer,
        chunk: Range<usize>,
        size: usize,
    ) -> Result<Crossing> {
        let spread = &self.spread;
        let share = Self::share_of(&chunk, spread.here().len(), spread.local);
        let wanted = common(&share, &self.added_by(&chunk, spread.mine));
        let mut coming = Vec::new();
        for (index, host) in spread.others() {
            let given = common(&share, &self.added_by(&chunk, index));
            for (place, rank) in host.ranks.iter().enumerate() {
                let theirs = Self::share_of(&chunk, host.ranks.len(), place);
                let part = common(&wanted, &theirs);
                if !part.is_empty() {
                    let incoming = messages.expect(*rank, part.len() * size)?;
                    coming.push((index, part, incoming));
                }
                let part = common(&given, &theirs);
                if !part.is_empty() {
                    messages.send(*rank, &sum.bytes()[bytes_of(&part, size)])?;
                }
            }
        }
        Ok(Crossing { chunk, share, coming })
    }

    fn end_crossing(
        &self,
        messages: &mut Messages<'_>,
        sum: &mut Buffer,
        crossing: Crossing,
        (dtype, op): (Dtype, ReduceOp),
    ) -> Result<()> {
        let (spread, size) = (&self.spread, dtype.bytes());
        let Crossing { chunk, share, coming } = crossing;
        let added = common(&share, &self.added_by(&chunk, spread.mine));
        let mut parts: Vec<Option<Buffer>> = spread.others().map(|(index, _)| index).fold(
            vec![None; spread.hosts.len()],
            |mut parts, index| {
                parts[index] = Some(Buffer::zeroed(added.len() * size));
                parts
            },
        );
        for (index, part, incoming) in coming {
            let arrived = messages.take(incoming)?;
            let place = part.start - added.start..part.end - added.start;
            if let Some(whole) = &mut parts[index] {
                whole.bytes_mut()[bytes_of(&place, size)].copy_from_slice(arrived.bytes());
            }
        }
        let parts: Vec<Option<&[u8]>> = parts
            .iter()
            .map(|part| part.as_ref().map(Buffer::bytes))
            .collect();
        let data = &mut sum.bytes_mut()[bytes_of(&added, size)];
        add_in_order(dtype, op, data, &parts);
        if spread.hosts.len() > 2 {
            self.exchange_sums(messages, sum, (&chunk, &share), size)?;
        }
        let data = &mut sum.bytes_mut()[bytes_of(&chunk, size)];
        self.here.all_gather_in_place(writing(dtype, data))
    }

    /// With more than two hosts each adds up a part of the chunk, and the others need it.
    fn exchange_sums(
        &self,
        messages: &mut Messages<'_>,
        sum: &mut Buffer,
        (chunk, share): (&Range<usize>, &Range<usize>),
        size: usize,
    ) -> Result<()> {
        let spread = &self.spread;
        let added = common(share, &self.added_by(chunk, spread.mine));
        let mut coming = Vec::new();
        for (index, host) in spread.others() {
            let wanted = common(share, &self.added_by(chunk, index));
            for (place, rank) in host.ranks.iter().enumerate() {
                let theirs = Self::share_of(chunk, host.ranks.len(), place);
                let part = common(&wanted, &theirs);
                if !part.is_empty() {
                    coming.push((part.clone(), messages.expect(*rank, part.len() * size)?));
                }
                let part = common(&added, &theirs);
                if !part.is_empty() {
                    messages.send(*rank, &sum.bytes()[bytes_of(&part, size)])?;
                }
            }
        }
        for (part, incoming) in coming {
            let arrived = messages.take(incoming)?;
            sum.bytes_mut()[bytes_of(&part, size)].copy_from_slice(arrived.bytes());
        }
        Ok(())
    }

    /// The reduction of `own` over the ranks up to this one, or `before` it: piece by piece from rank to rank.
    fn scanned(
        &self,
        messages: &mut Messages<'_>,
        own: Buffer,
        (dtype, op): (Dtype, ReduceOp),
        before: bool,
    ) -> Result<Option<Buffer>> {
        let (me, ranks) = (self.spread.me, self.size());
        let (wide, folding) = partial(dtype, op);
        let mut sum = widened(dtype, wide, own);
        let mut earlier = Buffer::zeroed(if before { sum.len() } else { 0 });
        for start in (0..sum.len()).step_by(PIECE_BYTES) {
            let place = start..sum.len().min(start + PIECE_BYTES);
            if me > 0 {
                let arrived = messages.take(messages.expect(me - 1, place.len())?)?;
                let mut mine = Buffer::of(arrived.bytes());
                combine(wide, folding, mine.bytes_mut(), &sum.bytes()[place.clone()]);
                sum.bytes_mut()[place.clone()].copy_from_slice(mine.bytes());
                if before {
                    earlier.bytes_mut()[place.clone()].copy_from_slice(arrived.bytes());
                }
            }
            if me + 1 < ranks {
                messages.send(me + 1, &sum.bytes()[place])?;
            }
        }
        let sum = match (before, me) {
            (true, 0) => return Ok(None),
            (true, _) => earlier,
            (false, _) => sum,
        };
        Ok(Some(narrowed(dtype, wide, sum, op, 1)))
    }

    pub(crate) fn reduce_scatter(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        let dtype = input.dtype();
        self.check_buffers("reduce_scatter", &input, &output)?;
        self.same("reduce_scatter", "input", input.len(), self.times(output.len()))?;
        self.check_op("reduce_scatter", op, dtype)?;
        let exact = self.is_exact(Collective::ReduceScatter, None);
        let call = described(Collective::ReduceScatter, dtype, input.len());
        self.call(
            |sequence| call(sequence).reducing(op).by(way(exact)),
            |messages| {
                let own = self.read(input)?;
                let mine = self.reduced_part(messages, own, dtype, op, exact)?;
                self.write(output, mine.bytes())
            },
        )
    }

    /// The parts may differ by an element, so they cross in rooms for the longest.
    pub(crate) fn reduce_scatter_in_place(&self, data: AnyOutput<'_>, op: ReduceOp) -> Result<()> {
        self.here.check_home("reduce_scatter_in_place", data.home())?;
        let (dtype, len, ranks) = (data.dtype(), data.len(), self.size() as usize);
        self.check_op("reduce_scatter_in_place", op, dtype)?;
        let exact = self.is_exact(Collective::ReduceScatter, None);
        let call = described(Collective::ReduceScatter, dtype, len);
        self.call(
            |sequence| call(sequence).reducing(op).by(way(exact)),
            |messages| {
                let (size, mut own) = (dtype.bytes(), self.read(data.as_input())?);
                let place = |rank: usize| bytes_of(&part_range(len, ranks, rank), size);
                let mut parts = Buffer::zeroed(len.div_ceil(ranks) * ranks * size);
                let room = parts.len() / ranks;
                for (rank, part) in parts.bytes_mut().chunks_exact_mut(room).enumerate() {
                    let place = place(rank);
                    part[..place.len()].copy_from_slice(&own.bytes()[place]);
                }
                let part = self.reduced_part(messages, parts, dtype, op, exact)?;
                let mine = place(self.spread.me as usize);
                own.bytes_mut()[mine.clone()].copy_from_slice(&part.bytes()[..mine.len()]);
                self.write(data, own.bytes())
            },
        )
    }

    /// This rank's part of the reduction of everybody's `parts`, which are equally long, one for each rank.
    fn reduced_part(
        &self,
        messages: &mut Messages<'_>,
        parts: Buffer,
        dtype: Dtype,
        op: ReduceOp,
        exact: bool,
    ) -> Result<Buffer> {
        let (spread, ranks) = (&self.spread, self.size() as usize);
        if exact {
            let dealt = self.deal(messages, parts.bytes())?;
            return Ok(folded(dtype, op, dealt.bytes(), ranks));
        }
        let (wide, folding) = partial(dtype, op);
        let parts = widened(dtype, wide, parts);
        let (size, each) = (wide.bytes(), parts.len() / ranks / wide.bytes());
        let _moving = messages.keep_moving();
        // Of the parts for each host, this rank reduces a share over the ranks here, and sends it to where it belongs.
        let slot = |place: usize| place * each..(place + 1) * each;
        let (here, local) = (spread.here().len(), spread.local);
        let mut coming = Vec::new();
        for (index, host) in spread.others() {
            for (place, rank) in host.ranks.iter().enumerate() {
                let part = common(&slot(local), &part_range(here * each, host.ranks.len(), place));
                if !part.is_empty() {
                    coming.push((index, part.clone(), messages.expect(*rank, part.len() * size)?));
                }
            }
        }
        let mut mine = Buffer::zeroed(each * size);
        for (index, host) in spread.hosts.iter().enumerate() {
            let mut block = Buffer::zeroed(host.ranks.len() * each * size);
            for (room, rank) in block.bytes_mut().chunks_exact_mut(each * size).zip(&host.ranks) {
                room.copy_from_slice(&parts.bytes()[bytes_of(&slot(*rank as usize), size)]);
            }
            self.here
                .reduce_scatter_in_place(writing(wide, block.bytes_mut()), folding)?;
            let share = part_range(host.ranks.len() * each, here, local);
            if index == spread.mine {
                mine.bytes_mut()
                    .copy_from_slice(&block.bytes()[bytes_of(&share, size)]);
                continue;
            }
            for (place, rank) in host.ranks.iter().enumerate() {
                let part = common(&slot(place), &share);
                if !part.is_empty() {
                    messages.send(*rank, &block.bytes()[bytes_of(&part, size)])?;
                }
            }
        }
        let mut theirs: Vec<Option<Buffer>> = (0..spread.hosts.len())
            .map(|index| (index != spread.mine).then(|| Buffer::zeroed(each * size)))
            .collect();
        for (index, part, incoming) in coming {
            let arrived = messages.take(incoming)?;
            let start = slot(local).start;
            let place = part.start - start..part.end - start;
            if let Some(whole) = &mut theirs[index] {
                whole.bytes_mut()[bytes_of(&place, size)].copy_from_slice(arrived.bytes());
            }
        }
        let theirs: Vec<Option<&[u8]>> = theirs
            .iter()
            .map(|part| part.as_ref().map(Buffer::bytes))
            .collect();
        add_in_order(wide, folding, mine.bytes_mut(), &theirs);
        Ok(narrowed(dtype, wide, mine, op, ranks))
    }
}

/// The algorithm, as ranks must agree upon it.
fn way(exact: bool) -> Algorithm {
    if exact {
        Algorithm::Direct
    } else {
        Algorithm::Hierarchical
    }
}

fn bytes_of(elements: &Range<usize>, size: usize) -> Range<usize> {
    elements.start * size..elements.end * size
}

/// `own` becomes the reduction of all parts, in the order of hosts; this host's part is `own`, and `None` in the list.
fn add_in_order(dtype: Dtype, op: ReduceOp, own: &mut [u8], parts: &[Option<&[u8]>]) {
    let mine = Buffer::of(own);
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    own.copy_from_slice(first.unwrap_or(mine.bytes()));
    for next in rest {
        combine(dtype, op, own, next.unwrap_or(mine.bytes()));
    }
}
