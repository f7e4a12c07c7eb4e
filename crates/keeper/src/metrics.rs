//! Counters and times for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_core::space::Space;
use lockkeeper_core::state::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SpaceLabel {
    space: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AdvisoryLabels {
    namespace: String,
    state: &'static str,
}

/// All that is measured, and the registry that writes it out.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<OperationLabel, Histogram>,
    contention: Family<ReasonLabel, Counter>,
    appends: Counter,
    append_seconds: Histogram,
    append_retries: Counter,
    batch_commands: Histogram,
    locks: Family<SpaceLabel, Gauge>,
    waiters: Family<SpaceLabel, Gauge>,
    sessions: Family<SpaceLabel, Gauge>,
    audit_dropped: Counter,
    spans_dropped: Counter,
    advisory_locks: Family<AdvisoryLabels, Gauge>,
    /// Without labels, and without a value until a database is looked at.
    advisory_up: Family<Vec<(String, String)>, Gauge>,
}

/// The outcome of a request that was not refused.
pub const SUCCEEDED: &str = "ok";
/// From 100 µs to 10 s.
const SECONDS: [f64; 14] = [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("lockkeeper"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            contention: Family::default(),
            appends: Counter::default(),
            append_seconds: seconds(),
            append_retries: Counter::default(),
            batch_commands: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]),
            locks: Family::default(),
            waiters: Family::default(),
            sessions: Family::default(),
            audit_dropped: Counter::default(),
            spans_dropped: Counter::default(),
            advisory_locks: Family::default(),
            advisory_up: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests by operation and outcome", metrics.requests.clone());
        registry.register("request_seconds", "Time from request to answer", metrics.request_seconds.clone());
        registry.register("contention", "Refused acquisitions by reason", metrics.contention.clone());
        registry.register("appends", "Batches recorded", metrics.appends.clone());
        registry.register("append_seconds", "Time of one append", metrics.append_seconds.clone());
        registry.register(
            "append_retries",
            "Batches decided again because the ledger moved",
            metrics.append_retries.clone(),
        );
        registry.register("batch_commands", "Commands in one batch", metrics.batch_commands.clone());
        registry.register("locks", "Locks that are held", metrics.locks.clone());
        registry.register("waiters", "Acquisitions that wait", metrics.waiters.clone());
        registry.register("sessions", "Sessions that are known", metrics.sessions.clone());
        registry.register("audit_dropped", "Audit lines that could not be written", metrics.audit_dropped.clone());
        registry.register("spans_dropped", "Spans that could not be handed on", metrics.spans_dropped.clone());
        registry.register("advisory_locks", "Advisory locks of the database", metrics.advisory_locks.clone());
        registry.register("advisory_up", "Whether that database answers", metrics.advisory_up.clone());
        metrics
    }

    /// How many advisory locks are held and waited for, by namespace; none are known while the database is away.
    pub fn advisory(&self, up: bool, counts: &BTreeMap<String, (u64, u64)>) {
        self.advisory_up.get_or_create(&Vec::new()).set(i64::from(up));
        self.advisory_locks.clear();
        for (namespace, (held, waiting)) in counts {
            for (state, count) in [("held", held), ("waiting", waiting)] {
                let labels = AdvisoryLabels { namespace: namespace.clone(), state };
                self.advisory_locks.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
            }
        }
    }

    /// The text that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("writing to a string");
        text
    }

    /// Counts requests of one operation, looked up once.
    pub fn of_operation(&self, operation: &'static str) -> OperationMetrics {
        OperationMetrics {
            operation,
            succeeded: self.requests.get_or_create_owned(&RequestLabels { operation, outcome: SUCCEEDED }),
            all: self.requests.clone(),
            seconds: self.request_seconds.get_or_create_owned(&OperationLabel { operation }),
        }
    }

    pub fn contended(&self, reason: &'static str) {
        self.contention.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn audit_dropped(&self) {
        self.audit_dropped.inc();
    }

    pub(crate) fn span_dropped(&self) {
        self.spans_dropped.inc();
    }

    pub(crate) fn appended(&self, commands: usize, took: Duration, tries: u32) {
        self.appends.inc();
        self.append_seconds.observe(took.as_secs_f64());
        self.append_retries.inc_by(u64::from(tries - 1));
        self.batch_commands.observe(commands as f64);
    }

    /// The gauges of one space, looked up once.
    pub(crate) fn of_space(&self, space: &Space) -> SpaceGauges {
        let label = SpaceLabel { space: space.to_string() };
        SpaceGauges {
            locks: self.locks.get_or_create_owned(&label),
            waiters: self.waiters.get_or_create_owned(&label),
            sessions: self.sessions.get_or_create_owned(&label),
            families: [self.locks.clone(), self.waiters.clone(), self.sessions.clone()],
            label,
        }
    }
}

/// What is counted of one operation.
#[derive(Debug)]
pub struct OperationMetrics {
    operation: &'static str,
    succeeded: Counter,
    all: Family<RequestLabels, Counter>,
    seconds: Histogram,
}

impl OperationMetrics {
    /// A request was answered: `None` as it should be, or else with this word.
    pub fn request(&self, refused: Option<&'static str>, took: Duration) {
        match refused {
            None => self.succeeded.inc(),
            Some(outcome) => self.all.get_or_create(&RequestLabels { operation: self.operation, outcome }).inc(),
        };
        self.seconds.observe(took.as_secs_f64());
    }
}

/// How much one space holds.
#[derive(Debug)]
pub(crate) struct SpaceGauges {
    locks: Gauge,
    waiters: Gauge,
    sessions: Gauge,
    families: [Family<SpaceLabel, Gauge>; 3],
    label: SpaceLabel,
}

impl Drop for SpaceGauges {
    /// A space that is let go of is not counted any more.
    fn drop(&mut self) {
        for family in &self.families {
            family.remove(&self.label);
        }
    }
}

impl SpaceGauges {
    pub(crate) fn set(&self, state: &State) {
        self.locks.set(state.lock_count() as i64);
        self.waiters.set(state.waiter_count() as i64);
        self.sessions.set(state.session_count() as i64);
    }
}
