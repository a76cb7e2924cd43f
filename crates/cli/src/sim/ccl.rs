//! `ccl.yaml`: which algorithm runs which collective, with its parameters.
//!
//! ```yaml
//! defaults: {algorithm: ring, world_size: 8, n_elem: 1024}
//! collectives:
//!   all_reduce: {algorithm: twophase}
//! algorithms:
//!   twophase: {world_size: 4, scratch: 64 KiB}
//!   centre: {memory: tcm, slots: 1, slot: 4 KiB, slot_memory: sram}
//! ```

use super::call::QueueSettings;
use ringwork::collectives::catalogue;
use ringwork::isa::nearest;
use ringwork::isa::{Algorithm, Collective, Dtype};
use ringwork::sim::yaml::{Reader, Table, Tree};
use ringwork::sim::{Topology, Unit};
use std::path::Path;

/// Settings of a collective, an algorithm, or of everything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Settings {
    algorithm: Option<Algorithm>,
    /// The number, and where it is written.
    world_size: Option<(u32, String)>,
    n_elem: Option<usize>,
    dtype: Option<Dtype>,
    scratch: Option<u64>,
    /// Memories by name, and where that is written.
    memory: Option<(String, String)>,
    slot_memory: Option<(String, String)>,
    slots: Option<u32>,
    slot: Option<u64>,
}

/// A file of choices; an empty one says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ccl {
    defaults: Settings,
    collectives: Vec<(Collective, Settings)>,
    algorithms: Vec<(Algorithm, Settings)>,
}

/// Where a world size came from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorldSize {
    pub(crate) ranks: u32,
    /// Such as `--ranks` or `the default of ccl.yaml:3`.
    pub(crate) from: String,
}

const SETTINGS: [&str; 9] = [
    "algorithm",
    "world_size",
    "n_elem",
    "dtype",
    "scratch",
    "memory",
    "slots",
    "slot",
    "slot_memory",
];
/// An algorithm does not choose another.
const OF_ALGORITHM: &[&str] = SETTINGS.split_at(1).1;
const MOST_ELEMENTS: u64 = 1 << 32;

impl Ccl {
    /// Reads a file.
    ///
    /// # Errors
    /// As [`parse`](Ccl::parse), or that it cannot be read.
    pub(crate) fn load(path: &Path) -> Result<Ccl, String> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
        Ccl::parse(&file, &text)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what was probably meant.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Ccl, String> {
        let tree = Tree::parse(file, text).map_err(|error| error.to_string())?;
        let top = tree
            .reader()
            .table(&["defaults", "collectives", "algorithms"])
            .map_err(|error| error.to_string())?;
        let mut ccl = Ccl::default();
        if let Some(defaults) = top.get("defaults") {
            ccl.defaults = settings(&defaults, &SETTINGS)?;
        }
        if let Some(collectives) = top.get("collectives") {
            let known = Collective::ALL.map(Collective::name);
            for (name, reader) in collectives.entries().map_err(|error| error.to_string())? {
                let found = Collective::ALL.into_iter().find(|one| one.name() == name);
                let one = found.ok_or_else(|| unknown(&reader, "collective", name, &known))?;
                ccl.collectives.push((one, settings(&reader, &SETTINGS)?));
            }
        }
        if let Some(algorithms) = top.get("algorithms") {
            let known = Algorithm::ALL.map(Algorithm::name);
            for (name, reader) in algorithms.entries().map_err(|error| error.to_string())? {
                let found = catalogue::algorithm(name).ok();
                let one = found.ok_or_else(|| unknown(&reader, "algorithm", name, &known))?;
                ccl.algorithms.push((one, settings(&reader, OF_ALGORITHM)?));
            }
        }
        Ok(ccl)
    }

    /// The algorithm for a collective, if one is chosen.
    pub(crate) fn algorithm(&self, collective: Collective) -> Option<Algorithm> {
        self.collective(collective)
            .and_then(|settings| settings.algorithm)
            .or(self.defaults.algorithm)
    }

    fn collective(&self, collective: Collective) -> Option<&Settings> {
        let mut all = self.collectives.iter();
        all.find(|(one, _)| *one == collective)
            .map(|(_, settings)| settings)
    }

    /// The explicit settings for a call, the narrower first: its algorithm's, then its collective's.
    fn explicit(&self, collective: Collective, algorithm: Algorithm) -> impl Iterator<Item = &Settings> {
        let mut all = self.algorithms.iter();
        let of_algorithm = all
            .find(|(one, _)| *one == algorithm)
            .map(|(_, settings)| settings);
        of_algorithm.into_iter().chain(self.collective(collective))
    }

