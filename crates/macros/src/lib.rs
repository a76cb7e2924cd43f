//! The attributes `#[kernel]`, `#[orchestration]` and `#[flat]`.
//!
//! `#[kernel]` makes an `async fn` over a `Core` submittable, `#[orchestration]` a function that submits to the cores of a
//! chip. The function itself stays, so kernels can call each other; only its `Result<()>`, and a `Result` in its body, mean the
//! kernels' result, whichever `Result` is in scope, because a program's own is that of its `main`. Beside it comes a module of the same
//! name with a `task` function, which takes what the function takes (less the core) and returns a `Task`;
//! and an entry in the program's kernel registry.
//!
//! The written code finds everything through `::ringwork::__kernel`. A crate that does not depend on the facade says
//! which crate stands for it: `extern crate ringwork_native as ringwork;`.
//!
//! `#[flat]` is for parts of kernels: it inlines an `async fn` into its callers.
#![forbid(unsafe_code)]

mod inline_async;
mod kernel;
mod orchestration;
mod task_module;

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

/// Inlines an `async fn` into every function that awaits it.
///
/// On cores whose instructions never suspend, nothing is left of the future then, and its handles need not lie in memory.
/// For the parts of small kernels: every `.await` gets a copy of the body.
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
    written(inline_async::expand(item.into()))
}

fn written(expanded: Result<TokenStream>) -> proc_macro::TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

#[cfg(test)]
mod tests;
