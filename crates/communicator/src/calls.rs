//! The blocking calls of a communicator. What each does is in [`operations`](crate::operations).

use crate::Communicator;
use crate::buffer::{Source, Target};
use crate::error::Result;
use ringwork_isa::{Algorithm, Collective, Element, ReduceOp};

impl Communicator {
    /// `data[i]` becomes its reduction over all ranks, on every rank; in place.
    ///
    /// # Errors
    /// COMM-2, and if the ranks disagree about the call.
    pub fn all_reduce<T: Element>(&self, data: &mut (impl Target<T> + ?Sized), op: ReduceOp) -> Result<()> {
        self.station()?.all_reduce(data.output().into(), op, None)
    }

    /// [`all_reduce`](Communicator::all_reduce) by the given algorithm, through the scratch.
    ///
    /// # Errors
    /// As [`all_reduce`](Communicator::all_reduce); or if the algorithm cannot do it.
    pub fn all_reduce_with<T: Element>(
        &self,
        data: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
        algorithm: Algorithm,
    ) -> Result<()> {
        self.station()?
            .all_reduce(data.output().into(), op, Some(algorithm))
    }

    /// `output[i]` becomes the reduction of `input[i]` over all ranks, on every rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Communicator::all_reduce).
    pub fn all_reduce_into<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.station()?
            .all_reduce_into(input.input().into(), output.output().into(), op)
    }

    /// `output` becomes the `input` of all ranks, in rank order.
    ///
    /// # Errors
    /// If `output` is not as long as everybody's `input` together; COMM-2.
    pub fn all_gather<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
    ) -> Result<()> {
        self.station()?
            .all_gather(input.input().into(), output.output().into())
    }

    /// Part `r` of `data` becomes what it is on rank `r`, on every rank: an [`all_gather`](Communicator::all_gather)
    /// whose input is already in its place. [`part_range`](ringwork_isa::part_range) defines the parts.
    ///
    /// # Errors
    /// COMM-2.
    pub fn all_gather_in_place<T: Element>(&self, data: &mut (impl Target<T> + ?Sized)) -> Result<()> {
        self.station()?.all_gather_in_place(data.output().into())
    }

    /// `output` becomes this rank's part of the reduction of `input` over all ranks.
    ///
    /// # Errors
    /// If `input` is not as long as everybody's `output` together; COMM-2.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.station()?
            .reduce_scatter(input.input().into(), output.output().into(), op)
    }

    /// This rank's part of `data` becomes its reduction over all ranks. The other parts keep their values if `data`
    /// is a window buffer; otherwise they are unspecified. [`part_range`](ringwork_isa::part_range) defines the
    /// parts.
    ///
    /// # Errors
    /// COMM-2.
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        data: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.station()?.reduce_scatter_in_place(data.output().into(), op)
    }

    /// `data` becomes what it is on `root`, on every rank.
    ///
    /// # Errors
    /// If there is no such root; COMM-2.
    pub fn broadcast<T: Element>(&self, data: &mut (impl Target<T> + ?Sized), root: u32) -> Result<()> {
        self.station()?.broadcast(data.output().into(), root)
    }

    /// `root`'s `data[i]` becomes its reduction over all ranks; on the other ranks `data` does not change.
    ///
    /// # Errors
    /// If there is no such root; COMM-2.
    pub fn reduce<T: Element>(
        &self,
        data: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        self.collective_in_place(Collective::Reduce, data, (op, root))
    }

    /// `root`'s `output` becomes the `input` of all ranks, in rank order; on the other ranks `output` does not
    /// change.
    ///
    /// # Errors
    /// If there is no such root, or its `output` is not as long as all; COMM-2.
    pub fn gather<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        root: u32,
    ) -> Result<()> {
        self.station()?
            .gather(input.input().into(), output.output().into(), root)
    }

    /// `output` becomes this rank's part of `root`'s `input`.
    ///
    /// # Errors
    /// If there is no such root, or its `input` is not as long as all; COMM-2.
    pub fn scatter<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        root: u32,
    ) -> Result<()> {
        self.station()?
            .scatter(input.input().into(), output.output().into(), root)
    }

    /// `output` becomes this rank's part of the `input` of all ranks, in rank order.
    ///
    /// # Errors
    /// If the two are not equally long, a multiple of the ranks; COMM-2.
    pub fn all_to_all<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
    ) -> Result<()> {
        self.station()?
            .all_to_all(input.input().into(), output.output().into())
    }

    /// Part `r` of `data` becomes this rank's part of what it was on rank `r`: an
    /// [`all_to_all`](Communicator::all_to_all) with one buffer.
    ///
    /// # Errors
    /// If it cannot be dealt to the ranks equally; COMM-2.
    pub fn all_to_all_in_place<T: Element>(&self, data: &mut (impl Target<T> + ?Sized)) -> Result<()> {
        self.station()?.all_to_all_in_place(data.output().into())
    }

    /// `output` becomes the elements that all ranks send to this one, in rank order: `sends[r]` elements of `input`,
    /// in order, go to rank `r`, and `receives[r]` come from it. The counts are compared between all ranks first.
    ///
    /// # Errors
    /// On every rank, if one's `receives` is not what another `sends`; if the counts do not fit the buffers; COMM-2.
    pub fn all_to_all_v<T: Element>(
        &self,
        (input, sends): (&(impl Source<T> + ?Sized), &[usize]),
        (output, receives): (&mut (impl Target<T> + ?Sized), &[usize]),
    ) -> Result<()> {
        self.station()?
            .all_to_all_v_agreeing((input.input().into(), sends), (output.output().into(), receives))
    }

    /// A collective of equal input and output on every rank, by its name: for programs that go over the catalogue. `op` and
    /// `root` are ignored by those that have none.
    ///
    /// # Errors
    /// As the call of that name; or if the collective deals parts to ranks, or cannot reduce by `op`.
    pub fn collective<T: Element>(
        &self,
        collective: Collective,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        (op, root): (ReduceOp, u32),
    ) -> Result<()> {
        let (input, output) = (Some(input.input().into()), output.output().into());
        self.station()?.collective(collective, input, output, op, root)
    }

    /// [`collective`](Communicator::collective) with one buffer.
    ///
    /// # Errors
    /// As [`collective`](Communicator::collective).
    pub fn collective_in_place<T: Element>(
        &self,
        collective: Collective,
        data: &mut (impl Target<T> + ?Sized),
        (op, root): (ReduceOp, u32),
    ) -> Result<()> {
        self.station()?
            .collective(collective, None, data.output().into(), op, root)
    }

    /// `output[i]` becomes the reduction of `input[i]` over this rank and all before it.
    ///
    /// # Errors
    /// If the two are not equally long, or `op` is an average; COMM-2.
    pub fn scan<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(Collective::Scan, input, output, (op, 0))
    }

    /// `output[i]` becomes the reduction of `input[i]` over all ranks before this one; rank 0's stays.
    ///
    /// # Errors
    /// As [`scan`](Communicator::scan).
    pub fn exclusive_scan<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(Collective::ExclusiveScan, input, output, (op, 0))
    }

    /// Sends `data` to rank `to`, which must [`recv`](Communicator::recv) as many elements of the same type. Calls
    /// of two ranks with each other need no others, and are made in order for each pair.
    ///
    /// # Errors
    /// If there is no such other rank; COMM-2.
    pub fn send<T: Element>(&self, data: &(impl Source<T> + ?Sized), to: u32) -> Result<()> {
        self.station()?.send(data.input().into(), to)
    }

    /// Receives `data` from rank `from`, which must [`send`](Communicator::send) it.
    ///
    /// # Errors
    /// If there is no such other rank, or it sends something else; COMM-2.
    pub fn recv<T: Element>(&self, data: &mut (impl Target<T> + ?Sized), from: u32) -> Result<()> {
        self.station()?.recv(data.output().into(), from)
    }

    /// Sends `input` to rank `to` while it receives `output` from rank `from`: for rings and pairs, where separate
    /// calls would wait in a circle.
    ///
    /// # Errors
    /// As [`send`](Communicator::send) and [`recv`](Communicator::recv).
    pub fn exchange<T: Element>(
        &self,
        (input, to): (&(impl Source<T> + ?Sized), u32),
        (output, from): (&mut (impl Target<T> + ?Sized), u32),
    ) -> Result<()> {
        self.station()?
            .exchange(input.input().into(), output.output().into(), to, from)
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// COMM-2.
    pub fn barrier(&self) -> Result<()> {
        self.station()?.barrier()
    }
}

