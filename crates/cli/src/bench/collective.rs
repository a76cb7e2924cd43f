//! What sizes and bandwidths mean for each collective in a benchmark (nccl-tests' conventions).

use ringwork::isa::Collective;
use ringwork::isa::nearest;
use std::ops::Range;
use std::str::FromStr;

/// Whether it has a form with one buffer.
pub(crate) const fn in_place(collective: Collective) -> bool {
    !matches!(
        collective,
        Collective::Gather | Collective::Scatter | Collective::Barrier
    )
}

/// Whether mode `use` runs it in place, as the OSU benchmarks do.
pub(crate) const fn used_in_place(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce
    )
}

/// Whether it has a form with two buffers.
pub(crate) const fn out_of_place(collective: Collective) -> bool {
    !matches!(collective, Collective::Broadcast | Collective::Reduce)
}

/// Where rank `me` has its input and its result in the one buffer of an in-place call on `elements`: as in nccl-tests, each
/// part is where it would be in the whole.
pub(crate) fn parts(
    collective: Collective,
    elements: usize,
    ranks: usize,
    me: usize,
) -> (Range<usize>, Range<usize>) {
    let per = elements / ranks;
    let (whole, mine) = (0..elements, me * per..(me + 1) * per);
    match collective {
        Collective::AllGather => (mine, whole),
        Collective::ReduceScatter => (whole, mine),
        _ => (whole.clone(), whole),
    }
}

/// Bus bandwidth is this times size over time.
pub(crate) fn bus_factor(collective: Collective, ranks: u32) -> f64 {
    collective.least_work().through_port.factor(ranks)
}

/// What to measure: one, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collectives(pub(crate) Vec<Collective>);

impl FromStr for Collectives {
    type Err = String;

    fn from_str(name: &str) -> Result<Collectives, String> {
        if name == "all" {
            return Ok(Collectives(Collective::ALL.to_vec()));
        }
        if let Ok(found) = name.parse() {
            return Ok(Collectives(vec![found]));
        }
        let names = Collective::ALL.map(Collective::name);
        let hint = nearest(name, names).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        Err(format!(
            "no such operation; {hint}use one of {}, all",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_where_nccl_tests_has_them() {
        assert_eq!(parts(Collective::AllGather, 12, 3, 1), (4..8, 0..12));
        assert_eq!(parts(Collective::ReduceScatter, 12, 3, 2), (0..12, 8..12));
        assert_eq!(parts(Collective::AllToAll, 12, 3, 2), (0..12, 0..12));
        assert!((bus_factor(Collective::AllReduce, 4) - 1.5).abs() < 1e-12);
        assert!(
            "all_redcue"
                .parse::<Collectives>()
                .unwrap_err()
                .contains("`all_reduce`?")
        );
    }
}
