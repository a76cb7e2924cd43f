//! What a chip is made of: memories, DMA engines, matrix and vector engines, queues to its neighbours.

use super::units;
use crate::compute::Systolic;
use crate::time::{Ps, Rate};
use ringwork_yaml::{ConfigError, Problem, Reader, Table};

/// One memory of a chip.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// `hbm`, `sram`, `tcm`.
    pub name: String,
    /// Bytes it holds.
    pub capacity: u64,
    /// Bytes a second, reads and writes together.
    pub bandwidth: Rate,
    /// Before the first byte.
    pub latency_ps: Ps,
}

/// The engines that move bytes without a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dma {
    /// Transfers that go out at the same time; `u32::MAX` if without limit.
    pub engines: u32,
    /// Transfers that wait for an engine before the core that issues one more has to.
    pub queue: u32,
    /// From the moment an engine takes a transfer to its first byte.
    pub start_ps: Ps,
}

/// Queues between neighbours (kernbench2's IPCQ).
#[derive(Clone, Debug, PartialEq)]
pub struct Queues {
    /// Slots per neighbour.
    pub slots: u32,
    /// Bytes of one.
    pub slot_bytes: u64,
    /// Bytes of the credit that gives a slot back.
    pub credit_bytes: u64,
    /// Which memory the slots are in, by number.
    pub memory: usize,
    /// Where a core keeps its tiles, by number: what enters or leaves a slot of another memory passes it too.
    pub working: Option<usize>,
    /// From the moment a message is sent, or found in its slot, until it begins to move.
    pub start_ps: Ps,
}

/// A chip. Whatever is not said has no limit and costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// Its memories; the first is where windows and tensors are unless it is said otherwise.
    pub memories: Vec<Memory>,
    /// Its DMA engines.
    pub dma: Dma,
    /// Bytes a second that the vector engine combines.
    pub vector: Rate,
    /// Operations a second of the matrix engine.
    pub matrix: Rate,
    /// The matrix engine as an array of cells and its clock, if it is described so: then it takes the cycles
    /// of its folds, where these are more than `matrix` allows.
    pub array: Option<(Systolic, Rate)>,
    /// From submission of a task to its first instruction.
    pub launch_ps: Ps,
    /// Bytes of a signal on the wire.
    pub signal_bytes: u64,
    /// Queues between neighbours, if it has any.
    pub queues: Option<Queues>,
}

impl Default for Chip {
    fn default() -> Chip {
        Chip {
            memories: Vec::new(),
            dma: Dma {
                engines: u32::MAX,
                queue: u32::MAX,
                start_ps: 0,
            },
            vector: Rate::UNLIMITED,
            matrix: Rate::UNLIMITED,
            array: None,
            launch_ps: 0,
            signal_bytes: 0,
            queues: None,
        }
    }
}

const CHIP_KEYS: [&str; 8] = [
    "memory", "dma", "vector", "matrix", "array", "launch", "signal", "queues",
];

/// Reads the table `chip`.
pub(crate) fn read(reader: &Reader<'_>) -> Result<Chip, ConfigError> {
    let table = reader.table(&CHIP_KEYS)?;
    let mut chip = Chip::default();
    if let Some(memories) = table.get("memory") {
        let each = if memories.is_list() {
            memories.list()?
        } else {
            vec![memories]
        };
        chip.memories = each.iter().map(memory).collect::<Result<_, _>>()?;
    }
    if let Some(dma) = table.get("dma") {
        let dma = dma.table(&["engines", "queue", "start"])?;
        chip.dma.engines = dma.need("engines", "4")?.count(1, 1 << 16)?;
        if let Some(queue) = dma.get("queue") {
            chip.dma.queue = queue.count(0, 1 << 20)?;
        }
        if let Some(start) = dma.get("start") {
            chip.dma.start_ps = start.unit(units::duration)?;
        }
    }
    if let Some(vector) = table.get("vector") {
        chip.vector = vector.unit(units::bandwidth)?;
    }
    if let Some(matrix) = table.get("matrix") {
        chip.matrix = matrix.unit(units::flops)?;
    }
    if let Some(array) = table.get("array") {
        let array = array.table(&["rows", "columns", "clock"])?;
        let side = |key: &'static str| Ok(u64::from(array.need(key, "128")?.count(1, 1 << 16)?));
        let systolic = Systolic {
            rows: side("rows")?,
            columns: side("columns")?,
        };
        let clock = array.need("clock", "1 GHz")?.unit(units::frequency)?;
        chip.array = Some((systolic, clock));
    }
    if let Some(launch) = table.get("launch") {
        chip.launch_ps = launch.unit(units::duration)?;
    }
    if let Some(signal) = table.get("signal") {
        chip.signal_bytes = signal.unit(units::bytes)?;
    }
    if let Some(queues) = table.get("queues") {
        chip.queues = Some(read_queues(
            &queues.table(&QUEUE_KEYS)?,
            "memory",
            &chip.memories,
        )?);
    }
    Ok(chip)
}

const QUEUE_KEYS: [&str; 6] = ["slots", "slot", "credit", "memory", "working", "start"];

/// Reads a table of queues; the memory is named by `memory_key`.
pub(crate) fn read_queues(
    table: &Table<'_>,
    memory_key: &str,
    memories: &[Memory],
) -> Result<Queues, ConfigError> {
    let bytes = |key: &str, default: u64| table.get(key).map_or(Ok(default), |r| r.unit(units::bytes));
    let mut queues = Queues {
        slots: 4,
        slot_bytes: bytes("slot", 4096)?,
        credit_bytes: bytes("credit", 16)?,
        memory: 0,
        working: None,
        start_ps: table.get("start").map_or(Ok(0), |r| r.unit(units::duration))?,
    };
    if let Some(slots) = table.get("slots") {
        queues.slots = slots.count(1, 1 << 16)?;
        if !queues.slots.is_power_of_two() {
            return Err(slots.error(Problem::OutOfRange {
                got: queues.slots.to_string(),
                wanted: "a power of two".into(),
            }));
        }
    }
    if let Some(reader) = table.get(memory_key) {
        queues.memory = memory_named(&reader, memories)?;
    }
    if let Some(reader) = table.get("working") {
        queues.working = Some(memory_named(&reader, memories)?);
    }
    Ok(queues)
}

/// The number of the memory with this name.
fn memory_named(reader: &Reader<'_>, memories: &[Memory]) -> Result<usize, ConfigError> {
    let name = reader.text()?;
    let found = memories.iter().position(|memory| memory.name == name);
    found.ok_or_else(|| {
        let names = memories
            .iter()
            .map(|memory| memory.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let wanted = format!("the name of a memory of the chip ({names})");
        reader.error(Problem::OutOfRange {
            got: units::shorten(name),
            wanted,
        })
    })
}

fn memory(reader: &Reader<'_>) -> Result<Memory, ConfigError> {
    let table = reader.table(&["name", "capacity", "bandwidth", "latency"])?;
    let name = table.get("name").map_or(Ok("memory"), |r| r.text())?;
    read_memory(&table, name)
}

/// Reads a memory whose name is known.
pub(crate) fn read_memory(table: &Table<'_>, name: &str) -> Result<Memory, ConfigError> {
    Ok(Memory {
        name: name.to_owned(),
        capacity: table
            .get("capacity")
            .map_or(Ok(u64::MAX), |r| r.unit(units::bytes))?,
        bandwidth: table
            .get("bandwidth")
            .map_or(Ok(Rate::UNLIMITED), |r| r.unit(units::bandwidth))?,
        latency_ps: table.get("latency").map_or(Ok(0), |r| r.unit(units::duration))?,
    })
}
