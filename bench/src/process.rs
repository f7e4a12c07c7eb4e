//! A program from its start to its end, as a hook pays for it.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::flood::Times;

pub(crate) fn starts(command: &[String], runs: usize) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let began = Instant::now();
    for _ in 0..runs {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let asked = Instant::now();
        let status = program.status()?;
        times.rounds.push(asked.elapsed().as_nanos() as u64);
        anyhow::ensure!(status.success(), "{command:?}: {status}");
    }
    times.elapsed = began.elapsed();
    Ok(times)
}
