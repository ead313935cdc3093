//! What each stage took: time, memory, and which of its parts were busy.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polysift::Result;
use polysift::progress::{Progress, peak_memory_bytes, reset_peak_memory};
use polysift::run::Stage;

/// What a stage took.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    pub(crate) stage: Stage,
    pub(crate) time: Duration,
    /// Peak resident memory in bytes while the stage ran.
    pub(crate) memory: Option<u64>,
    /// Its parts that work side by side, and for how long each was at work.
    pub(crate) busy: Vec<(&'static str, Duration)>,
}

/// A display of progress, and the measurements of the stages that it was shown.
pub(crate) struct Usages<'a> {
    display: &'a dyn Progress,
    busy: Mutex<Vec<(&'static str, Duration)>>,
    taken: Mutex<Vec<Usage>>,
}

impl<'a> Usages<'a> {
    pub(crate) fn new(display: &'a dyn Progress) -> Self {
        Self { display, busy: Mutex::default(), taken: Mutex::default() }
    }

    /// Runs a stage and measures it.
    pub(crate) fn measure(&self, stage: Stage, run: impl FnOnce() -> Result<()>) -> Result<()> {
        reset_peak_memory();
        let began = Instant::now();
        let _span = tracing::trace_span!("stage", name = stage.name()).entered();
        run()?;
        let busy = std::mem::take(&mut *lock(&self.busy));
        let usage = Usage { stage, time: began.elapsed(), memory: peak_memory_bytes(), busy };
        lock(&self.taken).push(usage);
        Ok(())
    }

    /// The measurements so far.
    pub(crate) fn taken(&self) -> Vec<Usage> {
        lock(&self.taken).clone()
    }
}

/// Measurements are whole whatever another thread did.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for Usages<'_> {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        self.display.begin(stage, total, unit);
    }

    fn advance(&self, units: u64, tokens: u64) {
        self.display.advance(units, tokens);
    }

    fn extend(&self, units: u64) {
        self.display.extend(units);
    }

    fn input(&self, done: u64, total: u64) {
        self.display.input(done, total);
    }

    fn busy(&self, activity: &'static str, time: Duration) {
        lock(&self.busy).push((activity, time));
    }

    fn end(&self) {
        self.display.end();
    }
}
