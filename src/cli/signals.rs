//! INT, TERM and USR1 ask for a stop at the next piece of work; a second one stops at once.

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

use polysift::progress::Stop;
use polysift::{Error, Result};

/// Installs the handlers.
pub(crate) fn install(stop: &Stop) -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // Order matters: the shutdown looks at the flag before this same signal sets it.
        flag::register_conditional_shutdown(signal, 128 + signal, stop.flag())
            .and_then(|_| flag::register(signal, stop.flag()))
            .map_err(|e| Error::config("signals", e.to_string()))?;
    }
    Ok(())
}
