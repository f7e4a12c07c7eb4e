//! TLS to a server: whom to trust, and how to show who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::EngineError;

/// Whom to trust, and how to show who we are; without files, whom this system trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// Reads what the URL names; without a file, what this system trusts.
pub(crate) fn config(files: &TlsFiles) -> Result<ClientConfig, EngineError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| EngineError::Invalid(format!("TLS can't be used: {error}")))?
        .with_root_certificates(roots(files.ca.as_deref())?);
    let config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| unusable(cert, &error))?
        }
        (_, _) => builder.with_no_client_auth(),
    };
    Ok(config)
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, EngineError> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = ca {
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| unusable(ca, &error))?;
        }
        return Ok(roots);
    }
    // A system may trust some that nobody can read any more; they are left out.
    let (usable, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if usable == 0 {
        return Err(EngineError::Invalid(
            "this system trusts no certificate; install ca-certificates, or name one with ?ca=FILE".to_owned(),
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EngineError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if all.is_empty() {
        return Err(EngineError::Invalid(format!("{} holds no certificate", path.display())));
    }
    Ok(all)
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Invalid(format!("{} can't be used: {error}", path.display()))
}
