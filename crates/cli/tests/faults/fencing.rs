//! Many processes fight for one key while holders are paused past their TTL: the resource itself keeps late ones out, by
//! their fencing tokens, and where it does not look they get in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::fight::{acquire, part, start};
use crate::house::House;
use crate::service::{Dice, Line, Service, deep, send};

/// As short as a lock may be, because every pause has to last longer.
const TTL_MS: u64 = 1000;
/// How often a holder writes while it is inside.
const STEPS: u64 = 4;
/// How many may be paused at the same time.
const ASLEEP_MAX: u64 = 3;

/// Something that a lock protects. If it checks tokens, it takes none below the greatest that it has seen.
struct Resource {
    path: PathBuf,
    checks: bool,
}

/// One thing that was written to it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    token: u64,
    author: String,
    step: u64,
}

impl Resource {
    fn new(folder: &Path, checks: bool) -> Resource {
        Resource { path: folder.join("resource"), checks }
    }

    /// For as long as the file is there, nobody writes.
    fn lock(&self) -> File {
        let file = File::options().create(true).append(true).open(&self.path).expect("opens");
        file.lock().expect("locked");
        file
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |line: &str| -> Option<Entry> {
            let mut words = line.split(' ');
            let token = words.next()?.parse().ok()?;
            Some(Entry { token, author: words.next()?.to_owned(), step: words.next()?.parse().ok()? })
        };
        let written = fs::read_to_string(&self.path).unwrap_or_default();
        written.lines().map(|line| entry(line).expect("an entry")).collect()
    }

    fn write(&self, entry: &Entry) -> bool {
        let mut file = self.lock();
        if self.checks && self.entries().iter().any(|seen| seen.token > entry.token) {
            return false;
        }
        // In one piece: whoever only looks on does not wait for the lock.
        let line = format!("{} {} {}\n", entry.token, entry.author, entry.step);
        file.write_all(line.as_bytes()).expect("written");
        true
    }
}

/// How many came in after somebody with a newer token.
fn late(entries: &[Entry]) -> usize {
    let mut newest = 0;
    let is_late = |entry: &&Entry| {
        newest = newest.max(entry.token);
        entry.token < newest
    };
    entries.iter().filter(is_late).count()
}

/// Goes in and out until it is told that all is over, none the wiser when it was paused inside.
fn fight(line: &mut Line, session: &str, folder: &Path) {
    let resource = Resource::new(folder, folder.join("checks").exists());
    let key = folder.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut refused = 0;
    loop {
        let token = acquire(line, session, key, TTL_MS);
        let inside = (1..=STEPS).all(|step| {
            std::thread::sleep(Duration::from_millis(1));
            resource.write(&Entry { token, author: session.to_owned(), step })
        });
        let body = json!({ "session_id": session, "file_path": key, "fencing_token": token });
        let (status, answer) = line.ask("locks/release", body).expect("an answer");
        if !inside {
            refused += 1;
            assert_ne!(status, 200, "somebody newer was inside: {answer}");
        }
        if folder.join("over").exists() {
            break;
        }
    }
    println!("\nrefused {refused}");
}

/// Whether every thread of a process stands still.
fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    threads.into_iter().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// Counts looks and not time, because a machine that stood still has not waited.
fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if look() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("waited in vain: {what}");
}

/// The fighters by name. None is left behind, asleep or awake, whatever fails.
struct Fighters(BTreeMap<String, Child>);

impl Fighters {
    fn pid(&self, name: &str) -> u32 {
        self.0[name].id()
    }
}

impl Drop for Fighters {
    fn drop(&mut self) {
        for fighter in self.0.values_mut() {
            let _ = fighter.kill();
            let _ = fighter.wait();
        }
    }
}

/// Stops whoever is inside and has more to write, and gives back what it wrote last.
fn pause_a_holder(resource: &Resource, fighters: &Fighters) -> Entry {
    let mut paused = None;
    wait_until("somebody inside", || {
        // So that nobody is stopped in the middle of a check, which would keep everybody out.
        let _nobody_writes = resource.lock();
        paused = resource.entries().pop().filter(|entry| entry.step < STEPS);
        if let Some(entry) = &paused {
            let pid = fighters.pid(&entry.author);
            wait_until("it stands still", || {
                send(pid, Signal::STOP);
                stands_still(pid)
            });
        }
        paused.is_some()
    });
    paused.expect("somebody")
}

/// A fight with so many pauses, each until somebody newer is inside: how many were kept out, and all that was written.
fn fight_with_pauses(test: &str, folder: &Path, socket: &Path, fighters: usize, pauses: u64) -> (u64, Vec<Entry>) {
    let checks = folder.join("checks").exists();
    let resource = Resource::new(folder, checks);
    let name = |n: usize| format!("{}{n}", if checks { "checked" } else { "bare" });
    let mut fighters = Fighters((0..fighters).map(|n| (name(n), start(test, &name(n), folder, socket))).collect());
    let mut dice = Dice::new(pauses);
    let (mut asleep, mut paused) = (Vec::new(), 0);
    while paused < pauses {
        std::thread::sleep(Duration::from_millis(dice.below(200)));
        let entry = pause_a_holder(&resource, &fighters);
        wait_until("somebody newer is inside", || resource.entries().iter().any(|seen| seen.token > entry.token));
        // Somebody else may have let it go on meanwhile.
        paused += u64::from(!resource.entries().iter().any(|seen| seen.token == entry.token && seen.step > entry.step));
        asleep.push(entry);
        if paused == pauses || asleep.len() as u64 > dice.below(ASLEEP_MAX) {
            asleep.drain(..).for_each(|entry| send(fighters.pid(&entry.author), Signal::CONT));
        }
    }
    fs::write(folder.join("over"), "").expect("written");
    let mut refused = 0;
    while let Some((_, fighter)) = fighters.0.pop_first() {
        let output = fighter.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        refused += said.lines().find_map(|line| line.strip_prefix("refused ")?.parse::<u64>().ok()).expect("a count");
    }
    (refused, resource.entries())
}

#[test]
fn whichever_holders_are_paused_nobody_gets_in_after_a_newer_token_unless_no_token_is_checked() {
    let test = "fencing::whichever_holders_are_paused_nobody_gets_in_after_a_newer_token_unless_no_token_is_checked";
    if let Some((session, folder, mut line)) = part() {
        return fight(&mut line, &session, &folder);
    }
    let (fighters, pauses) = if deep() { (64, 40) } else { (12, 5) };
    let house = House::new();
    let service = Service::start(&house);
    let run = |checks: bool| {
        let folder = house.path().join(if checks { "checked" } else { "bare" });
        fs::create_dir(&folder).expect("a folder");
        if checks {
            fs::write(folder.join("checks"), "").expect("written");
        }
        let (refused, entries) = fight_with_pauses(test, &folder, service.socket(), fighters, pauses);
        let authors: BTreeSet<&str> = entries.iter().map(|entry| &*entry.author).collect();
        assert_eq!(authors.len(), fighters, "everybody gets their turn: {authors:?}");
        (refused, late(&entries) as u64)
    };
    let (checked, bare) = std::thread::scope(|scope| {
        let checked = scope.spawn(|| run(true));
        let bare = run(false);
        (checked.join().expect("a fight"), bare)
    });
    println!("{pauses} pauses: {} kept out; unchecked, {} writes came late", checked.0, bare.1);
    assert!(checked.0 >= pauses && checked.1 == 0, "kept out and late: {checked:?}");
    // Without the check the overlap is there: this test is able to see one.
    assert!(bare.0 == 0 && bare.1 >= pauses, "kept out and late: {bare:?}");
}
