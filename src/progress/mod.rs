//! What a stage may say while it works and how it learns that it should stop; no terminal here.

mod busy;
mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub use busy::Busy;
pub use memory::{peak_memory_bytes, reset_peak_memory};

use crate::error::{Error, Result};

/// Receives counts from a running stage; implementations draw bars or print lines.
pub trait Progress: Send + Sync {
    /// A stage begins: `unit` is what `total` counts ("documents", "rows"), `None` when unknown.
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str);
    /// `units` more are done, which held `tokens` tokens (0 where tokens mean nothing).
    fn advance(&self, units: u64, tokens: u64);
    /// Some part of the running stage was at work for `time`, told once before the stage ends.
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

/// A flag that a signal handler sets; stages look at it between pieces of work.
#[derive(Debug, Default, Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Where a signal handler leaves the number of its signal, before it sets the flag.
    pub fn signal_number(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.signal)
    }

    /// Number of the signal that asked for the stop, where one did.
    pub fn signal(&self) -> Option<i32> {
        let number = i32::try_from(self.signal.load(Ordering::Relaxed)).ok()?;
        (number != 0).then_some(number)
    }

    /// Whether a stop was asked for.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// [`Error::Stopped`] once a stop was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Stopped) } else { Ok(()) }
    }
}
