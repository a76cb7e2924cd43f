//! `#[kernel]`: registration, identity, decoding, on heap memory.
#![cfg(not(miri))] // Miri has no linker, so no link-time registry.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

extern crate ringwork_native as ringwork;

use ringwork_isa::*;
use ringwork_layout::BufferPlace;
use ringwork_macros::kernel;
use ringwork_native::cell::Patience;
use ringwork_native::segment::{Attached, Layout};
use ringwork_native::{NativeCore, Waiting};
use ringwork_registry::{UnknownKernel, find};
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

/// y = factor * sqrt(x): floats in, another type of floats out.
#[kernel]
async fn root<C: Core, T: Float, U>(core: &C, x: In<T>, y: InOut<U>, factor: f32) -> Result<()>
where
    U: Float,
{
    let root = core.sqrt(&core.load(x).await?).await?;
    let scaled = core
        .scale(&core.cast::<T, U>(&root).await?, factor.into(), 0.0)
        .await?;
    core.store(y, &scaled).await
}

/// y = x as another type.
#[kernel]
async fn convert<C: Core, T: Element, U: Float>(core: &C, x: In<T>, y: InOut<U>) -> Result<()> {
    core.store(y, &core.cast(&core.load(x).await?).await?).await
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

fn memory<T: Element>(layout: &Layout, start: usize) -> Memory<T> {
    let (dtype, offset) = (T::DTYPE, (start * T::DTYPE.bytes()) as u64);
    let span = layout.private_span(BufferPlace {
        offset,
        dtype,
        count: 2,
    });
    Memory(span, std::marker::PhantomData)
}

/// A core with no memory yet.
fn bare_core() -> NativeCore {
    let waiting = Waiting {
        patience: Patience::for_sharing(1, 1),
        limit: Duration::from_secs(1),
    };
    NativeCore::new(Device(0), waiting)
}

/// A core, and memory of its own with these bytes in front.
fn core_with(layout: Layout, bytes: &[u8]) -> (NativeCore, Arc<Attached>) {
    let attached = Arc::new(Attached::on_heap(layout).unwrap());
    assert!(attached.write(Rank(0), 0, bytes));
    let mut core = bare_core();
    core.attach(attached.clone());
    (core, attached)
}

/// Two elements at a byte offset.
fn read<T: Element>(attached: &Attached, offset: u64) -> Vec<T> {
    let mut bytes = vec![0; 2 * size_of::<T>()];
    assert!(attached.read(Rank(0), offset, &mut bytes));
    bytemuck::pod_collect_to_vec(&bytes)
}

#[test]
fn a_generic_kernel_runs_for_the_dtype_of_its_arguments() {
    let layout = Layout::private(Segment(5), 4096).unwrap();
    let (core, attached) = core_with(layout, bytemuck::cast_slice(&[2i32, 3, 10, 20]));
    let task = fused::task(memory::<i32>(&layout, 0), memory::<i32>(&layout, 2), 2u32);
    assert_eq!(
        task.params.iter().map(|p| p.tag).collect::<Vec<_>>(),
        [Tag::Input, Tag::InOut, Tag::Value]
    );
    assert_eq!(task.kernel.to_string(), "fused");
    (find(&task.kernel).unwrap().run)(&core, &task.args).unwrap();
    assert_eq!(read::<i32>(&attached, 8), [40, 180]);
}

#[test]
fn each_element_type_comes_from_its_own_argument() {
    let layout = Layout::private(Segment(5), 4096).unwrap();
    let (core, attached) = core_with(layout, bytemuck::cast_slice(&[4.0, 9.0].map(bf16::from_f32)));
    let task = root::task(memory::<bf16>(&layout, 0), memory::<f32>(&layout, 1), 0.1);
    (find(&task.kernel).unwrap().run)(&core, &task.args).unwrap();
    assert_eq!(read::<f32>(&attached, 4), [0.2, 0.3]);
    let task = root::task(memory::<f32>(&layout, 1), memory::<f64>(&layout, 2), 100f32);
    (find(&task.kernel).unwrap().run)(&core, &task.args).unwrap();
    let wanted = [0.2f32, 0.3].map(|x| f64::from(x.sqrt()) * 100.0);
    assert_eq!(read::<f64>(&attached, 16), wanted);

    let (core, attached) = core_with(layout, bytemuck::cast_slice(&[-7i32, 8]));
    let task = convert::task(memory::<i32>(&layout, 0), memory::<f16>(&layout, 4));
    (find(&task.kernel).unwrap().run)(&core, &task.args).unwrap();
    assert_eq!(read::<f16>(&attached, 8), [-7.0, 8.0].map(f16::from_f32));
}

#[test]
fn an_integer_where_a_kernel_takes_floats_is_refused_with_what_is_allowed() {
    let layout = Layout::private(Segment(5), 4096).unwrap();
    let core = bare_core();
    let mut task = root::task(memory::<f32>(&layout, 0), memory::<f32>(&layout, 2), 1.0);
    let entry = find(&task.kernel).unwrap();
    for (index, name) in [(0, "x"), (1, "y")] {
        let before = std::mem::replace(&mut task.args[index], Arg::Memory(memory::<i32>(&layout, 0).0));
        let error = (entry.run)(&core, &task.args).unwrap_err().to_string();
        let kernel = &task.kernel.name;
        assert_eq!(
            error,
            format!(
                "argument {index} (`{name}`) of kernel `{kernel}`: expected elements of type f32, f16, bf16, f64, \
                 f8e4m3, f8e5m2, got a region of 2 i32"
            )
        );
        task.args[index] = before;
    }
    task.args[2] = Arg::Value(Value::U64(1));
    let error = (entry.run)(&core, &task.args).unwrap_err().to_string();
    assert!(error.ends_with("expected f32, got U64(1)"), "{error}");
}

#[test]
fn arguments_that_do_not_fit_the_signature_are_refused() {
    let entry = find(&nothing::task().kernel).unwrap();
    let core = bare_core();
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
