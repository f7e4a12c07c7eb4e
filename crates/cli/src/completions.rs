//! `lockkeeper completions SHELL`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::output;

/// For bash: lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
#[derive(Debug, Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run<C: CommandFactory>(self) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "lockkeeper", &mut script);
        output::write(&mut std::io::stdout(), &script);
    }
}
