//! Reading networks that are regular: kinds, and levels of them.

use super::error::Impossible;
use super::irregular::{explicit, groups, read_routes};
use super::units;
use crate::net::{
    Attach, Fabric, Level, LinkClass, MAX_LINKS, MAX_PLACES, MAX_PROTOCOLS, Router, Shape, Switching,
};
use crate::time::Rate;
use ringwork_yaml::{ConfigError, Problem, Reader, Table};

pub(super) const SHAPE_KEYS: [&str; 10] = [
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
    "protocols",
    "direction",
    "blocking",
    "down",
    "up",
];
pub(crate) const NETWORK_KEYS: [&str; 18] = [
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
    "protocols",
    "direction",
    "blocking",
    "down",
    "up",
    "routing",
    "switching",
    "flit",
    "chips",
    "switches",
    "links",
    "routes",
    "groups",
];
const LEVEL_KEYS: [&str; 13] = [
    "name",
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
    "protocols",
    "direction",
    "blocking",
    "down",
    "up",
    "attach",
    "inside_chip",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ring,
    Line,
    Mesh,
    Torus,
    Full,
    Switch,
    FatTree,
}

const KINDS: [(&str, Kind); 7] = [
    ("ring", Kind::Ring),
    ("line", Kind::Line),
    ("mesh", Kind::Mesh),
    ("torus", Kind::Torus),
    ("full", Kind::Full),
    ("switch", Kind::Switch),
    ("fat-tree", Kind::FatTree),
];

impl Kind {
    /// The keys that describe this kind and not every other.
    fn own_keys(self) -> &'static [&'static str] {
        match self {
            Kind::Ring => &["size", "direction"],
            Kind::Line | Kind::Full => &["size"],
            Kind::Mesh => &["dims"],
            Kind::Torus => &["dims", "direction"],
            Kind::Switch => &["size", "blocking"],
            Kind::FatTree => &["down", "up"],
        }
    }
}

/// Refuses a key that has no effect on a network of this kind: somebody who sweeps it would see equal results.
fn refuse_foreign_keys(table: &Table<'_>, kind: &str, own: &[&str]) -> Result<(), ConfigError> {
    const OF_SOME_KINDS: [&str; 11] = [
        "size",
        "dims",
        "direction",
        "blocking",
        "down",
        "up",
        "chips",
        "switches",
        "links",
        "groups",
        "between",
    ];
    for key in OF_SOME_KINDS.into_iter().filter(|key| !own.contains(key)) {
        // `direction: both` is what every network has.
        if let Some(reader) = table.get(key)
            && !(key == "direction" && matches!(reader.text(), Ok("both" | "one-way")))
        {
            return Err(reader.error(Impossible::NoEffect(key, format!("a network of kind `{kind}`"))));
        }
    }
    Ok(())
}

/// What a network turned out to be.
pub(crate) struct Wired {
    pub(crate) levels: Vec<Level>,
    pub(crate) fabric: Fabric,
    pub(crate) switching: Switching,
    /// Places in each chip.
    pub(crate) cores_per_chip: u32,
}

/// A number of chips or switches.
pub(super) fn count_places(reader: &Reader<'_>, least: u64) -> Result<u32, ConfigError> {
    let count = reader.count(least, u32::MAX.into())?;
    if u64::from(count) > MAX_PLACES {
        return Err(reader.error(Impossible::TooMany {
            got: count.into(),
            what: "chips",
            limit: MAX_PLACES,
        }));
    }
    Ok(count)
}

