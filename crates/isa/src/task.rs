//! Tasks: a kernel's identity with its arguments, and the rules that tie the two together.

use crate::{
    Barrier, Block, BlockSpan, CanRead, CanWrite, Consecutive, Dtype, Element, Error, ErrorKind, Rank, Read,
    ReadWrite, ReduceOp, Region, Segment, Signals, Span, TeamMemory, Window, Write,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Who a kernel is: its name, and a hash of its parameters' names and types.
///
/// Two builds that disagree about a kernel's parameters have different identities, and say so instead of
/// misreading each other's arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelId {
    /// `crate::module::name`.
    pub name: Cow<'static, str>,
    /// Hash of the parameter list.
    pub signature: u64,
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.rsplit("::").next().unwrap_or(&self.name))
    }
}

/// FNV-1a: the same on every build and platform, which a std hasher does not promise.
#[must_use]
pub const fn signature_hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// What a kernel does with a parameter; dependencies between tasks follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tag {
    /// Reads.
    Input,
    /// Writes.
    Output,
    /// Reads and writes.
    InOut,
    /// Reads and writes on every member of a domain, ordered by signals inside the kernel.
    Shared,
    /// A value; no memory.
    Value,
}

/// One parameter of a kernel, as its signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name in the source.
    pub name: &'static str,
    /// What the kernel does with it.
    pub tag: Tag,
}

/// An argument as it travels to the chip that runs the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg {
    /// A region of this chip's own memory, or of its own window.
    Memory(Span),
    /// A region of a window, with the way to every peer.
    Window(Span),
    /// A block of this chip's own memory, or of its own window.
    Block(BlockSpan),
    /// Signal cells.
    Signals(Signals),
    /// A barrier.
    Barrier(Barrier),
    /// The memory of a team.
    Team(TeamMemory),
    /// A number or a name, in 64 bits.
    Value(Value),
}

impl Arg {
    fn describe(&self) -> String {
        match self {
            Arg::Memory(span) => format!("a region of {} {}", span.len, span.dtype),
            Arg::Window(span) => format!("a window buffer of {} {}", span.len, span.dtype),
            Arg::Block(block) => {
                let dtype = block.extent.dtype;
                format!("a block of {} x {} {dtype}", block.rows, block.columns)
            }
            Arg::Signals(_) => "signals".into(),
            Arg::Barrier(_) => "a barrier".into(),
            Arg::Team(_) => "the memory of a team".into(),
            Arg::Value(value) => format!("{value:?}"),
        }
    }

    /// The segment it lies in, if it is memory.
    #[must_use]
    pub fn segment(&self) -> Option<Segment> {
        match self {
            Arg::Memory(span) | Arg::Window(span) => Some(span.segment),
            Arg::Block(block) => Some(block.extent.segment),
            Arg::Signals(signals) => Some(signals.segment),
            Arg::Barrier(barrier) => Some(barrier.signals().segment),
            Arg::Team(team) => Some(team.data.segment),
            Arg::Value(_) => None,
        }
    }

    /// The dtype of its elements, if it has any.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        match self {
            Arg::Memory(span) | Arg::Window(span) => Some(span.dtype),
            Arg::Block(block) => Some(block.extent.dtype),
            _ => None,
        }
    }

    /// Its elements, if it is memory of a chip: all from the first to the last, if it is a block.
    #[must_use]
    pub fn own_memory(&self) -> Option<&Span> {
        match self {
            Arg::Memory(span) => Some(span),
            Arg::Block(block) => Some(&block.extent),
            _ => None,
        }
    }

    /// The same, to be put elsewhere.
    #[must_use]
    pub fn own_memory_mut(&mut self) -> Option<&mut Span> {
        match self {
            Arg::Memory(span) => Some(span),
            Arg::Block(block) => Some(&mut block.extent),
            _ => None,
        }
    }
}

/// A scalar argument.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Any unsigned integer, a rank, a choice.
    U64(u64),
    /// Any signed integer.
    I64(i64),
    /// Any float.
    F64(f64),
    /// Yes or no.
    Bool(bool),
    /// A reduction operator.
    Op(ReduceOp),
}

impl Value {
    /// A whole number as another type, if it fits: who submits by name need not know which of the two a parameter is.
    fn whole<N: TryFrom<u64> + TryFrom<i64>>(self) -> Option<N> {
        match self {
            Value::U64(value) => N::try_from(value).ok(),
            Value::I64(value) => N::try_from(value).ok(),
            _ => None,
        }
    }
}

/// A type that a kernel may have as a parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a kernel",
    label = "not a parameter type",
    note = "a kernel takes `In`, `Out`, `InOut`, a `Block` of these, `Shared`, `Signals`, `Barrier`, `TeamMemory`, and numbers: u32, u64, usize, i32, i64, f32, f64"
)]
pub trait Parameter: Sized {
    /// What the kernel does with it.
    const TAG: Tag;
    /// The type's name as part of the signature.
    fn type_name() -> String;
    /// From what travelled.
    ///
    /// # Errors
    /// What was expected, if `arg` is something else.
    fn from_arg(arg: &Arg) -> Result<Self, String>;
}

