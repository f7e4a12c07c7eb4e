//! TLS: who asks for it gets it, from a server that is who it says it is, or not at all.

use std::process::Command;

use lockkeeper_advisory::{Address, AdvisoryLockError, Guard, Locks};
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::ground::{in_time, namespace};

/// A certificate for a name, that trusts itself, and its key.
fn certificate(dir: &std::path::Path, name: &str, subject: &str) -> (String, String) {
    let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=test", "-addext", &format!("subjectAltName={subject}")]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert);
    let made = openssl.output().expect("openssl is missing; install the package openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |path| std::fs::read_to_string(path).expect("a file");
    (read(&cert), read(&key))
}

async fn lock(url: &str) -> Result<Guard, AdvisoryLockError> {
    let locks = Locks::open(Address::parse(url)?, 1)?;
    in_time(locks.lock(namespace(), 1, None).into_future()).await
}

#[tokio::test]
async fn tls_is_spoken_with_a_server_that_is_trusted_and_with_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let tls = Some(certificate(dir.path(), "own", "IP:127.0.0.1"));
    certificate(dir.path(), "other", "IP:127.0.0.1");
    let server = Postgres::start_with(&Options { tls, ..Options::quick() });
    let url = |query: &str| format!("{}?{query}", server.url());
    let root = |name: &str| format!("sslrootcert={}", dir.path().join(format!("{name}.crt")).display());

    let guard = lock(&url(&format!("sslmode=require&{}", root("own")))).await.expect("trusted");
    let encrypted = |guard: &Guard| server.sql(&format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {}", guard.pid()));
    assert_eq!(encrypted(&guard), "t");
    // Hidden from those who listen, if nothing is asked for; and not, if that is asked for.
    assert_eq!(encrypted(&lock(&url("sslmode=prefer")).await.expect("hidden")), "t");
    assert_eq!(encrypted(&lock(&url("sslmode=disable")).await.expect("plain")), "f");

    let untrusted = lock(&url(&format!("sslmode=verify-full&{}", root("other")))).await;
    let error = untrusted.expect_err("a server that is not trusted").to_string();
    assert!(error.contains("certificate"), "{error}");
    assert!(!error.contains(server.password()), "{error}");
    let elsewhere = url(&format!("sslmode=verify-full&{}", root("own"))).replace("127.0.0.1", "localhost");
    assert!(lock(&elsewhere).await.is_err(), "the certificate has another name");
    assert!(lock(&url("sslmode=require&sslrootcert=/nowhere.crt")).await.is_err());
}

#[tokio::test]
async fn a_server_without_tls_is_refused_if_tls_is_required() {
    let server = crate::ground::server();
    let error = lock(&format!("{}?sslmode=require", server.url())).await.expect_err("no TLS there").to_string();
    assert!(error.contains("TLS") && !error.contains(server.password()), "{error}");
    lock(&server.url()).await.expect("without asking for it");
}

#[tokio::test]
async fn no_error_shows_a_password() {
    let server = crate::ground::server();
    let wrong = server.url().replace(server.password(), "hunter2");
    let closed = format!("postgres://me:hunter2@127.0.0.1:{}/db", lockkeeper_postgres_fixture::free_port());
    for url in [wrong, closed, server.url_of("nowhere").replace(server.password(), "hunter2")] {
        let error = lock(&url).await.expect_err("refused");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}
