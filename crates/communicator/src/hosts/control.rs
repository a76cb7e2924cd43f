//! The control streams: how a death on one host is learned on the others.
//!
//! MPI notices a host that is cut off after minutes, or never. So the leaders of all hosts are connected by TCP, each with
//! each: a stream that is reset is a death at once, and a host that says nothing for a while is dead by decision. That while
//! ([`SILENCE_VARIABLE`]) is the one clock in ringwork that decides about a death: from the outside, a cut network cannot be
//! told from a dead host. Data never takes these streams.
//!
//! A death is raised as the alarm of the first communicator's memory on this host; every process of the host looks there and
//! raises it in its other communicators. After a death no process calls MPI any more.

use super::spread::Spread;
use super::streams::{Frame, Streams};
use crate::error::{Error, Result};
use ringwork_mpi::World;
use ringwork_native::segment::{Alarm, Attached};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a host may say nothing before it is taken for dead.
pub(crate) const SILENCE_VARIABLE: &str = "RINGWORK_SILENCE";
const SILENCE: Duration = Duration::from_secs(1);
/// The interval of looks at the alarms of this host.
const TICK: Duration = Duration::from_millis(10);

/// A communicator over several hosts that this process is in.
struct Home {
    segment: Weak<Attached>,
    spread: Arc<Spread>,
    /// Whether the other hosts were told of its alarm.
    told: bool,
}

/// What this process knows of the other hosts.
pub(crate) struct Control {
    /// The memory of the first communicator on this host, which all processes of the job on it have.
    job: Arc<Attached>,
    spread: Arc<Spread>,
    homes: Mutex<Vec<Home>>,
    /// `None` in processes that are not the leader of their host.
    streams: Option<Streams>,
}

static CONTROL: OnceLock<Arc<Control>> = OnceLock::new();
/// How many communicators over several hosts this process is in.
static LIVING: AtomicUsize = AtomicUsize::new(0);

/// Connects the leaders of all hosts, the first time; all processes of the job call it.
pub(crate) fn start(job: &Arc<Attached>, spread: &Arc<Spread>) -> Result<()> {
    if CONTROL.get().is_some() {
        return Ok(());
    }
    let silence = silence()?;
    let world = World::join()?;
    let streams = Streams::connect(world, spread, silence).map_err(|problem| {
        Error::arguments("joining the hosts", format!("the control streams: {problem}"))
    })?;
    let control = Arc::new(Control {
        job: Arc::clone(job),
        spread: Arc::clone(spread),
        homes: Mutex::default(),
        streams,
    });
    control.register(job, spread);
    if let Some(streams) = &control.streams {
        let told = Arc::clone(&control);
        streams
            .listen(silence, move |frame| told.hear(frame))
            .map_err(Error::Worker)?;
    }
    let ticking = Arc::clone(&control);
    std::thread::Builder::new()
        .name("ringwork-control".into())
        .spawn(move || {
            loop {
                ticking.look();
                std::thread::park_timeout(TICK);
            }
        })
        .map_err(Error::Worker)?;
    let _ = CONTROL.set(control);
    Ok(())
}

/// The alarms of this communicator are those of its ranks on other hosts, from now on.
pub(crate) fn register(segment: &Arc<Attached>, spread: &Arc<Spread>) {
    if let Some(control) = CONTROL.get() {
        control.register(segment, spread);
    }
}

/// Tells the other hosts of alarms on this one at once: the process may end after an error.
pub(crate) fn tell() {
    if let Some(control) = CONTROL.get() {
        control.look();
    }
}

/// A communicator of this process begins.
pub(crate) fn enter() {
    if LIVING.fetch_add(1, Ordering::SeqCst) == 0 {
        say(&Frame::Back);
    }
}

/// A communicator of this process ends; with the last one, the process may end as well without being taken for dead.
pub(crate) fn leave() {
    if LIVING.fetch_sub(1, Ordering::SeqCst) == 1 {
        say(&Frame::Bye);
    }
}

fn say(frame: &Frame) {
    if let Some(streams) = CONTROL.get().and_then(|control| control.streams.as_ref()) {
        streams.say(frame);
    }
}

