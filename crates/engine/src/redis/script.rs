//! The scripts that run inside Redis: asked for by their hash, and sent whole when Redis does not have them.

use std::sync::LazyLock;

use redis::Cmd;
use sha1::{Digest, Sha1};

const LEDGER: &str = include_str!("scripts/ledger.lua");
const APPEND: &str = include_str!("scripts/append.lua");
const READ: &str = include_str!("scripts/read.lua");
const OUTSIDE: &str = include_str!("scripts/outside.lua");
const STORE: &str = include_str!("scripts/store.lua");
const COMPACT: &str = include_str!("scripts/compact.lua");
const ALLOWED: &str = include_str!("scripts/permissions.lua");

/// Refused by a Redis whose memory is full.
const TAKES: &str = "#!lua\n";
/// Served by a Redis whose memory is full: it frees something.
const FREES: &str = "#!lua flags=allow-oom\n";
/// Changes nothing.
const LOOKS: &str = "#!lua flags=no-writes\n";

/// Records a batch that takes something.
pub(super) static APPEND_TAKING: LazyLock<Script> = LazyLock::new(|| Script::new(&[TAKES, LEDGER, APPEND]));
/// Records a batch that only frees.
pub(super) static APPEND_FREEING: LazyLock<Script> = LazyLock::new(|| Script::new(&[FREES, LEDGER, APPEND]));
/// Hands back what was missed.
pub(super) static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOOKS, LEDGER, READ]));
/// Looks at names outside of the ledger.
pub(super) static LOOK_OUTSIDE: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOOKS, OUTSIDE]));
/// Adds a part to a snapshot: in the end it frees what it replaces.
pub(super) static STORE_PART: LazyLock<Script> = LazyLock::new(|| Script::new(&[FREES, STORE]));
/// Switches to a snapshot, and trims what it stands for.
pub(super) static SWITCH: LazyLock<Script> = LazyLock::new(|| Script::new(&[FREES, LEDGER, COMPACT]));

/// Tells what the user may not do.
pub(super) static PERMISSIONS: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOOKS, ALLOWED]));

/// Everything that is run.
#[cfg(test)]
pub(super) fn all() -> [&'static str; 7] {
    [LEDGER, APPEND, READ, OUTSIDE, STORE, COMPACT, ALLOWED]
}

/// How long the number of keys is, at most.
const COUNT_DIGITS_MAX: usize = 20;

#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Script {
        let text = parts.concat();
        let hash = format!("{:x}", Sha1::digest(&text));
        Script { text, hash }
    }

    /// Runs it, if Redis has it.
    pub(super) fn by_hash(&self, call: &Call<'_>) -> Cmd {
        call.command("EVALSHA", &self.hash)
    }

    /// Runs it, and leaves it there.
    pub(super) fn by_text(&self, call: &Call<'_>) -> Cmd {
        call.command("EVAL", &self.text)
    }
}

/// What a script is given.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) keys: &'a [&'a str],
    pub(super) args: &'a [&'a [u8]],
}

impl Call<'_> {
    fn command(&self, name: &str, script: &str) -> Cmd {
        let words = 3 + self.keys.len() + self.args.len();
        let keys: usize = self.keys.iter().map(|key| key.len()).sum();
        let mut command = Cmd::with_capacity(words, name.len() + script.len() + keys + self.bytes() + COUNT_DIGITS_MAX);
        command.arg(name).arg(script).arg(self.keys.len());
        for key in self.keys {
            command.arg(*key);
        }
        for arg in self.args {
            command.arg(*arg);
        }
        command
    }

    /// How much is sent.
    pub(super) fn bytes(&self) -> usize {
        self.args.iter().map(|arg| arg.len()).sum()
    }
}
