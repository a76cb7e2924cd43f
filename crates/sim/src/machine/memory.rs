//! Memory of a simulated machine: segments of plain bytes, of none, or of where they come from.
//!
//! # Invariants
//! - **MEM-1 (checked).** Every access is checked against its segment before anything is written.
//! - **MEM-2 (same bits).** Elements are combined by [`Payload::combine`] only, in the order of the sources.

use super::Options;
use super::error::SimError;
use super::moves::Moves;
use super::origins::Origins;
use ringwork_isa::stepped::Payload;
use ringwork_isa::{BlockSpan, ByteRows, Contributions, Counted, Segment, Span};
use std::ops::Range;

/// A segment to be defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSpec {
    /// Its number.
    pub segment: Segment,
    /// The machine's rank of each member, in member order; one for a chip's private memory.
    pub members: Vec<u32>,
    /// Bytes of the whole segment: all members' windows.
    pub bytes: u64,
    /// Which memory of each chip it is in, by number.
    pub memory: usize,
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) members: Vec<u32>,
    pub(crate) bytes: u64,
    pub(crate) memory: u32,
    data: Option<Vec<u8>>,
}

/// Where a span or a block is: a range of a segment, or rows in it, and the rank that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) segment: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rank: u32,
    pub(crate) memory: u32,
    /// 1, unless it is a block with gaps between its rows.
    pub(crate) rows: u32,
    /// Bytes from one row to the next, if there are several.
    pub(crate) pitch: u64,
}

impl Located {
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.rows) * self.row_bytes()
    }

    #[inline]
    fn row_bytes(&self) -> u64 {
        self.end - self.start - u64::from(self.rows - 1) * self.pitch
    }

    #[inline]
    pub(crate) fn overlaps(&self, other: &Located) -> bool {
        self.segment == other.segment
            && self.start < other.end
            && other.start < self.end
            && (self.rows == 1 && other.rows == 1 || self.byte_rows().overlaps(&other.byte_rows()))
    }

    fn byte_rows(&self) -> ByteRows {
        ByteRows::new(self.start, self.rows.into(), self.row_bytes(), self.pitch)
    }

    /// Each of its rows.
    fn each_row(self) -> impl Iterator<Item = Located> {
        (0..u64::from(self.rows)).map(move |row| Located {
            start: self.start + row * self.pitch,
            end: self.start + row * self.pitch + self.row_bytes(),
            rows: 1,
            pitch: 0,
            ..self
        })
    }

    fn range(&self) -> Range<usize> {
        // Inside a Vec, so it fits.
        usize::try_from(self.start).unwrap_or(usize::MAX)..usize::try_from(self.end).unwrap_or(usize::MAX)
    }
}

const MAX_SEGMENTS: u32 = 1 << 24;

/// All segments of a machine.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    segments: Vec<Option<Box<Stored>>>,
    /// There are no bytes.
    hollow: bool,
    /// If this machine proves.
    origins: Option<Origins>,
    /// Bytes in use, by rank and memory.
    used: Vec<u64>,
    kinds: usize,
    /// Data on its way.
    pub(crate) moves: Moves,
}

impl Memory {
    pub(crate) fn new(options: Options, ranks: u32, kinds: usize) -> Memory {
        Memory {
            segments: Vec::new(),
            hollow: options.timing_only || options.prove,
            origins: options.prove.then(|| Origins::new(ranks)),
            used: vec![0; ranks as usize * kinds.max(1)],
            kinds: kinds.max(1),
            moves: Moves::default(),
        }
    }

    /// Whether there are bytes, or where they come from.
    #[inline(always)]
    pub(crate) fn keeps_data(&self) -> bool {
        !self.hollow || self.origins.is_some()
    }

    pub(crate) fn is_hollow(&self) -> bool {
        self.hollow
    }

