//! INT, TERM and USR1 ask for a stop at the next unit of work; a later second signal exits
//! immediately. XFSZ is ignored: a file over the size limit is an error, like a full disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use polysift::cluster::Requeue;
use polysift::progress::Stop;
use polysift::{Error, Result};

/// Signals this soon are one request: `timeout`, Slurm and shells also signal the process group.
const SAME_REQUEST: Duration = Duration::from_secs(2);

/// Starts the thread that waits for signals and asks for a stop.
pub(crate) fn install(stop: &Stop) -> Result<()> {
    let failed = |e: std::io::Error| Error::config("signals", e.to_string());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(failed)?;
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let stop = stop.clone();
    // A thread, because a handler may do little more than set a flag; it runs even if others hang.
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

/// Requeues the Slurm job if it should continue later. Comes last, as Slurm then ends the process.
pub(crate) fn requeue(stop: &Stop, exit_code: u8, uptime: Duration) {
    let time_is_up = stop.signal() == Some(SIGUSR1);
    let stopped = stop.signal().is_some();
    if let Some(requeue) = Requeue::of(|name| std::env::var(name).ok())
        && requeue.is_due(exit_code, stopped, time_is_up, uptime)
        && let Err(error) = requeue.call()
    {
        tracing::warn!(error = %error.report(), "the job is not back in the queue");
    }
}
