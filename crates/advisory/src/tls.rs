//! TLS to a PostgreSQL: whom to trust, and how to show who we are. Knows no URL.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::error::AdvisoryLockError;

/// What the URL says about certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) root: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// Makes TLS connections for the client library.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
}

impl Tls {
    /// With `verify`, the server must be who the URL names, by a certificate that is trusted; without it, the connection is only
    /// hidden from those who listen, as `sslmode=prefer` promises no more.
    pub(crate) fn new(files: &Files, verify: bool) -> Result<Tls, AdvisoryLockError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(format!("TLS can't be used: {error}")))?;
        let builder = if verify {
            builder.with_root_certificates(roots(files.root.as_deref())?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        };
        let mut config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| unusable(cert, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (_, _) => return Err(invalid("sslcert and sslkey go together".to_owned())),
        };
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Tls { config: Arc::new(config) })
    }
}

fn invalid(message: String) -> AdvisoryLockError {
    AdvisoryLockError::Invalid(message)
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> AdvisoryLockError {
    invalid(format!("{} can't be used: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AdvisoryLockError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(path, &error))?;
    if all.is_empty() { Err(invalid(format!("{} holds no certificate", path.display()))) } else { Ok(all) }
}

fn roots(named: Option<&Path>) -> Result<RootCertStore, AdvisoryLockError> {
    let mut roots = RootCertStore::empty();
    let trusted = match named {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (usable, _) = roots.add_parsable_certificates(trusted);
    if usable == 0 {
        let place = named.map_or("this system".to_owned(), |path| path.display().to_string());
        return Err(invalid(format!("{place} has no certificate to trust; name one with ?sslrootcert=FILE")));
    }
    Ok(roots)
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Named;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Named, io::Error> {
        Ok(Named { connector: TlsConnector::from(self.config.clone()), host: host.to_owned() })
    }
}

/// A connection to one host that is about to be made.
pub(crate) struct Named {
    connector: TlsConnector,
    host: String,
}

impl<S> TlsConnect<S> for Named
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(|_| io::Error::other("the host has no name for TLS"))?;
            Ok(Encrypted(Box::new(self.connector.connect(name, stream).await?)))
        })
    }
}

pub(crate) struct Encrypted<S>(Box<client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Takes any certificate, but only from somebody who has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
