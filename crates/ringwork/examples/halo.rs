//! A stencil over ranks: `ringwork launch -n 4 -- ./halo`. Each rank exchanges the edges of its part with its neighbours.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::communicator::Communicator;

fn main() -> ringwork::Result<()> {
    const INNER: usize = 8;
    let comm = Communicator::from_env()?;
    let (rank, size) = (comm.rank(), comm.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    // One value on each side belongs to a neighbour.
    let mut line = [rank as f32; INNER + 2];
    for _ in 0..10 {
        let (first, last) = ([line[1]], [line[INNER]]);
        let (mut from_left, mut from_right) = ([0.0], [0.0]);
        comm.exchange((&last, right), (&mut from_left, left))?;
        comm.exchange((&first, left), (&mut from_right, right))?;
        line[0] = from_left[0];
        line[INNER + 1] = from_right[0];
        let smooth = |at: usize| (line[at - 1] + line[at] + line[at + 1]) / 3.0;
        let inner: Vec<f32> = (1..=INNER).map(smooth).collect();
        line[1..=INNER].copy_from_slice(&inner);
    }
    println!("rank {rank}: {:.3} to {:.3}", line[1], line[INNER]);
    comm.barrier()?;
    Ok(())
}
