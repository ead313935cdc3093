//! The program: arguments to settings, settings to stages, errors to exit codes.

mod cli;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use polysift::progress::Stop;

/// Threads of candle's own pool for operations on single elements.
const CANDLE_THREADS: &str = "CANDLE_NUM_THREADS";
/// Threads of rayon, among which candle shares products.
const RAYON_THREADS: &str = "RAYON_NUM_THREADS";

fn main() -> ExitCode {
    // A head is small: candle's threads, which wait for each other without a pause, gain nothing, and where other processes
    // want the cores they cost ten times the training. Of rayon's, candle reads /proc/cpuinfo before
    // every product, unless the variable says how many there are.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    for (name, threads) in [(CANDLE_THREADS, 1), (RAYON_THREADS, cores)] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(name, threads.to_string()) };
        }
    }
    // First of all: a scheduler's signal may come before a model is loaded.
    let stop = Stop::of_process();
    let began = Instant::now();
    let outcome = cli::signals::install(stop).and_then(|()| cli::run(stop));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            cli::printer::error(&error.report());
            cli::signals::requeue(stop, error.exit_code(), began.elapsed());
            ExitCode::from(error.exit_code())
        }
    }
}