    pub(crate) fn define(
        &mut self,
        spec: SegmentSpec,
        memories: &[crate::topology::Memory],
    ) -> Result<(), SimError> {
        let index = spec.segment.0 as usize;
        if spec.segment.0 >= MAX_SEGMENTS || self.segments.get(index).is_some_and(Option::is_some) {
            return Err(SimError::BadSegment(spec.segment));
        }
        let each = spec.bytes / (spec.members.len() as u64).max(1);
        if let Some(memory) = memories.get(spec.memory) {
            for rank in &spec.members {
                let needed = self.used[*rank as usize * self.kinds + spec.memory].saturating_add(each);
                if needed > memory.capacity {
                    let memory_name = memory.name.clone();
                    return Err(SimError::OutOfMemory {
                        rank: *rank,
                        memory: memory_name,
                        capacity: memory.capacity,
                        needed,
                    });
                }
            }
            for rank in &spec.members {
                self.used[*rank as usize * self.kinds + spec.memory] += each;
            }
        }
        if self.segments.len() <= index {
            self.segments.resize_with(index + 1, || None);
        }
        let data = match usize::try_from(spec.bytes) {
            Ok(bytes) if !self.hollow => Some(vec![0; bytes]),
            _ => None,
        };
        let stored = Stored {
            members: spec.members,
            bytes: spec.bytes,
            memory: u32::try_from(spec.memory).unwrap_or(u32::MAX),
            data,
        };
        self.segments[index] = Some(Box::new(stored));
        Ok(())
    }

    pub(crate) fn release(&mut self, segment: Segment) {
        let Some(stored) = self.segments.get_mut(segment.0 as usize).and_then(Option::take) else {
            return;
        };
        self.forget_moves(segment.0);
        let each = stored.bytes / (stored.members.len() as u64).max(1);
        for rank in &stored.members {
            if let Some(used) = self
                .used
                .get_mut(*rank as usize * self.kinds + stored.memory as usize)
            {
                *used = used.saturating_sub(each);
            }
        }
        if let Some(origins) = &mut self.origins {
            origins.release(segment.0);
        }
    }

    #[inline]
    pub(crate) fn get(&self, segment: u32) -> Option<&Stored> {
        self.segments.get(segment as usize)?.as_deref()
    }

    /// Where a span is, for a core of `rank`; `None` if it is nowhere, or in another chip's private memory.
    #[inline]
    pub(crate) fn locate(&self, rank: u32, span: &Span) -> Option<Located> {
        let stored = self.get(span.segment.0)?;
        let range = span.byte_range()?;
        let owner = *stored.members.get(span.rank.0 as usize)?;
        let private = stored.members.len() == 1 && owner != rank;
        if range.end > stored.bytes || private {
            return None;
        }
        Some(Located {
            segment: span.segment.0,
            start: range.start,
            end: range.end,
            rank: owner,
            memory: stored.memory,
            rows: 1,
            pitch: 0,
        })
    }

    /// Where a block is, as [`locate`](Memory::locate).
    pub(crate) fn locate_block(&self, rank: u32, block: &BlockSpan) -> Option<Located> {
        let (located, rows) = (self.locate(rank, &block.extent)?, block.byte_rows()?);
        Some(Located {
            rows: u32::try_from(rows.rows).ok()?,
            pitch: if rows.rows == 1 { 0 } else { rows.pitch },
            ..located
        })
    }

    fn data(&self, at: &Located) -> Option<&[u8]> {
        self.get(at.segment)?.data.as_deref()?.get(at.range())
    }

    fn data_mut(&mut self, segment: u32) -> Option<&mut [u8]> {
        self.segments
            .get_mut(segment as usize)?
            .as_mut()?
            .data
            .as_deref_mut()
    }

    /// What is in a span, as far as it is kept.
    pub(crate) fn load(&mut self, at: &Located) -> Payload {
        if at.rows > 1 {
            return self.load_rows(at);
        }
        if let Some(origins) = &mut self.origins {
            return Payload::Origin(origins.read(at));
        }
        self.data(at)
            .map_or(Payload::Hollow, |bytes| Payload::Bytes(bytes.to_vec()))
    }

