//! Poolers: in transaction mode they are refused, in session mode they are none to worry about.

use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lockkeeper_advisory::{Address, AdvisoryLockError, Locks, Monitor, Namespaces};
use lockkeeper_postgres_fixture::{PgBouncer, Postgres};

use crate::ground::{held, in_time, namespace, server};

fn address(pooler: &PgBouncer) -> Address {
    Address::parse(&pooler.url()).expect("a URL")
}

async fn is_refused(mode: &str, more: &str) {
    let server = server();
    let pooler = PgBouncer::start(&server, mode, more);
    let (locks, namespace) = (Locks::open(address(&pooler), 2).expect("locks"), namespace());
    let refused = in_time(locks.lock(namespace, 1, None).into_future()).await;
    assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{mode} {more}: {refused:?}");
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("pool_mode = session"), "{message}");
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn a_pgbouncer_in_transaction_mode_is_refused() {
    is_refused("transaction", "").await;
}

#[tokio::test]
async fn a_pgbouncer_in_transaction_mode_that_hides_itself_is_refused() {
    is_refused("transaction", "ignore_startup_parameters = options,extra_float_digits").await;
    is_refused("transaction", "default_pool_size = 1").await;
    is_refused("statement", "ignore_startup_parameters = options").await;
}

#[tokio::test]
async fn a_busy_pgbouncer_in_transaction_mode_is_refused() {
    let server = server();
    let pooler = PgBouncer::start(&server, "transaction", "default_pool_size = 8");
    let url = pooler.url();
    // Others keep taking sessions out of the pool and putting them back.
    let crowd: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                let (client, connection) =
                    tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
                tokio::spawn(connection);
                while client.batch_execute("SELECT pg_sleep(0.002)").await.is_ok() {}
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..5 {
        let locks = Locks::open(address(&pooler), 2).expect("locks");
        let refused = in_time(locks.lock(namespace(), 1, None).into_future()).await;
        assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{refused:?}");
    }
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_pgbouncer_in_session_mode_serves() {
    let server = server();
    let pooler = PgBouncer::start(&server, "session", "");
    let (locks, namespace) = (Locks::open(address(&pooler), 2).expect("locks"), namespace());
    let body = async || anyhow::Ok(held(&server, namespace));
    assert_eq!(in_time(locks.lock(namespace, 1, None).scope(body)).await.expect("locked"), 1);
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn the_monitor_looks_through_a_pgbouncer_of_any_mode() {
    let server = server();
    let pooler = PgBouncer::start(&server, "transaction", "");
    let monitor = Monitor::new(address(&pooler), Namespaces::default());
    for _ in 0..3 {
        in_time(monitor.locks()).await.expect("listed");
    }
}

/// A pooler that passes on everything, the options of the start too, and yet gives one connection two sessions in turn.
struct Swapper {
    port: u16,
}

impl Swapper {
    /// The first lock or unlock goes to the session with this number, the next one to the other.
    fn start(server: &Postgres, first: usize) -> Swapper {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let behind = server.dir().join(format!(".s.PGSQL.{}", server.port()));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let behind = behind.clone();
                // An error is the end of the client or of the server.
                std::thread::spawn(move || swap(client, &behind, first).ok());
            }
        });
        Swapper { port }
    }

    fn locks(&self) -> Locks {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port);
        Locks::open(Address::parse(&url).expect("a URL"), 1).expect("locks")
    }
}

fn swap(mut client: TcpStream, behind: &Path, first: usize) -> std::io::Result<()> {
    let start = body(&mut client, Vec::new())?;
    let mut sessions = [UnixStream::connect(behind)?, UnixStream::connect(behind)?];
    for session in &mut sessions {
        session.write_all(&start)?;
    }
    let answers = [until_ready(&mut sessions[0])?, until_ready(&mut sessions[1])?];
    client.write_all(&answers[0])?;
    let (mut turn, mut about_locks) = (first, Vec::new());
    loop {
        // All up to where the client waits for an answer: a Sync, or a simple query.
        let (mut said, mut binds) = (Vec::new(), false);
        loop {
            let message = message(&mut client)?;
            let mut words = message[5..].split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (one, two) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match message[0] {
                b'P' if String::from_utf8_lossy(&two).contains("advisory") => about_locks.push(one),
                b'B' => binds |= about_locks.contains(&two),
                _ => {}
            }
            said.extend_from_slice(&message);
            match message[0] {
                b'S' | b'Q' => break,
                b'X' => return Ok(()),
                _ => {}
            }
        }
        let answer = if binds {
            turn += 1;
            let session = &mut sessions[(turn - 1) % 2];
            session.write_all(&said)?;
            until_ready(session)?
        } else {
            // What is set and prepared is so in both, as good poolers do it.
            for session in &mut sessions {
                session.write_all(&said)?;
            }
            let answers = [until_ready(&mut sessions[0])?, until_ready(&mut sessions[1])?];
            answers[0].clone()
        };
        client.write_all(&answer)?;
    }
}

/// The length and what follows, behind what was read already.
fn body(from: &mut impl Read, mut before: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    from.read_exact(&mut rest)?;
    before.extend_from_slice(&length);
    before.extend(rest);
    Ok(before)
}

fn message(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut kind = [0];
    from.read_exact(&mut kind)?;
    body(from, kind.to_vec())
}

fn until_ready(session: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let message = message(session)?;
        all.extend_from_slice(&message);
        if message[0] == b'Z' {
            return Ok(all);
        }
    }
}

#[tokio::test]
async fn a_pooler_that_looks_like_the_server_is_found_out_by_the_first_lock_and_nothing_stays_behind() {
    let server = server();
    let (swapper, namespace) = (Swapper::start(&server, 1), namespace());
    let locks = swapper.locks();
    let refused = in_time(locks.lock(namespace, 1, None).into_future()).await;
    assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{refused:?}");
    assert_eq!(held(&server, namespace), 0, "a lock was taken in a session of others");
    let refused = in_time(locks.lock_or_skip(namespace, 1).into_future()).await;
    assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{refused:?}");
    assert_eq!(held(&server, namespace), 0, "a lock was taken in a session of others");
}

#[tokio::test]
async fn a_pooler_that_gives_another_session_for_the_unlock_is_named() {
    let server = server();
    let (swapper, namespace) = (Swapper::start(&server, 0), namespace());
    let guard = in_time(swapper.locks().lock(namespace, 1, None).into_future()).await.expect("locked");
    let ended = in_time(guard.release()).await;
    let Err(AdvisoryLockError::Lost { why, .. }) = ended else { panic!("{ended:?}") };
    assert!(why.contains("pooler") && why.contains("pool_mode = session"), "{why}");
    crate::ground::eventually("the connection is closed, and the lock with it", || held(&server, namespace) == 0).await;
}
