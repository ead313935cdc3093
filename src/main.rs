//! The program: arguments to settings, settings to stages, errors to exit codes.

mod cli;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use polysift::progress::Stop;

/// Threads of rayon, among which candle shares products.
const RAYON_THREADS: &str = "RAYON_NUM_THREADS";

fn main() -> ExitCode {
    // A variable that is set to nothing is not set.
    for name in [
        "POLYSIFT_DEVICE",
        "POLYSIFT_NUM_TASKS",
        "POLYSIFT_RUN",
        "POLYSIFT_TASK",
        "POLYSIFT_THREADS",
    ] {
        if std::env::var_os(name).is_some_and(|value| value.is_empty()) {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::remove_var(name) };
        }
    }
    // candle reads /proc/cpuinfo before every product, unless the variable says how many threads there are.
    if std::env::var_os(RAYON_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(RAYON_THREADS, cores.to_string()) };
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
