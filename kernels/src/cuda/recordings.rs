//! Delays giving back memory and kernels while graphs are recorded on a GPU.
//!
//! A wait for the whole GPU spoils every recording on it, in any thread, and nothing can be given
//! back to the GPU without such a wait. So what is dropped during a recording is given back when
//! the last one ends. Nothing waits for a recording: a thread may drop anything while it records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, DriverError, result};

/// Recordings on one GPU, in all threads of the process, however often the GPU is opened.
#[derive(Default)]
pub(super) struct Recordings(Mutex<RecordingState>);

#[derive(Default)]
struct RecordingState {
    /// Number of running recordings.
    open: usize,
    /// Give back what was dropped.
    dropped: Vec<Box<dyn FnOnce() + Send>>,
    /// Context of the GPU, if something was dropped.
    context: Option<Arc<CudaContext>>,
}

impl Recordings {
    /// Returns the recordings on GPU `ordinal`: one value per process, which is never freed.
    pub(super) fn on_device(ordinal: usize) -> &'static Self {
        static DEVICES: Mutex<BTreeMap<usize, &'static Recordings>> = Mutex::new(BTreeMap::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.entry(ordinal).or_insert_with(|| Box::leak(Box::default()))
    }

    /// Registers a recording before it begins; the caller calls [`Self::end`] after it has ended.
    pub(super) fn begin(&self) {
        // The lock blocks while `give_back` waits for the GPU.
        self.lock().open += 1;
    }

    /// Ends a recording that [`Self::begin`] registered; the last one gives back what was dropped.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.open -= 1;
        state.give_back();
    }

    /// Calls `give_back` once the GPU has no work left and nothing is recorded; never, if the wait
    /// for the GPU fails, because the GPU may still use the resource.
    pub(super) fn when_idle(
        &self,
        context: &Arc<CudaContext>,
        give_back: impl FnOnce() + Send + 'static,
    ) {
        let mut state = self.lock();
        state.context = Some(Arc::clone(context));
        state.dropped.push(Box::new(give_back));
        state.give_back();
    }

    fn lock(&self) -> MutexGuard<'_, RecordingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordingState {
    /// Waits for the GPU and gives back what was dropped; does nothing while a recording runs.
    fn give_back(&mut self) {
        if self.open > 0 {
            return;
        }
        let Some(context) = self.context.take() else { return };
        let dropped = std::mem::take(&mut self.dropped);
        if let Err(error) = wait_for_device(&context) {
            let (count, device) = (dropped.len(), context.ordinal());
            tracing::debug!(device, count, "memory and kernels are not given back: {error}");
            return;
        }
        for give_back in dropped {
            give_back();
        }
    }
}

/// Binds the GPU to the thread and waits for all its work. The methods of `context` would return an
/// error that a destructor left behind instead of waiting.
fn wait_for_device(context: &CudaContext) -> Result<(), DriverError> {
    // SAFETY: the context lives as long as `context`.
    unsafe { result::ctx::set_current(context.cu_ctx()) }?;
    result::ctx::synchronize()
}
