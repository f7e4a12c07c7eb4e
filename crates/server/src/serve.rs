//! Runs a service: listens, hands each connection to its door, and stops cleanly.

use std::io::{Cursor, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::auth::Credentials;
use crate::http::Http;
use crate::lane;
use crate::service::Service;

/// Connections that are open at once on each door; beyond that, newcomers wait a moment and are told so.
const CONNECTIONS_MAX: usize = 4096;
/// Connections that may wait to be accepted: beyond that, a newcomer tries again after a second.
const BACKLOG: u32 = 1024;
/// How long a newcomer waits for a place; once nobody left for so long, the next ones are turned away at once.
const PLACE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long one that is turned away gets to read why, and how many may take that time at once.
const FAREWELL_TIME_MAX: Duration = Duration::from_millis(500);
const FAREWELLS_MAX: usize = 8;
/// File descriptors that are kept for ledgers and the like.
const DESCRIPTORS_KEPT: usize = 64;
/// How often a connection is asked whether anybody is still there.
pub(crate) const HANG_UP_LOOK: Duration = Duration::from_millis(500);
/// How long a client may take to send its headers.
pub(crate) const HEADERS_TIME_MAX: Duration = Duration::from_secs(8);
/// All of them together.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long an answer over HTTP may take that was asked for before the service stops.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long open connections get to finish when the service stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// Where a service listens.
#[derive(Debug)]
pub struct Doors {
    pub socket: Option<PrivateSocket>,
    pub http: Option<TcpListener>,
    pub credentials: Credentials,
    /// Names besides addresses and `localhost` that HTTP requests may be for.
    pub hosts: Vec<String>,
}

/// The private socket, and its name in the file system. The name goes before the socket does: once nobody can be reached there, it is
/// a successor's.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        // If somebody removed it, another may have taken the name.
        if self.path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether somebody listens on a socket. One that can't take another connection does.
pub async fn listens(path: &Path) -> std::io::Result<bool> {
    loop {
        let Err(error) = tokio::net::UnixStream::connect(path).await else { return Ok(true) };
        match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => return Ok(false),
            ErrorKind::WouldBlock => return Ok(true),
            // Whoever listened has just gone.
            ErrorKind::ConnectionReset => {}
            _ => return Err(error),
        }
    }
}

/// Opens the private socket: nobody but its owner may connect. A socket that nobody listens on is replaced.
pub async fn bind_socket(path: &Path) -> std::io::Result<PrivateSocket> {
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(std::io::Error::other(format!("{} is there and is no socket", path.display())));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if listens(path).await? {
        let message = format!("another service listens on {}", path.display());
        return Err(std::io::Error::new(ErrorKind::AddrInUse, message));
    }
    remove_leftovers(path);
    // Bound under another name and made private before anybody can find it.
    let hidden = hidden_name(path, std::process::id());
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    let found = hidden.symlink_metadata()?;
    std::fs::rename(&hidden, path)?;
    Ok(PrivateSocket { listener, path: path.to_owned(), file: (found.dev(), found.ino()) })
}

/// What a socket is called while a process opens it. Nobody would call one of their own so.
fn hidden_name(path: &Path, pid: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{pid}"))
}

/// Removes what services left that were killed while they opened this socket.
fn remove_leftovers(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for found in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let pid = found.extension().and_then(|pid| pid.to_str()?.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| found.file_name() == hidden_name(path, *pid).file_name()) else { continue };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let is_gone = |pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        let is_socket = || found.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        if pid.is_some_and(is_gone) && is_socket() {
            let _ = std::fs::remove_file(&found);
        }
    }
}

