//! The servers that write to one ledger, and what each is set to: whoever runs them wants to know when that differs.
//!
//! They say it again and again, so it is no part of a snapshot.

use crate::journal::Undo;
use crate::limits::SERVERS_MAX;
use crate::state::State;
use crate::time::{Millis, Time};

/// A server that said nothing for so long has ended, or has nothing to do.
const REMEMBERED: Millis = Millis::from_secs(300);

/// A server, as it spoke of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// In words.
    pub settings: String,
    pub seen: Time,
}

impl State {
    /// The servers that were heard of lately, by their names.
    pub fn servers(&self, now: Time) -> impl Iterator<Item = (&str, &Server)> {
        let lately = move |server: &Server| now.since(server.seen) < REMEMBERED;
        self.servers.iter().filter(move |(_, server)| lately(server)).map(|(name, server)| (name.as_str(), server))
    }

    pub(crate) fn see_server(&mut self, now: Time, name: &str, settings: &str) {
        let oldest = self.servers.iter().min_by_key(|(_, server)| server.seen).map(|(name, _)| name.clone());
        if self.servers.len() >= SERVERS_MAX
            && !self.servers.contains_key(name)
            && let Some(oldest) = oldest
        {
            self.put_server(&oldest, None);
        }
        self.put_server(name, Some(Server { settings: settings.to_owned(), seen: now }));
    }

    pub(crate) fn put_server(&mut self, name: &str, new: Option<Server>) {
        let old = match new {
            Some(new) => self.servers.insert(name.to_owned(), new),
            None => self.servers.remove(name),
        };
        self.journal.note(|| Undo::Server(name.to_owned(), old));
    }
}
