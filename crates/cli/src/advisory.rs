//! `lockkeeper advisory ...`: advisory locks of a PostgreSQL database, straight from there. Needs no service.

mod list;
mod run;
mod watch;

use clap::{Args, Subcommand};
use lockkeeper_advisory::{Address, AdvisoryLockError, LockRow, Monitor};
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Advisory {
    /// List who holds and who waits.
    List(list::List),
    /// Follow who takes, waits and gives back.
    Watch(watch::Watch),
    /// Hold a lock while a command runs.
    Run(run::Run),
}

impl Advisory {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Advisory::List(verb) => verb.run(context),
            Advisory::Watch(verb) => verb.run(context),
            Advisory::Run(verb) => verb.run(context),
        }
    }
}

/// Which database is meant.
#[derive(Debug, Args)]
pub(crate) struct Database {
    /// The database, without a password, or @FILE with the whole URL [env: DATABASE_URL=]
    ///
    /// Every user of this machine can read the words of a command, so a URL with a password belongs into DATABASE_URL or
    /// into a file. PGPASSWORD is used with a URL that has none.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

/// The largest file with a URL.
const URL_BYTES_MAX: u64 = 16 << 10;

impl Database {
    fn address(&self, context: &Context) -> Result<Address, Failure> {
        let address = match self.database_url.as_deref().map(|url| (url, url.strip_prefix('@'))) {
            Some((_, Some(file))) => parse(&read(file)?)?,
            Some((url, None)) => {
                let address = parse(url)?;
                if address.has_password() {
                    return Err(Failure::Question {
                        word: Word::InvalidRequest,
                        message: "A password on the command line can be read by every user of this machine.".to_owned(),
                        hint: Some("set DATABASE_URL, or write the URL into a file: --database-url @FILE".to_owned()),
                    });
                }
                address
            }
            None => match context.config()?.database_url() {
                Some(url) => parse(&url)?,
                None => {
                    return Err(Failure::Question {
                        word: Word::InvalidRequest,
                        message: "No database is named.".to_owned(),
                        hint: Some("export DATABASE_URL=postgres://user:password@host:5432/database".to_owned()),
                    });
                }
            },
        };
        let password = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
        Ok(password.map_or(address.clone(), |password| address.with_password(&password)))
    }

    fn monitor(&self, context: &Context) -> Result<Monitor, Failure> {
        let names = context.config()?.namespaces().map_err(|error| Failure::usage(format!("{error:#}")))?;
        Ok(Monitor::new(self.address(context)?, names))
    }
}

fn parse(url: &str) -> Result<Address, Failure> {
    Address::parse(url.trim()).map_err(|error| failed(&error))
}

fn read(file: &str) -> Result<String, Failure> {
    let refused = |why: String| Failure::usage(format!("{file} can't be read: {why}"));
    crate::config::text_of(file.as_ref(), URL_BYTES_MAX).map_err(|error| refused(error.to_string()))
}

/// What went wrong, in the words of the house.
fn failed(error: &AdvisoryLockError) -> Failure {
    let (word, hint) = match error {
        AdvisoryLockError::Timeout { .. } => (Word::Busy, Some("lockkeeper advisory list shows who holds it")),
        AdvisoryLockError::Lost { .. } => (Word::LockLost, Some("lockkeeper advisory list shows who has it now")),
        AdvisoryLockError::Invalid(_) | AdvisoryLockError::Pooler(_) => (Word::InvalidRequest, None),
        _ => (Word::Unavailable, None),
    };
    let mut message = error.to_string();
    if let Some(first) = message.get(..1) {
        message = format!("{}{}.", first.to_uppercase(), &message[1..]);
    }
    Failure::Question { word, message, hint: hint.map(str::to_owned) }
}

/// A lock as `advisory run` takes it, and as a person reads it.
fn shown(row: &LockRow) -> String {
    format!("{} {}", row.namespace.as_deref().unwrap_or("bigint"), row.entity_id)
}
