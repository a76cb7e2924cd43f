//! What a `ccl.yaml` says, on a machine: memories by number, and ranks placed on chips or cores.

use super::call::QueueSettings;
use ringwork::ccl::{Ccl, Dimensions, Said, WorldSize};
use ringwork::isa::{Algorithm, Collective, MAX_GRID_SIDES};
use ringwork::sim::{Topology, Unit};
use std::path::Path;

/// Reads a file.
///
/// # Errors
/// If it cannot be read, or what is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Ccl, String> {
    let file = path.display().to_string();
    let text = ringwork::native::read_config_file(path).map_err(|error| format!("{file}: {error}"))?;
    Ccl::parse(&file, &text)
}

/// The number of the memory that windows and data are in.
///
/// # Errors
/// If the machine's chips have none of the name that is said.
pub(super) fn memory(ccl: &Ccl, call: (Collective, Algorithm), topology: &Topology) -> Result<usize, String> {
    let said = ccl.memory(call).map(|said| memory_named(&said, topology));
    Ok(said.transpose()?.unwrap_or(0))
}

/// What is said of queues between neighbours.
///
/// # Errors
/// As [`memory`].
pub(super) fn queues(
    ccl: &Ccl,
    call: (Collective, Algorithm),
    topology: &Topology,
) -> Result<QueueSettings, String> {
    let memory = ccl.slot_memory(call);
    let mut dimensions = [None; MAX_GRID_SIDES];
    if let Some(Dimensions { each, place }) = ccl.dimensions(call) {
        check_dimensions(&each, topology).map_err(|why| format!("{place}: {why}"))?;
        for (known, said) in dimensions.iter_mut().zip(each) {
            *known = Some(said);
        }
    }
    Ok(QueueSettings {
        slots: ccl.slots(call),
        slot: ccl.slot(call),
        memory: memory.map(|said| memory_named(&said, topology)).transpose()?,
        dimensions,
    })
}

/// Whether the grid of a machine has so many dimensions, of sizes that these algorithms take.
fn check_dimensions(each: &[Algorithm], topology: &Topology) -> Result<(), String> {
    let grid = topology.grid(topology.ranks()).unwrap_or_default();
    if each.len() > grid.len().min(MAX_GRID_SIDES) {
        return Err(format!(
            "{} dimensions, and `{}` has {} (innermost first: {grid:?})",
            each.len(),
            topology.name,
            grid.len()
        ));
    }
    let odd = each
        .iter()
        .zip(&grid)
        .find(|(one, size)| **one == Algorithm::HalvingDoubling && !size.is_power_of_two());
    odd.map_or(Ok(()), |(one, size)| {
        Err(format!(
            "`{one}` needs a power of two of ranks, and this dimension has {size}"
        ))
    })
}

/// How many ranks take part: what the file says, else the chips of the machine.
/// More ranks than chips are placed on the cores inside them, if there are any.
///
/// # Errors
/// If the machine has fewer: says where the number came from.
pub(super) fn world_size(
    ccl: &Ccl,
    call: (Collective, Algorithm),
    topology: &mut Topology,
) -> Result<WorldSize, String> {
    let size = ccl.world_size(call).unwrap_or_else(|| WorldSize {
        ranks: topology.ranks(),
        from: format!("the ranks of `{}`", topology.name),
    });
    place_ranks(&size, topology)?;
    Ok(size)
}

fn memory_named(Said { word: name, place }: &Said, topology: &Topology) -> Result<usize, String> {
    let memories = &topology.chip.memories;
    let found = memories.iter().position(|memory| memory.name == *name);
    found.ok_or_else(|| {
        let names: Vec<_> = memories.iter().map(|memory| memory.name.as_str()).collect();
        let (machine, have) = (&topology.name, names.join(", "));
        let have = if have.is_empty() {
            "none is described".into()
        } else {
            format!("they have {have}")
        };
        format!("{place}: the chips of `{machine}` have no memory `{name}`; {have}")
    })
}

