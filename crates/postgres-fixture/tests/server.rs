//! The fixture itself: a test that relies on it must not be fooled.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_postgres_fixture::{Options, Postgres, Stop};

#[test]
fn a_server_keeps_its_data_over_stops_and_kills_and_leaves_nothing_behind() {
    let mut postgres = Postgres::start();
    postgres.sql("CREATE TABLE kept (n int)");
    postgres.create_database("other");
    assert!(postgres.url_of("other").ends_with("/other"));
    postgres.sql("INSERT INTO kept VALUES (1)");
    postgres.restart();
    postgres.sql("INSERT INTO kept VALUES (2)");
    postgres.stop(Stop::Immediate);
    postgres.run();
    postgres.sql("INSERT INTO kept VALUES (3)");
    postgres.kill();
    postgres.run();
    assert_eq!(postgres.sql("SELECT sum(n) FROM kept"), "6");
    let (dir, port) = (postgres.dir().to_owned(), postgres.port());
    drop(postgres);
    assert!(!dir.exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_paused_server_answers_nobody_until_it_is_resumed() {
    let postgres = Postgres::start_with(&Options::quick());
    postgres.pause();
    // The system itself takes the connection; nobody reads from it. A cancel request is answered by closing it.
    let mut stream = TcpStream::connect(("127.0.0.1", postgres.port())).expect("the backlog");
    std::io::Write::write_all(&mut stream, &[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 0, 0, 0, 0, 0]).expect("sent");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    assert!(stream.read(&mut [0; 1]).is_err(), "a paused server answered");
    postgres.resume();
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    assert!(stream.read(&mut [0; 1]).is_ok_and(|read| read == 0));
    assert_eq!(postgres.sql("SHOW fsync"), "off");
}
