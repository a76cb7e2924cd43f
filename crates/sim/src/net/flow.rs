//! Bytes on their way: FIFO links with cut-through, booked ahead.
//!
//! A link serves messages in the order their first bytes reach it. A message books its whole way when it
//! departs, and needs one event, its arrival, however long the way is. A message that then reaches one of those
//! links *earlier*, and would still be on it, goes first: the later booking and all that follows from it
//! are withdrawn, and made again when that message really gets there. A message that has to wait books only
//! up to there, and goes on from link to link. So the result is exactly that of
//! moving every message one link at a time (a property test holds the two against each other), at the
//! price of one event per message where nobody is in anybody's way.
//!
//! On each link a message starts at `max(its arrival, the link being free)`, keeps the link for
//! `bytes / bandwidth` or until its tail has come in, and its head reaches the next link one latency after
//! it started (plus one flit, or the whole message if the network stores and forwards). Links buffer
//! without limit: a message that waits does not hold the links behind it.
//!
//! # Invariants
//! - **NET-1 (FIFO).** Bookings of a link are in order of arrival; equal arrivals in order of booking.
//! - **NET-2 (settled is final).** A booking whose arrival is not after the clock is never withdrawn.
//! - **NET-3 (conservation).** A link's bytes are the sum over the messages booked on it.

use super::fabric::Fabric;
use super::protocol::LinkClass;
use super::route::Routes;
use crate::time::{Ps, Rate};
use std::collections::VecDeque;
use std::sync::Arc;

/// When a message's head may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switching {
    /// When this many bytes have come in; 0 for at once.
    CutThrough(u64),
    /// When all of it has come in.
    StoreAndForward,
}

/// A message that is still on its way, and how often its bookings have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Its number among the messages on their way; reused afterwards.
    pub index: u32,
    change: u32,
}

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing can change its times any more.
    Final {
        /// When its last byte has left.
        injected_ps: Ps,
        /// When its last byte arrives.
        arrival_ps: Ps,
    },
    /// It is booked; [`Network::wake`] will say when it has arrived.
    Booked {
        /// Which.
        flow: u32,
        /// When its last byte has left, if it departed at once.
        injected_ps: Ps,
    },
}

/// What a wake-up of a message meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has arrived.
    Arrived,
    /// It is still on its way.
    Underway,
    /// Its bookings have changed since; ignore this.
    Stale,
}

/// One message's turn on one link, still to come.
#[derive(Clone, Copy, Debug)]
struct Booking {
    arrival: Ps,
    start: Ps,
    tail_in: Ps,
    end: Ps,
    bytes: u64,
    flow: u32,
    hop: u32,
}

impl Booking {
    fn on(&self, link: u32) -> Use {
        Use {
            link,
            start: self.start,
            end: self.end,
            bytes: self.bytes,
        }
    }
}

/// A message's time on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) link: u32,
    pub(crate) start: Ps,
    pub(crate) end: Ps,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug)]
struct Link {
    /// What it does, kept here because it is asked for whenever the rest is.
    bandwidth: Rate,
    latency_ps: Ps,
    /// The class of a link with protocols: where in [`Network::protocols`] it is.
    protocols: Option<u16>,
    /// When the last settled message is through.
    free_at: Ps,
    busy_ps: Ps,
    bytes: u64,
    bookings: VecDeque<Booking>,
}

#[derive(Clone, Debug, Default)]
struct Message {
    path: Vec<u32>,
    bytes: u64,
    change: u32,
    /// Where to book from, once it gets there: the hop, and when the tail comes in.
    resume: Option<(u32, Ps)>,
}

/// All links of a machine, and what is on them.
#[derive(Clone, Debug)]
pub struct Network {
    fabric: Arc<Fabric>,
    /// The fabric's, then ports of memories.
    links: Vec<Link>,
    messages: Vec<Message>,
    free: Vec<u32>,
    routes: Routes,
    switching: Switching,
    /// Classes of links with several protocols.
    protocols: Vec<LinkClass>,
    /// Wake-ups that the owner of the clock must queue.
    wakes: Vec<(Ps, Flow)>,
    displaced: Vec<Booking>,
    /// Messages that have had their turn on a link, if that is kept.
    uses: Option<Vec<Use>>,
    /// Books one link at a time; for the test that holds the two ways against each other.
    pub(crate) hop_by_hop: bool,
}

