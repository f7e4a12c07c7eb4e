//! TLS: whom to trust, and whom not.

use std::path::Path;

use lockkeeper_engine::EngineError;
use lockkeeper_engine::conformance::Scribe;

use crate::certificates::certificates;
use crate::server::RedisServer;
use crate::{open, records, refusal};

fn server(dir: &Path, clients: &str) -> RedisServer {
    let file = |name: &str| dir.join(name).display().to_string();
    RedisServer::with(&[
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        clients,
    ])
}

fn url(server: &RedisServer, dir: &Path, host: &str, files: &[(&str, &str)]) -> String {
    let options: Vec<String> =
        files.iter().map(|(option, file)| format!("{option}={}", dir.join(file).display())).collect();
    format!("rediss://{host}:{}?{}", server.port, options.join("&"))
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_trusted_and_no_other() {
    let dir = certificates();
    let server = server(dir.path(), "no");
    for host in ["localhost", "127.0.0.1"] {
        let engine = open(&url(&server, dir.path(), host, &[("ca", "ca.pem")])).await;
        let mut scribe = Scribe::at_origin(&engine, host).await;
        scribe.append_numbers(1, 5).await;
        scribe.append(&vec![7; 3 << 20]).await;
        assert_eq!(records(&scribe).await, scribe.written);
        assert!(engine.place().starts_with("rediss://"), "{}", engine.place());
    }
    let other = refusal(&url(&server, dir.path(), "localhost", &[("ca", "other.pem")])).await;
    assert!(matches!(&other, EngineError::Unreachable(why) if why.contains("certificate")), "{other}");
    let system = refusal(&url(&server, dir.path(), "localhost", &[])).await;
    assert!(system.to_string().contains("certificate"), "{system}");
    let plain = refusal(&format!("redis://localhost:{}?timeout_ms=500", server.port)).await;
    assert!(matches!(plain, EngineError::Unreachable(_)), "{plain}");
}

#[tokio::test]
async fn a_redis_that_asks_who_we_are_is_shown_a_certificate() {
    let dir = certificates();
    let server = server(dir.path(), "yes");
    let own = [("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")];
    let engine = open(&url(&server, dir.path(), "localhost", &own)).await;
    Scribe::at_origin(&engine, "a").await.append(b"x").await;
    let nameless = refusal(&url(&server, dir.path(), "localhost", &own[..1])).await;
    assert!(matches!(nameless, EngineError::Unreachable(_)), "{nameless}");
}

#[tokio::test]
async fn files_that_can_not_be_used_are_named() {
    let dir = certificates();
    let server = server(dir.path(), "no");
    for files in [
        &[("ca", "missing.pem")][..],
        &[("ca", "server.csr")],
        &[("ca", "ca.pem"), ("cert", "ca.key"), ("key", "client.key")],
        &[("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.pem")],
    ] {
        let why = refusal(&url(&server, dir.path(), "localhost", files)).await;
        let named = files.last().expect("a file").1.split('.').next().expect("a name");
        assert!(matches!(&why, EngineError::Invalid(_)), "{why}");
        assert!(why.to_string().contains(named) || why.to_string().contains("ca.key"), "{why}");
    }
}