/// Decodes argument `index` of a kernel; used by `#[kernel]`.
///
/// # Errors
/// [`ErrorKind::BadArgument`] if it is missing or of another type.
pub fn decode<P: Parameter>(
    kernel: &'static str,
    args: &[Arg],
    index: usize,
    name: &'static str,
) -> crate::Result<P> {
    let bad = |expected| bad_argument(kernel, args, index, name, expected);
    let arg = args.get(index).ok_or_else(|| bad(P::type_name()))?;
    P::from_arg(arg).map_err(bad)
}

/// The dtype of argument `index`, for kernels that are generic over their elements; used by `#[kernel]`.
///
/// # Errors
/// [`ErrorKind::BadArgument`] if it is missing or has no elements.
pub fn dtype_of(
    kernel: &'static str,
    args: &[Arg],
    index: usize,
    name: &'static str,
) -> crate::Result<Dtype> {
    let dtype = args.get(index).and_then(Arg::dtype);
    dtype.ok_or_else(|| bad_argument(kernel, args, index, name, "a region".into()))
}

/// The error for an argument of a kernel over floats whose elements are not floats; used by `#[kernel]`.
#[must_use]
pub fn float_needed(kernel: &'static str, args: &[Arg], index: usize, name: &'static str) -> Error {
    let floats = Dtype::ALL.into_iter().filter(|dtype| dtype.is_float());
    let floats: Vec<_> = floats.map(Dtype::name).collect();
    let expected = format!("elements of type {}", floats.join(", "));
    bad_argument(kernel, args, index, name, expected)
}

fn bad_argument(
    kernel: &'static str,
    args: &[Arg],
    index: usize,
    name: &'static str,
    expected: String,
) -> Error {
    ErrorKind::BadArgument {
        kernel: kernel.into(),
        index,
        name: name.into(),
        expected,
        got: args.get(index).map_or_else(|| "nothing".into(), Arg::describe),
    }
    .into()
}

macro_rules! region_parameter {
    ($access:ident, $tag:ident, $variant:ident, $name:literal) => {
        impl<T: Element> Parameter for Region<T, $access> {
            const TAG: Tag = Tag::$tag;
            fn type_name() -> String {
                format!(concat!($name, "<{}>"), T::DTYPE)
            }
            fn from_arg(arg: &Arg) -> Result<Self, String> {
                match arg {
                    Arg::$variant(span) => Region::from_span(*span).map_err(|_| Self::type_name()),
                    _ => Err(Self::type_name()),
                }
            }
        }
    };
}
region_parameter!(Read, Input, Memory, "In");
region_parameter!(Write, Output, Memory, "Out");
region_parameter!(ReadWrite, InOut, Memory, "InOut");
region_parameter!(Window, Shared, Window, "Shared");

/// A block of what a kernel may have as a parameter, if that is memory of its own chip.
macro_rules! block_parameter {
    ($($access:ident)*) => {$(
        impl<T: Element> Parameter for Block<Region<T, $access>> {
            const TAG: Tag = <Region<T, $access> as Parameter>::TAG;
            fn type_name() -> String {
                format!("Block<{}>", <Region<T, $access> as Parameter>::type_name())
            }
            fn from_arg(arg: &Arg) -> Result<Self, String> {
                match arg {
                    Arg::Block(block) => Block::from_span(*block).ok_or_else(Self::type_name),
                    _ => Err(Self::type_name()),
                }
            }
        }
    )*};
}
block_parameter!(Read Write ReadWrite);

macro_rules! plain_parameter {
    ($($t:ty, $tag:ident, $name:literal, $pattern:pat => $value:expr;)*) => {$(
        impl Parameter for $t {
            const TAG: Tag = Tag::$tag;
            fn type_name() -> String {
                $name.into()
            }
            fn from_arg(arg: &Arg) -> Result<Self, String> {
                match *arg {
                    $pattern => $value,
                    _ => None,
                }
                .ok_or_else(Self::type_name)
            }
        }
    )*};
}
plain_parameter! {
    Signals, Shared, "Signals", Arg::Signals(signals) => Some(signals);
    Barrier, Shared, "Barrier", Arg::Barrier(barrier) => Some(barrier);
    TeamMemory, Shared, "TeamMemory", Arg::Team(team) => Some(team);
    u64, Value, "u64", Arg::Value(value) => value.whole();
    u32, Value, "u32", Arg::Value(value) => value.whole();
    usize, Value, "usize", Arg::Value(value) => value.whole();
    i64, Value, "i64", Arg::Value(value) => value.whole();
    i32, Value, "i32", Arg::Value(value) => value.whole();
    f64, Value, "f64", Arg::Value(Value::F64(v)) => Some(v);
    f32, Value, "f32", Arg::Value(Value::F64(v)) => Some(f32::from_f64(v));
    bool, Value, "bool", Arg::Value(Value::Bool(v)) => Some(v);
    Rank, Value, "Rank", Arg::Value(Value::U64(v)) => u32::try_from(v).ok().map(Rank);
    ReduceOp, Value, "ReduceOp", Arg::Value(Value::Op(op)) => Some(op);
}

