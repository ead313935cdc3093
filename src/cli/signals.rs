//! INT, TERM and USR1 ask for a stop at the next item of work; another one later stops at once.
//! XFSZ does nothing: a file that is to get larger than allowed is an error, as on a full disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use polysift::cluster::Requeue;
use polysift::progress::Stop;
use polysift::{Error, Result};

/// Signals that come within this time of the first are the same request: `timeout`, Slurm and shells
/// signal the process as well as its group.
const SAME_REQUEST: Duration = Duration::from_secs(2);

/// Takes the signals over.
pub(crate) fn install(stop: &Stop) -> Result<()> {
    let failed = |e: std::io::Error| Error::config("signals", e.to_string());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(failed)?;
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let stop = stop.clone();
    // A thread, since a handler may not do more than leave a note, and this works while others hang.
    let listen = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    stop.ask(signal);
                    first = Some(Instant::now());
                }
                Some(first) if first.elapsed() < SAME_REQUEST => {}
                Some(_) => low_level::exit(128 + signal),
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map(drop).map_err(failed)
}

/// Puts the Slurm job back into the queue where it should go on later: the last thing that is done, for
/// Slurm ends the process then.
pub(crate) fn requeue(stop: &Stop, exit_code: u8, uptime: Duration) {
    let time_is_up = stop.signal() == Some(SIGUSR1);
    let stopped = stop.signal().is_some();
    match Requeue::of(|name| std::env::var(name).ok()) {
        Some(requeue) if requeue.is_due(exit_code, stopped, time_is_up, uptime) => {
            if let Err(error) = requeue.call() {
                tracing::warn!(error = %error.report(), "the job is not back in the queue");
            }
        }
        _ => {}
    }
}
