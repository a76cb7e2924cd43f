//! Data-parallel training: `ringwork launch -n 4 -- ./train`. The gradients are averaged while the next ones are computed.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::communicator::Communicator;
use ringwork::isa::ReduceOp::Avg;

/// The derivative of (w * x - y)^2, for data of this rank on which w = 3 is best.
fn gradient(w: f32, rank: u32) -> f32 {
    let x = 1.0 + rank as f32 / 10.0;
    2.0 * x * (w * x - 3.0 * x)
}

fn main() -> ringwork::Result<()> {
    let comm = Communicator::from_env()?;
    let mut weights = vec![0.0f32; 2]; // two layers
    for _ in 0..50 {
        let mut pending = Vec::new();
        for w in &weights {
            let gradient = vec![gradient(*w, comm.rank())];
            pending.push(comm.all_reduce_start(gradient, Avg)); // on its way while the next layer is computed
        }
        for (w, pending) in weights.iter_mut().zip(pending) {
            *w -= 0.1 * pending.wait()?[0];
        }
    }
    println!("rank {}: weights {weights:?}", comm.rank());
    assert!(weights.iter().all(|w| (w - 3.0).abs() < 1e-3));
    comm.barrier()?; // nobody leaves while another may still need it
    Ok(())
}