impl Network {
    /// A quiet network; link `fabric.links().end + i` is port `i`.
    #[must_use]
    pub fn new(fabric: Arc<Fabric>, ports: Vec<LinkClass>, switching: Switching) -> Network {
        // No way leads over a link that failed; it has some class.
        let nothing = LinkClass::new(Rate::UNLIMITED, 0);
        let mut protocols: Vec<LinkClass> = Vec::new();
        let classes = fabric.links().map(|link| fabric.class(link).unwrap_or(nothing));
        let quiet = |class: LinkClass| Link {
            bandwidth: class.bandwidth,
            latency_ps: class.latency_ps,
            protocols: class.protocols().next().and_then(|_| {
                let known = protocols.iter().position(|other| *other == class);
                let index = known.unwrap_or_else(|| {
                    protocols.push(class);
                    protocols.len() - 1
                });
                u16::try_from(index).ok()
            }),
            free_at: 0,
            busy_ps: 0,
            bytes: 0,
            bookings: VecDeque::new(),
        };
        Network {
            links: classes.chain(ports).map(quiet).collect(),
            protocols,
            fabric,
            messages: Vec::new(),
            free: Vec::new(),
            routes: Routes::default(),
            switching,
            wakes: Vec::new(),
            displaced: Vec::new(),
            uses: None,
            hop_by_hop: false,
        }
    }

    /// Keeps which message was on which link, and when.
    pub(crate) fn keep_uses(&mut self) {
        self.uses = Some(Vec::new());
    }

