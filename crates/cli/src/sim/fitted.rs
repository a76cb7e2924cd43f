//! Predictions of one machine whose numbers change a little: of each size, the algorithms that may be the fastest.

use super::algorithms::misfit;
use super::call::{Call, Failure, QueueSettings};
use ringwork::collectives::catalogue::{self, Entry, Needs};
use ringwork::isa::{Collective, Dtype};
use ringwork::runtime::Interrupter;
use ringwork::sim::Topology;
use std::collections::BTreeMap;

/// Algorithms that took this many times the fastest at first are not looked at again.
const HOPELESS: u64 = 3;

/// What is predicted, and which algorithms are worth a look at each size.
pub(crate) struct Fitted {
    ranks: u32,
    algorithm: Option<String>,
    worth: BTreeMap<(Collective, usize, Option<String>), Vec<&'static Entry>>,
}

impl Fitted {
    /// Predictions over the first ranks of a machine.
    ///
    /// # Errors
    /// If it has fewer.
    pub(crate) fn new(
        topology: &Topology,
        ranks: Option<u32>,
        algorithm: Option<&str>,
    ) -> Result<Fitted, String> {
        let has = topology.ranks();
        match ranks {
            Some(ranks) if ranks > has => Err(format!(
                "`{}` has {has} ranks; --ranks {ranks} is more",
                topology.name
            )),
            _ => Ok(Fitted {
                ranks: ranks.unwrap_or(has),
                algorithm: algorithm.map(str::to_owned),
                worth: BTreeMap::new(),
            }),
        }
    }

    /// The time of an algorithm, or of the fastest, and its name.
    pub(crate) fn predict(
        &mut self,
        topology: &Topology,
        (collective, bytes): (Collective, usize),
        algorithm: Option<&str>,
        stop: &Interrupter,
    ) -> Result<(u64, &'static str), Failure> {
        let key = (collective, bytes, algorithm.map(str::to_owned));
        let known = self.worth.get(&key).cloned();
        let entries = match &known {
            Some(known) => known.clone(),
            None => self
                .entries(topology, collective, algorithm)
                .map_err(Failure::Because)?,
        };
        let mut times = Vec::new();
        for entry in entries {
            times.push((self.time(entry, topology, bytes, stop)?, entry));
        }
        times.sort_by_key(|(ps, _)| *ps);
        let Some((best, entry)) = times.first().copied() else {
            return Err(Failure::Because(format!(
                "no algorithm of {collective} can run here"
            )));
        };
        if known.is_none() {
            let worth = times
                .iter()
                .filter(|(ps, _)| *ps <= best.saturating_mul(HOPELESS));
            let worth = worth.map(|(_, entry)| *entry).collect();
            self.worth.insert(key, worth);
        }
        Ok((best, entry.algorithm.name()))
    }

    fn entries(
        &self,
        topology: &Topology,
        collective: Collective,
        algorithm: Option<&str>,
    ) -> Result<Vec<&'static Entry>, String> {
        if let Some(name) = algorithm.or(self.algorithm.as_deref()) {
            let entry = catalogue::named(collective, name)?;
            return match misfit(entry, topology, self.ranks) {
                None => Ok(vec![entry]),
                Some(why) => Err(format!("`{name}` cannot run here: {why}")),
            };
        }
        let fits = |entry: &&Entry| misfit(entry, topology, self.ranks).is_none();
        let all: Vec<_> = catalogue::of(collective).filter(fits).collect();
        let through_queues: Vec<_> = all
            .iter()
            .copied()
            .filter(|entry| matches!(entry.needs, Needs::Queues))
            .collect();
        Ok(if through_queues.is_empty() {
            all
        } else {
            through_queues
        })
    }

    fn time(
        &self,
        entry: &'static Entry,
        topology: &Topology,
        bytes: usize,
        stop: &Interrupter,
    ) -> Result<u64, Failure> {
        let dtype = Dtype::F32;
        let whole = entry.collective.whole(bytes, dtype.bytes(), self.ranks as usize);
        let Some(bytes) = whole else {
            return Err(Failure::Because(format!(
                "{} of {bytes} B cannot be dealt out to {} ranks",
                entry.collective, self.ranks
            )));
        };
        let call = Call {
            entry,
            ranks: self.ranks,
            bytes,
            dtype,
            scratch: None,
            memory: 0,
            queues: QueueSettings::default(),
            timing_only: true,
            prove: false,
            races: false,
            trace: false,
        };
        let prediction = call.simulate(topology, stop, &|_, _| {})?;
        Ok(prediction.time_ps)
    }
}
