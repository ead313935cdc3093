//! What a stage may say while it works and how it learns that it should stop; no terminal here.
//!
//! ```
//! use polysift_base::progress::Stop;
//!
//! let stop = Stop::default();
//! assert!(stop.check().is_ok());
//! stop.ask(15); // SIGTERM
//! assert_eq!(stop.check().unwrap_err().exit_code(), 75);
//! ```

mod busy;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use busy::Busy;

use crate::error::{Error, Result};

/// Receives counts from a running stage; implementations draw bars or print lines.
pub trait Progress: Send + Sync {
    /// A stage begins: `unit` is what `total` counts ("documents", "rows"), `None` when unknown.
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str);
    /// `units` more are done, which held `tokens` tokens (0 where tokens mean nothing).
    fn advance(&self, units: u64, tokens: u64);
    /// `units` more are to be done than the stage began with.
    fn extend(&self, _units: u64) {}
    /// `done` of the `total` bytes of the stage's input are read; for stages that know no total of units.
    fn input(&self, _done: u64, _total: u64) {}
    /// Some part of the running stage was at work for `time`; once, before the stage ends.
    fn busy(&self, _activity: &'static str, _time: Duration) {}
    /// The stage ended.
    fn end(&self);
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: Option<u64>, _unit: &'static str) {}
    fn advance(&self, _units: u64, _tokens: u64) {}
    fn end(&self) {}
}

/// Time in which what waits notices a stop.
pub const STOP_POLL: Duration = Duration::from_millis(100);

/// A request to stop; stages look at it between items of work.
#[derive(Debug, Default, Clone)]
pub struct Stop {
    /// Number of the signal that asked; 0 while none did.
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// The stop that the program's signal handler asks for. Listings and transfers, which are given no stop of their
    /// own, look at it; in a program without the handler it is never asked.
    pub fn of_process() -> &'static Self {
        static STOP: LazyLock<Stop> = LazyLock::new(Stop::default);
        &STOP
    }

    /// Does `work`, which may wait without end for another program, in a thread that a stop leaves behind.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn leaving<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (send, done) = channel();
        let thread = std::thread::spawn(move || send.send(work()).is_ok());
        loop {
            match done.recv_timeout(STOP_POLL) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        thread.join().map_or_else(|panic| std::panic::resume_unwind(panic), |_| Err(Error::Stopped))
    }

    /// Asks for a stop, because of the signal of this number.
    pub fn ask(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Number of the signal that asked for the stop, where one did.
    pub fn signal(&self) -> Option<i32> {
        let number = self.signal.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }

    /// Whether a stop was asked for.
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// [`Error::Stopped`] once a stop was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Stopped) } else { Ok(()) }
    }
}
