//! Reading networks: kinds, levels, groups, explicit links, faults.

use super::error::{Problem, TopologyError};
use super::units;
use super::yaml::{Reader, Table};
use crate::net::{
    Attach, ExplicitLink, Fabric, Level, LinkClass, MAX_LINKS, MAX_PLACES, Router, Shape, Switching,
};
use crate::time::Rate;

const SHAPE_KEYS: [&str; 9] = [
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
    "direction",
    "blocking",
    "down",
    "up",
];
pub(crate) const NETWORK_KEYS: [&str; 17] = [
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
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
const LEVEL_KEYS: [&str; 12] = [
    "name",
    "kind",
    "size",
    "dims",
    "bandwidth",
    "latency",
    "direction",
    "blocking",
    "down",
    "up",
    "attach",
    "inside_chip",
];

#[derive(Clone, Copy)]
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

/// What a network turned out to be.
pub(crate) struct Wired {
    pub(crate) levels: Vec<Level>,
    pub(crate) fabric: Fabric,
    pub(crate) switching: Switching,
    /// Places in each chip.
    pub(crate) cores_per_chip: u32,
}

/// Reads the shape and the links of one level.
fn level(table: &Table<'_>, name: &str, size: Option<u32>) -> Result<Level, TopologyError> {
    let kind_reader = table.need("kind", "ring")?;
    let kind = kind_reader.word(&KINDS)?;
    let members = || match size {
        Some(size) => Ok(size),
        None => table.need("size", "8")?.count(1, MAX_PLACES),
    };
    let counts = |key: &'static str, example: &str| -> Result<Vec<u32>, TopologyError> {
        let reader = table.need(key, example)?;
        let counts = reader
            .list()?
            .iter()
            .map(|r| r.count(1, MAX_PLACES))
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
            let up = if down.len() == 1 {
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
fn blocking(table: &Table<'_>) -> Result<Rate, TopologyError> {
    let reader = table.need("blocking", "no` (it never does) or `blocking: 1.6 TB/s")?;
    match reader.text()? {
        "no" | "false" => Ok(Rate::UNLIMITED),
        _ => reader.unit(units::bandwidth),
    }
}

fn link_class(table: &Table<'_>) -> Result<LinkClass, TopologyError> {
    Ok(LinkClass {
        bandwidth: table.need("bandwidth", "50 GB/s")?.unit(units::bandwidth)?,
        latency_ps: table.need("latency", "500 ns")?.unit(units::duration)?,
    })
}

/// Checks that a machine of these levels is not too large, and counts its places.
fn places(levels: &[Level], reader: &Reader<'_>) -> Result<u32, TopologyError> {
    let mut all = 1u64;
    for level in levels {
        all = all.saturating_mul(level.shape.size());
    }
    if all > MAX_PLACES {
        return Err(reader.error(Problem::TooMany {
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
        return Err(reader.error(Problem::TooMany {
            got: links,
            what: "links",
            limit: MAX_LINKS,
        }));
    }
    u32::try_from(all).map_err(|_| {
        reader.error(Problem::TooMany {
            got: all,
            what: "chips",
            limit: MAX_PLACES,
        })
    })
}

/// Reads the list `levels`, outermost first.
pub(crate) fn read_levels(reader: &Reader<'_>) -> Result<Wired, TopologyError> {
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
                _ => Attach::Gateway(attach.count(0, MAX_PLACES)?),
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
) -> Result<Wired, TopologyError> {
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
pub(crate) fn read(reader: &Reader<'_>) -> Result<Wired, TopologyError> {
    let mut valid = NETWORK_KEYS.to_vec();
    valid.push("between");
    let table = reader.table(&valid)?;
    let special = table.need("kind", "ring")?.text()?;
    let mut wired = match special {
        "links" => explicit(&table)?,
        "groups" => groups(&table)?,
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

/// Links written down one by one.
fn explicit(table: &Table<'_>) -> Result<Wired, TopologyError> {
    let chips = table.need("chips", "4")?.count(1, MAX_PLACES)?;
    let switches = table.get("switches").map_or(Ok(0), |r| r.count(0, MAX_PLACES))?;
    let most = u64::from(chips) + u64::from(switches) - 1;
    let mut links = Vec::new();
    for item in table.need("links", "[{from: 0, to: 1, ...}]")?.list()? {
        let link = item.table(&["from", "to", "bandwidth", "latency", "direction", "lanes"])?;
        let (from, to) = (
            link.need("from", "0")?.count(0, most)?,
            link.need("to", "1")?.count(0, most)?,
        );
        if from == to {
            let wanted = "between two different chips".into();
            return Err(item.error(Problem::OutOfRange {
                got: format!("a link from {from} to itself"),
                wanted,
            }));
        }
        let class = if link.get("bandwidth").is_none() && table.get("bandwidth").is_some() {
            link_class(table)?
        } else {
            link_class(&link)?
        };
        let both = link
            .get("direction")
            .map_or(Ok(true), |r| r.word(&[("both", true), ("one-way", false)]))?;
        let lanes = link.get("lanes").map_or(Ok(1), |r| r.count(1, 1024))?;
        let class = LinkClass {
            bandwidth: class.bandwidth.scaled(f64::from(lanes)),
            ..class
        };
        links.push(ExplicitLink { from, to, class });
        if both {
            links.push(ExplicitLink {
                from: to,
                to: from,
                class,
            });
        }
    }
    Ok(of_links(chips, switches, &links))
}

fn of_links(chips: u32, switches: u32, links: &[ExplicitLink]) -> Wired {
    Wired {
        levels: Vec::new(),
        fabric: Fabric::of_links(chips, switches, links),
        switching: Switching::CutThrough(0),
        cores_per_chip: 1,
    }
}

/// Groups that need not be alike, joined by the first member of each.
fn groups(table: &Table<'_>) -> Result<Wired, TopologyError> {
    let reader = table.need("groups", "[{kind: ring, size: 4, ...}, ...]")?;
    let mut levels = Vec::new();
    for (i, item) in reader.list()?.iter().enumerate() {
        levels.push(level(&item.table(&SHAPE_KEYS)?, &format!("group {i}"), None)?);
    }
    let count = u64::try_from(levels.len()).unwrap_or(u64::MAX);
    let total = levels.iter().map(|l| l.shape.size()).fold(0, u64::saturating_add);
    let wired_links = levels
        .iter()
        .map(|l| l.shape.links())
        .fold(0, u64::saturating_add);
    for (got, what, limit) in [
        (total.max(count), "chips", MAX_PLACES),
        (wired_links, "links", MAX_LINKS),
    ] {
        if got > limit {
            return Err(reader.error(Problem::TooMany { got, what, limit }));
        }
    }
    let between = table.need("between", "{kind: ring, bandwidth: 50 GB/s, latency: 5 us}")?;
    let size = u32::try_from(count.max(1)).unwrap_or(1);
    let outer = level(&between.table(&SHAPE_KEYS)?, "between", Some(size))?;
    if outer.shape.size() != count {
        let wanted = format!("{count}, the number of groups");
        return Err(between.error(Problem::OutOfRange {
            got: outer.shape.size().to_string(),
            wanted,
        }));
    }
    let fits = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let chips = fits(total);
    let (mut links, mut first, mut switches) = (Vec::new(), 0, 0);
    let mut firsts = Vec::new();
    let mut add = |fabric: &Fabric, place: &dyn Fn(u32) -> u32, switches: &mut u32| {
        let name = |v: u32| {
            if v < fabric.places() {
                place(v)
            } else {
                chips + *switches + v - fabric.places()
            }
        };
        for link in fabric.links() {
            if let (Some((from, to)), Some(class)) = (fabric.ends(link), fabric.class(link)) {
                links.push(ExplicitLink {
                    from: name(from),
                    to: name(to),
                    class,
                });
            }
        }
        *switches += fabric.vertices() - fabric.places();
    };
    for level in &levels {
        let size = fits(level.shape.size());
        let fabric = Fabric::of_levels(std::slice::from_ref(level), size);
        add(&fabric, &|v| first + v, &mut switches);
        firsts.push(first);
        first += size;
    }
    let fabric = Fabric::of_levels(&[outer], size);
    add(&fabric, &|v| firsts[v as usize], &mut switches);
    Ok(of_links(chips, switches, &links))
}

/// Routes written down one by one: `{from: 0, to: 2, via: [1]}`.
fn read_routes(reader: &Reader<'_>, fabric: &mut Fabric) -> Result<(), TopologyError> {
    let mut table = std::collections::BTreeMap::new();
    let most = u64::from(fabric.vertices()) - 1;
    for item in reader.list()? {
        let route = item.table(&["from", "to", "via"])?;
        let from = route
            .need("from", "0")?
            .count(0, u64::from(fabric.places()) - 1)?;
        let to = route.need("to", "2")?.count(0, u64::from(fabric.places()) - 1)?;
        let mut stops = vec![from];
        for stop in route.need("via", "[1]")?.list()? {
            stops.push(stop.count(0, most)?);
        }
        stops.push(to);
        let mut links = Vec::new();
        for pair in stops.windows(2) {
            let link = fabric.between(pair[0], pair[1]).find(|link| fabric.works(*link));
            links.push(link.ok_or_else(|| item.error(Problem::NoSuchLink(pair[0], pair[1])))?);
        }
        table.insert((from, to), links);
    }
    match &mut fabric.router {
        Router::Shortest(known) => *known = table,
        router @ Router::Dimensions(_) => *router = Router::Shortest(table),
    }
    Ok(())
}

/// Reads the list `faults`: links that failed or are slower than the others.
pub(crate) fn read_faults(reader: &Reader<'_>, fabric: &mut Fabric) -> Result<(), TopologyError> {
    let most = u64::from(fabric.vertices()) - 1;
    for item in reader.list()? {
        let fault = item.table(&[
            "from",
            "to",
            "failed",
            "factor",
            "bandwidth",
            "latency",
            "direction",
        ])?;
        let (from, to) = (
            fault.need("from", "0")?.count(0, most)?,
            fault.need("to", "1")?.count(0, most)?,
        );
        let both = fault
            .get("direction")
            .map_or(Ok(true), |r| r.word(&[("both", true), ("one-way", false)]))?;
        let mut links: Vec<u32> = fabric.between(from, to).collect();
        if both {
            links.extend(fabric.between(to, from));
        }
        if links.is_empty() {
            return Err(item.error(Problem::NoSuchLink(from, to)));
        }
        let yes_no = [("true", true), ("yes", true), ("false", false), ("no", false)];
        if fault.get("failed").map_or(Ok(false), |r| r.word(&yes_no))? {
            links.iter().for_each(|link| fabric.fail(*link));
            continue;
        }
        for link in links {
            let Some(mut class) = fabric.class(link) else {
                continue;
            };
            if let Some(bandwidth) = fault.get("bandwidth") {
                class.bandwidth = bandwidth.unit(units::bandwidth)?;
            }
            if let Some(factor) = fault.get("factor") {
                class.bandwidth = class.bandwidth.scaled(factor.factor(1e6)?);
            }
            if let Some(latency) = fault.get("latency") {
                class.latency_ps = latency.unit(units::duration)?;
            }
            fabric.reclass(link, class);
        }
    }
    Ok(())
}
