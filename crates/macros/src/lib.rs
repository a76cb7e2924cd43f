//! The `#[kernel]` attribute: turns an `async fn` over `Core` into something that can be submitted; and
//! `#[orchestration]`, the same for a function that submits to the cores of a chip. `#[flat]` is for parts of kernels.
//!
//! The function itself stays as it is, so kernels can call each other. Beside it comes a module of the same
//! name with a `task` function, which takes what the function takes (less the core) and returns a `Task`;
//! and an entry in the program's kernel registry.
#![forbid(unsafe_code)]

mod flat;
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

/// Makes an `async fn` part of whoever awaits it, and not a function of its own that is polled: on cores whose instructions never
/// suspend nothing is left of the future then, and its handles need not lie in memory. For what small kernels are made of; every
/// place that awaits it has a copy.
///
/// ```
/// use ringwork_macros::flat;
///
/// #[flat]
/// async fn twice(x: &u32) -> u32 {
///     *x * 2
/// }
///
/// async fn four_times(x: u32) -> u32 {
///     twice(&twice(&x).await).await
/// }
/// # let mut four = std::pin::pin!(four_times(3));
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert_eq!(four.as_mut().poll(&mut context), std::task::Poll::Ready(12));
/// ```
///
/// ```compile_fail
/// #[ringwork_macros::flat]
/// fn not_async() {}
/// ```
#[proc_macro_attribute]
pub fn flat(_: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    written(flat::expand(item.into()))
}

fn written(expanded: Result<TokenStream>) -> proc_macro::TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}
