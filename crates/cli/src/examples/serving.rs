//! A kernel on every chip that is already running when its requests come: a queue each way between it and the host.
//!
//! Each answer is the request with every byte turned over, byte for byte and in the order of the requests. There are
//! far more requests than slots, so that both queues fill, and nobody minds.

use super::{Choice, Example};
use crate::job::{Check, Job};
use ringwork::isa::{HostPort, Received};
use ringwork::prelude::*;
use ringwork::runtime::{KernelPort, Response};
use std::cell::RefCell;

pub(super) const EXAMPLE: Example = Example {
    name: "serving",
    about: "a running kernel fed by a queue: requests in, answers out, in order",
    min_devices: 1,
    max_devices: None,
    default_devices: 2,
    choice: Choice::Nothing,
    dtypes: &[Dtype::U8],
    counts_per_chip: |_| 2 * SLOTS as usize + 2 * REQUESTS,
    describe: |job| {
        format!(
            "{REQUESTS} requests of up to {} bytes per chip, {SLOTS} slots",
            job.count
        )
    },
    run,
};

const REQUESTS: usize = 32;
const SLOTS: u32 = 4;

/// Answers requests until it is told to stop.
#[kernel]
async fn serve<C: Core>(core: &C, slots: Shared<u8>, headers: Shared<i32>, cells: Signals) -> Result<()> {
    let mut port = HostPort::open(core, slots, headers, cells).await?;
    while let Received::Data(request) = port.recv(core).await? {
        let mut bytes = core.load(request.payload()).await?;
        port.release(core, request).await?;
        bytes.values_mut().iter_mut().for_each(|byte| *byte = !*byte);
        let reply = port.reserve(core, bytes.len()).await?;
        core.store(reply.place(), &bytes).await?;
        port.send(core, reply).await?;
    }
    port.stop(core).await
}

/// A request of its own for every chip, round and number; lengths differ.
fn request(count: usize, chip: usize, round: usize, number: usize) -> Vec<u8> {
    let len = count - number % (count + 1).min(3);
    let byte = |i: usize| u8::try_from((i * 7 + number * 31 + chip * 101 + round * 13) % 256).unwrap_or(0);
    (0..len).map(byte).collect()
}

/// Sends what there is room for, and receives what is there, until the kernel has stopped too.
fn talk(port: &mut KernelPort<u8>, requests: &[Vec<u8>]) -> ringwork::Result<Vec<u8>> {
    let (mut left, mut answers) = (requests.iter().peekable(), Vec::new());
    loop {
        while let Some(request) = left.peek()
            && port.try_send(request)?
        {
            left.next();
            if left.peek().is_none() {
                break;
            }
        }
        match port.recv()? {
            Response::Data(answer) => answers.extend(answer.read()?),
            Response::Error(code, _) => {
                // No kernel of ours sends one; the answers are then too few, and the check says so.
                answers.extend(code.to_le_bytes());
            }
            Response::Stop => return Ok(answers),
        }
        if left.peek().is_none() && !port.is_told_to_stop() {
            port.stop()?;
        }
    }
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let chips = node.devices();
    let results = RefCell::new(Vec::new());
    let mut round = 0;
    job.rounds(
        || {
            round += 1;
            let mut ports = Vec::new();
            for chip in &chips {
                ports.push(node.open_port::<u8>(*chip, SLOTS, job.count)?);
            }
            let answers = node.run(|orch| {
                for (chip, port) in chips.iter().zip(&ports) {
                    orch.submit(*chip, serve::task(port.slots(), port.headers(), port.cells()))?;
                }
                let mut answers = Vec::new();
                for (chip, port) in ports.iter_mut().enumerate() {
                    let requests = (0..REQUESTS).map(|number| request(job.count, chip, round, number));
                    let requests: Vec<_> = requests.collect();
                    let wanted: Vec<u8> = requests.iter().flatten().map(|byte| !byte).collect();
                    answers.push((talk(port, &requests)?, wanted));
                }
                Ok(answers)
            })?;
            results.replace(answers);
            Ok(())
        },
        || {
            let results = results.borrow();
            let check = |(chip, (answers, wanted)): (&Device, &(Vec<u8>, Vec<u8>))| {
                let mut check =
                    Check::compare(*chip, "answers", answers, |i| wanted.get(i).copied().unwrap_or(0));
                if answers.len() != wanted.len() {
                    let (got, should) = (answers.len(), wanted.len());
                    check.wrong = Some(format!("{got} bytes came back, should be {should}"));
                }
                check
            };
            Ok(chips.iter().zip(results.iter()).map(check).collect())
        },
    )
}
