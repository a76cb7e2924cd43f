//! How often each member's input is part of something: a multiset of members, small where collectives make it so.
//!
//! Rings, trees and grids combine neighbours, so their partial results are one or two runs of members, each counted
//! once. Those need no allocation; everything else is a list of runs.
//!
//! # Invariants
//! - **CNT-1 (canonical).** Equal multisets are equal values: runs are in order, and no two that touch are counted
//!   equally often.

use std::ops::Range;
use std::sync::Arc;

/// Members that follow each other, and how often each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    end: u32,
    times: u32,
}

/// How often each member's input is part of something.
///
/// ```
/// use ringwork_isa::Counted;
/// let all = Counted::once(0..3).plus(&Counted::once(3..4));
/// assert_eq!(all, Counted::once(0..4));
/// assert_eq!(all.plus(&Counted::once(2..3)).times(2), Some(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Counted(Members);

#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Members {
    #[default]
    Nobody,
    /// Once each.
    Once(u32, u32),
    /// Two runs, once each.
    Two([u32; 4]),
    Runs(Arc<[Run]>),
    Unknown,
}

impl Counted {
    /// Nobody's input: a constant, or memory that nobody wrote to.
    pub const NOTHING: Counted = Counted(Members::Nobody);
    /// Nobody can tell: arithmetic that keeps no origins.
    pub const UNKNOWN: Counted = Counted(Members::Unknown);

    /// Those of these members, once each.
    #[must_use]
    pub fn once(members: Range<u32>) -> Counted {
        if members.is_empty() {
            return Counted::NOTHING;
        }
        Counted(Members::Once(members.start, members.end))
    }

    /// How often a member's input is counted; `None` if nobody can tell.
    #[must_use]
    pub fn times(&self, member: u32) -> Option<u32> {
        let mut room = [Run::NONE; 2];
        let runs = self.runs(&mut room)?;
        let inside = |run: &&Run| (run.first..run.end).contains(&member);
        Some(runs.iter().find(inside).map_or(0, |run| run.times))
    }

    /// The members, if they follow each other and are counted once each.
    #[must_use]
    pub fn as_once(&self) -> Option<Range<u32>> {
        match self.0 {
            Members::Nobody => Some(0..0),
            Members::Once(first, end) => Some(first..end),
            _ => None,
        }
    }

    /// Whether nobody can tell.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.0 == Members::Unknown
    }

    /// The lowest member that is counted another number of times than it should be, and how often that is: these
    /// members should be counted once, no others at all. `None` if all is right, or nobody can tell.
    #[must_use]
    pub fn unlike(&self, members: Range<u32>) -> Option<(u32, u32)> {
        let mut room = [Run::NONE; 2];
        let mut next = members.start;
        for run in self.runs(&mut room)? {
            if run.first < members.start {
                return Some((run.first, run.times));
            }
            if run.first > next && next < members.end {
                return Some((next, 0));
            }
            if run.times != 1 || run.first >= members.end {
                return Some((run.first, run.times));
            }
            if run.end > members.end {
                return Some((members.end, run.times));
            }
            next = run.end;
        }
        (next < members.end).then_some((next, 0))
    }

    /// Both together.
    #[must_use]
    #[inline]
    pub fn plus(&self, other: &Counted) -> Counted {
        match (&self.0, &other.0) {
            (Members::Unknown, _) | (_, Members::Unknown) => Counted::UNKNOWN,
            (Members::Nobody, _) => other.clone(),
            (_, Members::Nobody) => self.clone(),
            (Members::Once(first, end), Members::Once(f, e)) if end == f || e == first => {
                Counted(Members::Once(*first.min(f), *end.max(e)))
            }
            _ => self.merged(other),
        }
    }

    fn merged(&self, other: &Counted) -> Counted {
        let (mut a, mut b) = ([Run::NONE; 2], [Run::NONE; 2]);
        let (Some(mine), Some(theirs)) = (self.runs(&mut a), other.runs(&mut b)) else {
            return Counted::UNKNOWN;
        };
        few(mine, theirs).unwrap_or_else(|| any(mine, theirs))
    }

    /// The runs, in `room` if they have none of their own; `None` if nobody can tell.
    fn runs<'a>(&'a self, room: &'a mut [Run; 2]) -> Option<&'a [Run]> {
        match &self.0 {
            Members::Unknown => None,
            Members::Nobody => Some(&[]),
            Members::Once(first, end) => {
                room[0] = Run::once(*first, *end);
                Some(&room[..1])
            }
            Members::Two([first, end, f, e]) => {
                *room = [Run::once(*first, *end), Run::once(*f, *e)];
                Some(room)
            }
            Members::Runs(runs) => Some(runs),
        }
    }
}

impl Run {
    const NONE: Run = Run {
        first: 0,
        end: 0,
        times: 0,
    };

