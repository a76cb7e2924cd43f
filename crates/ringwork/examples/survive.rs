//! A rank dies; the others go on without it: `ringwork launch --keep-going -n 4 -- ./survive`.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::communicator::Communicator;
use ringwork::isa::ReduceOp::Sum;

fn main() -> ringwork::Result<()> {
    let mut comm = Communicator::from_env()?;
    let dies = comm.size() - 1;
    for step in 0..10 {
        if step == 5 && comm.rank() == dies {
            std::process::abort();
        }
        let mut ranks = [1.0f32];
        match comm.all_reduce(&mut ranks, Sum) {
            Ok(()) => {}
            Err(error) if error.dead_rank().is_some() => {
                println!("{error}");
                comm = comm.shrink()?; // a communicator of those that live
            }
            Err(error) => return Err(error.into()),
        }
    }
    println!("rank {} of {} has finished", comm.rank(), comm.size());
    comm.barrier()?;
    Ok(())
}
