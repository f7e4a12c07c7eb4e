//! Commands that are no commands: what was typed wrongly, and what was probably meant.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::word::Word;

use crate::{again, output};

/// The group that is meant by a verb that several have.
const FIRST: &str = "lock";

/// Tells what is wrong with what was typed, in the form that was asked for.
pub(crate) fn report(error: &Error, program: &Command) -> ExitCode {
    let own = behind_a_group(error, program);
    let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    // Help and the version come this way, too, and are no errors.
    match own {
        Some(refused) if !wants_json => output::refused(&refused),
        _ if !wants_json || !error.use_stderr() => error.exit(),
        own => output::json(&own.unwrap_or_else(|| in_words(error))),
    }
    ExitCode::from(Word::InvalidRequest.exit_code())
}

/// What clap says of it, as a refusal.
fn in_words(error: &Error) -> Refused {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let usage = rest.lines().find_map(|line| line.strip_prefix("Usage: "));
    let message: Vec<&str> = message.split_whitespace().collect();
    Refused {
        error: Word::InvalidRequest.text().to_owned(),
        message: message.join(" "),
        hint: usage.map(str::to_owned),
        ..Refused::default()
    }
}

/// A verb that was typed without the word before it, `lockkeeper acquire` for `lockkeeper lock acquire`: clap knows only words that are
/// spelt alike.
fn behind_a_group(error: &Error, program: &Command) -> Option<Refused> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let typed: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let at = typed.iter().position(|word| word == verb)?;
    // `lockkeeper feature acquire` is a slip of another kind.
    if typed[1..at].iter().any(|word| program.find_subcommand(word).is_some()) {
        return None;
    }
    let groups = groups(program, verb);
    let (first, _) = groups.split_first()?;
    let commands: Vec<String> = groups.iter().map(|group| again::with_word(&typed, at, group)).collect();
    Some(Refused {
        error: Word::InvalidRequest.text().to_owned(),
        message: format!("There is no command '{verb}' by itself; it is one of '{first}'."),
        hint: Some(commands.join("\n")),
        ..Refused::default()
    })
}

/// The groups that have a verb: only the first of all if it is among them.
fn groups<'p>(program: &'p Command, verb: &str) -> Vec<&'p str> {
    let having = program.get_subcommands().filter(|group| group.find_subcommand(verb).is_some());
    let names: Vec<&str> = having.map(Command::get_name).collect();
    if names.contains(&FIRST) { vec![FIRST] } else { names }
}
