//! A chip with the built-in kernels: what the nodes of the Python package start.
#![forbid(unsafe_code)]

// For its kernels.
use ringwork_kernels as _;

fn main() {
    ringwork_native::chip::main()
}
