//! Times in order: what half of them, and what nearly all of them stay within. `bench/` uses this file too.

use serde::Serialize;

/// Within which time half, 99 % and 99.9 % were done, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Percentiles {
    #[serde(rename = "p50_us")]
    pub(crate) half: f64,
    #[serde(rename = "p99_us")]
    pub(crate) most: f64,
    #[serde(rename = "p99_9_us")]
    pub(crate) nearly_all: f64,
}

impl Percentiles {
    /// Of times in nanoseconds.
    pub(crate) fn of(mut times: Vec<u64>) -> Percentiles {
        times.sort_unstable();
        let at = |share: f64| {
            let place = (times.len() as f64 * share) as usize;
            times.get(place.min(times.len().saturating_sub(1))).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
        };
        Percentiles { half: at(0.5), most: at(0.99), nearly_all: at(0.999) }
    }
}
