//! The program: arguments to settings, settings to stages, errors to exit codes.

mod cli;

use std::process::ExitCode;
use std::time::Instant;

use polysift::progress::Stop;

/// Threads of candle's own pool for operations on single elements.
const CANDLE_THREADS: &str = "CANDLE_NUM_THREADS";

/// Threads of rayon, among which candle shares products.
const RAYON_THREADS: &str = "RAYON_NUM_THREADS";
fn main() -> ExitCode {
    // A head is small: candle's threads, which wait for each other without a pause, gain nothing, and where other processes
    // want the cores they cost ten times the training.
    if std::env::var_os(CANDLE_THREADS).is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(CANDLE_THREADS, "1") };
    }
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
