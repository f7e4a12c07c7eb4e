//! TLS: whom to trust, and whom not.

use std::path::Path;

use lockkeeper_engine::EngineError;
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::certificates::certificates;
use crate::{open, records, refusal};

fn server(dir: &Path) -> Postgres {
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
    Postgres::start_with(&Options { tls: Some((text("server.pem"), text("server.key"))), ..Options::quick() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_known_authority_is_trusted_and_no_other() {
    let dir = certificates();
    let server = server(dir.path());
    let url = |ca: &str| format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), dir.path().join(ca).display());
    let mut scribe = Scribe::at_origin(&open(&url("ca.pem")).await, "a").await;
    scribe.append_numbers(1, 5).await;
    scribe.append(&vec![7; 3 << 20]).await;
    assert_eq!(records(&scribe).await, scribe.written);
    let encrypted = server.sql(
        "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) \
                                where a.application_name = 'lockkeeper'",
    );
    assert_eq!(encrypted, "t");
    let other = refusal(&url("other.pem")).await;
    assert!(matches!(&other, EngineError::Unreachable(why) if why.contains("certificate")), "{other}");
    let missing = refusal(&url("missing.pem")).await;
    assert!(matches!(&missing, EngineError::Invalid(why) if why.contains("missing.pem")), "{missing}");
    let system = refusal(&format!("{}?sslmode=require", server.url())).await;
    assert!(system.to_string().contains("certificate"), "{system}");
}
