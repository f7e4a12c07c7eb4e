//! `lockkeeper packages ...`

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use lockkeeper_client::Error;
use lockkeeper_core::key::Key;
use lockkeeper_packages::{Document, Package, Plan, Problem, Report, limits};
use lockkeeper_wire::answer::{Changed, LockView, PolicyVerdict};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, LockSpec, PolicyCheckRequest, ReleaseRequest};
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::{config, lock};

#[derive(Debug, Subcommand)]
pub(crate) enum Packages {
    /// Check a file of work packages: its form, its order, its locks, and who would meet whom.
    Validate(Named),
    /// Show which packages can run side by side, and which wait for which.
    Plan(Show),
    /// Take all locks of a package, together or not at all.
    Acquire(Take),
    /// Give all locks of a package back.
    Release(GiveBack),
    /// Print the JSON Schema of a file of work packages.
    Schema,
}

/// Which file is meant.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Named {
    /// A work-packages.yaml; - reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  lockkeeper packages validate work-packages.yaml          exit 0: nothing is wrong
  lockkeeper packages plan work-packages.yaml
  lockkeeper packages plan work-packages.yaml --format mermaid
  lockkeeper packages acquire work-packages.yaml --package backend-api
  lockkeeper packages release work-packages.yaml --package backend-api";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[arg(long, value_name = "FORM", default_value = "table")]
    format: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Table,
    /// For Graphviz.
    Dot,
    Mermaid,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Take {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[arg(long, value_name = "ID")]
    package: String,
    /// Stand in the queue for so long if something is taken.
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GiveBack {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[arg(long, value_name = "ID")]
    package: String,
}

impl Packages {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Packages::Validate(verb) => verb.validate(context),
            Packages::Plan(verb) => verb.run(context),
            Packages::Acquire(verb) => verb.run(context),
            Packages::Release(verb) => verb.run(context),
            Packages::Schema => {
                let schema = serde_json::to_string_pretty(&lockkeeper_packages::schema());
                say!("{}", schema.map_err(anyhow::Error::from)?);
                Ok(())
            }
        }
    }
}

impl Named {
    fn validate(self, context: &Context) -> Result<(), Failure> {
        let (name, text) = read(&self.file)?;
        let report = lockkeeper_packages::validate(&name, &text);
        if report.is_valid() && !context.global.json {
            let packages = report.document.as_ref().map_or(0, |document| document.packages.len());
            say!("{name} is valid: {}", output::counted(packages, "package"));
        } else {
            told(context, &report);
        }
        if report.is_valid() { Ok(()) } else { Err(Failure::Silent(2)) }
    }
}

impl Show {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let plan = lockkeeper_packages::plan(&document(context, &self.file)?);
        if context.global.json {
            output::json(&plan);
            return Ok(());
        }
        match self.format {
            Form::Dot => say!("{}", plan.to_dot().trim_end()),
            Form::Mermaid => say!("{}", plan.to_mermaid().trim_end()),
            Form::Table => {
                output::table(Plan::COLUMNS.map(capitalised).each_ref().map(String::as_str), plan.rows());
                for collision in &plan.collisions {
                    let (first, second) = (&collision.first, &collision.second);
                    note!("{second} waits for {first}: {} meets {}", collision.second_key, collision.first_key);
                }
                if plan.collisions_left_out > 0 {
                    note!("and {} more", plan.collisions_left_out);
                }
            }
        }
        Ok(())
    }
}

impl Take {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let document = document(context, &self.file)?;
        let package = package(&document, &self.package)?;
        let settings = document.settings(package);
        self.trusted(context, settings.min_trust_level)?;
        let wait = self.wait.as_deref().map(config::length).transpose();
        let wait = wait.map_err(|error| Failure::usage(error.to_string()))?;
        let locks = specs(context, package)?;
        if locks.is_empty() {
            say!("Package {} locks nothing", self.package);
            return Ok(());
        }
        let request = AcquireRequest {
            locks: Some(locks),
            intention: Some(package.locks.reason.clone().unwrap_or_else(|| format!("package {}", self.package))),
            ttl_minutes: Some(Whole::from(u64::from(settings.lock_ttl_minutes))),
            wait_ms: wait.map(|wait| Whole::from(wait.0)),
            priority: Some(Whole::from(u64::from(settings.priority))),
            feature_id: Some(document.feature.id.clone()),
            ..AcquireRequest::default()
        };
        let patience = std::time::Duration::from_millis(wait.map_or(0, |wait| wait.0));
        let answer: Changed = context.ask_within(Operation::Acquire, request, patience).map_err(Failure::waited)?;
        if context.global.json {
            output::json(&answer);
            return Ok(());
        }
        let minutes = settings.lock_ttl_minutes;
        say!("Package {} holds {} locks for {minutes} min:", output::bold(&self.package), answer.locks.len());
        answer.locks.iter().for_each(|held| say!("  {}", lock::described(held)));
        Ok(())
    }

    /// A package may ask for an agent that is trusted further than others.
    fn trusted(&self, context: &Context, least: u8) -> Result<(), Failure> {
        let request = PolicyCheckRequest::default();
        let verdict: PolicyVerdict = context.ask(Operation::CheckPolicy, request)?;
        if verdict.trust >= least {
            return Ok(());
        }
        Err(Failure::Question {
            word: Word::OperationNotPermitted,
            message: format!("Package {} needs trust {least}; this agent has {}.", self.package, verdict.trust),
            hint: Some("the policy says how far agents are trusted: docs/policy.md".to_owned()),
        })
    }
}

