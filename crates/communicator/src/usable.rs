//! The collectives and algorithms between which a communicator chooses.

use ringwork_collectives::catalogue::{self, Entry, Needs};
use ringwork_isa::{Algorithm, Collective};

/// The algorithm of a collective that a user names, if a communicator can use it.
///
/// # Errors
/// The algorithms that exist instead.
pub(crate) fn named(collective: Collective, name: &str) -> Result<Algorithm, String> {
    catalogue::one_of(choices(collective), name).map_err(|instead| match catalogue::named(collective, name) {
        Ok(entry) => format!(
            "`{}` sends messages between neighbours, which a communicator on one host does not; {collective} has {instead}",
            entry.algorithm
        ),
        Err(_) => format!("{collective} has {instead}"),
    })
}

/// The algorithms of a collective that a communicator can use.
pub fn choices(collective: Collective) -> impl Iterator<Item = Algorithm> {
    catalogue::of(collective)
        .filter(|entry| usable(entry))
        .map(|entry| entry.algorithm)
}

/// Whether a communicator has the memory that an entry needs. A barrier is excluded: it has no data to choose by.
fn usable(entry: &Entry) -> bool {
    entry.needs != Needs::Queues && entry.collective != Collective::Barrier
}

/// The collectives between whose algorithms there is a choice.
pub fn choosable() -> impl Iterator<Item = Collective> {
    Collective::ALL
        .into_iter()
        .filter(|collective| choices(*collective).nth(1).is_some())
}

/// The collective that a user names.
///
/// # Errors
/// The collectives that exist instead.
pub(crate) fn choosable_named(name: &str) -> Result<Collective, String> {
    choosable()
        .find(|collective| collective.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = choosable().map(Collective::name).collect();
            format!(
                "there is no choice for `{}`; there is for {}",
                name.escape_debug(),
                names.join(", ")
            )
        })
}
