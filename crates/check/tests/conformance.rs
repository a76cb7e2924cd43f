//! The checking platform passes the suite that every core must pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_check::Program;
use ringwork_conformance::{DATA_BYTES, Machine, SIGNALS, Seat};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Rank, Result};
use ringwork_layout::Layout;

struct Checked {
    ranks: u32,
}

fn program<K>(ranks: u32, kernel: K) -> Program
where
    K: AsyncFn(&SteppedCore, ringwork_check::Seat) -> Result<()> + 'static,
{
    Program::new(ranks, 1, kernel).windows(SIGNALS, DATA_BYTES)
}

impl Machine for Checked {
    type Core = SteppedCore;

    fn new(ranks: u32) -> Checked {
        Checked { ranks }
    }

    fn layout(&self) -> Layout {
        program(self.ranks, async |_, _| Ok(())).layout()
    }

    fn run<K>(&self, kernel: K) -> Vec<Result<()>>
    where
        K: AsyncFn(&SteppedCore, Seat) -> Result<()> + Clone + Send + Sync + 'static,
    {
        let checked = program(self.ranks, async move |core, seat| {
            let (me, layout) = (seat.me, seat.layout);
            kernel(core, Seat { me, layout }).await
        });
        match checked.run() {
            Ok(ends) => ends,
            Err(faults) => panic!(
                "{}",
                faults
                    .iter()
                    .map(|fault| format!("{fault}\n"))
                    .collect::<String>()
            ),
        }
    }

    fn alarm(&self, _: Option<Rank>, _: &str) {
        unreachable!("nobody can die here");
    }
}

ringwork_conformance::suite!(Checked, simulated);
ringwork_conformance::suite!(Checked, stepping);
