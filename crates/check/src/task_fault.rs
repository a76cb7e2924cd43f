//! What is wrong with a program of tasks, in the words of its kernels: who they are, and which of their lines.

use crate::cells::Broken;
use crate::fault::Misuse;
use ringwork_isa::Site;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Who does instructions: a task on a chip, a core of a chip's own graph, or the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The chip; none for the host.
    pub chip: Option<u32>,
    /// Such as ``kernel `sum` `` or `the host`.
    pub name: Arc<str>,
    /// The number of the task, in the order of submission; the tasks of a group have the same.
    pub task: u64,
}

impl Who {
    /// The host itself.
    #[must_use]
    pub fn host() -> Who {
        Who {
            chip: None,
            name: "the host".into(),
            task: 0,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.chip {
            Some(chip) => write!(f, " on chip {chip}"),
            None => Ok(()),
        }
    }
}

/// One side of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSide {
    /// Who did it.
    pub who: Who,
    /// The instruction's name, as in [`Core`](ringwork_isa::Core); `read` or `write` of a host.
    pub instruction: &'static str,
    /// The kernel's line; none of a host.
    pub site: Option<Site>,
    /// Whether it wrote.
    pub writes: bool,
}

impl fmt::Display for TaskSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskSide {
            who,
            instruction,
            site,
            ..
        } = self;
        write!(f, "{instruction:<12} ")?;
        if let Some(site) = site {
            write!(f, "{site}  ")?;
        }
        write!(f, "{who}")?;
        if who.task > 0 {
            write!(f, ", task {}", who.task)?;
        }
        Ok(())
    }
}

/// Two accesses to the same bytes that nothing orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRace {
    /// Such as `window "tp" of rank 1` or `a tensor on device 2`.
    pub memory: String,
    /// Elements of the later access's buffer that both touch.
    pub elements: Range<u64>,
    /// The access that came first in the schedule that was run.
    pub first: TaskSide,
    /// The other.
    pub second: TaskSide,
    /// The last thing that the second knew of the first.
    pub known: Option<TaskSide>,
    /// What to do about it.
    pub help: String,
    /// How often this pair of lines raced.
    pub count: usize,
}

impl fmt::Display for TaskRace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (&self.first, &self.second);
        let verb = |side: &TaskSide| if side.writes { "write" } else { "read" };
        let Range { start, end } = &self.elements;
        writeln!(
            f,
            "race: {} {}s elements {start}..{end} in {} while {} may still {} them",
            second.who,
            verb(second),
            self.memory,
            first.who,
            verb(first)
        )?;
        writeln!(f, "  {:<5}  {first}", verb(first))?;
        write!(f, "  {:<5}  {second}", verb(second))?;
        match &self.known {
            _ if first.who == second.who => {}
            Some(known) => {
                let site = known.site.as_ref();
                let at = site.map(|site| format!(" ({site})")).unwrap_or_default();
                write!(
                    f,
                    "\n  the last that {} knows of {} is its {}{at}; no signal from after the {} has reached it",
                    second.who, first.who, known.instruction, first.instruction
                )?;
            }
            None => write!(
                f,
                "\n  {} has not waited for anything that {} did",
                second.who, first.who
            )?,
        }
        write!(f, "\n  help: {}", self.help)?;
        if self.count > 1 {
            write!(f, "\n  ({} times in this run)", self.count)?;
        }
        Ok(())
    }
}

impl TaskRace {
    pub(crate) fn is_same(&self, other: &TaskRace) -> bool {
        let line = |side: &TaskSide| (side.instruction, side.site.clone(), side.who.name.clone());
        let (a, b) = (line(&self.first), line(&self.second));
        let (c, d) = (line(&other.first), line(&other.second));
        (a == c && b == d) || (a == d && b == c)
    }
}

/// Something that is wrong with a program of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFault {
    /// Two accesses that nothing orders.
    Race(Box<TaskRace>),
    /// A contract is not kept.
    Misuse {
        /// Which.
        what: Misuse,
        /// The instruction, and the other one that it conflicts with.
        sides: Vec<TaskSide>,
        /// Such as `signal 3 of rank 1 in window "tp"`.
        signal: Option<String>,
    },
}

impl fmt::Display for TaskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskFault::Race(race) => race.fmt(f),
            TaskFault::Misuse { what, sides, signal } => {
                write!(f, "misuse: {what}")?;
                if let Some(signal) = signal {
                    write!(f, " ({signal})")?;
                }
                sides.iter().try_for_each(|side| write!(f, "\n  {side}"))
            }
        }
    }
}

/// Why a run without a fault is not a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// The order of a signal matters, so that other schedules may do something else.
    Order {
        /// Such as `signal 3 of rank 1 in window "tp"`.
        signal: String,
        /// The condition that it breaks.
        broken: Broken,
    },
    /// So many instructions were done, and no more are.
    Bound {
        /// How many.
        instructions: u64,
    },
    /// Chips were made to die.
    Death,
}

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unproved::Order { signal, broken } => {
                write!(f, "the order of {signal} matters: {broken}; one schedule was run")
            }
            Unproved::Bound { instructions } => {
                write!(f, "the bound of {instructions} instructions was reached")
            }
            Unproved::Death => {
                f.write_str("a chip was made to die at one of its instructions; others were not tried")
            }
        }
    }
}

/// What a run of tasks showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Chips of the worker.
    pub chips: u32,
    /// Tasks that were begun, one for each chip of a group.
    pub tasks: u64,
    /// Tasks that failed, whatever the reason.
    pub failed: u64,
    /// Instructions that were done.
    pub instructions: u64,
    /// What is wrong.
    pub faults: Vec<TaskFault>,
    /// Why it is not a proof, if it is not.
    pub unproved: Vec<Unproved>,
}

impl Checked {
    /// Whether all schedules were shown to be free of races, deadlocks and misuse.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        !self.is_faulty() && self.unproved.is_empty()
    }

    /// Whether something is wrong.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        !self.faults.is_empty() || self.failed > 0 && !self.is_bounded()
    }

    /// Whether it went only as far as a bound: tasks that were ended there have not failed.
    fn is_bounded(&self) -> bool {
        self.unproved
            .iter()
            .any(|why| matches!(why, Unproved::Bound { .. }))
    }

    /// 0 if it is proved, 1 if something is wrong, 2 if a bound was reached.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match () {
            () if self.is_faulty() => 1,
            () if self.unproved.is_empty() => 0,
            () => 2,
        }
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked {
            chips,
            tasks,
            instructions,
            ..
        } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let size = format!(
            "{chips} chip{}, {tasks} task{}, {instructions} instruction{}",
            plural((*chips).into()),
            plural(*tasks),
            plural(*instructions)
        );
        if self.is_faulty() {
            let count = self.faults.len();
            return match count {
                0 => write!(f, "not proved: {} of {tasks} tasks failed; {size}", self.failed),
                _ => write!(
                    f,
                    "not proved: {count} fault{} found; {size}",
                    plural(count as u64)
                ),
            };
        }
        match &self.unproved[..] {
            [] => write!(
                f,
                "proved (tier 1: one schedule stands for all): no race, no deadlock, no misused signal; {size}"
            ),
            [first, rest @ ..] => {
                write!(f, "bounded, not proved: nothing was found, but {first}; {size}")?;
                match rest.len() {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more such reason{}", plural(more as u64)),
                }
            }
        }
    }
}