    fn find<T>(
        &self,
        (collective, algorithm): (Collective, Algorithm),
        of: impl Fn(&Settings) -> Option<T>,
    ) -> Option<T> {
        self.explicit(collective, algorithm)
            .find_map(&of)
            .or_else(|| of(&self.defaults))
    }

    /// Elements of a call, if they are said.
    pub(crate) fn n_elem(&self, call: (Collective, Algorithm)) -> Option<usize> {
        self.find(call, |settings| settings.n_elem)
    }

    /// Their type, if it is said.
    pub(crate) fn dtype(&self, call: (Collective, Algorithm)) -> Option<Dtype> {
        self.find(call, |settings| settings.dtype)
    }

    /// Bytes of scratch, if they are said.
    pub(crate) fn scratch(&self, call: (Collective, Algorithm)) -> Option<u64> {
        self.find(call, |settings| settings.scratch)
    }

    /// The number of the memory that windows and data are in.
    ///
    /// # Errors
    /// If the machine's chips have none of the name that is said.
    pub(crate) fn memory(&self, call: (Collective, Algorithm), topology: &Topology) -> Result<usize, String> {
        let said = self.find(call, |settings| settings.memory.clone());
        Ok(said
            .map(|said| memory_named(&said, topology))
            .transpose()?
            .unwrap_or(0))
    }

    /// What is said of queues between neighbours.
    ///
    /// # Errors
    /// As [`memory`](Ccl::memory).
    pub(crate) fn queues(
        &self,
        call: (Collective, Algorithm),
        topology: &Topology,
    ) -> Result<QueueSettings, String> {
        let memory = self.find(call, |settings| settings.slot_memory.clone());
        Ok(QueueSettings {
            slots: self.find(call, |settings| settings.slots),
            slot: self.find(call, |settings| settings.slot),
            memory: memory.map(|said| memory_named(&said, topology)).transpose()?,
        })
    }

    /// How many ranks take part: explicit in the file, else its default, else the chips of the machine.
    /// More ranks than chips are placed on the cores inside them, if there are any.
    ///
    /// # Errors
    /// If the machine has fewer: says where the number came from.
    pub(crate) fn world_size(
        &self,
        call: (Collective, Algorithm),
        topology: &mut Topology,
    ) -> Result<WorldSize, String> {
        let explicit = self
            .explicit(call.0, call.1)
            .find_map(|settings| settings.world_size.clone());
        let size = match (explicit, &self.defaults.world_size) {
            (Some((ranks, place)), _) => WorldSize {
                ranks,
                from: format!("explicit in {place}"),
            },
            (None, Some((ranks, place))) => WorldSize {
                ranks: *ranks,
                from: format!("the default in {place}"),
            },
            (None, None) => WorldSize {
                ranks: topology.ranks(),
                from: format!("the ranks of `{}`", topology.name),
            },
        };
        place_ranks(&size, topology)?;
        Ok(size)
    }
}

fn memory_named((name, place): &(String, String), topology: &Topology) -> Result<usize, String> {
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

fn settings(reader: &Reader<'_>, valid: &[&'static str]) -> Result<Settings, String> {
    read(&reader.table(valid).map_err(|error| error.to_string())?)
}

fn read(table: &Table<'_>) -> Result<Settings, String> {
    let text = |error: ringwork::sim::TopologyError| error.to_string();
    let word = |key: &str| {
        table
            .get(key)
            .map(|reader| Ok::<_, String>((reader.text().map_err(text)?, reader.place())))
            .transpose()
    };
    let wrong = |place: String| move |why: String| format!("{place}: {why}");
    let mut settings = Settings::default();
    if let Some((name, place)) = word("algorithm")? {
        settings.algorithm = Some(catalogue::algorithm(name).map_err(wrong(place))?);
    }
    let memory = |word: Option<(&str, String)>| word.map(|(name, place)| (name.to_owned(), place));
    settings.memory = memory(word("memory")?);
    settings.slot_memory = memory(word("slot_memory")?);
    if let Some((name, place)) = word("dtype")? {
        let parsed: Result<Dtype, _> = name.parse();
        settings.dtype = Some(parsed.map_err(|e| wrong(place)(e.to_string()))?);
    }
    if let Some(reader) = table.get("world_size") {
        let ranks = reader.count(1, u64::from(u32::MAX)).map_err(text)?;
        settings.world_size = Some((ranks, reader.place()));
    }
    if let Some(reader) = table.get("n_elem") {
        let elements = reader.count(1, MOST_ELEMENTS - 1).map_err(text)?;
        settings.n_elem = Some(elements as usize);
    }
    if let Some(reader) = table.get("scratch") {
        settings.scratch = Some(reader.bytes().map_err(text)?);
    }
    if let Some(reader) = table.get("slots") {
        let slots = reader.count(1, 1 << 16).map_err(text)?;
        if !slots.is_power_of_two() {
            let place = reader.place();
            return Err(format!(
                "{place}: {slots} slots; their number must be a power of two"
            ));
        }
        settings.slots = Some(slots);
    }
    if let Some(reader) = table.get("slot") {
        settings.slot = Some(reader.bytes().map_err(text)?);
    }
    Ok(settings)
}

