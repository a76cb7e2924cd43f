//! One measured row, and its forms for programs: CSV as the peers' benchmarks print it, JSON.

use super::collective::bus_factor;
use super::measure::{Answer, Question};
use super::stats::Stats;
use ringwork::isa::{Algorithm, Dtype};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// A question, its answer, and what both mean.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) question: Question,
    pub(crate) dtype: Dtype,
    pub(crate) ranks: u32,
    pub(crate) stats: Stats,
    pub(crate) wrong: Option<i64>,
    pub(crate) hops: [Option<Duration>; 2],
    pub(crate) in_window: bool,
}

/// The columns of the peers' benchmarks.
pub(crate) const CSV_HEADER: &str = "peer,np,op,mode,bytes,iters,min_us,med_us,p99_us,mean_us,busbw_med_GBs,\
    busbw_max_GBs,verify,epoch,pp_before_ns,pp_after_ns";

impl Row {
    /// `None` on ranks that have no times.
    pub(crate) fn new(question: Question, answer: &Answer, dtype: Dtype, ranks: u32) -> Option<Row> {
        Some(Row {
            question,
            dtype,
            ranks,
            stats: answer.stats?,
            wrong: answer.wrong,
            hops: answer.hops,
            in_window: answer.in_window,
        })
    }

    /// GB/s at a time of so many microseconds.
    fn bandwidth(&self, us: f64) -> f64 {
        if us > 0.0 {
            self.question.bytes as f64 / us / 1e3
        } else {
            0.0
        }
    }

    pub(crate) fn algbw(&self) -> f64 {
        self.bandwidth(self.stats.p50)
    }

    fn factor(&self) -> f64 {
        bus_factor(self.question.collective, self.ranks)
    }

    pub(crate) fn busbw(&self) -> f64 {
        self.algbw() * self.factor()
    }

    /// Such as `ringwork` or `ringwork-twophase`.
    pub(crate) fn library(&self) -> String {
        let way = self.question.way;
        way.map_or_else(|| "ringwork".into(), |way| format!("ringwork-{way}"))
    }

    pub(crate) fn csv(&self) -> String {
        let Stats {
            calls,
            min,
            p50,
            p99,
            mean,
            ..
        } = self.stats;
        let epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let [before, after] = self.hops.map(|hop| hop.map_or(0, |hop| hop.as_nanos()));
        format!(
            "{},{},{},{},{},{calls},{min:.3},{p50:.3},{p99:.3},{mean:.3},{:.3},{:.3},{},{epoch},{before},{after}",
            self.library(),
            self.ranks,
            self.question.collective.mpi_name(),
            self.question.mode.name(),
            self.question.bytes,
            self.busbw(),
            self.bandwidth(min) * self.factor(),
            if self.wrong.unwrap_or(0) == 0 { "ok" } else { "BAD" },
        )
    }

    pub(crate) fn json(&self) -> Value {
        let question = &self.question;
        let [before, after] = self
            .hops
            .map(|hop| hop.and_then(|hop| u64::try_from(hop.as_nanos()).ok()));
        json!({
            "op": question.collective.name(),
            "mode": question.mode.name(),
            "algo": question.way.map(Algorithm::name),
            "memory": if self.in_window { "window" } else { "own" },
            "ranks": self.ranks,
            "bytes": question.bytes,
            "count": question.bytes / self.dtype.bytes(),
            "dtype": self.dtype.name(),
            "redop": question.collective.reduces().then_some(question.op.name()),
            "time_us": self.stats,
            "algbw_gbs": self.algbw(),
            "busbw_gbs": self.busbw(),
            "wrong": self.wrong,
            "hop_ns": { "before": before, "after": after },
        })
    }

    /// How far the cores were from each other, where that is clear.
    pub(crate) fn placement(&self) -> String {
        match self.hops.map(|hop| hop.map(|hop| hop.as_nanos())) {
            [Some(a @ 1..40), Some(b @ 1..40)] => format!("threads of one core, {} ns", a.max(b)),
            [Some(a @ 40..190), Some(b @ 40..190)] => format!("near {} ns", a.max(b)),
            [Some(a @ 1000..), Some(b @ 1000..)] => format!("one core, {} ns", a.min(b)),
            [Some(a @ 190..), Some(b @ 190..)] => format!("far {} ns", a.min(b)),
            // Longer than any distance: a rank had to wait for a core.
            [Some(a), Some(b)] if a.max(b) > 100_000 => format!("busy, up to {}", hop_time(a.max(b))),
            [Some(a), Some(b)] => format!("mixed, {} to {}", hop_time(a.min(b)), hop_time(a.max(b))),
            _ => String::new(),
        }
    }
}

/// Nanoseconds as a person reads them.
fn hop_time(ns: u128) -> String {
    crate::report::duration(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Mode, Roots};
    use ringwork::isa::{Collective, ReduceOp};

    #[test]
    fn the_cores_are_told_in_units_a_person_reads() {
        let question = Question {
            collective: Collective::AllReduce,
            op: ReduceOp::Sum,
            root: Roots::Rotate,
            way: None,
            mode: Mode::Oop,
            bytes: 8,
        };
        let said = |hops: [u64; 2]| {
            let row = Row {
                question,
                dtype: Dtype::F32,
                ranks: 2,
                stats: Stats::of(vec![1.0]).unwrap(),
                wrong: None,
                hops: hops.map(|ns| Some(Duration::from_nanos(ns))),
                in_window: false,
            };
            row.placement()
        };
        assert_eq!(said([120, 130]), "near 130 ns");
        assert_eq!(said([120, 12_274_885]), "busy, up to 12.27 ms");
        assert_eq!(said([3000, 120]), "mixed, 120 ns to 3000 ns");
    }
}
