//! Turning what a caller gave into what a kernel takes: own memory is lent to the core, a window's is its region.
//!
//! `T` is what was given.

use super::erased::{AnyInput, AnyOutput};
use ringwork_isa::{Core, Element, In, InOut, Out, Result, Shared};
use ringwork_native::NativeCore;

/// Copies unless there is nothing to copy.
pub(super) async fn copy<T: Element>(core: &NativeCore, to: Shared<T>, from: In<T>) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    core.copy(to, from).await
}

#[inline(always)]
pub(super) fn in_place<T: Element>(
    core: &NativeCore,
    data: AnyOutput<'_>,
    work: impl FnOnce(InOut<T>) -> Result<()>,
) -> Result<()> {
    match data {
        AnyOutput::Own(_, bytes) => core.lend_mut(bytemuck::cast_slice_mut(bytes), work),
        AnyOutput::Window(held) => work(held.region().into()),
    }
}

pub(super) fn with_input<T: Element>(
    core: &NativeCore,
    input: AnyInput<'_>,
    work: impl FnOnce(In<T>) -> Result<()>,
) -> Result<()> {
    match input {
        AnyInput::Own(_, bytes) => core.lend(bytemuck::cast_slice(bytes), &mut [], |x, _| work(x)),
        AnyInput::Window(held) => work(held.region().into()),
    }
}

pub(super) fn with_output<T: Element>(
    core: &NativeCore,
    output: AnyOutput<'_>,
    work: impl FnOnce(Out<T>) -> Result<()>,
) -> Result<()> {
    match output {
        AnyOutput::Own(_, bytes) => core.lend(&[], bytemuck::cast_slice_mut(bytes), |_, y| work(y)),
        AnyOutput::Window(held) => work(held.region().into()),
    }
}

#[inline(always)]
pub(super) fn between<T: Element>(
    core: &NativeCore,
    input: AnyInput<'_>,
    output: AnyOutput<'_>,
    work: impl FnOnce(In<T>, Out<T>) -> Result<()>,
) -> Result<()> {
    match (input, output) {
        (AnyInput::Own(_, x), AnyOutput::Own(_, y)) => {
            core.lend(bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y), work)
        }
        (input @ AnyInput::Own(..), AnyOutput::Window(y)) => {
            with_input(core, input, |x| work(x, y.region().into()))
        }
        (AnyInput::Window(x), output) => with_output(core, output, |y| work(x.region().into(), y)),
    }
}
