//! How a [port](crate::HostPort) lies in its window, and what both of its ends do with it: slots, headers, and the order
//! in which slots are given back. The rules are the port's.

use std::collections::VecDeque;

/// What both ends know of a port: how it lies in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLayout {
    /// Messages that each direction holds; a power of two.
    pub depth: u32,
    /// Elements that fit one.
    pub slot_len: usize,
}

/// The signals of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCell {
    /// Requests that the host has sent.
    RequestsSent,
    /// Requests that the kernel has given back.
    RequestsFreed,
    /// Responses that the kernel has sent.
    ResponsesSent,
    /// Responses that the host has given back.
    ResponsesFreed,
    /// Not 0 while the host attends to the port.
    Attended,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the kernel.
    Request,
    /// From the kernel to the host.
    Response,
}

impl PortLayout {
    /// Signals that a port has.
    pub const CELLS: u32 = 5;
    /// Numbers in a header.
    pub const HEADER_LEN: usize = 4;
    /// The most messages a direction may hold.
    pub const MAX_DEPTH: u32 = 1 << 16;

    /// Whether there can be such a port.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.depth.is_power_of_two() && self.depth <= PortLayout::MAX_DEPTH
    }

    /// Elements of the slots of both directions.
    #[must_use]
    pub fn slots_len(&self) -> usize {
        (2 * self.depth as usize).saturating_mul(self.slot_len)
    }

    /// Numbers in the headers of both directions.
    #[must_use]
    pub fn headers_len(&self) -> usize {
        2 * self.depth as usize * PortLayout::HEADER_LEN
    }

    /// Which slot a message goes through. Depth is a power of two, so this goes on across the wrap.
    fn slot(&self, direction: Direction, number: i32) -> usize {
        let first = match direction {
            Direction::Request => 0,
            Direction::Response => self.depth,
        };
        (first + number.cast_unsigned() % self.depth) as usize
    }

    /// Where the payload of a message begins among the slots.
    #[must_use]
    pub fn payload_start(&self, direction: Direction, number: i32) -> usize {
        self.slot(direction, number) * self.slot_len
    }

    /// Where the header of a message begins among the headers.
    #[must_use]
    pub fn header_start(&self, direction: Direction, number: i32) -> usize {
        self.slot(direction, number) * PortLayout::HEADER_LEN
    }

    /// What `freed` must be before message `number` may be written (HST-3).
    #[must_use]
    pub fn needs_freed(&self, number: i32) -> i32 {
        number.wrapping_add(1).wrapping_sub(self.depth.cast_signed())
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Payload.
    Data,
    /// No more will come this way.
    Stop,
    /// Something went wrong: a number that both ends understand, and a payload if there is more to say.
    Error(i32),
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: MessageKind,
    /// Elements of its payload.
    pub len: usize,
}

impl Header {
    /// As it lies in the window.
    #[must_use]
    pub fn words(&self) -> [i32; PortLayout::HEADER_LEN] {
        let (kind, code) = match self.kind {
            MessageKind::Data => (0, 0),
            MessageKind::Stop => (1, 0),
            MessageKind::Error(code) => (2, code),
        };
        [kind, i32::try_from(self.len).unwrap_or(i32::MAX), code, 0]
    }

    /// From a window. `None` if it is not one, or is longer than a slot: then it was not written by a port.
    #[must_use]
    pub fn from_words(words: &[i32], layout: &PortLayout) -> Option<Header> {
        let &[kind, len, code, _] = words else { return None };
        let kind = match kind {
            0 => MessageKind::Data,
            1 => MessageKind::Stop,
            2 => MessageKind::Error(code),
            _ => return None,
        };
        let len = usize::try_from(len).ok().filter(|len| *len <= layout.slot_len)?;
        Some(Header { kind, len })
    }
}

/// Tracks releases of messages. The receiver may release in any order; the sender sees a contiguous prefix (HST-3).
#[derive(Clone, Debug, Default)]
pub struct Returns {
    /// The oldest message that was not released.
    first: i32,
    /// Which of the later ones were released.
    back: VecDeque<bool>,
}

impl Returns {
    /// None under way; the next is number `first`.
    #[must_use]
    pub fn from(first: i32) -> Returns {
        Returns {
            first,
            back: VecDeque::new(),
        }
    }

    /// The number of the next message.
    #[must_use]
    pub fn next(&self) -> i32 {
        self.first
            .wrapping_add(i32::try_from(self.back.len()).unwrap_or(i32::MAX))
    }

    /// What `freed` is.
    #[must_use]
    pub fn freed(&self) -> i32 {
        self.first
    }

    /// The next message was taken.
    pub fn take(&mut self) -> i32 {
        let number = self.next();
        self.back.push_back(false);
        number
    }

    /// A message is not needed any more; whether `freed` has moved.
    pub fn give_back(&mut self, number: i32) -> bool {
        let at = usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(back) = self.back.get_mut(at) {
            *back = true;
        }
        let before = self.first;
        while self.back.front() == Some(&true) {
            self.back.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.first != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: PortLayout = PortLayout {
        depth: 4,
        slot_len: 10,
    };

    #[test]
    fn headers_survive_the_window_and_nonsense_is_refused() {
        for kind in [MessageKind::Data, MessageKind::Stop, MessageKind::Error(-7)] {
            let header = Header { kind, len: 10 };
            assert_eq!(Header::from_words(&header.words(), &LAYOUT), Some(header));
        }
        for words in [[3, 0, 0, 0], [-1, 0, 0, 0], [0, 11, 0, 0], [0, -1, 0, 0]] {
            assert_eq!(Header::from_words(&words, &LAYOUT), None, "{words:?}");
        }
        assert_eq!(Header::from_words(&[0, 0], &LAYOUT), None);
    }

    #[test]
    fn slots_of_the_two_directions_are_apart_and_go_on_across_the_wrap() {
        let mut starts: Vec<_> = (i32::MAX - 1..=i32::MAX)
            .chain(i32::MIN..=i32::MIN + 1)
            .flat_map(|number| {
                [Direction::Request, Direction::Response].map(|way| LAYOUT.payload_start(way, number))
            })
            .collect();
        starts.sort_unstable();
        assert_eq!(starts, [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(LAYOUT.slots_len(), 80);
    }

    proptest! {
        #[test]
        fn given_back_in_any_order_freed_in_order(first: i32, order in Just((0..12).collect::<Vec<i32>>()).prop_shuffle()) {
            let mut returns = Returns::from(first);
            for i in 0..12 {
                prop_assert_eq!(returns.take(), first.wrapping_add(i));
            }
            let mut back = [false; 12];
            for i in order {
                let before = returns.freed();
                back[usize::try_from(i).unwrap()] = true;
                let moved = returns.give_back(first.wrapping_add(i));
                let all = back.iter().take_while(|back| **back).count();
                prop_assert_eq!(returns.freed(), first.wrapping_add(i32::try_from(all).unwrap()));
                prop_assert_eq!(moved, returns.freed() != before);
            }
            prop_assert_eq!(returns.next(), returns.freed());
        }
    }
}
