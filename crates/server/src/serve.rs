//! Runs a service: listens, hands each connection to its door, and stops cleanly.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::auth::Credentials;
use crate::service::Service;

/// Connections that are open at once on each door; beyond that, newcomers wait.
const CONNECTIONS_MAX: usize = 4096;
/// How long a client may take to send its headers.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(8);
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long open connections get to finish when the service stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// Where a service listens.
#[derive(Debug)]
pub struct Doors {
    pub socket: Option<UnixListener>,
    pub http: Option<TcpListener>,
    pub credentials: Credentials,
    /// Names besides addresses and `localhost` that HTTP requests may be for.
    pub hosts: Vec<String>,
}

/// Opens the private socket: nobody but its owner may connect. A socket that nobody listens on is replaced.
pub async fn bind_socket(path: &Path) -> std::io::Result<UnixListener> {
    if path.exists() {
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AddrInUse,
                format!("another service listens on {}", path.display()),
            ));
        }
        std::fs::remove_file(path)?;
    }
    // Bound under another name and made private before anybody can find it.
    let hidden: PathBuf = path.with_extension(format!("{}", std::process::id()));
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&hidden, path)?;
    Ok(listener)
}

pub async fn bind_http(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until the service is asked to stop.
pub async fn run(service: Arc<Service>, doors: Doors) {
    let tracker = TaskTracker::new();
    let stopping = service.stopping().clone();
    if let Some(listener) = doors.socket {
        tracker.spawn(accept_local(service.clone(), listener, tracker.clone()));
    }
    if let Some(listener) = doors.http {
        let router = crate::http::router(service.clone(), doors.credentials, doors.hosts);
        tracker.spawn(accept_http(service.clone(), listener, router, tracker.clone()));
    }
    stopping.cancelled().await;
    tracker.close();
    if tokio::time::timeout(STOP_TIME_MAX, tracker.wait()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
    service.close().await;
}

async fn accept_local(service: Arc<Service>, listener: UnixListener, tracker: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let own = rustix::process::geteuid().as_raw();
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.stopping().cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        // The file's mode keeps others out already; this holds where modes do not.
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
            tracing::warn!("refused a connection of another user");
            continue;
        }
        let service = service.clone();
        tracker.spawn(async move {
            crate::socket::serve(service, stream).await;
            drop(place);
        });
    }
}

async fn accept_http(service: Arc<Service>, listener: TcpListener, router: axum::Router, tracker: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.stopping().cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (router, stopping) = (router.clone(), service.stopping().clone());
        tracker.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIME_MAX)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopping.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP connection ended");
            }
            drop(place);
        });
    }
}

/// Out of file descriptors, most likely: others need a moment to end.
async fn pause_after(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}
