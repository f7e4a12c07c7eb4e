//! Runs a service: listens, hands each connection to its door, and stops cleanly.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::auth::Credentials;
use crate::service::Service;

/// Connections that are open at once on each door; beyond that, newcomers wait.
const CONNECTIONS_MAX: usize = 4096;
/// File descriptors that are kept for ledgers and the like.
const DESCRIPTORS_KEPT: usize = 64;
/// How often a connection is asked whether anybody is still there.
const HANG_UP_LOOK: Duration = Duration::from_millis(500);
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
    if path.symlink_metadata().is_ok() {
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AddrInUse,
                format!("another service listens on {}", path.display()),
            ));
        }
        if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(std::io::Error::other(format!("{} is there and is no socket", path.display())));
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
    service.close();
}

/// Half of the descriptors that there may be, for each door: strangers on TCP can't take those of the local user.
fn connections_max() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let free = usize::try_from(current).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_KEPT);
    (free / 4).clamp(8, CONNECTIONS_MAX)
}

/// The next connection, when there is a place for it; `None` when the service stops.
async fn next<S>(
    service: &Service,
    places: &Arc<Semaphore>,
    accept: impl Fn(&mut Context<'_>) -> Poll<std::io::Result<S>>,
) -> Option<(OwnedSemaphorePermit, S)> {
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        tokio::select! {
            accepted = std::future::poll_fn(&accept) => match accepted {
                Ok(stream) => return Some((place, stream)),
                Err(error) => pause_after(&error).await,
            },
            () = service.stopping().cancelled() => return None,
        }
    }
}

async fn accept_local(service: Arc<Service>, listener: UnixListener, tracker: TaskTracker) {
    let places = Arc::new(Semaphore::new(connections_max()));
    let own = rustix::process::geteuid().as_raw();
    loop {
        let next = next(&service, &places, |cx| listener.poll_accept(cx)).await;
        let Some((place, (stream, _))) = next else { return };
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
    let places = Arc::new(Semaphore::new(connections_max()));
    loop {
        let next = next(&service, &places, |cx| listener.poll_accept(cx)).await;
        let Some((place, (stream, _))) = next else { return };
        let _ = stream.set_nodelay(true);
        // Whoever does not read what it asked for is let go by the system.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, 30_000);
        let Ok(watched) = stream.as_fd().try_clone_to_owned() else { continue };
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
                // A wait whose client is gone is given up, also when more was sent behind the question.
                () = hung_up(&watched) => Ok(()),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP connection ended");
            }
            drop(place);
        });
    }
}

/// Ends when the other side has closed.
async fn hung_up(stream: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        tokio::time::sleep(HANG_UP_LOOK).await;
        let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}

/// Out of file descriptors, most likely: others need a moment to end.
async fn pause_after(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}
