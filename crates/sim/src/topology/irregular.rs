//! Reading networks that are written down piece by piece: explicit links, unequal groups, routes.

use super::error::Impossible;
use super::network::{SHAPE_KEYS, Wired, count_places, level, link_class};
use crate::net::{ExplicitLink, Fabric, MAX_LINKS, MAX_PLACES, Router, Switching};
use ringwork_yaml::{ConfigError, Problem, Reader, Table};

const LINK_KEYS: [&str; 7] = [
    "from",
    "to",
    "bandwidth",
    "latency",
    "protocols",
    "direction",
    "lanes",
];

/// Links written down one by one.
pub(super) fn explicit(table: &Table<'_>) -> Result<Wired, ConfigError> {
    let chips = count_places(&table.need("chips", "4")?, 1)?;
    let switches = table.get("switches").map_or(Ok(0), |r| count_places(&r, 0))?;
    let most = u64::from(chips) + u64::from(switches) - 1;
    let mut links = Vec::new();
    for item in table.need("links", "[{from: 0, to: 1, ...}]")?.list()? {
        let link = item.table(&LINK_KEYS)?;
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
        let class = class.map_bandwidth(|rate| rate.scaled(f64::from(lanes)));
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
pub(super) fn groups(table: &Table<'_>) -> Result<Wired, ConfigError> {
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
            return Err(reader.error(Impossible::TooMany { got, what, limit }));
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
pub(super) fn read_routes(reader: &Reader<'_>, fabric: &mut Fabric) -> Result<(), ConfigError> {
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
        if let Some(again) = (1..stops.len()).find(|at| stops[..*at].contains(&stops[*at])) {
            return Err(item.error(Impossible::RouteLoop(stops[again])));
        }
        let mut links = Vec::new();
        for pair in stops.windows(2) {
            let link = fabric.between(pair[0], pair[1]).find(|link| fabric.works(*link));
            links.push(link.ok_or_else(|| item.error(Impossible::NoSuchLink(pair[0], pair[1])))?);
        }
        if table.insert((from, to), links).is_some() {
            return Err(item.error(Impossible::RouteTwice(from, to)));
        }
    }
    match &mut fabric.router {
        Router::Shortest(known) => *known = table,
        router @ Router::Dimensions(_) => *router = Router::Shortest(table),
    }
    Ok(())
}
