//! The `#[kernel]` attribute: turns an `async fn` over `Core` into something that can be submitted; and
//! `#[orchestration]`, the same for a function that submits to the cores of a chip.
//!
//! The function itself stays as it is, so kernels can call each other. Beside it comes a module of the same
//! name with a `task` function, which takes what the function takes (less the core) and returns a `Task`;
//! and an entry in the program's kernel registry.
#![forbid(unsafe_code)]

mod kernel;
mod orchestration;
mod task;

use proc_macro2::TokenStream;
use syn::{Error, Result};

/// Registers an `async fn` as a kernel. See the crate `ringwork` for an example.
#[proc_macro_attribute]
pub fn kernel(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    written(kernel::expand(attribute.into(), item.into()))
}

/// Registers a function over a chip's orchestrator as a task. See the crate `ringwork` for an example.
#[proc_macro_attribute]
pub fn orchestration(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    written(orchestration::expand(attribute.into(), item.into()))
}

fn written(expanded: Result<TokenStream>) -> proc_macro::TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}
