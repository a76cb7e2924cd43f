//! The `#[kernel]` attribute.
#![forbid(unsafe_code)]
