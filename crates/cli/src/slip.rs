//! Verbs that were typed without the word before them: `lockkeeper acquire` for `lockkeeper lock acquire`.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::word::Word;

use crate::again;

/// The group that is meant by a verb that several have.
const FIRST: &str = "lock";

/// What to say in place of clap, which knows only words that are spelt alike.
pub(crate) fn told(error: &Error, program: &Command) -> Option<Refused> {
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