/// Makes room for the ranks: on the chips, or on the cores inside them.
///
/// # Errors
/// If there are too few of either.
pub(crate) fn place_ranks(size: &WorldSize, topology: &mut Topology) -> Result<(), String> {
    if size.ranks <= topology.ranks() {
        return Ok(());
    }
    let places = topology.fabric.places();
    if topology.unit != Unit::Core && size.ranks <= places {
        topology.unit = Unit::Core;
        return Ok(());
    }
    let cores = if places > topology.chips() {
        format!(" of {} cores", topology.cores_per_chip)
    } else {
        String::new()
    };
    Err(format!(
        "world size {} ({}) is more than the {} chips{cores} of `{}`; ask for fewer ranks or a larger machine",
        size.ranks,
        size.from,
        topology.chips(),
        topology.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
defaults: {algorithm: ring, world_size: 8, n_elem: 1024}
collectives:
  all_reduce: {algorithm: twophase}
  broadcast:
    world_size: 4
algorithms:
  twophase: {world_size: 3, scratch: 64 KiB}
";

    fn chips(n: u32) -> Topology {
        Topology::preset(&format!("ring-{n}")).unwrap()
    }

    #[test]
    fn queues_of_an_algorithm_are_as_it_says_in_memories_that_there_are() {
        let text = "algorithms:\n  centre: {memory: tcm, slots: 1, slot: 4 KiB, slot_memory: sram}\n";
        let ccl = Ccl::parse("ccl.yaml", text).unwrap();
        let sip = Topology::preset("sip6-torus").unwrap();
        let centre = (Collective::AllReduce, Algorithm::Centre);
        assert_eq!(memory(&ccl, centre, &sip), Ok(2));
        let expected = QueueSettings {
            slots: Some(1),
            slot: Some(4096),
            memory: Some(1),
            ..QueueSettings::default()
        };
        assert_eq!(queues(&ccl, centre, &sip), Ok(expected));
        let torus = (Collective::AllReduce, Algorithm::Torus);
        assert_eq!(queues(&ccl, torus, &sip), Ok(QueueSettings::default()));
        let error = memory(&ccl, centre, &chips(4)).unwrap_err();
        let said = "ccl.yaml:2: the chips of `ring-4` have no memory `tcm`; none is described";
        assert_eq!(error, said);
    }

    #[test]
    fn a_world_size_says_which_of_the_three_it_is() {
        let ccl = Ccl::parse("ccl.yaml", FILE).unwrap();
        let size = |ccl: &Ccl, of, n| world_size(ccl, of, &mut chips(n)).map(|size| (size.ranks, size.from));
        let broadcast = (Collective::Broadcast, Algorithm::Staged);
        assert_eq!(
            size(&ccl, broadcast, 16),
            Ok((4, "explicit in ccl.yaml:5".into()))
        );
        let reduce = (Collective::Reduce, Algorithm::Staged);
        assert_eq!(
            size(&ccl, reduce, 16),
            Ok((8, "the default in ccl.yaml:1".into()))
        );
        let empty = Ccl::default();
        assert_eq!(
            size(&empty, reduce, 16),
            Ok((16, "the ranks of `ring-16`".into()))
        );
        let error = size(&ccl, reduce, 4).unwrap_err();
        assert_eq!(
            error,
            "world size 8 (the default in ccl.yaml:1) is more than the 4 chips of `ring-4`; ask for fewer \
             ranks or a larger machine"
        );
    }

    #[test]
    fn more_ranks_than_chips_go_to_the_cores_inside() {
        let yaml = ringwork::sim::preset_yaml("sip6-torus").unwrap();
        let chips = yaml.replace("ranks: cores", "ranks: chips");
        let mut topology = Topology::from_yaml("sips", &chips).unwrap();
        assert_eq!(topology.ranks(), 6);
        let size = |ranks| WorldSize {
            ranks,
            from: "--ranks".into(),
        };
        place_ranks(&size(6), &mut topology).unwrap();
        assert_eq!(topology.unit, Unit::Chip);
        place_ranks(&size(7), &mut topology).unwrap();
        assert_eq!(topology.unit, Unit::Core);
        let error = place_ranks(&size(769), &mut topology).unwrap_err();
        assert!(
            error.contains("world size 769 (--ranks)") && error.contains("6 chips of 128 cores"),
            "{error}"
        );
    }
}
