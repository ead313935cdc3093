//! The program: arguments to settings, settings to stages, errors to exit codes.

mod cli;

use std::process::ExitCode;
use std::time::Instant;

use polysift::progress::Stop;

fn main() -> ExitCode {
    // First of all: a scheduler's signal may come before a model is loaded.
    let stop = Stop::default();
    let began = Instant::now();
    let outcome = cli::signals::install(&stop).and_then(|()| cli::run(&stop));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            cli::printer::error(&error.report());
            cli::signals::requeue(&stop, error.exit_code(), began.elapsed());
            ExitCode::from(error.exit_code())
        }
    }
}