impl GiveBack {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let document = document(context, &self.file)?;
        let package = package(&document, &self.package)?;
        let (identity, client) = (context.identity()?, context.client()?);
        let mut released: Vec<LockView> = Vec::new();
        let mut failed = None;
        for spec in specs(context, package)? {
            let request = ReleaseRequest { file_path: Some(spec.file_path), ..ReleaseRequest::default() };
            match client.call::<Changed>(Operation::Release, &identity.sign(request)) {
                Ok(answer) => released.extend(answer.locks),
                // What is not held, or no more, needs no giving back; the rest is given back all the same.
                Err(Error::Refused(refused))
                    if [Word::NotFound.text(), Word::LockLost.text()].contains(&refused.error.as_str()) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        if context.global.json {
            let mut answer =
                serde_json::json!({ "success": failed.is_none(), "action": "released", "locks": released });
            if let Some(error) = &failed {
                answer["error"] = error.word().text().into();
                answer["message"] = error.to_string().into();
            }
            output::json(&answer);
        } else {
            let locks = output::counted(released.len(), "lock");
            say!("Package {} has given {locks} back", output::bold(&self.package));
        }
        match failed {
            Some(error) if !context.global.json => Err(error.into()),
            Some(error) => Err(Failure::Silent(error.word().exit_code())),
            None => Ok(()),
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What a package locks, as files are named here: a link is the file that it leads to.
fn specs(context: &Context, package: &Package) -> Result<Vec<LockSpec>, Failure> {
    let place = &context.config()?.place;
    let spec = |key: &Key| Ok(LockSpec { file_path: place.of_repository(key)?, ..LockSpec::default() });
    package.locks.iter().map(spec).collect()
}

/// A document whose packages can be worked on; that some overlap is told beside.
fn document(context: &Context, file: &Path) -> Result<Document, Failure> {
    let (name, text) = read(file)?;
    let report = lockkeeper_packages::validate(&name, &text);
    let Some(document) = report.document.clone() else {
        told(context, &report);
        return Err(Failure::Silent(2));
    };
    if !context.global.json {
        tell(&report.problems, report.left_out);
    }
    Ok(document)
}

fn told(context: &Context, report: &Report) {
    if context.global.json {
        output::json(&serde_json::json!({
            "success": report.is_valid(),
            "problems": report.problems,
            "left_out": report.left_out,
        }));
    } else {
        tell(&report.problems, report.left_out);
    }
}

fn package<'a>(document: &'a Document, id: &str) -> Result<&'a Package, Failure> {
    document.package(id).ok_or_else(|| {
        let known: Vec<&str> = document.packages.iter().take(20).map(|package| package.package_id.as_str()).collect();
        Failure::Question {
            word: Word::NotFound,
            message: format!("There is no package '{}'.", lockkeeper_core::text::one_line(id)),
            hint: Some(format!("there are {}", known.join(", "))),
        }
    })
}

fn tell(problems: &[Problem], left_out: usize) {
    for problem in problems {
        note!("{problem}");
        if let Some(hint) = &problem.hint {
            note!("  Hint: {hint}");
        }
    }
    if left_out > 0 {
        note!("and {left_out} more");
    }
}

/// The text, and the name it goes by. No more is read than a document may have.
fn read(file: &Path) -> Result<(String, String), Failure> {
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file).map_err(|error| Failure::usage(format!("{name} can't be read: {error}")))?)
    };
    let mut bytes = Vec::new();
    let most = limits::DOCUMENT_BYTES_MAX as u64 + 1;
    input
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{name} can't be read: {error}")))?;
    if bytes.len() as u64 == most {
        return Err(Failure::usage(format!("{name} has more than {} bytes", limits::DOCUMENT_BYTES_MAX)));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{name} is no UTF-8")))?;
    Ok((name, text))
}
