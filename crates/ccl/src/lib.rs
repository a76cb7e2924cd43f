//! `ccl.yaml`: which algorithm runs which collective, with its parameters. The communicator, `ringwork run` and the
//! simulator read the same file.
//!
//! ```yaml
//! defaults: {algorithm: ring, world_size: 8, n_elem: 1024}
//! collectives:
//!   all_reduce: {algorithm: twophase}
//! choices:                      # the first that fits, for collectives that are not named above
//!   - {collective: all_gather, ranks: 4, bytes: 4 KiB, algorithm: packet}
//!   - {collective: all_gather, algorithm: staged}
//! algorithms:
//!   twophase: {world_size: 4, scratch: 64 KiB}
//!   centre: {memory: tcm, slots: 1, slot: 4 KiB, slot_memory: sram}
//!   hierarchical: {dimensions: [direct, ring]}
//! ```
#![forbid(unsafe_code)]

use ringwork_collectives::catalogue;
use ringwork_collectives::table::{Row, Table};
use ringwork_isa::{Algorithm, Collective, Dtype, nearest};
use ringwork_yaml::{ConfigError, Reader, Table as Keys, Tree};

/// Settings of a collective, an algorithm, or of everything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Settings {
    algorithm: Option<Algorithm>,
    /// The number, and where it is written.
    world_size: Option<(u32, String)>,
    n_elem: Option<usize>,
    dtype: Option<Dtype>,
    scratch: Option<u64>,
    memory: Option<Said>,
    slot_memory: Option<Said>,
    slots: Option<u32>,
    slot: Option<u64>,
    dimensions: Option<Dimensions>,
}

/// What goes along each dimension of a grid, innermost first, and where that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// `ring`, `direct` or `halving-doubling`.
    pub each: Vec<Algorithm>,
    /// Such as `ccl.yaml:3`.
    pub place: String,
}

/// A file of choices; an empty one says nothing.
#[derive(Clone, Debug, Default)]
pub struct Ccl {
    defaults: Settings,
    collectives: Vec<(Collective, Settings)>,
    algorithms: Vec<(Algorithm, Settings)>,
    choices: Option<Table>,
}

/// A word, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The word.
    pub word: String,
    /// Such as `ccl.yaml:3`.
    pub place: String,
}

/// Where a world size came from.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldSize {
    /// The number.
    pub ranks: u32,
    /// Such as `--ranks` or `the default of ccl.yaml:3`.
    pub from: String,
}

const SETTINGS: [&str; 10] = [
    "algorithm",
    "world_size",
    "n_elem",
    "dtype",
    "scratch",
    "memory",
    "slots",
    "slot",
    "slot_memory",
    "dimensions",
];
/// An algorithm does not choose another.
const OF_ALGORITHM: &[&str] = SETTINGS.split_at(1).1;
const MOST_ELEMENTS: u64 = 1 << 32;

