//! Kills while chips come up.

use super::team::spec;
use ringwork_runtime::{Device, Node, NodeBuilder};
use ringwork_testkit::process::Process;
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

const DEVICES: [u32; 3] = [3, 5, 9];

fn builder() -> NodeBuilder {
    Node::builder()
        .devices(DEVICES)
        .domain(spec(&DEVICES.map(Device), 100))
}

/// Every step of every chip's bring-up.
pub fn steps() -> Vec<(Device, String)> {
    let steps: Rc<RefCell<Vec<_>>> = Rc::default();
    let heard = steps.clone();
    let record = move |device, _, step: &str| heard.borrow_mut().push((device, step.to_owned()));
    drop(builder().on_step(record).launch().unwrap());
    steps.take()
}

/// Kills a chip when the host hears that it begins a step. Returns how long the launch took to fail from
/// then on, and the step that the error names: the chip may have gone further. Or the node, if it had got
/// all the way.
pub fn kill_at(device: Device, step: &str) -> Result<(Duration, String), Node> {
    let killed_at = Rc::new(Cell::new(None));
    let (at, name) = (killed_at.clone(), step.to_owned());
    let kill = move |chip: Device, pid: u32, step: &str| {
        if chip == device && step == name {
            at.set(Some(Instant::now()));
            Process::open(pid).unwrap().signal(Signal::KILL);
        }
    };
    match builder().on_step(kill).launch() {
        Ok(node) => Err(node),
        Err(error) => {
            let (latency, error) = (killed_at.take().unwrap().elapsed(), error.to_string());
            let told = error.strip_prefix(&format!("chip {device} bootstrap failed at \""));
            let step = told.and_then(|told| told.strip_suffix("\": it was killed by SIGKILL"));
            Ok((latency, step.unwrap_or_else(|| panic!("{error}")).to_owned()))
        }
    }
}
