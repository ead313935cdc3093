//! What has to wait while graphs are recorded on a GPU.
//!
//! A wait for the whole GPU spoils every recording there, whichever thread it is in; and nothing
//! is given back to the GPU without such a wait. So what is dropped while anything is recorded is
//! given back when the last recording ends. Nobody waits for a recording: a thread may drop what it
//! likes while it records itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, DriverError, result};

/// The recordings of one GPU, in all threads of the process: all contexts here are the GPU's
/// primary one, however often it is opened.
#[derive(Default)]
pub(super) struct Recordings(Mutex<RecordingState>);

#[derive(Default)]
struct RecordingState {
    /// Recordings under way.
    open: usize,
    dropped: Vec<Dropped>,
}

/// Something to give back, and the context that it is in.
struct Dropped {
    context: Arc<CudaContext>,
    give_back: Box<dyn FnOnce() + Send>,
}

/// A recording under way.
pub(super) struct Recording(&'static Recordings);

impl Recordings {
    /// Those of GPU `ordinal`.
    pub(super) fn on_device(ordinal: usize) -> &'static Self {
        static DEVICES: Mutex<BTreeMap<usize, &'static Recordings>> = Mutex::new(BTreeMap::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.entry(ordinal).or_insert_with(|| Box::leak(Box::default()))
    }

    /// To be called before a recording begins; the result is to be dropped after it has ended.
    pub(super) fn begin(&'static self) -> Recording {
        // If the GPU is waited for just now, then until that is over.
        self.lock().open += 1;
        Recording(self)
    }

    /// Calls `give_back` once the GPU has no work left and nothing is recorded: now, or when the
    /// last recording ends. Never, if the GPU refuses to be waited for: then nobody knows what it
    /// still works on.
    pub(super) fn when_idle(
        &self,
        context: &Arc<CudaContext>,
        give_back: impl FnOnce() + Send + 'static,
    ) {
        let context = Arc::clone(context);
        let mut state = self.lock();
        state.dropped.push(Dropped { context, give_back: Box::new(give_back) });
        state.give_back();
    }

    fn lock(&self) -> MutexGuard<'_, RecordingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordingState {
    /// Gives back what was dropped, unless something is recorded. No recording begins meanwhile.
    fn give_back(&mut self) {
        if self.open > 0 || self.dropped.is_empty() {
            return;
        }
        let dropped = std::mem::take(&mut self.dropped);
        if let Err(error) = wait_for_device(&dropped[0].context) {
            let (count, device) = (dropped.len(), dropped[0].context.ordinal());
            tracing::debug!(device, count, "memory and kernels are not given back: {error}");
            return;
        }
        for Dropped { give_back, .. } in dropped {
            give_back();
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        state.give_back();
    }
}

/// Binds the GPU to the thread and waits for all its work. Not through `context`, which would tell
/// an error that a destructor left behind instead of waiting.
fn wait_for_device(context: &CudaContext) -> Result<(), DriverError> {
    // SAFETY: the context lives as long as `context`.
    unsafe { result::ctx::set_current(context.cu_ctx()) }?;
    result::ctx::synchronize()
}
