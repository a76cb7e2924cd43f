//! A training step of an MLP that two chips share, on a simulated machine: forward, backward, and the time it takes there.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::parallel::{ChipGroup, Dense, Matrix, ParallelMlp};
use ringwork::prelude::*;
use ringwork::runtime::{Platform, Simulation};
use ringwork::sim::Topology;

fn main() -> ringwork::Result<()> {
    let machine = Topology::preset("h100x8").expect("a preset");
    let simulated = Platform::Sim(Simulation::new(machine));
    let node = Node::builder().devices(0..2).platform(simulated).launch()?; // without `platform`: two processes
    let tp = ChipGroup::open(&node, "tp", node.devices(), 4 * 8)?;

    // Weights are outputs x inputs. Every chip takes its half of the 16 inner columns.
    let up = Dense::new(16, 8, (0..128).map(|i| (i % 7) as f32 * 0.1 - 0.3).collect())?;
    let down = Dense::new(8, 16, (0..128).map(|i| (i % 5) as f32 * 0.1 - 0.2).collect())?;
    let (y, gradients) = node.run(|orch| {
        let group = tp.on(orch);
        let mlp = ParallelMlp::new(&group, (&up, None), (&down, None))?;
        let x = Matrix::replicated(&group, &Dense::new(4, 8, vec![1.0; 32])?)?;
        let (y, saved) = mlp.forward(&group, &x)?;
        let gradients = mlp.backward(&group, &saved, &y)?; // the loss is half the sum of squares, so dy = y
        Ok((y, gradients))
    })?;

    let outputs = y.parts(); // one for each chip
    assert_eq!(outputs[0].read()?, outputs[1].read()?);
    assert_eq!(gradients.first.weight.shape().rows, 8); // half the rows of `up`
    if let Some(simulated) = node.clock().simulated() {
        println!("{} ps on {}", simulated.now_ps, simulated.topology);
    }
    Ok(())
}