fn unknown(reader: &Reader<'_>, kind: &str, name: &str, known: &[&str]) -> String {
    let hint = nearest(name, known.iter().copied())
        .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    format!(
        "{}: there is no {kind} `{name}`; {hint}(valid: {})",
        reader.place(),
        known.join(", ")
    )
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
    fn the_narrower_setting_wins() {
        let ccl = Ccl::parse("ccl.yaml", FILE).unwrap();
        let all_reduce = (
            Collective::AllReduce,
            ccl.algorithm(Collective::AllReduce).unwrap(),
        );
        assert_eq!(all_reduce.1, Algorithm::TwoPhase);
        assert_eq!(ccl.scratch(all_reduce), Some(64 << 10));
        assert_eq!(ccl.n_elem(all_reduce), Some(1024));
        assert_eq!(ccl.algorithm(Collective::Broadcast), Some(Algorithm::Ring));
    }

    #[test]
    fn queues_of_an_algorithm_are_as_it_says_in_memories_that_there_are() {
        let text = "algorithms:\n  centre: {memory: tcm, slots: 1, slot: 4 KiB, slot_memory: sram}\n";
        let ccl = Ccl::parse("ccl.yaml", text).unwrap();
        let sip = Topology::preset("sip6-torus").unwrap();
        let centre = (Collective::AllReduce, Algorithm::Centre);
        assert_eq!(ccl.memory(centre, &sip), Ok(2));
        let queues = QueueSettings {
            slots: Some(1),
            slot: Some(4096),
            memory: Some(1),
        };
        assert_eq!(ccl.queues(centre, &sip), Ok(queues));
        let torus = (Collective::AllReduce, Algorithm::Torus);
        assert_eq!(ccl.queues(torus, &sip), Ok(QueueSettings::default()));
        let error = ccl.memory(centre, &chips(4)).unwrap_err();
        let said = "ccl.yaml:2: the chips of `ring-4` have no memory `tcm`; none is described";
        assert_eq!(error, said);
    }

    #[test]
    fn a_world_size_says_which_of_the_three_it_is() {
        let ccl = Ccl::parse("ccl.yaml", FILE).unwrap();
        let size = |ccl: &Ccl, of, n| {
            ccl.world_size(of, &mut chips(n))
                .map(|size| (size.ranks, size.from))
        };
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

    #[test]
    fn what_is_not_known_is_refused_with_its_line_and_what_was_meant() {
        for (text, expected) in [
            (
                "defaults:\n  algoritm: ring",
                "ccl.yaml:2: defaults: there is no key `algoritm` here; did you mean `algorithm`?",
            ),
            (
                "colectives: {}",
                "ccl.yaml:1: there is no key `colectives` here; did you mean `collectives`?",
            ),
            (
                "algorithms:\n  rng: {}",
                "ccl.yaml:2: there is no algorithm `rng`; did you mean `ring`?",
            ),
            (
                "collectives:\n  all_redcue: {}",
                "ccl.yaml:2: there is no collective `all_redcue`; did you mean `all_reduce`?",
            ),
            (
                "defaults: {world_size: 0}",
                "ccl.yaml:1: defaults.world_size: 0 is out of range",
            ),
            (
                "algorithms: {ring: {algorithm: ring}}",
                "there is no key `algorithm` here",
            ),
            ("defaults: {scratch: 5}", "`5` has no unit"),
            (
                "algorithms:\n  doubletree: {}",
                "ccl.yaml:2: there is no algorithm `doubletree`; did you mean `double-tree`?",
            ),
            (
                "defaults: {algorithm: halving}",
                "ccl.yaml:1: there is no algorithm `halving`; did you mean `halving-doubling`?",
            ),
            (
                "algorithms: {centre: {slots: 3}}",
                "ccl.yaml:1: 3 slots; their number must be a power of two",
            ),
        ] {
            let error = Ccl::parse("ccl.yaml", text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