fn silence() -> Result<Duration> {
    let Some(value) = crate::environment::variable(SILENCE_VARIABLE) else {
        return Ok(SILENCE);
    };
    crate::error::parse_duration(&value).map_err(|problem| Error::BadEnvironment {
        name: SILENCE_VARIABLE.into(),
        value,
        problem,
    })
}

/// The mark before the number of a process in the reason of an alarm: the header has room for the ranks of this host only.
const MARK: char = '\u{1}';

/// The reason of an alarm about a process on another host.
fn marked(process: u32, cause: &str) -> String {
    format!("{MARK}{process}{MARK}{cause}")
}

/// The process and the cause of its death, if an alarm's reason is about one on another host.
pub(crate) fn unmarked(reason: &str) -> Option<(u32, &str)> {
    let (process, cause) = reason.strip_prefix(MARK)?.split_once(MARK)?;
    Some((process.parse().ok()?, cause))
}

impl Control {
    fn homes(&self) -> MutexGuard<'_, Vec<Home>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, segment: &Arc<Attached>, spread: &Arc<Spread>) {
        let mut homes = self.homes();
        homes.retain(|home| home.segment.strong_count() > 0);
        homes.push(Home {
            segment: Arc::downgrade(segment),
            spread: Arc::clone(spread),
            told: false,
        });
    }

    /// What another host says, or the end of its stream.
    fn hear(&self, frame: Frame) {
        match frame {
            Frame::Died { process, cause } => self.died(process, &cause),
            Frame::Aborted { tag, reason } => {
                for home in self.homes().iter().filter(|home| home.spread.tag == tag) {
                    if let Some(segment) = home.segment.upgrade() {
                        segment.raise(&Alarm {
                            dead: None,
                            reason: reason.clone(),
                        });
                    }
                }
            }
            Frame::Here | Frame::Bye | Frame::Back => {}
        }
    }

    /// Raises the death of a process in all communicators that it is in, and ends the use of MPI.
    fn died(&self, process: u32, cause: &str) {
        let alarm = Alarm {
            dead: None,
            reason: marked(process, cause),
        };
        let raise = |segment: &Attached| {
            if !segment.alarmed() {
                segment.raise(&alarm);
            }
        };
        raise(&self.job);
        for home in self.homes().iter() {
            if home.spread.rank_of(process).is_some()
                && let Some(segment) = home.segment.upgrade()
            {
                raise(&segment);
            }
        }
        // The last, because it waits for a call of MPI that another thread is in.
        if let Ok(world) = World::join() {
            let rank = self.spread.rank_of(process).unwrap_or(process);
            world.abandon(&format!("rank {rank} died ({cause})"));
        }
    }

    /// Takes over what was raised in the memory of the first communicator, and tells the other hosts of what is new here.
    fn look(&self) {
        if self.job.alarmed()
            && let Some(alarm) = self.job.alarm()
            && let Some((process, cause)) = dead_process(&self.spread, &alarm)
        {
            self.died(process, &cause);
        }
        let Some(streams) = &self.streams else { return };
        let mut news = Vec::new();
        for home in self.homes().iter_mut().filter(|home| !home.told) {
            let Some(alarm) = home.segment.upgrade().and_then(|segment| segment.alarm()) else {
                continue;
            };
            home.told = true;
            let (spread, reason) = (&home.spread, alarm.reason.clone());
            news.push(match dead_process(spread, &alarm) {
                Some((process, cause)) => Frame::Died { process, cause },
                None => Frame::Aborted {
                    tag: spread.tag,
                    reason,
                },
            });
        }
        for frame in news {
            streams.say(&frame);
        }
    }
}

/// The process whose death an alarm is about, and how it died.
fn dead_process(spread: &Spread, alarm: &Alarm) -> Option<(u32, String)> {
    if let Some(local) = alarm.dead {
        let rank = *spread.here().get(local.0 as usize)?;
        let process = spread.members[rank as usize].process;
        return Some((process, alarm.reason.clone()));
    }
    let (process, cause) = unmarked(&alarm.reason)?;
    Some((process, cause.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_an_alarm_from_another_host_is_read_back() {
        assert_eq!(unmarked(&marked(7, "gone")), Some((7, "gone")));
        assert_eq!(unmarked("rank 1 aborted: 7"), None);
    }
}