/// Opens the door of HTTP; inside of a runtime.
pub fn bind_http(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until the service is asked to stop.
pub async fn run(service: Arc<Service>, doors: Doors) {
    let tracker = TaskTracker::new();
    let stopping = service.stopping().clone();
    if let Some(socket) = doors.socket {
        tracker.spawn(accept_local(service.clone(), socket, tracker.clone()));
    }
    if let Some(listener) = doors.http {
        let admission = Admission { credentials: doors.credentials, hosts: doors.hosts };
        let http = Http::new(service.clone(), admission);
        tracker.spawn(accept_http(service.clone(), listener, http, tracker.clone()));
    }
    stopping.cancelled().await;
    tracker.close();
    if tokio::time::timeout(STOP_TIME_MAX, tracker.wait()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
    service.close();
}

/// Half of the descriptors that there may be, for each door: strangers on TCP can't take those of the local user.
fn connections_max(descriptors_each: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let free = usize::try_from(current).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_KEPT);
    (free / 2 / descriptors_each).clamp(8, CONNECTIONS_MAX)
}

/// The connections that one door has room for.
struct Places {
    free: Arc<Semaphore>,
    /// Nobody left for a while: whoever comes is turned away until somebody does.
    full: bool,
    farewells: Arc<Semaphore>,
}

impl Places {
    fn new(count: usize) -> Places {
        let (free, farewells) = (Arc::new(Semaphore::new(count)), Arc::new(Semaphore::new(FAREWELLS_MAX)));
        Places { free, full: false, farewells }
    }

    /// A place, or none when there is none to be had soon.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        let patience = if self.full { Duration::ZERO } else { PLACE_TIME_MAX };
        let place = tokio::time::timeout(patience, self.free.clone().acquire_owned()).await;
        if place.is_err() && !self.full {
            tracing::warn!("all connections are taken; newcomers are turned away");
        }
        self.full = place.is_err();
        place.ok().map(|place| place.expect("never closed"))
    }

    /// The next connection with its place; `None` when the service stops. Those without a place get `farewell`.
    async fn next<S: Goes>(
        &mut self,
        service: &Service,
        farewell: &'static [u8],
        accept: impl Fn(&mut Context<'_>) -> Poll<std::io::Result<S>>,
    ) -> Option<(OwnedSemaphorePermit, S)> {
        loop {
            let mut place = self.place().await;
            let accepted = tokio::select! {
                accepted = std::future::poll_fn(&accept) => accepted,
                () = service.stopping().cancelled() => return None,
            };
            // Somebody may have left while nobody came.
            if place.is_none() {
                place = self.free.clone().try_acquire_owned().ok();
            }
            match (accepted, place) {
                (Ok(stream), Some(place)) => {
                    self.full = false;
                    return Some((place, stream));
                }
                (Ok(stream), None) => {
                    let time = self.farewells.clone().try_acquire_owned().ok();
                    turn_away(stream, farewell, time).await;
                }
                (Err(error), _) => pause_after(&error).await,
            }
        }
    }
}

/// A connection that can be told why it is not wanted.
trait Goes: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Goes for S {}

/// Says why. With some time for it, listens until the other side has gone: what it sent, if nobody reads it, can take
/// the answer away.
async fn turn_away(mut stream: impl Goes, farewell: &'static [u8], time: Option<OwnedSemaphorePermit>) {
    // Nothing was written before: this fits into the buffer, and waits for nobody.
    let said = tokio::time::timeout(FAREWELL_TIME_MAX, stream.write_all(farewell)).await;
    let (Ok(Ok(())), Some(time)) = (said, time) else { return };
    tokio::spawn(async move {
        let mut unread = [0; 1024];
        let gone = async {
            stream.shutdown().await?;
            while stream.read(&mut unread).await? > 0 {}
            Ok::<(), std::io::Error>(())
        };
        let _ = tokio::time::timeout(FAREWELL_TIME_MAX, gone).await;
        drop(time);
    });
}

/// One line, without the id of a question: none was read.
const SOCKET_FULL: &[u8] = concat!(
    r#"{"id":0,"status":503,"body":{"success":false,"error":"unavailable","reason":"connections","#,
    r#""message":"All connections of the service are taken; try again in a moment."}}"#,
    "\n"
)
.as_bytes();
const HTTP_FULL: &[u8] = concat!(
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 139\r\n",
    "Retry-After: 1\r\nConnection: close\r\n\r\n",
    r#"{"success":false,"error":"unavailable","reason":"connections","#,
    r#""message":"All connections of the service are taken; try again in a moment."}"#
)
.as_bytes();

async fn accept_local(service: Arc<Service>, socket: PrivateSocket, tracker: TaskTracker) {
    let mut places = Places::new(connections_max(1));
    let own = rustix::process::geteuid().as_raw();
    let accept = |cx: &mut Context<'_>| socket.listener.poll_accept(cx).map_ok(|(stream, _)| stream);
    loop {
        let Some((place, stream)) = places.next(&service, SOCKET_FULL, accept).await else { return };
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

async fn accept_http(service: Arc<Service>, listener: TcpListener, http: Http, tracker: TaskTracker) {
    // Each is watched by a second descriptor.
    let mut places = Places::new(connections_max(2));
    let accept = |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| stream);
    loop {
        let Some((place, stream)) = places.next(&service, HTTP_FULL, accept).await else { return };
        let _ = stream.set_nodelay(true);
        // Whoever does not read what it asked for is let go by the system.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, 30_000);
        let watched = match stream.as_fd().try_clone_to_owned() {
            Ok(watched) => watched,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let (http, stopping) = (http.clone(), service.stopping().clone());
        tracker.spawn(async move {
            let mut stream = stream;
            if let Some(read) = lane::serve(&http, &mut stream, &watched, &stopping).await {
                serve_http(http, stream, read, &watched, &stopping).await;
            }
            drop(place);
        });
    }
}

/// Serves a connection of which something was read already.
async fn serve_http(http: Http, stream: TcpStream, read: Vec<u8>, watched: &OwnedFd, stopping: &CancellationToken) {
    let (reader, writer) = stream.into_split();
    let stream = tokio::io::join(Cursor::new(read).chain(reader), writer);
    // Of headers there may be a hundred: the library's own bound, for which it has room at hand.
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| http.clone().call(request)));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // What was asked already is answered; whoever waits comes back when there is a service again.
            tokio::time::timeout(ANSWER_TIME_MAX, connection).await.unwrap_or(Ok(()))
        }
        // A wait whose client is gone is given up, also when more was sent behind the question.
        () = hung_up(watched) => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

/// Ends when the other side has closed.
pub(crate) async fn hung_up(stream: &impl AsFd) {
    loop {
        tokio::time::sleep(HANG_UP_LOOK).await;
        if has_hung_up(stream) {
            return;
        }
    }
}

/// Whether the other side has closed, also when more was sent before.
pub(crate) fn has_hung_up(stream: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Out of file descriptors, most likely: others need a moment to end.
async fn pause_after(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_name_of_a_socket_goes_with_it_unless_it_is_a_successors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = bind_socket(&path).await.unwrap();
        assert_eq!(bind_socket(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        std::fs::remove_file(&path).unwrap();
        let second = bind_socket(&path).await.unwrap();
        drop(first);
        std::os::unix::net::UnixStream::connect(&path).expect("the successor's");
        drop(second);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_a_service_left_that_was_killed_while_it_began_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut ended = [(); 2].map(|()| std::process::Command::new("true").spawn().unwrap());
        for process in &mut ended {
            process.wait().unwrap();
        }
        let [ended, other] = ended.map(|process| process.id());
        drop(UnixListener::bind(hidden_name(&path, ended)).unwrap());
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().cast_unsigned();
        let living = hidden_name(&path, parent);
        drop(UnixListener::bind(&living).unwrap());
        let no_socket = hidden_name(&path, other);
        std::fs::write(&no_socket, "").unwrap();
        // Somebody else's, whose name ends with a number.
        let neighbour = folder.path().join(format!("socket.{ended}"));
        let _neighbour = UnixListener::bind(&neighbour).unwrap();
        let _socket = bind_socket(&path).await.unwrap();
        let mut left: Vec<PathBuf> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut expected = vec![path, living, no_socket, neighbour];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_comes_while_another_lets_go_gets_the_socket_or_is_told_that_it_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..1000 {
            let going = bind_socket(&path).await.unwrap();
            let gone = std::thread::spawn(move || drop(going));
            let coming = loop {
                match bind_socket(&path).await {
                    Ok(socket) => break socket,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}"),
                }
            };
            gone.join().unwrap();
            std::os::unix::net::UnixStream::connect(&path).expect("nobody removed it");
            drop(coming);
        }
    }
}
