//! `lockkeeper config edit`: a person types in a copy, and nobody waits for that.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use clap::Args;
use lockkeeper_config_editor::{Editor, Error};
use serde_json::json;

use super::{EXAMPLES, Which, told};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Edit {
    #[command(flatten)]
    which: Which,
}

impl Edit {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let chosen = self.which.choose(None)?;
        let editor = chosen.editor(self.which.wait()?)?;
        let program = program()?;
        chosen.make_folder()?;
        let base = editor.text().map_err(told)?;
        let name = chosen.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut copy = tempfile::Builder::new().prefix("lockkeeper-").suffix(&format!("-{name}")).tempfile()?;
        copy.write_all(base.as_bytes())?;
        copy.flush()?;
        let copy = copy.into_temp_path();
        let written = match typed_and_saved(&editor, &program, &base, &copy) {
            Ok(written) => written,
            Err(failure) => {
                let unchanged = std::fs::read_to_string(&copy).is_ok_and(|text| text == base);
                return Err(if unchanged {
                    failure
                } else {
                    kept(failure, &copy.keep().map_err(|error| error.error)?)
                });
            }
        };
        if context.global.json {
            let action = if written { "saved" } else { "unchanged" };
            output::json(&json!({ "success": true, "action": action, "file": chosen.path.display().to_string() }));
        } else if written {
            say!("Saved {}", chosen.path.display());
        } else {
            say!("Nothing was changed in {}", chosen.path.display());
        }
        Ok(())
    }
}

/// Whether anything was written. What is wrong can be mended at once by whoever sits at a terminal.
fn typed_and_saved(editor: &Editor<'_>, program: &str, base: &str, copy: &Path) -> Result<bool, Failure> {
    loop {
        // The shell takes the command apart, as git does: it may have options.
        let status = Command::new("sh").args(["-c", &format!("{program} \"$1\""), "sh"]).arg(copy).status()?;
        if !status.success() {
            return Err(Failure::Other(anyhow::anyhow!(
                "the editor '{program}' failed ({status}); nothing was changed"
            )));
        }
        let text = std::fs::read_to_string(copy)?;
        if text == base {
            return Ok(false);
        }
        let error = match editor.save(base, &text) {
            Ok(saved) => return Ok(saved.written),
            Err(error) => error,
        };
        let mendable = matches!(error, Error::Syntax { .. } | Error::Refused(_) | Error::TooDeep | Error::TooLarge);
        if !mendable || !again(&error)? {
            return Err(told(error));
        }
    }
}

fn program() -> Result<String, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("VISUAL").or_else(|| set("EDITOR")).ok_or_else(|| Failure::Question {
        word: lockkeeper_wire::word::Word::InvalidRequest,
        message: "no editor is set".to_owned(),
        hint: Some("export EDITOR=vi, or change one key: lockkeeper config set KEY VALUE".to_owned()),
    })
}

/// Asks a person, if there is one.
fn again(error: &Error) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    note!("{error}");
    note!("Edit again? [Y/n]");
    let mut answer = String::new();
    // An end of the input is no yes.
    let read = input.lock().read_line(&mut answer)?;
    Ok(read > 0 && !answer.trim().to_lowercase().starts_with('n'))
}

/// Says where the text is that could not be saved.
fn kept(failure: Failure, copy: &Path) -> Failure {
    let place = format!("what you typed is kept in {}", copy.display());
    match failure {
        Failure::Question { word, message, .. } => Failure::Question { word, message, hint: Some(place) },
        Failure::Other(error) => Failure::Other(error.context(place)),
        other => other,
    }
}