/// What is wrong with one rank's counts, if anything.
pub(crate) fn counts_problem(
    (input, sends): (usize, &[usize]),
    (output, receives): (usize, &[usize]),
    ranks: u32,
) -> Option<String> {
    let one = |what: &str, len: usize, counts: &[usize]| {
        if counts.len() != ranks as usize {
            return Some(format!("{} counts to {what}, for {ranks} ranks", counts.len()));
        }
        let sum = counts
            .iter()
            .try_fold(0usize, |sum, count| sum.checked_add(*count));
        if sum != Some(len) {
            return Some(format!(
                "the counts to {what} do not add up to the {len} elements given"
            ));
        }
        None
    };
    one("send", input, sends).or_else(|| one("receive", output, receives))
}

/// The counts from every rank to every rank, if sender and receiver agree about each.
pub(crate) fn agreed(all: &[i64], ranks: usize) -> std::result::Result<Vec<usize>, String> {
    let count = |from: usize, to: usize| {
        let (sends, receives) = (all[from * 2 * ranks + to], all[to * 2 * ranks + ranks + from]);
        if sends < 0 || receives < 0 {
            let rank = if sends < 0 { from } else { to };
            return Err(format!("the counts of rank {rank} do not fit its buffers"));
        }
        if sends != receives {
            return Err(format!(
                "rank {from} sends {sends} elements to rank {to}, which receives {receives}"
            ));
        }
        usize::try_from(sends).map_err(|_| "more elements than can be counted".to_owned())
    };
    let pairs = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
    pairs.map(|(from, to)| count(from, to)).collect()
}