    /// Every message's time on every link, as far as it is kept; also of those that are still to come.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let Some(uses) = &self.uses else {
            return Vec::new();
        };
        let booked = (0..self.link_count()).zip(&self.links).flat_map(|(link, state)| {
            let bookings = state.bookings.iter();
            bookings.map(move |turn| turn.on(link))
        });
        uses.iter().copied().chain(booked).collect()
    }

    /// Forgets bookings of a link that are never withdrawn any more (NET-2).
    #[inline]
    fn settle(&mut self, link: u32, now: Ps) {
        let state = &mut self.links[link as usize];
        while let Some(first) = state.bookings.front()
            && first.arrival <= now
        {
            state.free_at = first.end;
            if let Some(uses) = &mut self.uses {
                uses.push(first.on(link));
            }
            state.bookings.pop_front();
        }
    }

    /// The links it is made of.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Appends the way from one place to another; `false` if there is none.
    pub fn route(&mut self, src: u32, dst: u32, out: &mut Vec<u32>) -> bool {
        self.routes.find(&self.fabric, src, dst, out)
    }

    /// The rate and the latency of a link for a message of so many bytes.
    #[inline(always)]
    fn class(&self, link: u32, bytes: u64) -> (Rate, Ps) {
        let link = &self.links[link as usize];
        match link.protocols {
            None => (link.bandwidth, link.latency_ps),
            Some(index) => self.protocols[usize::from(index)].of(bytes),
        }
    }

    /// The time a first byte needs along a path without traffic.
    #[must_use]
    pub fn latency_ps(&self, path: &[u32]) -> Ps {
        path.iter().map(|link| self.class(*link, 0).1).sum()
    }

    /// Bytes that a link has carried or is booked to, and the time it takes for them.
    #[must_use]
    pub fn load(&self, link: u32) -> (u64, Ps) {
        self.links
            .get(link as usize)
            .map_or((0, 0), |l| (l.bytes, l.busy_ps))
    }

    /// Links and ports there are.
    #[must_use]
    pub fn link_count(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(u32::MAX)
    }

    /// Whether there are no wake-ups to be taken.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.wakes.is_empty()
    }

    /// Wake-ups that must be given back to [`wake`](Network::wake) at their time.
    pub fn wakes(&mut self) -> std::vec::Drain<'_, (Ps, Flow)> {
        self.wakes.drain(..)
    }

    /// Sends `bytes` along `path`; the first leave at `depart`, not before `now`.
    #[inline]
    pub fn send(&mut self, now: Ps, depart: Ps, path: &[u32], bytes: u64) -> Sent {
        let depart = depart.max(now);
        if let ([number], true) = (path, depart == now)
            && self.links[*number as usize].bookings.is_empty()
        {
            let (rate, latency_ps) = self.class(*number, bytes);
            let link = &mut self.links[*number as usize];
            let service = rate.time_ps(bytes);
            let start = link.free_at.max(now);
            let injected_ps = start.saturating_add(service);
            link.free_at = injected_ps;
            link.busy_ps += service;
            link.bytes += bytes;
            if let Some(uses) = &mut self.uses {
                uses.push(Use {
                    link: *number,
                    start,
                    end: injected_ps,
                    bytes,
                });
            }
            return Sent::Final {
                injected_ps,
                arrival_ps: injected_ps.saturating_add(latency_ps),
            };
        }
        self.send_far(now, depart, path, bytes)
    }

    /// Sends over a path that is longer, busy, or taken later.
    #[inline(never)]
    fn send_far(&mut self, now: Ps, depart: Ps, path: &[u32], bytes: u64) -> Sent {
        let flow = self.free.pop().unwrap_or_else(|| {
            self.messages.push(Message::default());
            u32::try_from(self.messages.len() - 1).unwrap_or(u32::MAX)
        });
        let message = &mut self.messages[flow as usize];
        message.path.clear();
        message.path.extend_from_slice(path);
        message.bytes = bytes;
        message.resume = None;
        self.book(now, flow, 0, depart, depart)
    }

    /// Gives back a wake-up at its time.
    pub fn wake(&mut self, now: Ps, flow: Flow) -> Step {
        let message = &mut self.messages[flow.index as usize];
        if message.change != flow.change {
            return Step::Stale;
        }
        match message.resume.take() {
            None => {
                self.retire(flow.index);
                Step::Arrived
            }
            Some((hop, tail_in)) => match self.book(now, flow.index, hop, now, tail_in) {
                // Settled, but its tail is still coming in.
                Sent::Final { arrival_ps, .. } if arrival_ps > now => {
                    self.reopen(flow.index);
                    self.call(arrival_ps, flow.index);
                    Step::Underway
                }
                Sent::Final { .. } => Step::Arrived,
                Sent::Booked { .. } => Step::Underway,
            },
        }
    }

    fn retire(&mut self, flow: u32) {
        let message = &mut self.messages[flow as usize];
        message.change = message.change.wrapping_add(1);
        self.free.push(flow);
    }

    /// Takes back the last retirement.
    fn reopen(&mut self, flow: u32) {
        debug_assert_eq!(self.free.last(), Some(&flow));
        self.free.pop();
    }

    fn call(&mut self, at: Ps, index: u32) {
        let change = self.messages[index as usize].change;
        self.wakes.push((at, Flow { index, change }));
    }

    /// Books from `hop` on. A message that is final is retired; one that is not will be woken.
    fn book(&mut self, now: Ps, flow: u32, hop: u32, arrival: Ps, tail_in: Ps) -> Sent {
        let path = std::mem::take(&mut self.messages[flow as usize].path);
        let bytes = self.messages[flow as usize].bytes;
        let (mut arrival, mut tail_in, mut injected, mut settled) = (arrival, tail_in, arrival, true);
        let mut stop = None;
        for (hop, link) in path.iter().enumerate().skip(hop as usize) {
            let (rate, latency_ps) = self.class(*link, bytes);
            let service = rate.time_ps(bytes);
            // A path has far fewer than 2^32 links.
            #[allow(clippy::cast_possible_truncation, reason = "checked by MAX_LINKS")]
            let booking = Booking {
                arrival,
                start: arrival,
                tail_in,
                end: service,
                bytes,
                flow,
                hop: hop as u32,
            };
            let (start, end) = self.claim(now, *link, booking);
            let state = &mut self.links[*link as usize];
            state.busy_ps += service;
            state.bytes += bytes;
            if hop == 0 {
                injected = end;
            }
            settled &= arrival <= now;
            let whole = match self.switching {
                Switching::CutThrough(0) => 0,
                Switching::CutThrough(flit) => rate.time_ps(flit.min(bytes)),
                Switching::StoreAndForward => end - start,
            };
            arrival = start.saturating_add(latency_ps).saturating_add(whole);
            tail_in = end.saturating_add(latency_ps);
            // After one wait, more are likely: the message books its other links when it reaches them.
            let crowded = start > booking.arrival || self.hop_by_hop;
            if crowded && hop + 1 < path.len() && arrival > now {
                stop = Some(booking.hop + 1);
                break;
            }
        }
        let message = &mut self.messages[flow as usize];
        message.path = path;
        if let Some(next) = stop {
            message.resume = Some((next, tail_in));
            self.call(arrival, flow);
            return Sent::Booked {
                flow,
                injected_ps: injected,
            };
        }
        if settled {
            self.retire(flow);
            return Sent::Final {
                injected_ps: injected,
                arrival_ps: tail_in,
            };
        }
        self.call(tail_in, flow);
        Sent::Booked {
            flow,
            injected_ps: injected,
        }
    }

    /// Takes a turn on a link: when it starts and ends. `turn.end` comes in as the time of service.
    fn claim(&mut self, now: Ps, link: u32, mut turn: Booking) -> (Ps, Ps) {
        self.settle(link, now);
        let state = &self.links[link as usize];
        let place = state
            .bookings
            .partition_point(|other| other.arrival <= turn.arrival);
        let free = place
            .checked_sub(1)
            .map_or(state.free_at, |before| state.bookings[before].end);
        let start = turn.arrival.max(free);
        turn.start = start;
        turn.end = start.saturating_add(turn.end).max(turn.tail_in);
        if state
            .bookings
            .get(place)
            .is_some_and(|next| turn.end > next.arrival)
        {
            self.displace(now, link, place);
        }
        let state = &mut self.links[link as usize];
        if turn.arrival <= now {
            state.free_at = turn.end;
            if let Some(uses) = &mut self.uses {
                uses.push(turn.on(link));
            }
        } else {
            state.bookings.insert(place, turn);
        }
        (start, turn.end)
    }

    /// Withdraws the bookings of a link from `place` on, and everything that was built on them.
    fn displace(&mut self, now: Ps, link: u32, place: usize) {
        let mut stack = std::mem::take(&mut self.displaced);
        self.withdraw(link, place, &mut stack);
        while let Some(booking) = stack.pop() {
            let path = std::mem::take(&mut self.messages[booking.flow as usize].path);
            for (hop, link) in path.iter().enumerate().skip(booking.hop as usize + 1) {
                let mine = |other: &Booking| other.flow == booking.flow && other.hop as usize == hop;
                // A settled booking may be of an earlier message of the same number.
                self.settle(*link, now);
                if let Some(place) = self.links[*link as usize].bookings.iter().position(mine) {
                    let below = stack.len();
                    self.withdraw(*link, place, &mut stack);
                    stack.remove(below); // its own
                }
            }
            let message = &mut self.messages[booking.flow as usize];
            message.path = path;
            if message.resume.is_none_or(|(hop, _)| booking.hop < hop) {
                message.resume = Some((booking.hop, booking.tail_in));
                message.change = message.change.wrapping_add(1);
                self.call(booking.arrival, booking.flow);
            }
        }
        self.displaced = stack;
    }

    fn withdraw(&mut self, link: u32, place: usize, stack: &mut Vec<Booking>) {
        let service = |bytes: u64| self.class(link, bytes).0.time_ps(bytes);
        let mut released = (0, 0);
        for booking in self.links[link as usize].bookings.range(place..) {
            released.0 += booking.bytes;
            released.1 += service(booking.bytes);
        }
        let state = &mut self.links[link as usize];
        state.bytes -= released.0;
        state.busy_ps -= released.1;
        stack.extend(state.bookings.drain(place..));
    }
}
