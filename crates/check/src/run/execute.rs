//! The effect of one instruction on memory, shadow memory and clocks.

use super::operands::rows;
use super::{Doing, Run, UnderWay, range};
use crate::clock::Agent;
use crate::fault::Misuse;
use crate::shadow::Access;
use crate::words::Finding;
use ringwork_isa::stepped::{Answer, Instruction, Payload};
use ringwork_isa::{BlockSpan, Contributions, Notify, ReduceOp, Result, Span, Ticket};

impl Run {
    pub(super) fn execute(&mut self, doing: &Doing<'_>, instruction: &Instruction) -> Result<Answer> {
        let rank = doing.by.rank as usize;
        match instruction {
            Instruction::Copy { dst, src } if range(dst) == range(src) && dst.segment == src.segment => {}
            Instruction::Copy { dst, src } => {
                let data = self.load(doing.by, src);
                self.store(doing.by, dst, &data);
            }
            Instruction::Reduce { dst, sources, op } => self.reduce(doing.by, dst, sources, *op),
            Instruction::CopyAsync { dst, src } => {
                let lane = self.begin(doing.by);
                if (dst.segment, range(dst)) != (src.segment, range(src)) {
                    let data = self.load(lane.1, src);
                    self.store(lane.1, dst, &data);
                }
                return Ok(Answer::Ticket(lane.0));
            }
            Instruction::Take { slot } => {
                let (ticket, by) = self.begin(doing.by);
                return Ok(Answer::Taken(ticket, Box::new(self.load(by, slot))));
            }
            Instruction::Join(ticket) => {
                let all = &mut self.under_way[rank];
                if let Some(index) = all.iter().position(|one| one.ticket == *ticket) {
                    let one = all.remove(index);
                    self.clocks[rank].join(&one.clock);
                }
            }
            Instruction::Load { src } => return Ok(Answer::Loaded(Box::new(self.load(doing.by, src)))),
            Instruction::Store { dst, data } => self.store(doing.by, dst, data),
            Instruction::Put {
                slot,
                data,
                full,
                value,
            } => {
                self.store(doing.by, slot, data);
                self.notify(doing, full, Notify::Set(*value));
            }
            Instruction::CopyBlock { dst, src } if dst == src => {}
            Instruction::CopyBlock { dst, src } => {
                let data = self.load_rows(doing.by, src);
                self.store_rows(doing.by, dst, &data);
            }
            Instruction::LoadBlock { src } => {
                return Ok(Answer::Loaded(Box::new(self.load_rows(doing.by, src))));
            }
            Instruction::StoreBlock { dst, data } => self.store_rows(doing.by, dst, data),
            Instruction::Spend(_) => {}
            Instruction::PutPacket {
                payload,
                src,
                flag,
                epoch,
            } => {
                let data = self.load(doing.by, src);
                self.store(doing.by, payload, &data);
                self.notify(doing, flag, Notify::Set((*epoch).into()));
            }
            Instruction::TakePackets { dst, sources, op, .. } => {
                let flags = sources.iter().filter_map(|source| source.arrives);
                for (flag, _) in flags {
                    let released = self
                        .cell(&flag)
                        .history
                        .last()
                        .map(|entry| entry.released.clone());
                    if let Some(released) = released {
                        self.clocks[rank].join(&released);
                    }
                }
                let spans: Vec<Span> = sources.iter().map(|source| source.payload).collect();
                self.reduce(doing.by, dst, &spans, *op);
            }
            Instruction::Notify { signal, how } => self.notify(doing, signal, *how),
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => self.wait(doing, signal, *compare, *operand),
            Instruction::Test {
                signal,
                compare,
                operand,
            } => {
                return Ok(Answer::Tested(self.test(doing, signal, *compare, *operand)));
            }
            Instruction::Peek { signal } => return Ok(Answer::Value(self.peek(doing, signal))),
            Instruction::OwnValue { signal } => {
                let clock = self.clocks[rank].clone();
                let cell = self.cell(signal);
                let value = cell.value();
                let is_foreign = |by: &Access| by.rank != doing.by.rank;
                let foreign = (!cell.is_known(&clock))
                    .then(|| cell.history.iter().rev().map(|entry| entry.by).find(is_foreign));
                if let Some(other) = foreign.flatten() {
                    let signal = Some(*signal);
                    self.findings
                        .push(Finding::Misuse(Misuse::NotItsOwn, other, Some(doing.by), signal));
                }
                return Ok(Answer::Value(value));
            }
        }
        Ok(Answer::Done)
    }

