//! The command line: one verb, one file.

mod advisory;
mod again;
mod allocator;
mod audit;
mod bench;
mod completions;
mod config;
mod config_editor;
mod context;
mod doctor;
mod failure;
mod feature;
mod foreign;
mod lines;
mod lock;
mod mcp;
mod otlp;
mod output;
mod packages;
mod password;
mod place;
mod policy;
mod ports;
mod proof;
mod room;
mod run;
mod serve;
mod session;
mod slip;
mod start;
mod status;
mod stop;
mod supervise;
mod watch;
mod who;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::context::{Context, Global};
use crate::failure::Failure;
use crate::output::note;

/// Keeps fleets of coding agents from working over each other.
///
/// Ask before you change: who may change what, why, until when, and who is next.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, after_help = EXAMPLES, infer_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  lockkeeper lock acquire src/auth.rs:10-50 -m \"Adding JWT validation\"
  lockkeeper lock list
  lockkeeper lock release src/auth.rs
  lockkeeper run 'db:migration-slot' -- make migrate
  lockkeeper watch

Exit codes:
  0 done             1 failed                2 usage or invalid
  3 unavailable      4 not found, not the owner, or lost
  5 busy, deadlock or paused                 6 not permitted
  7 rate limited

A service is started in the background when none runs. Nothing has to be installed or set up.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Acquire, release and look at locks.
    #[command(subcommand)]
    Lock(lock::Lock),
    /// Hold locks while a command runs.
    Run(run::Run),
    /// Follow what happens, as it happens.
    Watch(watch::Watch),
    /// Open, list, restore and close sessions.
    #[command(subcommand)]
    Session(session::Session),
    /// Say that a person is editing a file.
    #[command(subcommand)]
    Room(room::Room),
    /// Register, compare, pause and resume features.
    #[command(subcommand)]
    Feature(feature::Feature),
    /// Get ports that no other session has.
    #[command(subcommand)]
    Ports(ports::Ports),
    /// Check, plan and lock packages of work.
    #[command(subcommand)]
    Packages(packages::Packages),
    /// Take and watch advisory locks of a PostgreSQL database.
    #[command(subcommand)]
    Advisory(advisory::Advisory),
    /// Work with the ledgers of proofs on disk, and claim their nodes.
    #[command(subcommand)]
    Proof(proof::Proof),
    /// Ask who may do what.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Read and change settings, or any TOML, YAML or JSON file that others change at the same time.
    #[command(subcommand)]
    Config(config_editor::Edits),
    /// Show what was asked, and what came of it.
    Audit(audit::Audit),
    /// Show the service: where it keeps things, what it is set to, how much it holds.
    Status(status::Status),
    /// Look for what is wrong, and say how to mend it.
    Doctor(doctor::Doctor),
    /// Measure how fast locks are on this machine.
    Bench(bench::Bench),
    /// Serve tools to a coding agent over stdin and stdout.
    Mcp(mcp::Mcp),
    /// Run a service in the foreground.
    Serve(serve::Serve),
    /// Stop the service. Nothing is released.
    Stop(stop::Stop),
    /// Print a script that completes commands in your shell.
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    let Cli { global, verb } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return slip::report(&error, &Cli::command());
        }
    };
    let context = Context::new(global);
    match dispatch(&context, verb) {
        Ok(()) if output::is_untold() => {
            note!("failed: the answer could not be written; what was asked for is done");
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&context),
    }
}

fn dispatch(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Lock(verb) => verb.run(context),
        Verb::Run(verb) => verb.run(context),
        Verb::Watch(verb) => verb.run(context),
        Verb::Session(verb) => verb.run(context),
        Verb::Room(verb) => verb.run(context),
        Verb::Feature(verb) => verb.run(context),
        Verb::Ports(verb) => verb.run(context),
        Verb::Packages(verb) => verb.run(context),
        Verb::Advisory(verb) => verb.run(context),
        Verb::Proof(verb) => verb.run(context),
        Verb::Policy(verb) => verb.run(context),
        Verb::Config(verb) => verb.run(context),
        Verb::Audit(verb) => verb.run(context),
        Verb::Status(verb) => verb.run(context),
        Verb::Doctor(verb) => verb.run(context),
        Verb::Bench(verb) => verb.run(context),
        Verb::Mcp(verb) => verb.run(context),
        Verb::Serve(verb) => verb.run(context),
        Verb::Stop(verb) => verb.run(context),
        Verb::Completions(verb) => {
            verb.run::<Cli>();
            Ok(())
        }
    }
}
