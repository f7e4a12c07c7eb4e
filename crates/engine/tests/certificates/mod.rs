//! Certificates for tests of TLS.

use std::path::Path;
use std::process::Command;

fn openssl(dir: &Path, arguments: &str) {
    let made = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output();
    let made = made.expect("openssl is missing; install the package openssl");
    assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
}

/// An authority, and certificates of it for a server and a client; and another authority.
pub(crate) fn certificates() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "other"] {
        openssl(dir.path(), &format!("req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"));
    }
    std::fs::write(dir.path().join("san"), "subjectAltName=DNS:localhost,IP:127.0.0.1").expect("a file");
    for name in ["server", "client"] {
        openssl(dir.path(), &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(
            dir.path(),
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile san"
            ),
        );
    }
    dir
}