/// Reads the shape and the links of one level.
pub(super) fn level(table: &Table<'_>, name: &str, size: Option<u32>) -> Result<Level, ConfigError> {
    let kind_reader = table.need("kind", "ring")?;
    let kind = kind_reader.word(&KINDS)?;
    refuse_foreign_keys(table, kind_reader.text()?, kind.own_keys())?;
    let members = || match size.filter(|_| table.get("size").is_none()) {
        Some(size) => Ok(size),
        None => count_places(&table.need("size", "8")?, 1),
    };
    let counts = |key: &'static str, example: &str| -> Result<Vec<u32>, ConfigError> {
        let reader = table.need(key, example)?;
        let counts = reader
            .list()?
            .iter()
            .map(|r| count_places(r, 1))
            .collect::<Result<Vec<_>, _>>()?;
        if counts.is_empty() || counts.len() > 6 {
            let wanted = "1 to 6 numbers".into();
            return Err(reader.error(Problem::OutOfRange {
                got: format!("{} numbers", counts.len()),
                wanted,
            }));
        }
        Ok(counts)
    };
    let shape = match kind {
        Kind::Ring => Shape::Ring(members()?),
        Kind::Line => Shape::Line(members()?),
        Kind::Full => Shape::Full(members()?),
        Kind::Mesh => Shape::Mesh(counts("dims", "[4, 4]")?),
        Kind::Torus => Shape::Torus(counts("dims", "[4, 4, 4]")?),
        Kind::Switch => Shape::Switch {
            size: members()?,
            core: blocking(table)?,
        },
        Kind::FatTree => {
            let down = counts("down", "[8, 4]")?;
            let up = if down.len() == 1 && table.get("up").is_none() {
                Vec::new()
            } else {
                counts("up", "[8]")?
            };
            if up.len() + 1 != down.len() {
                let got = format!("{} numbers", up.len());
                let wanted = format!("{}: one fewer than `down`", down.len() - 1);
                return Err(table
                    .need("up", "[8]")?
                    .error(Problem::OutOfRange { got, wanted }));
            }
            Shape::FatTree { down, up }
        }
    };
    let direction = table.get("direction");
    let one_way = direction.map_or(Ok(false), |r| r.word(&[("both", false), ("one-way", true)]))?;
    if one_way && !matches!(kind, Kind::Ring | Kind::Torus) {
        let wanted = "`both`: only rings and tori can run one way".into();
        let reader = table.need("direction", "both")?;
        return Err(reader.error(Problem::OutOfRange {
            got: "one-way".into(),
            wanted,
        }));
    }
    Ok(Level {
        name: name.to_owned(),
        shape,
        link: link_class(table)?,
        one_way,
        attach: Attach::Each,
    })
}

/// Whether a switch blocks must be said.
fn blocking(table: &Table<'_>) -> Result<Rate, ConfigError> {
    let reader = table.need("blocking", "no` (it never does) or `blocking: 1.6 TB/s")?;
    match reader.text()? {
        "no" | "false" => Ok(Rate::UNLIMITED),
        _ => reader.unit(units::bandwidth),
    }
}

pub(super) fn link_class(table: &Table<'_>) -> Result<LinkClass, ConfigError> {
    let bandwidth = table.need("bandwidth", "50 GB/s")?.unit(units::bandwidth)?;
    let Some(protocols) = table.get("protocols") else {
        let latency_ps = table.need("latency", "500 ns")?.unit(units::duration)?;
        return Ok(LinkClass::new(bandwidth, latency_ps));
    };
    if let Some(latency) = table.get("latency") {
        let here = "a link with `protocols`: each of them has its own".to_owned();
        return Err(latency.error(Impossible::NoEffect("latency", here)));
    }
    read_protocols(&protocols, bandwidth)
}

/// Reads a list of protocols: `{name: LL, latency: 0.6 us, efficiency: 0.25}`.
fn read_protocols(reader: &Reader<'_>, bandwidth: Rate) -> Result<LinkClass, ConfigError> {
    let (mut all, mut names) = (Vec::new(), Vec::new());
    for item in reader.list()? {
        let table = item.table(&["name", "latency", "efficiency", "up_to"])?;
        let name = table.need("name", "LL")?;
        if names.contains(&name.text()?) {
            return Err(name.error(Impossible::ProtocolTwice(units::shorten(name.text()?))));
        }
        names.push(name.text()?);
        let efficiency = table.need("efficiency", "0.95")?.factor(1.0)?;
        all.push((
            bandwidth.scaled(efficiency),
            table.need("latency", "500 ns")?.unit(units::duration)?,
            table.get("up_to").map(|r| r.unit(units::bytes)).transpose()?,
        ));
    }
    if all.is_empty() || all.len() > MAX_PROTOCOLS {
        return Err(reader.error(Problem::OutOfRange {
            got: format!("{} protocols", all.len()),
            wanted: format!("1 to {MAX_PROTOCOLS}"),
        }));
    }
    Ok(LinkClass::with_protocols(all))
}

