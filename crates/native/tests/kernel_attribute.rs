//! `#[kernel]`: registration, identity, decoding, on heap memory.
#![cfg(not(miri))] // Miri has no linker, so no link-time registry.

extern crate ringwork_native as ringwork;

use ringwork_isa::*;
use ringwork_macros::kernel;
use ringwork_native::cell::Patience;
use ringwork_native::registry::{UnknownKernel, find};
use ringwork_native::segment::{Attached, Layout};
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// z = x * y + scale, for any element.
#[kernel]
async fn fused<C: Core, T: Element>(core: &C, x: In<T>, y: InOut<T>, times: u32) -> Result<()> {
    for _ in 0..times {
        let (a, b) = (core.load(x).await?, core.load(y).await?);
        core.store(y, &core.mul(&a, &b).await?).await?;
    }
    Ok(())
}

#[kernel]
async fn nothing<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

struct Memory<T>(Span, std::marker::PhantomData<T>);
impl<T: Element> Argument<In<T>> for Memory<T> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.0)
    }
}
impl<T: Element> Argument<InOut<T>> for Memory<T> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.0)
    }
}

fn memory<T: Element>(layout: &Layout, start: u64) -> Memory<T> {
    let span = Span {
        segment: layout.segment,
        base: layout.data_offset(),
        stride: 0,
        me: Rank(0),
        rank: Rank(0),
        ranks: 1,
        dtype: T::DTYPE,
        start,
        len: 2,
    };
    Memory(span, std::marker::PhantomData)
}

#[test]
fn a_generic_kernel_runs_for_the_dtype_of_its_arguments() {
    let layout = Layout::private(Segment(5), 4096).unwrap();
    let attached = Arc::new(Attached::on_heap(layout).unwrap());
    assert!(attached.write(Rank(0), 0, bytemuck::cast_slice(&[2i32, 3, 10, 20])));
    let waiting = Waiting {
        patience: Patience::for_sharing(1, 1),
        limit: Duration::from_secs(1),
    };
    let mut core = NativeCore::new(Device(0), waiting);
    core.attach(attached.clone());

    let task = fused::task(memory::<i32>(&layout, 0), memory::<i32>(&layout, 2), 2u32);
    assert_eq!(
        task.params.iter().map(|p| p.tag).collect::<Vec<_>>(),
        [Tag::Input, Tag::InOut, Tag::Value]
    );
    assert_eq!(task.kernel.to_string(), "fused");
    (find(&task.kernel).unwrap().run)(&core, &task.args).unwrap();

    let mut out = [0; 8];
    assert!(attached.read(Rank(0), 8, &mut out));
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, i32>(&out), [40, 180]);
}

#[test]
fn arguments_that_do_not_fit_the_signature_are_refused() {
    let entry = find(&nothing::task().kernel).unwrap();
    let core = NativeCore::new(
        Device(0),
        Waiting {
            patience: Patience::for_sharing(1, 1),
            limit: Duration::from_secs(1),
        },
    );
    assert_eq!((entry.run)(&core, &[]), Ok(()));
    let layout = Layout::private(Segment(5), 4096).unwrap();
    let mut task = fused::task(memory::<f32>(&layout, 0), memory::<f32>(&layout, 2), 2u32);
    let fused = find(&task.kernel).unwrap();
    let stale = (fused.run)(&core, &task.args).unwrap_err();
    assert!(
        stale.to_string().contains("segment 5 is not mapped here"),
        "{stale}"
    );
    task.args[1] = memory::<f64>(&layout, 2).0.into_arg();
    assert!(
        (fused.run)(&core, &task.args)
            .unwrap_err()
            .to_string()
            .contains("expected InOut<f32>")
    );
    assert!(
        (fused.run)(&core, &[])
            .unwrap_err()
            .to_string()
            .contains("got nothing")
    );
}

trait IntoArg {
    fn into_arg(self) -> Arg;
}
impl IntoArg for Span {
    fn into_arg(self) -> Arg {
        Arg::Memory(self)
    }
}

#[test]
fn an_unknown_name_and_an_unknown_signature_are_different_errors() {
    let mut id = nothing::task().kernel;
    id.signature ^= 1;
    assert!(matches!(find(&id), Err(UnknownKernel::Signature { .. })));
    id.name = "elsewhere".into();
    let error = find(&id).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `elsewhere` is not linked into this program; add the crate that defines it"
    );
}
