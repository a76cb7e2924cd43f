//! Shared memory: pieces of it, and the segments that are made of them.
//!
//! [`Memory`] is a sealed mapping or plain heap; a [`segment`] is a piece of memory with a header, the windows
//! of a domain or one chip's private data, and the alarm that ends every wait in it.

mod mapping;
pub mod segment;

pub use mapping::{Memory, available_bytes, create_sealed};
pub use ringwork_layout::PAGE_BYTES;
