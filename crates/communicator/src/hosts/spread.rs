//! Which rank is on which host.

use crate::error::{Error, Result};
use ringwork_isa::MAX_RANKS;
use ringwork_mpi::World;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

/// A rank, as it is known to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Ranks with the same key can share memory.
    key: u64,
    host: String,
    /// Its number in MPI's world.
    pub(crate) process: u32,
}

/// A host, and the ranks of a communicator that are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    key: u64,
    pub(crate) name: String,
    /// In order: place in this list is the rank among those on the host.
    pub(crate) ranks: Vec<u32>,
}

/// The ranks of a communicator over several hosts, from the view of one of them.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(crate) me: u32,
    /// In the order of their lowest ranks.
    pub(crate) hosts: Vec<Host>,
    /// The place of this rank's host in `hosts`, and of this rank on it.
    pub(crate) mine: usize,
    pub(crate) local: usize,
    pub(crate) members: Vec<Member>,
    /// The tag of its collective calls; the next one is that of calls between two ranks.
    pub(crate) tag: u32,
}

/// The next tag that no communicator of this process has.
static NEXT_TAG: AtomicU32 = AtomicU32::new(0);
/// MPI promises tags up to 32767.
const MAX_TAG: u32 = 32_766;

/// The next tag that is free in this process. The largest of all members' becomes the tag of a new communicator.
pub(crate) fn free_tag() -> u32 {
    NEXT_TAG.load(Ordering::Relaxed)
}

/// Takes the tag that the members of a new communicator have agreed upon.
pub(crate) fn take_tag(tag: u32) -> Result<u32> {
    if tag >= MAX_TAG {
        let problem = "this job has made more communicators over several hosts than MPI has tags for; keep them instead";
        return Err(Error::arguments("split", problem));
    }
    NEXT_TAG.fetch_max(tag + 2, Ordering::Relaxed);
    Ok(tag)
}

/// Bytes by which a process introduces itself: key, free tag, a random number, name of the host.
const CARD_BYTES: usize = 80;

impl Spread {
    /// Learns where all processes of the world are, and a number that no other job has. All of them call it.
    pub(crate) fn of(world: &World) -> Result<(Spread, u64)> {
        let (key, name) = this_host();
        let mut card = [0u8; CARD_BYTES];
        card[..8].copy_from_slice(&key.to_le_bytes());
        card[8..12].copy_from_slice(&free_tag().to_le_bytes());
        card[12..20].copy_from_slice(&RandomState::new().hash_one(key).to_le_bytes());
        let len = name.len().min(CARD_BYTES - 20);
        card[20..20 + len].copy_from_slice(&name.as_bytes()[..len]);
        let cards = world.all_gather(&card)?;
        let (mut members, mut tag) = (Vec::new(), 0);
        for (process, card) in (0..).zip(cards.chunks(CARD_BYTES)) {
            let (key, free) = (word(&card[..8]), word(&card[8..12]));
            tag = tag.max(u32::try_from(free).unwrap_or(u32::MAX));
            let host = String::from_utf8_lossy(&card[20..]);
            members.push(Member {
                key,
                host: host.trim_end_matches('\0').to_owned(),
                process,
            });
        }
        let spread = Spread::new(world.rank(), members, take_tag(tag)?)?;
        Ok((spread, word(&cards[12..20])))
    }

    pub(crate) fn new(me: u32, members: Vec<Member>, tag: u32) -> Result<Spread> {
        let mut hosts: Vec<Host> = Vec::new();
        for (rank, member) in (0..).zip(&members) {
            match hosts.iter_mut().find(|host| host.key == member.key) {
                Some(host) => host.ranks.push(rank),
                None => hosts.push(Host {
                    key: member.key,
                    name: member.host.clone(),
                    ranks: vec![rank],
                }),
            }
        }
        if let Some(host) = hosts.iter().find(|host| host.ranks.len() > MAX_RANKS as usize) {
            let (here, name) = (host.ranks.len(), &host.name);
            let problem = format!("{here} ranks are on host {name}; there may be {MAX_RANKS} on a host");
            return Err(Error::arguments("joining", problem));
        }
        let place = |(index, host): (usize, &Host)| {
            let local = host.ranks.iter().position(|rank| *rank == me)?;
            Some((index, local))
        };
        let (mine, local) = hosts
            .iter()
            .enumerate()
            .find_map(place)
            .ok_or_else(|| Error::arguments("joining", "this rank is on none of the hosts"))?;
        Ok(Spread {
            me,
            hosts,
            mine,
            local,
            members,
            tag,
        })
    }

