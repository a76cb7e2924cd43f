//! Workers, domains and orchestration.
#![forbid(unsafe_code)]
