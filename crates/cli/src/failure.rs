//! How a command ends when it does not end well: a message, a hint, an exit code.

use std::process::ExitCode;

use lockkeeper_client::Error;
use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::word::Word;
use serde::Serialize;

use crate::context::Context;
use crate::output;
use crate::place::InvalidPath;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The service said no, or could not be reached.
    Service(Error),
    /// Something about the question itself. Nothing was asked.
    Question { word: Word, message: String, hint: Option<String> },
    /// An event was written, and something after that went wrong: whoever does it again does it twice.
    Written { sequence: u64, message: String, hint: Option<String> },
    /// Something on this machine.
    Other(anyhow::Error),
    /// What there was to say was said.
    Silent(u8),
}

/// A refusal that says which event was written all the same.
#[derive(Serialize)]
struct Written {
    #[serde(flatten)]
    refused: Refused,
    sequence: u64,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::Question { word: Word::InvalidRequest, message: message.into(), hint: None }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Service(error) => error.word().exit_code(),
            Failure::Question { word, .. } => word.exit_code(),
            Failure::Written { .. } => Word::OutcomeUnknown.exit_code(),
            Failure::Other(_) => 1,
            Failure::Silent(code) => *code,
        }
    }

    fn body(&self) -> Option<Refused> {
        match self {
            Failure::Service(error) => Some(error.body()),
            Failure::Question { word, message, hint } => Some(Refused {
                error: word.text().to_owned(),
                message: message.clone(),
                hint: hint.clone(),
                ..Refused::default()
            }),
            Failure::Written { message, hint, .. } => Some(Refused {
                error: Word::OutcomeUnknown.text().to_owned(),
                message: message.clone(),
                hint: hint.clone(),
                ..Refused::default()
            }),
            Failure::Other(error) => {
                Some(Refused { error: "failed".to_owned(), message: format!("{error:#}"), ..Refused::default() })
            }
            Failure::Silent(_) => None,
        }
    }

    /// A refusal of keys that are taken, with the commands that help from here.
    pub(crate) fn taken(error: Error, keys: &[String]) -> Failure {
        match error {
            Error::Refused(mut refused) if refused.error == Word::Busy.text() => {
                refused.hint = Some(crate::again::commands(&refused, keys).join("\n"));
                Failure::Service(Error::Refused(refused))
            }
            other => Failure::Service(other),
        }
    }

    /// A wait that was too short, with the same command and a longer one.
    pub(crate) fn waited(self) -> Failure {
        match self {
            Failure::Service(error) => Failure::taken(error, &[]),
            other => other,
        }
    }

    /// Another hint than the service's, for a refusal with this word.
    pub(crate) fn hinting(self, word: Word, hint: impl FnOnce(&Refused) -> String) -> Failure {
        match self {
            Failure::Service(Error::Refused(mut refused)) if refused.error == word.text() => {
                refused.hint = Some(hint(&refused));
                Failure::Service(Error::Refused(refused))
            }
            other => other,
        }
    }

    /// Tells the user, in the form they asked for.
    pub(crate) fn report(&self, context: &Context) -> ExitCode {
        if let Some(body) = self.body() {
            match self {
                Failure::Written { sequence, .. } if context.global.json => {
                    output::json(&Written { refused: body, sequence: *sequence });
                }
                _ if context.global.json => output::json(&body),
                _ => output::refused(&body),
            }
        }
        ExitCode::from(self.exit_code())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Service(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Other(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Other(error.into())
    }
}

impl From<InvalidPath> for Failure {
    fn from(InvalidPath { word, message, meant, there }: InvalidPath) -> Failure {
        let way = there.map_or_else(String::new, |there| format!("cd {}, and ", there.display()));
        Failure::Question { word, message, hint: meant.map(|meant| format!("{way}write {meant}")) }
    }
}
