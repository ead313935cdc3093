//! INT, TERM and USR1 ask for a stop at the next piece of work; a second one stops at once.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

use polysift::cluster::Requeue;
use polysift::progress::Stop;
use polysift::stage::chain;
use polysift::{Error, Result};

/// Installs the handlers.
pub(crate) fn install(stop: &Stop) -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // Order matters: the shutdown looks at the flag before this same signal sets it, and who
        // sees the flag finds the number of the signal.
        flag::register_conditional_shutdown(signal, 128 + signal, stop.flag())
            .and_then(|_| flag::register_usize(signal, stop.signal_number(), signal as usize))
            .and_then(|_| flag::register(signal, stop.flag()))
            .map_err(|e| Error::config("signals", e.to_string()))?;
    }
    Ok(())
}

/// Puts the Slurm job back into the queue where it should go on later: the last thing that is done, for
/// Slurm ends the process then.
pub(crate) fn requeue(stop: &Stop, exit_code: u8, uptime: Duration) {
    let time_is_up = stop.signal() == Some(SIGUSR1);
    let stopped = stop.signal().is_some();
    match Requeue::of(|name| std::env::var(name).ok()) {
        Some(requeue) if requeue.is_due(exit_code, stopped, time_is_up, uptime) => {
            if let Err(error) = requeue.call() {
                tracing::warn!(error = %chain(&error), "the job is not back in the queue");
            }
        }
        _ => {}
    }
}