    /// Begins a transfer: an agent of its own, that knows what its kernel knows now.
    fn begin(&mut self, by: Access) -> (Ticket, Access) {
        let rank = by.rank as usize;
        let used: Vec<usize> = self.under_way[rank].iter().map(|one| one.lane).collect();
        let lane = (0..).find(|lane| !used.contains(lane)).unwrap_or(0);
        let lanes = &mut self.lanes[rank];
        if lanes.len() == lane {
            lanes.push(0);
        }
        lanes[lane] += 1;
        let time = lanes[lane];
        let fixed = || by.rank + self.ranks * u32::try_from(lane + 1).unwrap_or(u32::MAX);
        let agent: Agent = self
            .open_lanes
            .get(&(by.rank, lane))
            .copied()
            .unwrap_or_else(fixed);
        let ticket = Ticket(u64::from(time) << 16 | lane as u64);
        let mut clock = self.clocks[rank].clone();
        clock.set(agent, time);
        self.under_way[rank].push(UnderWay {
            ticket,
            lane,
            clock,
            node: by.node,
        });
        (ticket, Access { agent, time, ..by })
    }

    fn reduce(&mut self, by: Access, dst: &Span, sources: &[Span], op: ReduceOp) {
        let operands: Vec<Payload> = sources.iter().map(|source| self.load(by, source)).collect();
        let result = Payload::combine(dst.dtype, op, &operands.iter().collect::<Vec<_>>());
        self.store(by, dst, &result);
    }

    fn load(&mut self, by: Access, span: &Span) -> Payload {
        self.touch(by, span);
        self.memory.read(span.segment, &range(span))
    }

    fn store(&mut self, by: Access, span: &Span, data: &Payload) {
        self.touch(Access { writes: true, ..by }, span);
        self.memory.write(span.segment, &range(span), data);
    }

    /// The rows of a block, one after the other.
    fn load_rows(&mut self, by: Access, block: &BlockSpan) -> Payload {
        let loaded: Vec<Payload> = rows(block).iter().map(|row| self.load(by, row)).collect();
        let (mut bytes, mut origins, mut is_origin) = (Vec::new(), Contributions::default(), false);
        for row in loaded {
            match row {
                Payload::Bytes(values) => bytes.extend(values),
                Payload::Origin(origin) => {
                    is_origin = true;
                    origin
                        .pieces()
                        .iter()
                        .cloned()
                        .for_each(|piece| origins.push(piece));
                }
                Payload::Hollow => return Payload::Hollow,
            }
        }
        if is_origin {
            Payload::Origin(origins)
        } else {
            Payload::Bytes(bytes)
        }
    }

    fn store_rows(&mut self, by: Access, block: &BlockSpan, data: &Payload) {
        let mut from = 0;
        for row in rows(block) {
            let end = from + row.byte_len();
            let is_there = !matches!(data, Payload::Bytes(bytes) if bytes.len() < end);
            let part = if is_there {
                data.part(from..end)
            } else {
                Payload::Hollow
            };
            self.store(by, &row, &part);
            from = end;
        }
    }

    fn touch(&mut self, by: Access, span: &Span) {
        let bytes = range(span);
        if bytes.is_empty() {
            return;
        }
        let rank = by.rank as usize;
        let covered = (span.segment, bytes.start.saturating_sub(3))..(span.segment, bytes.end);
        if let Some((_, cell)) = self.cells.range(covered).next() {
            let signal = Some(cell.signal);
            self.findings
                .push(Finding::Misuse(Misuse::DataOverSignal, by, None, signal));
        }
        let clock = match by.agent == by.rank {
            true => &self.clocks[rank],
            false => match self.under_way[rank].last() {
                Some(one) => &one.clock,
                None => &self.clocks[rank],
            },
        };
        let findings = &mut self.findings;
        self.shadow
            .touch((span.segment, bytes), by, clock, |earlier, bytes| {
                let known = clock.get(earlier.rank);
                findings.push(Finding::Race {
                    first: earlier,
                    second: by,
                    span: *span,
                    bytes,
                    known,
                });
            });
    }
}
