//! What makes the calls of a communicator: the station of one host, or ranks on several hosts.

use crate::buffer::{Source, Target};
use crate::calls::{agreed, counts_problem};
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use crate::hosts::Hosts;
use crate::station::Station;
use ringwork_isa::{Algorithm, Collective, ReduceOp};

/// The communicator owns it; while calls are pending, its worker does.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each communicator, in a box"
)]
pub(crate) enum CallContext {
    /// All ranks share memory.
    Host(Station),
    /// Some ranks are on other hosts.
    Hosts(Hosts),
}

/// Calls that both know by the same name.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        impl CallContext {
            $(
                #[inline(always)]
                pub(crate) fn $name(&self, $($argument: $type),*) -> Result<()> {
                    match self {
                        CallContext::Host(station) => station.$name($($argument),*),
                        CallContext::Hosts(hosts) => hosts.$name($($argument),*),
                    }
                }
            )*
        }
    };
}

calls! {
    all_reduce(data: AnyOutput<'_>, op: ReduceOp, asked: Option<Algorithm>);
    all_reduce_into(input: AnyInput<'_>, output: AnyOutput<'_>, op: ReduceOp);
    all_gather(input: AnyInput<'_>, output: AnyOutput<'_>);
    all_gather_in_place(data: AnyOutput<'_>);
    reduce_scatter(input: AnyInput<'_>, output: AnyOutput<'_>, op: ReduceOp);
    reduce_scatter_in_place(data: AnyOutput<'_>, op: ReduceOp);
    broadcast(data: AnyOutput<'_>, root: u32);
    gather(input: AnyInput<'_>, output: AnyOutput<'_>, root: u32);
    scatter(input: AnyInput<'_>, output: AnyOutput<'_>, root: u32);
    all_to_all(input: AnyInput<'_>, output: AnyOutput<'_>);
    all_to_all_in_place(data: AnyOutput<'_>);
    all_to_all_v(input: AnyInput<'_>, output: AnyOutput<'_>, counts: &[usize]);
    collective(collective: Collective, input: Option<AnyInput<'_>>, output: AnyOutput<'_>, op: ReduceOp, root: u32);
    send(data: AnyInput<'_>, to: u32);
    recv(data: AnyOutput<'_>, from: u32);
    exchange(input: AnyInput<'_>, output: AnyOutput<'_>, to: u32, from: u32);
    barrier();
}

impl CallContext {
    /// What makes the calls of this host's ranks.
    #[inline]
    pub(crate) fn here(&self) -> &Station {
        match self {
            CallContext::Host(station) => station,
            CallContext::Hosts(hosts) => &hosts.here,
        }
    }

    pub(crate) fn here_mut(&mut self) -> &mut Station {
        match self {
            CallContext::Host(station) => station,
            CallContext::Hosts(hosts) => &mut hosts.here,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        match self {
            CallContext::Host(station) => station.size(),
            CallContext::Hosts(hosts) => hosts.size(),
        }
    }

    /// Compares the counts of all ranks, then makes the call.
    pub(crate) fn all_to_all_v_agreeing(
        &self,
        (input, sends): (AnyInput<'_>, &[usize]),
        (output, receives): (AnyOutput<'_>, &[usize]),
    ) -> Result<()> {
        self.here().check_home("all_to_all_v", input.home())?;
        self.here().check_home("all_to_all_v", output.home())?;
        let problem = counts_problem((input.len(), sends), (output.len(), receives), self.size());
        // If the arguments of this rank are wrong, it sends that instead of its counts, so that no rank waits for it.
        let word = |count: &usize| {
            if problem.is_some() {
                -1
            } else {
                i64::try_from(*count).unwrap_or(-1)
            }
        };
        let ranks = self.size() as usize;
        let mut mine: Vec<i64> = sends.iter().chain(receives).map(word).collect();
        mine.resize(2 * ranks, -1);
        let mut all = vec![0i64; 2 * ranks * ranks];
        self.all_gather(mine[..].input().into(), all.output().into())?;
        if let Some(problem) = problem {
            return Err(Error::arguments("all_to_all_v", problem));
        }
        let counts = agreed(&all, ranks).map_err(|problem| Error::arguments("all_to_all_v", problem))?;
        self.all_to_all_v(input, output, &counts)
    }
}
