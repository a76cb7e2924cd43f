//! Turning what a caller gave into what a kernel takes: own memory is lent to the core, a window's is its region.

use super::buffer::{Input, Output};
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
    data: Output<'_, T>,
    work: impl FnOnce(InOut<T>) -> Result<()>,
) -> Result<()> {
    match data {
        Output::Own(slice) => core.lend_mut(slice, work),
        Output::Window(buffer) => work(buffer.region().into()),
    }
}

pub(super) fn with_input<T: Element>(
    core: &NativeCore,
    input: Input<'_, T>,
    work: impl FnOnce(In<T>) -> Result<()>,
) -> Result<()> {
    match input {
        Input::Own(slice) => core.lend(slice, &mut [], |x, _| work(x)),
        Input::Window(buffer) => work(buffer.region().into()),
    }
}

pub(super) fn with_output<T: Element>(
    core: &NativeCore,
    output: Output<'_, T>,
    work: impl FnOnce(Out<T>) -> Result<()>,
) -> Result<()> {
    match output {
        Output::Own(slice) => core.lend(&[], slice, |_, y| work(y)),
        Output::Window(buffer) => work(buffer.region().into()),
    }
}

#[inline(always)]
pub(super) fn between<T: Element>(
    core: &NativeCore,
    input: Input<'_, T>,
    output: Output<'_, T>,
    work: impl FnOnce(In<T>, Out<T>) -> Result<()>,
) -> Result<()> {
    match (input, output) {
        (Input::Own(x), Output::Own(y)) => core.lend(x, y, work),
        (Input::Own(x), Output::Window(y)) => core.lend(x, &mut [], |x, _| work(x, y.region().into())),
        (Input::Window(x), output) => with_output(core, output, |y| work(x.region().into(), y)),
    }
}
