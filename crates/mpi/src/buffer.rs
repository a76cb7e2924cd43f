//! The memory of a message.

/// Bytes that are aligned for every element type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zeros.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Buffer {
        Buffer {
            words: vec![0; bytes.div_ceil(8)],
            bytes,
        }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// The first `bytes` bytes of it.
    pub(crate) fn cut(mut self, bytes: usize) -> Buffer {
        self.bytes = self.bytes.min(bytes);
        self
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    /// The bytes, to be written.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}
