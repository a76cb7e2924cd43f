//! How long something took, many times.

use std::fmt;
use std::time::Duration;

/// All of them, kept.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds one.
    pub fn push(&mut self, latency: Duration) {
        let at = self.0.partition_point(|other| *other <= latency);
        self.0.insert(at, latency);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The least that `percent` of them do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// How many there are below each power of two of microseconds, from 64 us to 2^20.
    pub fn histogram(&self) -> String {
        let mut lines = String::new();
        let mut from = 0;
        for exponent in 6..=20 {
            let limit = Duration::from_micros(1 << exponent);
            let to = self.0.partition_point(|latency| *latency < limit);
            if to > from {
                let share = 100.0 * (to - from) as f64 / self.0.len() as f64;
                let bar = "#".repeat((50 * (to - from)).div_ceil(self.0.len()));
                lines += &format!(
                    "  < {:>8.3} ms  {:>6}  {share:>5.1} %  {bar}\n",
                    ms(limit),
                    to - from
                );
            }
            from = to;
        }
        lines
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| ms(self.percentile(percent)));
        let (count, max) = (self.count(), ms(self.max()));
        write!(
            f,
            "{count:>6} times  p50 {p50:>8.3}  p90 {p90:>8.3}  p99 {p99:>8.3}  max {max:>8.3} ms"
        )
    }
}
