//! A disk whose syncs fail under a service: it stops, acknowledges nothing after that, and never tries again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;

use crate::house::{House, wait_for};
use crate::service::{Line, Service};
use crate::shim;

/// A grant that was acknowledged: path and token.
type Grant = (String, u64);

/// Acquires until the connection breaks. A grant that was asked for after the first failed sync is a broken promise.
fn work(socket: &Path, failed: &Path, session: &str, granted: &Mutex<Vec<Grant>>) {
    let mut line = Line::connect(socket).expect("a connection");
    for n in 0.. {
        let path = format!("{session}/{n}");
        let too_late = failed.exists();
        let body = json!({ "session_id": session, "file_path": path, "ttl_minutes": 60 });
        let Ok((status, answer)) = line.ask("locks/acquire", body) else { return };
        if status == 200 {
            assert!(!too_late, "acknowledged after a sync had failed: {answer}");
            let token = answer["fencing_token"].as_u64().expect("a token");
            granted.lock().expect("no holder panics").push((path, token));
        } else {
            assert_eq!(status, 503, "{answer}");
        }
    }
}

struct Disk {
    shim: PathBuf,
    broken: PathBuf,
    told: PathBuf,
}

impl Disk {
    fn new(house: &House) -> Disk {
        let broken = house.path().join("broken");
        let told = house.path().join("broken.told");
        Disk { shim: shim::compile(house.path(), "disk", shim::BROKEN_DISK), broken, told }
    }

    fn service(&self, house: &House) -> Service {
        Service::start_with(house, &["--listen", "none"], |mut command| {
            command.env("LD_PRELOAD", &self.shim).env("BROKEN_DISK", &self.broken);
            command
        })
    }
}

#[test]
fn p16_a_failed_sync_stops_the_service_and_nothing_is_acknowledged_after_it() {
    let house = House::new();
    let disk = Disk::new(&house);
    let mut service = disk.service(&house);
    let granted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (socket, told, granted) = (service.socket().to_owned(), &disk.told, &granted);
            scope.spawn(move || work(&socket, told, &format!("s{n}"), granted));
        }
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(&disk.broken, "").expect("written");
    });
    let code = service.ends(Duration::from_secs(10));
    assert_eq!(code, Some(1), "a service that failed says so: {}", service.logged());
    let log = service.logged();
    assert!(log.contains("the disk failed") && !log.contains("panicked"), "{log}");
    let told = std::fs::read_to_string(&disk.told).expect("a sync failed");
    assert_eq!(told.matches('d').count(), 1, "a failed sync of the log is never tried again: {told}");
    // The disk is mended: all that was acknowledged is there, and tokens go on rising.
    std::fs::remove_file(&disk.broken).expect("removed");
    let granted = granted.into_inner().expect("no holder panicked");
    assert!(granted.len() > 20, "{} grants are no load", granted.len());
    let service = Service::start(&house);
    let mut line = service.line();
    let (_, list) = line.ask("locks/active", json!({ "limit": 100_000 })).expect("a list");
    let held = |(path, token): &Grant| {
        let rows = list["locks"].as_array().expect("a list").iter();
        rows.filter(|lock| lock["file_path"] == **path && lock["fencing_token"] == *token).count() == 1
    };
    assert!(granted.iter().all(held), "{} were acknowledged, {} are there", granted.len(), list["total"]);
    let body = json!({ "session_id": "s", "file_path": "new" });
    let (_, new) = line.ask("locks/acquire", body).expect("an answer");
    let greatest = granted.iter().map(|(_, token)| *token).max();
    assert!(new["fencing_token"].as_u64() > greatest, "{new}");
}

#[test]
fn a_service_on_a_disk_that_is_broken_from_the_start_acknowledges_nothing() {
    let house = House::new();
    let disk = Disk::new(&house);
    let service = Service::start(&house);
    service.line().ask("locks/acquire", json!({ "session_id": "s", "file_path": "old" })).expect("an answer");
    service.kill();
    std::fs::write(&disk.broken, "").expect("written");
    let mut command = house.command("server", &["serve", "--listen", "none"]);
    command.env("LD_PRELOAD", &disk.shim).env("BROKEN_DISK", &disk.broken);
    let mut broken = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
    let (status, answer) = wait_for("an answer", || {
        let mut line = Line::connect(&house.home().join("socket")).ok()?;
        line.ask("locks/acquire", json!({ "session_id": "s", "file_path": "new" })).ok()
    });
    assert_eq!((status, answer["error"].as_str()), (503, Some("unavailable")), "{answer}");
    broken.kill().expect("killed");
    broken.wait().expect("ended");
    std::fs::remove_file(&disk.broken).expect("removed");
    let service = Service::start(&house);
    let (_, list) = service.line().ask("locks/active", json!({})).expect("a list");
    assert_eq!((&list["total"], &list["locks"][0]["file_path"]), (&json!(1), &json!("old")), "{list}");
}

#[test]
fn p16_a_service_whose_log_can_not_be_written_goes_on() {
    let house = House::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    let mut command = house.command("server", &["serve", "--listen", "none"]);
    let mut child =
        command.env("LOCKKEEPER_LOG", "trace").stdout(Stdio::null()).stderr(full).spawn().expect("the program runs");
    let mut line = wait_for("the service", || Line::connect(&house.home().join("socket")).ok());
    for n in 0..20 {
        let body = json!({ "session_id": "a", "file_path": format!("f{n}") });
        assert_eq!(line.ask("locks/acquire", body).expect("an answer").0, 200);
    }
    assert_eq!(child.try_wait().expect("a child"), None, "it lives");
    child.kill().expect("killed");
    child.wait().expect("ended");
}