    /// How many ranks there are.
    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// This rank among those on its host, and how many these are: at most [`MAX_RANKS`].
    pub(crate) fn local_rank(&self) -> u32 {
        u32::try_from(self.local).unwrap_or(u32::MAX)
    }

    pub(crate) fn ranks_here(&self) -> u32 {
        u32::try_from(self.here().len()).unwrap_or(u32::MAX)
    }

    /// The ranks on this rank's host.
    pub(crate) fn here(&self) -> &[u32] {
        &self.hosts[self.mine].ranks
    }

    /// Whether this rank is the lowest of its host.
    pub(crate) fn leads(&self) -> bool {
        self.local == 0
    }

    /// The rank among those on this host, if `rank` is one of them.
    pub(crate) fn local_of(&self, rank: u32) -> Option<u32> {
        let place = self.here().iter().position(|here| *here == rank)?;
        u32::try_from(place).ok()
    }

    /// The hosts but this one, with their places.
    pub(crate) fn others(&self) -> impl Iterator<Item = (usize, &Host)> {
        let mine = self.mine;
        self.hosts
            .iter()
            .enumerate()
            .filter(move |(index, _)| *index != mine)
    }

    /// The ranks that are not on this host.
    pub(crate) fn strangers(&self) -> impl Iterator<Item = u32> {
        self.others().flat_map(|(_, host)| host.ranks.iter().copied())
    }

    /// The rank that a process of MPI's world is, if it is one.
    pub(crate) fn rank_of(&self, process: u32) -> Option<u32> {
        let rank = self.members.iter().position(|member| member.process == process)?;
        u32::try_from(rank).ok()
    }

    /// The host of a rank.
    pub(crate) fn host_of(&self, rank: u32) -> &str {
        self.members
            .get(rank as usize)
            .map_or("", |member| member.host.as_str())
    }

    /// The most ranks that are on one host.
    pub(crate) fn most_on_a_host(&self) -> usize {
        self.hosts.iter().map(|host| host.ranks.len()).max().unwrap_or(1)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A number for this host that processes have in common only if they can share memory and watch each other, and its name.
fn this_host() -> (u64, String) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let name = read("/proc/sys/kernel/hostname").trim().to_owned();
    let space = |kind: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        link.to_string_lossy().into_owned()
    };
    let boot = read("/proc/sys/kernel/random/boot_id");
    // Ranks meet by sockets in the name space of their network, and watch each other by process numbers.
    let all = [boot.trim(), &space("net"), &space("pid"), &name].join("\n");
    (ringwork_isa::signature_hash(&all), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_ordered_by_their_lowest_rank_and_ranks_by_number() {
        let member = |key: u64, process| Member {
            key,
            host: format!("h{key}"),
            process,
        };
        let members: Vec<Member> = [7, 3, 7, 3, 3]
            .into_iter()
            .zip(0..)
            .map(|(k, p)| member(k, p))
            .collect();
        let spread = Spread::new(3, members, 0).unwrap();
        let ranks: Vec<&[u32]> = spread.hosts.iter().map(|host| &host.ranks[..]).collect();
        assert_eq!(ranks, [&[0, 2][..], &[1, 3, 4]]);
        assert_eq!((spread.mine, spread.local, spread.leads()), (1, 1, false));
        assert_eq!((spread.local_of(4), spread.local_of(2)), (Some(2), None));
        assert_eq!(spread.strangers().collect::<Vec<_>>(), [0, 2]);
        assert_eq!((spread.host_of(2), spread.most_on_a_host()), ("h7", 3));
    }
}