    /// What is in a block, row by row.
    fn load_rows(&mut self, at: &Located) -> Payload {
        let (mut all, mut origin) = (Vec::new(), Contributions::default());
        for row in at.each_row() {
            match self.load(&row) {
                Payload::Hollow => return Payload::Hollow,
                Payload::Bytes(bytes) => all.extend(bytes),
                Payload::Origin(row) => row.pieces().iter().for_each(|piece| origin.push(piece.clone())),
            }
        }
        match self.origins {
            Some(_) => Payload::Origin(origin),
            None => Payload::Bytes(all),
        }
    }

    pub(crate) fn store(&mut self, at: &Located, data: &Payload) {
        if at.rows > 1 {
            let bytes = usize::try_from(at.row_bytes()).unwrap_or(usize::MAX);
            for (index, row) in at.each_row().enumerate() {
                self.store(&row, &data.part(index * bytes..(index + 1) * bytes));
            }
            return;
        }
        if let Some(origins) = &mut self.origins {
            // What a kernel made of nothing is nobody's input.
            let unless_known = match data {
                Payload::Origin(origin) => return origins.write(at, origin),
                Payload::Bytes(_) => Counted::NOTHING,
                Payload::Hollow => Counted::UNKNOWN,
            };
            origins.write(at, &Contributions::of(unless_known, 0, at.bytes()));
        }
        if let Payload::Bytes(bytes) = data
            && let Some(place) = self
                .data_mut(at.segment)
                .and_then(|data| data.get_mut(at.range()))
        {
            place.copy_from_slice(bytes);
        }
    }

    /// A signal's word, if there is data.
    pub(crate) fn word(&self, segment: u32, offset: u64) -> Option<i32> {
        let data = self.get(segment)?.data.as_deref()?;
        let start = usize::try_from(offset).ok()?;
        let bytes = data.get(start..start.checked_add(4)?)?;
        Some(bytemuck::pod_read_unaligned(bytes))
    }

    pub(crate) fn set_word(&mut self, segment: u32, offset: u64, value: i32) {
        let Ok(start) = usize::try_from(offset) else {
            return;
        };
        if let Some(bytes) = self
            .data_mut(segment)
            .and_then(|data| data.get_mut(start..start + 4))
        {
            bytes.copy_from_slice(bytemuck::bytes_of(&value));
        }
    }

    /// The host's view of where bytes come from; `None` unless this machine proves.
    pub(crate) fn host_origins(
        &mut self,
        segment: Segment,
        start: u64,
        bytes: u64,
    ) -> Result<Option<(&mut Origins, Located)>, SimError> {
        let end = start.saturating_add(bytes);
        let missing = SimError::NotMapped { segment, start, end };
        let stored = self.get(segment.0).filter(|stored| end <= stored.bytes);
        let Some(stored) = stored else {
            return Err(missing);
        };
        let each = stored.bytes / (stored.members.len() as u64).max(1);
        let (first, last) = (
            start / each.max(1),
            end.saturating_sub(1).max(start) / each.max(1),
        );
        let member = usize::try_from(first).ok().filter(|_| first == last);
        let Some(rank) = member.and_then(|member| stored.members.get(member).copied()) else {
            return Err(missing);
        };
        let at = Located {
            segment: segment.0,
            start,
            end,
            rank,
            memory: stored.memory,
            rows: 1,
            pitch: 0,
        };
        Ok(self.origins.as_mut().map(|origins| (origins, at)))
    }

    /// The host's view: reads or writes bytes of a segment at once.
    pub(crate) fn host(&mut self, segment: Segment, start: u64, len: usize) -> Result<&mut [u8], SimError> {
        let end = start.saturating_add(len as u64);
        let missing = SimError::NotMapped { segment, start, end };
        let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
            return Err(missing);
        };
        self.data_mut(segment.0)
            .and_then(|data| data.get_mut(from..to))
            .ok_or(missing)
    }
}
