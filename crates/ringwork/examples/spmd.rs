//! Every rank runs this: `ringwork launch -n 4 -- target/debug/examples/spmd`.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::communicator::Communicator;
use ringwork::isa::ReduceOp::Sum;

fn main() -> ringwork::Result<()> {
    let comm = Communicator::from_env()?;
    let mut grad = comm.alloc::<f32>(1 << 10)?; // in the window: reduced in place, no copy
    grad.fill(comm.rank() as f32 + 1.0);
    comm.all_reduce(&mut grad, Sum)?;
    let sum = grad.get(0).unwrap_or_default();
    println!("rank {} of {}: the sum is {sum}", comm.rank(), comm.size());
    comm.barrier()?; // nobody leaves while another may still need it
    Ok(())
}
