//! Interned strings: short texts (lines of kernels, names of tasks) that a chip writes once and names by number afterwards.
//!
//! The host reads them without knowing the chip's addresses, and an entry of the trace stays a few words long.
//!
//! # Invariants
//! - **TXT-1 (written before named).** A text is complete before its number is given out, and never changes.
//! - **TXT-2 (bounded).** Once the table is full, everything new is number 0, which has no text.

use crate::memory::Memory;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const TEXT_LEN: usize = 128;
const TEXT_BYTES: u64 = TEXT_LEN as u64;
const CAPACITY: u32 = 255;

/// Bytes the table takes.
pub(crate) const STRINGS_BYTES: u64 = TEXT_BYTES * (CAPACITY as u64 + 1);

/// The chip's side. Its cores share it.
#[derive(Debug)]
pub(crate) struct InternedStrings {
    memory: Arc<Memory>,
    base: u64,
    known: Mutex<HashMap<usize, u32>>,
}

impl InternedStrings {
    pub(crate) fn new(memory: Arc<Memory>, base: u64) -> InternedStrings {
        InternedStrings {
            memory,
            base,
            known: Mutex::default(),
        }
    }

    /// The number of the text at address `key`, from 1; 0 once the table is full.
    pub(crate) fn number(&self, key: usize, text: impl FnOnce() -> String) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX).saturating_add(1);
        if next > CAPACITY {
            return known.get(&key).copied().unwrap_or(0);
        }
        *known.entry(key).or_insert_with(|| {
            let text = text();
            // The end of a path says more than its beginning.
            let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(TEXT_LEN - 1))..];
            let mut entry = [0; TEXT_LEN];
            entry[0] = u8::try_from(tail.len()).unwrap_or(0);
            entry[1..=tail.len()].copy_from_slice(tail.as_bytes());
            let _ = self
                .memory
                .write(self.base + TEXT_BYTES * u64::from(next), &entry);
            next
        })
    }
}

/// The text with this number, whatever a chip made of the table; `None` for 0.
pub(crate) fn read_string(memory: &Memory, base: u64, number: u64) -> Option<String> {
    if number == 0 {
        return None;
    }
    let mut entry = [0; TEXT_LEN];
    let number = number.min(CAPACITY.into());
    let _ = memory.read(base + TEXT_BYTES * number, &mut entry);
    let len = usize::from(entry[0]).min(entry.len() - 1);
    let text = String::from_utf8_lossy(&entry[1..=len]);
    Some(crate::segment::truncated(&text, TEXT_LEN - 1).to_owned())
}