macro_rules! value_from {
    ($($t:ty => $variant:ident($convert:expr);)*) => {$(
        impl From<$t> for Value {
            fn from(value: $t) -> Value {
                Value::$variant($convert(value))
            }
        }
        impl Argument<$t> for $t {
            fn to_arg(&self) -> Arg {
                Arg::Value((*self).into())
            }
        }
    )*};
}
value_from! {
    u64 => U64(|v| v);
    u32 => U64(u64::from);
    usize => U64(|v| v as u64);
    i64 => I64(|v| v);
    i32 => I64(i64::from);
    f64 => F64(|v| v);
    f32 => F64(f64::from);
    bool => Bool(|v| v);
    Rank => U64(|Rank(v)| u64::from(v));
    ReduceOp => Op(|v| v);
}

/// Something a host program can pass where a kernel has a parameter of type `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed where the kernel takes `{P}`",
    label = "this argument does not fit the kernel's parameter",
    note = "`Region<T, Read>` is `In<T>`, `Write` is `Out`, `ReadWrite` is `InOut`, `Window` is `Shared`",
    note = "a `Tensor<T>` fits `In<T>`, `Out<T>` and `InOut<T>` of the same `T`; only a `Buffer<T>` fits `Shared<T>`",
    note = "a block, made by `tensor.shaped(rows, columns)`, fits `Block<In<T>>`, `Block<Out<T>>` and `Block<InOut<T>>`"
)]
pub trait Argument<P> {
    /// What travels. Ranks are filled in when the task is submitted to a chip.
    fn to_arg(&self) -> Arg;
}

impl<P, A: Argument<P>> Argument<P> for &A {
    fn to_arg(&self) -> Arg {
        (**self).to_arg()
    }
}

impl<T: Element, A: CanRead> Argument<Region<T, Read>> for Region<T, A> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span())
    }
}
impl<T: Element, A: CanWrite> Argument<Region<T, Write>> for Region<T, A> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span())
    }
}
impl<T: Element, A: CanRead + CanWrite> Argument<Region<T, ReadWrite>> for Region<T, A> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span())
    }
}

/// A block of anything that can be passed for a region can be passed for a block of such a region.
impl<T, A, H> Argument<Block<Region<T, A>>> for Block<H>
where
    H: Argument<Region<T, A>> + Consecutive,
{
    fn to_arg(&self) -> Arg {
        match self.extent().to_arg() {
            Arg::Memory(extent) => Arg::Block(self.around(extent)),
            other => other,
        }
    }
}

/// A kernel with its arguments, ready to be submitted. Made by the `task` function that `#[kernel]`
/// writes beside each kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Which kernel.
    pub kernel: KernelId,
    /// What it does with each argument.
    pub params: &'static [Param],
    /// The arguments, one per parameter.
    pub args: Vec<Arg>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_wrong_argument_is_named() {
        let args = [Arg::Value(Value::Bool(true))];
        let error = decode::<u32>("scale", &args, 0, "factor").unwrap_err();
        assert_eq!(
            error.to_string(),
            "argument 0 (`factor`) of kernel `scale`: expected u32, got Bool(true)"
        );
        let error = decode::<bool>("scale", &args, 1, "flag").unwrap_err();
        assert!(error.to_string().ends_with("expected bool, got nothing"));
        assert_eq!(decode::<bool>("scale", &args, 0, "flag"), Ok(true));
    }

    #[test]
    fn a_number_too_large_for_its_parameter_is_refused() {
        let args = [Arg::Value(Value::U64(1 << 40))];
        assert!(decode::<u32>("k", &args, 0, "n").is_err());
        assert_eq!(decode::<u64>("k", &args, 0, "n"), Ok(1 << 40));
    }

    #[test]
    fn a_whole_number_fits_a_parameter_of_either_sign_if_its_value_does() {
        let args = [Value::I64(-1), Value::I64(7), Value::U64(u64::MAX)].map(Arg::Value);
        assert!(decode::<u64>("k", &args, 0, "n").is_err());
        assert_eq!(decode::<u32>("k", &args, 1, "n"), Ok(7));
        assert!(decode::<i64>("k", &args, 2, "n").is_err());
        assert!(decode::<f64>("k", &args, 1, "n").is_err());
    }
}
