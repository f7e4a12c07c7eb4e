//! What was measured: how many in a second, how long each took, and what it cost.

use std::time::Duration;

use serde::Serialize;

use super::What;
use super::flood::Times;
use super::percentiles::Percentiles;

/// One measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) what: What,
    /// What is counted: pairs, checks or hand-overs.
    pub(crate) unit: &'static str,
    pub(crate) clients: usize,
    pub(crate) count: usize,
    pub(crate) per_second: f64,
    #[serde(flatten)]
    pub(crate) time: Percentiles,
    /// Of a pair, its two halves.
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<Percentiles>,
    pub(crate) failures: u64,
    #[serde(skip)]
    pub(crate) first_failure: Option<String>,
    /// CPU time of the service for one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_cpu_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_rss_bytes: Option<u64>,
    /// CPU time of this program for one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    bench_cpu_us: Option<f64>,
}

impl Figures {
    pub(crate) fn new(what: What, clients: usize, times: Times, spent: Spent, service: Option<u32>) -> Figures {
        let Times { elapsed, rounds, mut steps, failures, first_failure } = times;
        let (unit, all, halves) = match what {
            What::Check => ("checks", steps.concat(), None),
            What::Handover => ("hand-overs", rounds, None),
            What::Uncontended | What::Hot | What::Ranges => {
                let release = steps.pop().unwrap_or_default();
                ("pairs", rounds, Some((steps.pop().unwrap_or_default(), release)))
            }
        };
        let count = all.len();
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count.max(1) as f64;
        let (acquire, release) = halves.unzip();
        Figures {
            what,
            unit,
            clients,
            count,
            per_second: count as f64 / elapsed.as_secs_f64(),
            time: Percentiles::of(all),
            acquire: acquire.map(Percentiles::of),
            release: release.map(Percentiles::of),
            failures,
            first_failure,
            service_cpu_us: spent.service.map(each),
            service_rss_bytes: service.and_then(rss_bytes),
            bench_cpu_us: spent.bench.map(each),
        }
    }
}

/// CPU time that was spent during a measurement, where the system tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    service: Option<Duration>,
    bench: Option<Duration>,
}

impl Spent {
    pub(crate) fn so_far(service: Option<u32>) -> Spent {
        Spent { service: service.and_then(cpu_time), bench: cpu_time(std::process::id()) }
    }

    pub(crate) fn since(self, before: Spent) -> Spent {
        let less = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Spent { service: less(self.service, before.service), bench: less(self.bench, before.bench) }
    }
}

/// CPU time of all threads of a process.
fn cpu_time(pid: u32) -> Option<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path = task.ok()?.path().join("schedstat");
        // A thread that has just ended is left out.
        let Ok(told) = std::fs::read_to_string(path) else { continue };
        nanos += told.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

/// Memory of a process that is really there.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}
