//! Waits in a domain that has come to an end.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::Machine;
use crate::refused::refused;
use ringwork_isa::{Compare, Core, Notify, Rank, Tile};

pub fn a_wait_in_an_aborted_domain_says_why<M: Machine>() {
    let machine = M::new(2);
    machine.alarm(None, "the user asked");
    machine.run_well(async |core, seat| {
        if seat.me.0 == 1 {
            return Ok(());
        }
        core.notify(seat.signal(2).on(Rank(1))?, Notify::Add(3)).await?;
        refused!(
            core.wait(seat.signal(2).on(Rank(1))?, Compare::Ge, 4),
            "aborted because the user asked; rank 0 waited at {site} for signal 2 of rank 1 to be >= 4, it is 3"
        );
        // Data instructions wait for nobody, so they go on.
        core.store(seat.buffer::<i32>(0, 1), &Tile::new(vec![1])).await
    });
}

pub fn a_wait_for_a_dead_peer_names_it<M: Machine>() {
    let machine = M::new(3);
    machine.alarm(Some(Rank(2)), "killed by SIGKILL");
    machine.run_well(async |core, seat| {
        if seat.me.0 != 1 {
            return Ok(());
        }
        refused!(
            core.wait(seat.signal(0).on(Rank(0))?, Compare::Eq, 1),
            "rank 2 died (killed by SIGKILL); rank 1 waited at {site} for signal 0 of rank 0 to be == 1, it is 0"
        );
        Ok(())
    });
}

pub fn a_wait_that_is_satisfied_succeeds_despite_the_alarm<M: Machine>() {
    let machine = M::new(1);
    machine.alarm(None, "the user asked");
    machine.run_well(async |core, seat| core.wait(seat.signal(0), Compare::Eq, 0).await);
}

pub fn the_first_alarm_stays<M: Machine>() {
    let machine = M::new(2);
    machine.alarm(Some(Rank(1)), "exit code 3");
    machine.alarm(None, "a peer died");
    machine.run_well(async |core, seat| {
        refused!(
            core.wait(seat.signal(1), Compare::Gt, 0),
            &format!(
                "rank 1 died (exit code 3); rank {} waited at {{site}} for signal 1 of rank {} to be > 0, it is 0",
                seat.me, seat.me
            )
        );
        Ok(())
    });
}