/// Checks that a machine of these levels is not too large, and counts its places.
fn places(levels: &[Level], reader: &Reader<'_>) -> Result<u32, ConfigError> {
    let mut all = 1u64;
    for level in levels {
        all = all.saturating_mul(level.shape.size());
    }
    if all > MAX_PLACES {
        return Err(reader.error(Impossible::TooMany {
            got: all,
            what: "chips",
            limit: MAX_PLACES,
        }));
    }
    let links: u64 = levels
        .iter()
        .map(|level| {
            level
                .shape
                .links()
                .saturating_mul(all / level.shape.size().max(1))
        })
        .fold(0, u64::saturating_add);
    if links > MAX_LINKS {
        return Err(reader.error(Impossible::TooMany {
            got: links,
            what: "links",
            limit: MAX_LINKS,
        }));
    }
    u32::try_from(all).map_err(|_| {
        reader.error(Impossible::TooMany {
            got: all,
            what: "chips",
            limit: MAX_PLACES,
        })
    })
}

/// Reads the list `levels`, outermost first.
pub(crate) fn read_levels(reader: &Reader<'_>) -> Result<Wired, ConfigError> {
    let mut levels = Vec::new();
    let (mut inside, mut cores) = (false, 1u64);
    let readers = reader.list()?;
    for (i, item) in readers.iter().enumerate() {
        let table = item.table(&LEVEL_KEYS)?;
        let name = table.get("name").map_or(Ok(None), |r| r.text().map(Some))?;
        let default = format!("level {i}");
        let mut level = level(&table, name.unwrap_or(&default), None)?;
        if let Some(attach) = table.get("attach") {
            level.attach = match attach.text()? {
                "each" => Attach::Each,
                _ => Attach::Gateway(count_places(&attach, 0)?),
            };
        }
        if let Some(flag) = table.get("inside_chip") {
            inside = flag.word(&[("true", true), ("yes", true), ("false", inside), ("no", inside)])?;
        }
        if inside {
            cores = cores.saturating_mul(level.shape.size());
        }
        levels.push(level);
    }
    wire(levels, &readers, reader, cores)
}

/// Lays the links of levels after checking gateways and sizes.
pub(crate) fn wire(
    levels: Vec<Level>,
    readers: &[Reader<'_>],
    reader: &Reader<'_>,
    cores: u64,
) -> Result<Wired, ConfigError> {
    if levels.is_empty() {
        return Err(reader.error(Problem::OutOfRange {
            got: "no levels".into(),
            wanted: "at least one level".into(),
        }));
    }
    let places = places(&levels, reader)?;
    let mut inner = u64::from(places);
    for (i, level) in levels.iter().enumerate() {
        inner /= level.shape.size().max(1);
        if let Attach::Gateway(gateway) = level.attach
            && u64::from(gateway) >= inner
        {
            let wanted = format!("below {inner}, the places inside one member of this level");
            let problem = Problem::OutOfRange {
                got: gateway.to_string(),
                wanted,
            };
            return Err(readers.get(i).unwrap_or(reader).error(problem));
        }
    }
    Ok(Wired {
        fabric: Fabric::of_levels(&levels, places),
        levels,
        switching: Switching::CutThrough(0),
        cores_per_chip: u32::try_from(cores).unwrap_or(u32::MAX),
    })
}

/// Reads the table `network`.
pub(crate) fn read(reader: &Reader<'_>) -> Result<Wired, ConfigError> {
    let mut valid = NETWORK_KEYS.to_vec();
    valid.push("between");
    let table = reader.table(&valid)?;
    let special = table.need("kind", "ring")?.text()?;
    let mut wired = match special {
        "links" => {
            refuse_foreign_keys(&table, special, &["chips", "switches", "links"])?;
            explicit(&table)?
        }
        "groups" => {
            refuse_foreign_keys(&table, special, &["groups", "between"])?;
            groups(&table)?
        }
        _ => wire(vec![level(&table, "network", None)?], &[], reader, 1)?,
    };
    if let Some(routing) = table.get("routing")
        && routing.word(&[("shortest", true), ("dimension-order", false)])?
        && let Router::Dimensions(_) = wired.fabric.router
    {
        wired.fabric.router = Router::Shortest(std::collections::BTreeMap::new());
    }
    if let Some(flit) = table.get("flit") {
        wired.switching = Switching::CutThrough(flit.unit(units::bytes)?);
    }
    if let Some(switching) = table.get("switching") {
        wired.switching = switching.word(&[
            ("cut-through", wired.switching),
            ("store-and-forward", Switching::StoreAndForward),
        ])?;
    }
    if let Some(routes) = table.get("routes") {
        read_routes(&routes, &mut wired.fabric)?;
    }
    Ok(wired)
}
