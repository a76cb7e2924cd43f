//! Every collective algorithm, once, over `Core`.
#![forbid(unsafe_code)]