    fn once(first: u32, end: u32) -> Run {
        Run { first, end, times: 1 }
    }
}

/// Few runs that do not overlap and are at most two together: what rings make of their parts.
fn few(a: &[Run], b: &[Run]) -> Option<Counted> {
    let mut all = [Run::NONE; 4];
    let count = a.len() + b.len();
    for (place, run) in all.get_mut(..count)?.iter_mut().zip(a.iter().chain(b)) {
        *place = *run;
    }
    let all = &mut all[..count];
    all.sort_unstable_by_key(|run| run.first);
    let mut joined = [Run::NONE; 2];
    let mut len = 0usize;
    for run in all {
        match len.checked_sub(1).map(|last| &mut joined[last]) {
            _ if run.times != 1 => return None,
            Some(last) if run.first < last.end => return None,
            Some(last) if run.first == last.end => last.end = run.end,
            _ => {
                *joined.get_mut(len)? = *run;
                len += 1;
            }
        }
    }
    let [one, two] = joined;
    Some(Counted(match len {
        1 => Members::Once(one.first, one.end),
        _ => Members::Two([one.first, one.end, two.first, two.end]),
    }))
}

fn any(a: &[Run], b: &[Run]) -> Counted {
    let mut cuts: Vec<u32> = a.iter().chain(b).flat_map(|run| [run.first, run.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut all, mut i, mut j): (Vec<Run>, usize, usize) = (Vec::with_capacity(cuts.len()), 0, 0);
    let times = |runs: &[Run], at: &mut usize, member: u32| {
        while runs.get(*at).is_some_and(|run| run.end <= member) {
            *at += 1;
        }
        let run = runs.get(*at).filter(|run| run.first <= member);
        run.map_or(0, |run| run.times)
    };
    for pair in cuts.windows(2) {
        let (first, end) = (pair[0], pair[1]);
        let times = times(a, &mut i, first).saturating_add(times(b, &mut j, first));
        match all.last_mut() {
            _ if times == 0 => {}
            Some(last) if last.end == first && last.times == times => last.end = end,
            _ => all.push(Run { first, end, times }),
        }
    }
    Counted(match all.as_slice() {
        [] => Members::Nobody,
        [one] if one.times == 1 => Members::Once(one.first, one.end),
        [one, two] if one.times == 1 && two.times == 1 => {
            Members::Two([one.first, one.end, two.first, two.end])
        }
        _ => Members::Runs(all.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(members: &[u32]) -> Counted {
        let one = |member: &u32| Counted::once(*member..*member + 1);
        members
            .iter()
            .map(one)
            .fold(Counted::NOTHING, |all, next| all.plus(&next))
    }

    proptest! {
        #[test]
        fn counting_in_any_grouping_is_counting(a in prop::collection::vec(0u32..12, 0..20), b in prop::collection::vec(0u32..12, 0..20)) {
            let (x, y) = (of(&a), of(&b));
            let both = x.plus(&y);
            for member in 0..12 {
                let wanted = a.iter().chain(&b).filter(|m| **m == member).count();
                prop_assert_eq!(both.times(member), Some(u32::try_from(wanted).unwrap()));
            }
            let mut sorted = [a, b].concat();
            sorted.sort_unstable();
            prop_assert_eq!(&both, &of(&sorted), "equal multisets are equal");
            prop_assert_eq!(&both, &y.plus(&x));
            let right = (0..12).all(|m| both.times(m) == Some(u32::from((3..9).contains(&m))));
            prop_assert_eq!(both.unlike(3..9).is_none(), right);
        }
    }

    #[test]
    fn the_first_member_that_is_wrong_is_named() {
        assert_eq!(of(&[0, 1, 2, 3]).unlike(0..4), None);
        assert_eq!(of(&[0, 1, 3]).unlike(0..4), Some((2, 0)));
        assert_eq!(of(&[0, 1, 2]).unlike(0..4), Some((3, 0)));
        assert_eq!(of(&[0, 1, 1, 2]).unlike(0..3), Some((1, 2)));
        assert_eq!(of(&[0, 1, 2]).unlike(0..2), Some((2, 1)));
        assert_eq!(of(&[0, 5]).unlike(5..6), Some((0, 1)));
        assert_eq!(Counted::NOTHING.unlike(5..6), Some((5, 0)));
    }

    #[test]
    fn what_nobody_can_tell_stays_so() {
        let unknown = of(&[1]).plus(&Counted::UNKNOWN);
        assert!(unknown.is_unknown() && unknown.times(1).is_none());
    }

    #[test]
    fn the_runs_of_a_ring_need_no_allocation() {
        assert!(size_of::<Counted>() <= 24);
        let wrapped = of(&[6, 7, 0, 1, 2]);
        assert!(matches!(wrapped.0, Members::Two([0, 3, 6, 8])));
    }
}
