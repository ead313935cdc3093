//! The `polysift` program: runs the command line and turns errors into exit codes.

mod cli;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use polysift::progress::Stop;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Environment variable for the number of rayon's threads, which candle's matrix products use.
const RAYON_THREADS: &str = "RAYON_NUM_THREADS";

fn main() -> ExitCode {
    // An empty variable counts as unset.
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
    // candle reads /proc/cpuinfo before every matrix product unless this variable is set.
    if std::env::var_os(RAYON_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(RAYON_THREADS, cores.to_string()) };
    }
    // An export keeps a file open for each language and outcome of a shard, often more than the
    // 1,024 files of the soft limit. If the limit cannot be raised, it stays.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    // Signal handling comes first: a scheduler may send a signal before a model is loaded.
    let stop = Stop::of_process();
    let began = Instant::now();
    let outcome = cli::signals::install(stop).and_then(|()| cli::run(stop));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            cli::printer::print_error(&error.report());
            cli::signals::requeue(stop, error.exit_code(), began.elapsed());
            ExitCode::from(error.exit_code())
        }
    }
}
