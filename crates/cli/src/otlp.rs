//! Sends spans to a collector, as OTLP over HTTP in JSON. Set up by the environment variables of OpenTelemetry.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use lockkeeper_core::text::percent_decoded;
use lockkeeper_keeper::spans::{Attribute, Span};
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Spans that are sent together, and how long the first of them waits for others.
const TOGETHER_MAX: usize = 512;
const GATHERED: Duration = Duration::from_secs(1);
/// How long a collector may take.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// How often it is said that a collector does not listen.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// Name the file with the certificates that a collector is known by.
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const CERTIFICATE_OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE";
const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

/// A collector of traces.
pub(crate) struct Collector {
    url: String,
    /// For https.
    tls: Option<TlsConfig>,
    /// Such as a key for the collector. Never shown.
    headers: Vec<(String, String)>,
    service: String,
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whom to trust: the certificates of a file that is named, else those that this system trusts.
fn tls() -> Result<TlsConfig> {
    let roots: Vec<Certificate<'static>> = match set(CERTIFICATE_OF_TRACES).or_else(|| set(CERTIFICATE)) {
        Some(path) => {
            let pem = crate::config::text_of(Path::new(&path), CERTIFICATES_BYTES_MAX)
                .with_context(|| format!("{CERTIFICATE} ({path}) can't be read"))?;
            let items = parse_pem(pem.as_bytes()).map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                Ok(_) | Err(_) => None,
            });
            items.flatten().collect()
        }
        None => {
            let trusted = rustls_native_certs::load_native_certs().certs;
            trusted.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    if roots.is_empty() {
        bail!(
            "there is no certificate to know the collector by; install ca-certificates, or name a file: {CERTIFICATE}"
        );
    }
    let roots = RootCerts::new_with_certs(&roots);
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build())
}

impl Collector {
    /// The one that the environment names, if any.
    pub(crate) fn configured() -> Result<Option<Collector>> {
        let all = set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}/v1/traces", url.trim_end_matches('/')));
        let Some(url) = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(all) else { return Ok(None) };
        let tls = match url.split_once("://") {
            Some(("http", _)) => Ok(None),
            Some(("https", _)) => tls().map(Some),
            Some(_) | None => Err(anyhow!("OTEL_EXPORTER_OTLP_ENDPOINT names no collector that HTTP leads to")),
        };
        let tls = match tls {
            Ok(tls) => tls,
            Err(error) => {
                // It may be meant for other programs: no reason not to keep locks.
                tracing::warn!("no spans are sent: {error:#}");
                return Ok(None);
            }
        };
        let mut headers = Vec::new();
        for pair in set("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default().split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                bail!("OTEL_EXPORTER_OTLP_HEADERS is written as name=value,name=value");
            };
            headers.push((name.trim().to_owned(), percent_decoded(value.trim())));
        }
        let service = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "lockkeeper".to_owned());
        Ok(Some(Collector { url, tls, headers, service }))
    }

    /// Sends what comes, until nothing comes any more. Waits for the network: a thread of its own.
    pub(crate) fn run(&self, spans: &Receiver<Span>) {
        let config = ureq::Agent::config_builder().timeout_global(Some(SEND_TIME_MAX)).max_redirects(0);
        let config = match &self.tls {
            Some(tls) => config.tls_config(tls.clone()),
            None => config,
        };
        let agent: ureq::Agent = config.build().into();
        let mut complained: Option<Instant> = None;
        while let Ok(first) = spans.recv() {
            let (mut together, end) = (vec![first], Instant::now() + GATHERED);
            while together.len() < TOGETHER_MAX {
                match spans.recv_timeout(end.saturating_duration_since(Instant::now())) {
                    Ok(span) => together.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            let mut request = agent.post(&self.url).header("Content-Type", "application/json");
            for (name, value) in &self.headers {
                request = request.header(name, value);
            }
            if let Err(error) = request.send(self.message(&together).to_string())
                && complained.is_none_or(|at| at.elapsed() > COMPLAINT_EVERY)
            {
                complained = Some(Instant::now());
                tracing::warn!(%error, spans = together.len(), "spans could not be sent to the collector");
            }
        }
    }

    fn message(&self, spans: &[Span]) -> Value {
        json!({"resourceSpans": [{
            "resource": {"attributes": [attribute("service.name", &Attribute::Text(self.service.clone()))]},
            "scopeSpans": [{
                "scope": {"name": "lockkeeper", "version": env!("CARGO_PKG_VERSION")},
                "spans": spans.iter().map(span).collect::<Vec<_>>(),
            }],
        }]})
    }
}

fn span(span: &Span) -> Value {
    let mut attributes: Vec<Value> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    attributes.push(attribute("lock.outcome", &Attribute::Text(span.outcome.to_owned())));
    // A refusal is an answer; only what failed is an error.
    let failed = matches!(span.outcome, "unavailable" | "outcome_unknown" | "internal");
    json!({
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id.as_deref().unwrap_or_default(),
        "name": span.name,
        // A server's side of a call.
        "kind": 2,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
        "status": {"code": if failed { 2 } else { 0 }},
    })
}

fn attribute(name: &str, value: &Attribute) -> Value {
    match value {
        Attribute::Text(text) => json!({"key": name, "value": {"stringValue": text}}),
        // Whole numbers are texts in this format.
        Attribute::Number(number) => json!({"key": name, "value": {"intValue": number.to_string()}}),
    }
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
