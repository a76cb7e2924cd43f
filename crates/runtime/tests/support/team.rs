//! All-reduces over some chips of a node, with their golden result.

use ringwork_collectives::{Algorithm, Team};
use ringwork_isa::{Barrier, Core, In, Out, ReduceOp, Shared, Signals};
use ringwork_macros::kernel;
use ringwork_runtime::{Buffer, Device, DomainSpec, Node, Orchestrator, Result, SignalRow, Tensor};
use ringwork_testkit::Rng;

/// An all-reduce of any algorithm, packets included.
#[kernel]
pub async fn all_reduce<C: Core>(
    core: &C,
    x: In<f32>,
    y: Out<f32>,
    scratch: Shared<f32>,
    packets: Shared<i64>,
    meet: Barrier,
    steps: Signals,
    algorithm: Algorithm,
) -> ringwork_isa::Result<()> {
    let team = Team::new(scratch, meet, steps)?.with_packets(packets)?;
    ringwork_collectives::all_reduce(core, team, x.erase(), y.erase(), ReduceOp::Sum, algorithm).await
}

/// Chips of a node with everything that an all-reduce needs.
#[derive(Debug)]
pub struct Reducers {
    pub members: Vec<Device>,
    scratch: Buffer<f32>,
    packets: Buffer<i64>,
    meet: SignalRow,
    steps: SignalRow,
    x: Vec<Tensor<f32>>,
    y: Vec<Tensor<f32>>,
}

/// What a domain needs for all-reduces.
pub fn spec(members: &[Device], count: usize) -> DomainSpec {
    DomainSpec::new("tp", members.iter().copied())
        .buffer::<f32>("scratch", 2 * count)
        .buffer::<i64>("packets", Team::packet_words(members.len(), 100))
        .barrier("meet")
        .signals("steps", Team::STEP_CELLS)
}

impl Reducers {
    /// Opens a domain of these chips, and puts `rank * 100 + i` on each.
    pub fn open(node: &Node, members: &[Device], count: usize) -> Result<Reducers> {
        Reducers::on(node, &node.open_domain(&spec(members, count))?, count)
    }

    /// The same in a domain that is there already.
    pub fn on(node: &Node, tp: &ringwork_runtime::Domain, count: usize) -> Result<Reducers> {
        let members = tp.members().to_vec();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for (rank, member) in members.iter().enumerate() {
            let values: Vec<f32> = (0..count).map(|i| (rank * 100 + i) as f32).collect();
            x.push(node.tensor(*member, &values)?);
            y.push(node.zeros::<f32>(*member, count)?);
        }
        let (scratch, packets) = (tp.buffer("scratch")?, tp.buffer("packets")?);
        let (meet, steps) = (tp.barrier("meet")?, tp.signals("steps")?);
        Ok(Reducers {
            members,
            scratch,
            packets,
            meet,
            steps,
            x,
            y,
        })
    }

    /// One run of `rounds` all-reduces, submitted at once.
    pub fn reduce(&self, node: &Node, algorithm: Algorithm, rounds: usize) -> Result<()> {
        node.run(|orch| (0..rounds).try_for_each(|_| self.submit(orch, algorithm)))
    }

    /// Submits one all-reduce.
    pub fn submit(&self, orch: &mut Orchestrator<'_>, algorithm: Algorithm) -> Result<()> {
        orch.group(self.members.iter().copied(), |chip| {
            let rank = self.rank_of(chip);
            let (x, y) = (&self.x[rank], &self.y[rank]);
            let (scratch, packets) = (&self.scratch, &self.packets);
            let (meet, steps) = (&self.meet, &self.steps);
            Ok(all_reduce::task(x, y, scratch, packets, meet, steps, algorithm))
        })
        .map(drop)
    }

    /// All-reduces until something goes wrong.
    pub fn reduce_forever(&self, node: &Node, rng: &mut Rng) -> ringwork_runtime::Error {
        loop {
            let algorithm = ringwork_collectives::all_reduce::BY_TEAM
                [rng.below(ringwork_collectives::all_reduce::BY_TEAM.len())];
            if let Err(error) = self.reduce(node, algorithm, 1 + rng.below(4)) {
                return error;
            }
        }
    }

    /// Whether every chip has the sum.
    pub fn verified(&self) -> Result<bool> {
        let ranks = self.members.len();
        for y in &self.y {
            let golden = |i| (ranks * i + 100 * ranks * (ranks - 1) / 2) as f32;
            if y.read()?.iter().enumerate().any(|(i, value)| *value != golden(i)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub fn rank_of(&self, chip: Device) -> usize {
        self.members
            .iter()
            .position(|member| *member == chip)
            .expect("a member")
    }
}
