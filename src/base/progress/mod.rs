//! Reports the progress of a stage and tells it when to stop. Does not use the terminal.

mod busy;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use busy::Busy;

use crate::error::{Error, Result};

/// Receives counts from a running stage; implementations draw bars or print lines.
pub trait Progress: Send + Sync {
    /// Begins a stage: `unit` is what `total` counts ("documents", "rows"), `None` when unknown.
    fn begin(&self, _stage: &str, _total: Option<u64>, _unit: &'static str) {}
    /// Reports `units` more as done, which held `tokens` tokens (0 where tokens mean nothing).
    fn advance(&self, _units: u64, _tokens: u64) {}
    /// Adds `units` to the total that the stage began with.
    fn extend(&self, _units: u64) {}
    /// Reports `done` more bytes of the input as read, and adds `total` to the bytes to read, for
    /// stages without a known total of units; also before the stage begins.
    fn input(&self, _done: u64, _total: i64) {}
    /// Reports that part of the stage worked for `time`; called once, before the stage ends.
    fn busy(&self, _activity: &'static str, _time: Duration) {}
    /// Ends the stage.
    fn end(&self) {}
}

/// Reports nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}

/// Interval at which waiting code checks for a stop.
pub const STOP_POLL: Duration = Duration::from_millis(100);

/// A request to stop, which stages check between units of work.
#[derive(Debug, Default, Clone)]
pub struct Stop {
    /// Number of the signal that asked for the stop; 0 if none did.
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// Returns the stop that the program's signal handler asks for. Listings and transfers, which
    /// receive no stop of their own, check it. Without the handler no stop is ever asked for.
    pub fn of_process() -> &'static Self {
        static STOP: LazyLock<Stop> = LazyLock::new(Stop::default);
        &STOP
    }

    /// Runs `work`, which may wait forever for another program, in a thread of its own. A stop
    /// leaves it running and returns [`Error::Stopped`]; a panic of `work` goes on here.
    pub fn run_abandonable<T: Send + 'static>(
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

    /// Asks for a stop because of signal number `signal`.
    pub fn ask(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Returns the number of the signal that asked for the stop, if any.
    pub fn signal(&self) -> Option<i32> {
        let number = self.signal.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }

    /// Returns true if a stop was asked for.
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// Returns [`Error::Stopped`] if a stop was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// Formats a number with thousands separators: `1,381`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Formats a number of bytes in a decimal unit: `1.5 MB`.
pub fn bytes_for_people(number: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = (number.max(1.0).log10() / 3.0).floor().min(5.0);
    format!("{:.1} {}", number / 1000f64.powf(power), units[power as usize])
}
