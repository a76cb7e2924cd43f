//! The registry with a platform of the test's own: it needs no other crate that has cores.
#![cfg(not(miri))] // Miri has no linker, so no link-time registry.

extern crate self as ringwork;

use ringwork_isa::{KernelId, Result};
use ringwork_macros::kernel;
use ringwork_registry::{KERNELS, UnknownKernel, find};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What the code written by `#[kernel]` refers to, with the core of this test.
pub mod __kernel {
    pub use super::Direct as NativeCore;
    pub use ringwork_registry::__kernel::*;
}

/// A core without instructions. Its kernels end when they are polled once.
#[derive(Debug)]
pub struct Direct;

impl Direct {
    fn run(&self, kernel: impl Future<Output = Result<()>>) -> Result<()> {
        match pin!(kernel).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => end,
            Poll::Pending => panic!("nothing suspends here"),
        }
    }
}

#[kernel]
async fn only_seven<C>(_core: &C, number: u32) -> Result<()> {
    if number == 7 {
        Ok(())
    } else {
        Err(ringwork_isa::Error::failed(format!("{number} is not 7")))
    }
}

#[test]
fn a_kernel_is_found_by_identity_and_runs_on_a_core_of_its_platform() {
    let entry = KERNELS
        .iter()
        .find(|entry| entry.name.ends_with("only_seven"))
        .unwrap();
    let task = only_seven::task(7u32);
    assert_eq!(task.kernel, entry.id());
    let entry = find(&task.kernel).unwrap();
    assert_eq!((entry.run)(&Direct, &task.args), Ok(()));
    let error = (entry.run)(&Direct, &only_seven::task(8u32).args).unwrap_err();
    assert!(error.to_string().ends_with("8 is not 7"), "{error}");
}

#[test]
fn a_core_of_another_type_is_refused_and_both_are_named() {
    let task = only_seven::task(7u32);
    let error = (find(&task.kernel).unwrap().run)(&"not a core", &task.args).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("only_seven") && text.contains("Direct"), "{text}");
}

#[test]
fn an_unknown_identity_says_which_part_is_unknown() {
    let id = only_seven::task(7u32).kernel;
    let other = KernelId {
        signature: id.signature ^ 1,
        ..id.clone()
    };
    assert!(matches!(find(&other), Err(UnknownKernel::Signature { .. })));
    let name = "nowhere::nothing".into();
    assert!(matches!(
        find(&KernelId { name, ..id }),
        Err(UnknownKernel::Name { .. })
    ));
}
