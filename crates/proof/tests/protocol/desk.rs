//! What the tests share: proofs in temporary folders, a clock that can be set, and processes that play a part.
//!
//! The processes are this same program again: the one test here is also the process, when it finds itself started with a
//! part to play.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lockkeeper_proof::{Ledger, NewEvent, NodeId, Options, Owner, Profile};

const PART: &str = "LOCKKEEPER_TEST_PART";
const PROOF: &str = "LOCKKEEPER_TEST_PROOF";

thread_local! {
    static AHEAD: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
    static MEANWHILE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Does something when this thread looks at the clock the next time: that is while it judges claims.
pub(crate) fn at_next_clock(act: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(act)));
}

/// A wall clock that each test can set for itself.
pub(crate) fn clock() -> Timestamp {
    if let Some(act) = MEANWHILE.take() {
        act();
    }
    Timestamp::now() + AHEAD.get()
}

pub(crate) fn set_clock(ahead_s: i64) {
    AHEAD.set(SignedDuration::from_secs(ahead_s));
}

pub(crate) struct Proof {
    folder: tempfile::TempDir,
    pub(crate) profile: Profile,
}

impl Proof {
    pub(crate) fn new(profile: Profile) -> Proof {
        let proof = Proof { folder: tempfile::tempdir().unwrap(), profile };
        options(profile).init(&proof.path(), None).unwrap();
        proof
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("proof")
    }

    pub(crate) fn ledger_folder(&self) -> PathBuf {
        self.path().join("ledger")
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.ledger_folder().join("ledger.lock")
    }

    pub(crate) fn event_file(&self, number: u64) -> PathBuf {
        self.ledger_folder().join(self.profile.file_name(lockkeeper_proof::Sequence(number)))
    }

    pub(crate) fn open(&self) -> Ledger {
        options(self.profile).open(&self.path()).unwrap()
    }

    /// Opened by somebody who does not wait long.
    pub(crate) fn open_impatient(&self) -> Ledger {
        Options { lock_timeout: Duration::from_millis(150), ..options(self.profile) }.open(&self.path()).unwrap()
    }

    /// Nothing is wrong with it, and nothing is left of a lock.
    pub(crate) fn assert_sound(&self) {
        let found = lockkeeper_proof::verify(&self.path(), options(self.profile)).unwrap();
        assert!(found.is_sound(), "{found:#?}");
        assert_eq!(found.events, found.sequence.0, "no gap and nothing twice");
        assert!(!self.lock_file().exists(), "no lock is left");
    }
}

/// Patient: the machine may be busy.
pub(crate) fn options(profile: Profile) -> Options {
    Options { profile: Some(profile), lock_timeout: Duration::from_secs(60), clock, ..Options::default() }
}

pub(crate) fn node(text: &str) -> NodeId {
    NodeId::parse(text, Profile::Doc).unwrap()
}

pub(crate) fn owner(text: &str) -> Owner {
    Owner::parse(text).unwrap()
}

/// An event that both profiles take, of which each is different.
pub(crate) fn event(profile: Profile, writer: &str, number: u64) -> NewEvent {
    let event_type = match profile {
        Profile::Doc => "custom_event",
        Profile::Af => "hint_added",
    };
    let now = Timestamp::now();
    let text = format!(r#"{{"type":"{event_type}","timestamp":"{now}","writer":"{writer}","n":{number}}}"#);
    NewEvent::parse(&text, profile).unwrap()
}

/// Whether the long campaigns run.
pub(crate) fn deep() -> bool {
    std::env::var_os("LOCKKEEPER_DEEP").is_some()
}

/// A process that plays a part.
pub(crate) struct Player {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Player {
    pub(crate) fn start(part: &str, proof: &Path, more: &[(&str, &str)]) -> Player {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "desk::a_process_plays_the_part_that_it_was_started_for"]);
        command.env(PART, part).env(PROOF, proof).envs(more.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Player { child, lines }
    }

    /// The next line that begins with this word, without the word; `None` at the end.
    pub(crate) fn hear(&mut self, word: &str) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| Some(line.strip_prefix(word)?.trim().to_owned()))
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// All further lines, and whether it ended well.
    pub(crate) fn finish(mut self) -> (Vec<String>, bool) {
        drop(self.child.stdin.take());
        let lines = self.lines.by_ref().map_while(Result::ok).collect();
        (lines, self.child.wait().unwrap().success())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn a_process_plays_the_part_that_it_was_started_for() {
    let Some(part) = variable(PART) else {
        // The one who watches: nobody plays a part that there is not.
        assert!(!Player::start("nobody", Path::new("."), &[]).finish().1);
        return;
    };
    let proof = PathBuf::from(variable(PROOF).unwrap());
    let open = || {
        let profile = variable("PROFILE").map_or(Profile::Doc, |text| text.parse().unwrap());
        Options { claim_files: profile == Profile::Doc, ..options(profile) }.open(&proof).unwrap()
    };
    match part.as_str() {
        "writes" => crate::crowd::writes(&open()),
        "claims" => crate::claims::claims(&open()),
        "reaps" => crate::claims::reaps(&open()),
        "holds" => crate::lock::holds(&open()),
        "enters" => crate::lock::enters(&open()),
        "works" => crate::crash::works(&open()),
        other => panic!("nobody plays {other}"),
    }
}