impl Ccl {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what was probably meant.
    pub fn parse(file: &str, text: &str) -> Result<Ccl, String> {
        let tree = Tree::parse(file, text).map_err(|error| error.to_string())?;
        let top = tree
            .reader()
            .table(&["defaults", "collectives", "choices", "algorithms"])
            .map_err(|error| error.to_string())?;
        let mut ccl = Ccl::default();
        if let Some(defaults) = top.get("defaults") {
            ccl.defaults = settings(&defaults, &SETTINGS)?;
        }
        if let Some(collectives) = top.get("collectives") {
            for (name, reader) in collectives.entries().map_err(|error| error.to_string())? {
                let one = collective_named(&reader, name)?;
                ccl.collectives.push((one, settings(&reader, &SETTINGS)?));
            }
        }
        if let Some(choices) = top.get("choices") {
            ccl.choices = Some(table(&choices)?);
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

    /// The algorithm for a call of so many ranks and bytes, if one is chosen.
    #[must_use]
    pub fn algorithm(&self, collective: Collective, ranks: u32, bytes: u64) -> Option<Algorithm> {
        let chosen = || {
            let mut rows = self.choices.iter().flat_map(Table::rows);
            rows.find(|row| row.fits(collective, ranks.into(), 1, bytes))
                .map(|row| row.algorithm)
        };
        self.named(collective).or_else(chosen).or(self.defaults.algorithm)
    }

    /// The algorithm that a collective is given by name, whatever the size.
    #[must_use]
    pub fn named(&self, collective: Collective) -> Option<Algorithm> {
        self.collective(collective)
            .and_then(|settings| settings.algorithm)
    }

    /// The algorithm for whatever has none.
    #[must_use]
    pub fn default_algorithm(&self) -> Option<Algorithm> {
        self.defaults.algorithm
    }

    /// The choices by size and number of ranks. Empty if there are none.
    #[must_use]
    pub fn table(&self) -> &[Row] {
        self.choices.as_ref().map_or(&[], Table::rows)
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
    #[must_use]
    pub fn n_elem(&self, call: (Collective, Algorithm)) -> Option<usize> {
        self.find(call, |settings| settings.n_elem)
    }

    /// Their type, if it is said.
    #[must_use]
    pub fn dtype(&self, call: (Collective, Algorithm)) -> Option<Dtype> {
        self.find(call, |settings| settings.dtype)
    }

    /// Bytes of scratch, if they are said.
    #[must_use]
    pub fn scratch(&self, call: (Collective, Algorithm)) -> Option<u64> {
        self.find(call, |settings| settings.scratch)
    }

    /// The memory that windows and data are in, if it is said.
    #[must_use]
    pub fn memory(&self, call: (Collective, Algorithm)) -> Option<Said> {
        self.find(call, |settings| settings.memory.clone())
    }

    /// The memory that queues between neighbours are in, if it is said.
    #[must_use]
    pub fn slot_memory(&self, call: (Collective, Algorithm)) -> Option<Said> {
        self.find(call, |settings| settings.slot_memory.clone())
    }

    /// Slots of each queue, if they are said.
    #[must_use]
    pub fn slots(&self, call: (Collective, Algorithm)) -> Option<u32> {
        self.find(call, |settings| settings.slots)
    }

    /// Bytes of a slot, if they are said.
    #[must_use]
    pub fn slot(&self, call: (Collective, Algorithm)) -> Option<u64> {
        self.find(call, |settings| settings.slot)
    }

    /// What goes along each dimension of a grid, if it is said.
    #[must_use]
    pub fn dimensions(&self, call: (Collective, Algorithm)) -> Option<Dimensions> {
        self.find(call, |settings| settings.dimensions.clone())
    }

    /// How many ranks take part, if it is said: for this call, else by default.
    #[must_use]
    pub fn world_size(&self, call: (Collective, Algorithm)) -> Option<WorldSize> {
        let size = |from: &str, (ranks, place): &(u32, String)| WorldSize {
            ranks: *ranks,
            from: format!("{from} in {place}"),
        };
        let explicit = self
            .explicit(call.0, call.1)
            .find_map(|settings| settings.world_size.as_ref())
            .map(|said| size("explicit", said));
        explicit.or_else(|| {
            self.defaults
                .world_size
                .as_ref()
                .map(|said| size("the default", said))
        })
    }
}

/// A row for each of the choices.
fn table(reader: &Reader<'_>) -> Result<Table, String> {
    let text = |error: ConfigError| error.to_string();
    let mut rows = Vec::new();
    for item in reader.list().map_err(text)? {
        let keys = item
            .table(&["collective", "ranks", "ranks_per_core", "bytes", "algorithm"])
            .map_err(text)?;
        let most = |key: &str| {
            let count = |reader: Reader<'_>| reader.count(1, u32::MAX.into()).map(u64::from);
            keys.get(key).map(count).transpose().map_err(text)
        };
        let collective = keys.need("collective", "all_reduce").map_err(text)?;
        let algorithm = keys.need("algorithm", "twophase").map_err(text)?;
        let wrong = |why: String| format!("{}: {why}", item.place());
        let of = collective_named(&collective, collective.text().map_err(text)?)?;
        let entry = catalogue::named(of, algorithm.text().map_err(text)?).map_err(wrong)?;
        let row = Row {
            collective: of,
            ranks: most("ranks")?,
            ranks_per_core: most("ranks_per_core")?,
            bytes: keys
                .get("bytes")
                .map(|bytes| bytes.bytes())
                .transpose()
                .map_err(text)?,
            algorithm: entry.algorithm,
        };
        row.check().map_err(wrong)?;
        rows.push(row);
    }
    Table::new(rows).map_err(|why| format!("{}: {why}", reader.place()))
}

fn collective_named(reader: &Reader<'_>, name: &str) -> Result<Collective, String> {
    let found = Collective::ALL.into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| unknown(reader, "collective", name, &Collective::ALL.map(Collective::name)))
}

fn settings(reader: &Reader<'_>, valid: &[&'static str]) -> Result<Settings, String> {
    read(&reader.table(valid).map_err(|error| error.to_string())?)
}

fn read(table: &Keys<'_>) -> Result<Settings, String> {
    let text = |error: ConfigError| error.to_string();
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
    let memory = |word: Option<(&str, String)>| {
        word.map(|(word, place)| Said {
            word: word.to_owned(),
            place,
        })
    };
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
    if let Some(reader) = table.get("dimensions") {
        settings.dimensions = Some(dimensions(&reader)?);
    }
    Ok(settings)
}

/// The algorithms along the dimensions.
fn dimensions(reader: &Reader<'_>) -> Result<Dimensions, String> {
    let mut each = Vec::new();
    for item in reader.list().map_err(|error| error.to_string())? {
        let name = item.text().map_err(|error| error.to_string())?;
        let found = catalogue::BY_DIMENSION.into_iter().find(|one| one.name() == name);
        let known = catalogue::BY_DIMENSION.map(Algorithm::name);
        each.push(found.ok_or_else(|| unknown(&item, "algorithm of a dimension", name, &known))?);
    }
    let place = reader.place();
    Ok(Dimensions { each, place })
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

    #[test]
    fn the_narrower_setting_wins() {
        let ccl = Ccl::parse("ccl.yaml", FILE).unwrap();
        let all_reduce = (
            Collective::AllReduce,
            ccl.algorithm(Collective::AllReduce, 8, 64).unwrap(),
        );
        assert_eq!(all_reduce.1, Algorithm::TwoPhase);
        assert_eq!(ccl.scratch(all_reduce), Some(64 << 10));
        assert_eq!(ccl.n_elem(all_reduce), Some(1024));
        assert_eq!(ccl.algorithm(Collective::Broadcast, 8, 64), Some(Algorithm::Ring));
    }

    #[test]
    fn the_first_choice_that_fits_counts_unless_the_collective_has_a_name() {
        let text = "collectives: {broadcast: {algorithm: staged}}\nchoices:\n\
                    - {collective: all_gather, ranks: 4, bytes: 4 KiB, algorithm: packet}\n\
                    - {collective: broadcast, algorithm: packet}\n\
                    - {collective: all_gather, algorithm: staged}\n";
        let ccl = Ccl::parse("ccl.yaml", text).unwrap();
        let gather = |ranks, bytes| ccl.algorithm(Collective::AllGather, ranks, bytes);
        assert_eq!(gather(4, 4096), Some(Algorithm::Packet));
        assert_eq!(gather(4, 4097), Some(Algorithm::Staged));
        assert_eq!(gather(5, 64), Some(Algorithm::Staged));
        assert_eq!(
            ccl.algorithm(Collective::Broadcast, 4, 64),
            Some(Algorithm::Staged)
        );
        assert_eq!(ccl.algorithm(Collective::Reduce, 4, 64), None);
        let again: String = ccl.table().iter().map(|row| format!("- {row}\n")).collect();
        let again = Ccl::parse("again.yaml", &format!("choices:\n{again}")).unwrap();
        assert_eq!(again.table(), ccl.table());
    }

    #[test]
    fn the_built_in_table_can_be_written_and_read() {
        let built_in = Table::default();
        let text: String = built_in.rows().iter().map(|row| format!("- {row}\n")).collect();
        let ccl = Ccl::parse("ccl.yaml", &format!("choices:\n{text}")).unwrap();
        assert_eq!(ccl.table(), built_in.rows());
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
                "choices:\n- {collective: all_reduce, algorithm: ring}",
                "ccl.yaml:2: `ring` is not exact, so no table chooses it",
            ),
            (
                "choices:\n- {collective: all_gather, algorithm: centre}",
                "ccl.yaml:2: all_gather has no algorithm `centre`; use one of packet",
            ),
            (
                "choices:\n- {collective: all_gather}",
                "the key `algorithm` is missing",
            ),
            (
                "algorithms:\n  torus: {dimensions: [ring, rign]}",
                "there is no algorithm of a dimension `rign`; did you mean `ring`? (valid: ring, direct, halving-doubling)",
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
