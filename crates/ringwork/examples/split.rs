//! Rows and columns: `ringwork launch -n 4 -- ./split`. Each rank is in two smaller communicators.

use ringwork::communicator::Communicator;
use ringwork::isa::ReduceOp::Sum;

fn main() -> ringwork::Result<()> {
    const COLUMNS: u32 = 2;
    let comm = Communicator::from_env()?;
    let (row, column) = (comm.rank() / COLUMNS, comm.rank() % COLUMNS);
    let along_row = comm.split(row, column)?; // ranks with the same first number, ordered by the second
    let along_column = comm.split(column, row)?;
    let mut value = [comm.rank() as f32];
    along_row.all_reduce(&mut value, Sum)?; // tensor parallel
    along_column.all_reduce(&mut value, Sum)?; // data parallel
    let all = comm.size() * (comm.size() - 1) / 2;
    assert_eq!(value, [all as f32]);
    comm.barrier()?;
    Ok(())
}
