//! The effect of one instruction on signals: values, and what their readers learn.

use super::{Doing, LOOP_AFTER, Poll, Run, line, place};
use crate::cells::{Broken, Position};
use crate::fault::Misuse;
use crate::shadow::Access;
use crate::words::Finding;
use ringwork_isa::{Compare, Notify, Signal};
use std::rc::Rc;

impl Run {
    fn note_poll(&mut self, doing: &Doing<'_>, signal: &Signal, operand: Option<i32>) {
        let (place, writes) = (place(signal), self.history_len(signal));
        let polls = &mut self.polls[doing.by.rank as usize];
        match polls
            .iter_mut()
            .find(|poll| poll.is(doing.at, doing.call, place, operand))
        {
            Some(poll) => (poll.times, poll.writes) = (LOOP_AFTER.min(poll.times + 1), writes),
            None => polls.push(Poll {
                line: line(doing.at),
                call: doing.call,
                place,
                operand,
                times: 1,
                writes,
            }),
        }
    }

    pub(super) fn notify(&mut self, doing: &Doing<'_>, signal: &Signal, how: Notify) {
        let clock = Rc::new(self.clocks[doing.by.rank as usize].clone());
        let by = Access {
            writes: true,
            ..doing.by
        };
        let written = self.cell(signal).write(how, by, &clock);
        if let Some(other) = written.other_writer {
            self.findings.push(Finding::Misuse(
                Misuse::TwoSetters,
                other,
                Some(by),
                Some(*signal),
            ));
        }
        self.note(doing, signal, written.broken);
    }

    fn note(&mut self, doing: &Doing<'_>, signal: &Signal, broken: Option<Broken>) {
        let place = place(signal);
        if let (Some(broken), false) = (broken, doing.bad.contains(&place)) {
            self.broken.get_or_insert((place, broken));
        }
    }

    fn acquire(&mut self, rank: u32, signal: &Signal, position: Position) {
        let Some(index) = position else { return };
        let released = self.cell(signal).history[index].released.clone();
        self.clocks[rank as usize].join(&released);
    }

    pub(super) fn wait(&mut self, doing: &Doing<'_>, signal: &Signal, compare: Compare, operand: i32) {
        let position = if doing.bad.contains(&place(signal)) {
            doing.read
        } else {
            self.read_in_any_order(doing, signal, compare, operand)
        };
        self.acquire(doing.by.rank, signal, position);
    }

    /// The value that a satisfied wait reads, of a cell whose order does not matter.
    fn read_in_any_order(
        &mut self,
        doing: &Doing<'_>,
        signal: &Signal,
        compare: Compare,
        operand: i32,
    ) -> Position {
        let clock = self.clocks[doing.by.rank as usize].clone();
        let cell = self.cell(signal);
        let (position, broken) = if matches!(compare, Compare::Ge | Compare::Gt) {
            let position = cell.first_holding(compare, operand);
            (position, cell.note_wait(position, doing.by))
        } else {
            (cell.latest(), cell.note_read(doing.by, &clock))
        };
        self.note(doing, signal, broken);
        position
    }

    pub(super) fn test(
        &mut self,
        doing: &Doing<'_>,
        signal: &Signal,
        compare: Compare,
        operand: i32,
    ) -> bool {
        let rank = doing.by.rank;
        if doing.bad.contains(&place(signal)) {
            let holds = compare.holds(self.cell(signal).value_at(doing.read), operand);
            if holds {
                self.acquire(rank, signal, doing.read);
            } else {
                self.note_poll(doing, signal, Some(operand));
            }
            return holds;
        }
        let clock = self.clocks[rank as usize].clone();
        let cell = self.cell(signal);
        let known = cell.value_at(cell.newest_known(&clock));
        // What has come stays: a test for more than is known already is always true.
        if matches!(compare, Compare::Ge | Compare::Gt) && compare.holds(known, operand) {
            self.wait(doing, signal, compare, operand);
            return true;
        }
        let broken = cell.note_read(doing.by, &clock);
        let (holds, latest) = (compare.holds(cell.value(), operand), cell.latest());
        self.note(doing, signal, broken);
        if holds {
            self.acquire(rank, signal, latest);
        } else {
            self.note_poll(doing, signal, Some(operand));
        }
        holds
    }

    pub(super) fn peek(&mut self, doing: &Doing<'_>, signal: &Signal) -> i32 {
        let rank = doing.by.rank;
        if doing.bad.contains(&place(signal)) {
            let value = self.cell(signal).value_at(doing.read);
            self.acquire(rank, signal, doing.read);
            self.note_poll(doing, signal, None);
            return value;
        }
        let clock = self.clocks[rank as usize].clone();
        let cell = self.cell(signal);
        let broken = cell.note_read(doing.by, &clock);
        let (value, latest) = (cell.value(), cell.latest());
        self.note(doing, signal, broken);
        self.acquire(rank, signal, latest);
        self.note_poll(doing, signal, None);
        value
    }
}
