//! Turns the arguments of a call into the operands of a kernel: own memory is borrowed by the core, window memory is
//! its region.

use crate::erased::{AnyInput, AnyOutput};
use ringwork_isa::{Core, In, InOut, Out, Result, Shared};
use ringwork_native::NativeCore;

/// Copies, unless source and destination are the same.
pub(crate) async fn copy(core: &NativeCore, to: Shared, from: In) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    core.copy(to, from).await
}

#[inline(always)]
pub(crate) fn in_place(
    core: &NativeCore,
    data: AnyOutput<'_>,
    work: impl FnOnce(InOut) -> Result<()>,
) -> Result<()> {
    match data {
        AnyOutput::Own(dtype, bytes) => core.lend_mut(dtype, bytes, work),
        AnyOutput::Window(held) => work(held.region().into()),
    }
}

pub(crate) fn with_input(
    core: &NativeCore,
    input: AnyInput<'_>,
    work: impl FnOnce(In) -> Result<()>,
) -> Result<()> {
    match input {
        AnyInput::Own(dtype, bytes) => core.lend(dtype, bytes, &mut [][..], |x, _| work(x)),
        AnyInput::Window(held) => work(held.region().into()),
    }
}

pub(crate) fn with_output(
    core: &NativeCore,
    output: AnyOutput<'_>,
    work: impl FnOnce(Out) -> Result<()>,
) -> Result<()> {
    match output {
        AnyOutput::Own(dtype, bytes) => core.lend(dtype, &[][..], bytes, |_, y| work(y)),
        AnyOutput::Window(held) => work(held.region().into()),
    }
}

#[inline(always)]
pub(crate) fn between(
    core: &NativeCore,
    input: AnyInput<'_>,
    output: AnyOutput<'_>,
    work: impl FnOnce(In, Out) -> Result<()>,
) -> Result<()> {
    match (input, output) {
        (AnyInput::Own(dtype, x), AnyOutput::Own(_, y)) => core.lend(dtype, x, y, work),
        (input @ AnyInput::Own(..), AnyOutput::Window(y)) => {
            with_input(core, input, |x| work(x, y.region().into()))
        }
        (AnyInput::Window(x), output) => with_output(core, output, |y| work(x.region().into(), y)),
    }
}
