//! Reduction operators.

use crate::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How elements are combined. The order of operands is part of the meaning: see
/// [`Core::reduce`](crate::Core::reduce).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// `a + b`; integers wrap.
    Sum,
    /// The larger; NaN wins.
    Max,
    /// The smaller; NaN wins.
    Min,
    /// `a * b`; integers wrap.
    Prod,
    /// The sum, divided by the number of sources before it is rounded; integers wrap, then truncate.
    ///
    /// Not a fold of pairs: only an instruction that sees all sources at once can do it.
    Avg,
    /// `a & b`, bit by bit; integers only.
    BitAnd,
    /// `a | b`, bit by bit; integers only.
    BitOr,
    /// `a ^ b`, bit by bit; integers only.
    BitXor,
}

impl ReduceOp {
    /// Every operator.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Prod,
        ReduceOp::Avg,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::Avg => "avg",
            ReduceOp::BitAnd => "band",
            ReduceOp::BitOr => "bor",
            ReduceOp::BitXor => "bxor",
        }
    }

    /// Whether it is defined for elements of this type.
    #[must_use]
    #[inline(always)]
    pub const fn is_for(self, dtype: Dtype) -> bool {
        !(dtype.is_float() && matches!(self, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor))
    }

    /// Whether elements of this type can be reduced by it. A reduction that cannot be gives NaN; who offers it to users
    /// refuses it first.
    ///
    /// # Errors
    /// Why not.
    pub fn check(self, dtype: Dtype) -> Result<(), String> {
        if self.is_for(dtype) {
            return Ok(());
        }
        Err(format!("`{self}` is not defined for {dtype}"))
    }

    /// The names of all, for messages: `sum, max, ...`.
    #[must_use]
    pub fn names() -> String {
        ReduceOp::ALL.map(ReduceOp::name).join(", ")
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        ReduceOp::ALL
            .into_iter()
            .find(|op| op.name() == name)
            .ok_or_else(|| format!("`{name}` is not a reduction; use one of {}", ReduceOp::names()))
    }
}
