//! A queue of work for a GPU: copies, kernels, and graphs of them.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaStream, DriverError, result, sys};

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::memory::{Buffer, Element, Memory, Pinned};
use super::module::Function;
use super::recordings::Recording;

/// A queue of work: what is put into it runs in order, while the host goes on.
pub struct Stream {
    device: Device,
    queue: Arc<CudaStream>,
    /// While a graph is recorded: the memory that it uses so far.
    recorded: RefCell<Option<Vec<Arc<Memory>>>>,
}

/// Blocks of a launch and threads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) blocks: (u32, u32),
    pub(super) threads: u32,
}

impl Grid {
    /// Blocks of `threads` along one axis.
    pub(super) fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: (blocks, 1), threads }
    }
}

/// Something that a kernel takes.
pub(super) trait Argument {
    /// Where its value is.
    fn value(&self) -> *const c_void;

    /// The memory that the value points into.
    fn memory(&self) -> Option<&Arc<Memory>> {
        None
    }
}

macro_rules! plain_arguments {
    ($($type:ty)*) => { $(
        impl Argument for $type {
            fn value(&self) -> *const c_void {
                std::ptr::from_ref(self).cast()
            }
        }
    )* };
}
plain_arguments!(i32 i64 f32);

/// A null pointer, for what a kernel does not look at.
pub(super) struct Absent;

impl Argument for Absent {
    fn value(&self) -> *const c_void {
        const NULL: &sys::CUdeviceptr = &0;
        std::ptr::from_ref(NULL).cast()
    }
}

/// The first value of a buffer.
impl<T: Element> Argument for Buffer<T> {
    fn value(&self) -> *const c_void {
        (&raw const self.memory.pointer).cast()
    }

    fn memory(&self) -> Option<&Arc<Memory>> {
        Some(&self.memory)
    }
}

/// A place in a buffer.
pub(super) struct BufferPlace<'a> {
    memory: &'a Arc<Memory>,
    address: sys::CUdeviceptr,
}

impl<'a> BufferPlace<'a> {
    /// Value `at` of `buffer`.
    pub(super) fn new<T: Element>(buffer: &'a Buffer<T>, at: usize) -> Self {
        Self { memory: &buffer.memory, address: buffer.address(at) }
    }
}

impl Argument for BufferPlace<'_> {
    fn value(&self) -> *const c_void {
        (&raw const self.address).cast()
    }

    fn memory(&self) -> Option<&Arc<Memory>> {
        Some(self.memory)
    }
}

impl Device {
    /// A new queue.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the GPU fails.
    pub fn stream(&self) -> Result<Stream> {
        let queue = self.context().new_stream().map_err(self.failed("making a stream"))?;
        Ok(Stream { device: self.clone(), queue, recorded: RefCell::default() })
    }
}

impl Stream {
    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until everything that was put into the queue is done.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize().map_err(self.device.failed("running the kernels"))
    }

    /// Copies `values` to `buffer` from value `at` on, and waits for it.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if they do not fit; [`CudaError::Driver`] if the GPU fails.
    pub fn upload<T: Element>(
        &self,
        buffer: &mut Buffer<T>,
        at: usize,
        values: &[T],
    ) -> Result<()> {
        check_len("upload", "the buffer", buffer.len(), at.checked_add(values.len()))?;
        self.ready("copying to the GPU")?;
        if !values.is_empty() {
            let to = buffer.address(at);
            // SAFETY: both ends hold that many values, and both live until the wait below is over.
            unsafe { result::memcpy_htod_async(to, values, self.queue.cu_stream()) }
                .map_err(self.device.failed("copying to the GPU"))?;
        }
        self.synchronize()
    }

    /// A new buffer with `values`; `purpose` is what an error says it was for.
    ///
    /// # Errors
    /// As [`Device::alloc`] and [`Stream::upload`].
    pub fn to_device<T: Element>(&self, values: &[T], purpose: &'static str) -> Result<Buffer<T>> {
        let mut buffer = self.device.alloc(values.len(), purpose)?;
        self.upload(&mut buffer, 0, values)?;
        Ok(buffer)
    }

    /// Copies the values of `buffer` from number `at` on to `values`, once the work before it is done.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if there are not enough; [`CudaError::Driver`] if the GPU fails.
    pub fn download<T: Element>(
        &self,
        buffer: &Buffer<T>,
        at: usize,
        values: &mut [T],
    ) -> Result<()> {
        check_len("download", "the buffer", buffer.len(), at.checked_add(values.len()))?;
        self.ready("copying from the GPU")?;
        if !values.is_empty() {
            let from = buffer.address(at);
            // SAFETY: as in `upload`.
            unsafe { result::memcpy_dtoh_async(values, from, self.queue.cu_stream()) }
                .map_err(self.device.failed("copying from the GPU"))?;
        }
        self.synchronize()
    }

    /// Queues a copy of the first `len` values of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if they do not fit; [`CudaError::Driver`] if the GPU fails.
    pub fn copy_in<T: Element>(
        &self,
        from: &mut Pinned<T>,
        to: &mut Buffer<T>,
        len: usize,
    ) -> Result<()> {
        check_len("copy", "the buffer", to.len(), Some(len))?;
        check_len("copy", "the memory of the host", from.len(), Some(len))?;
        self.ready("copying to the GPU")?;
        let failed = self.device.failed("copying to the GPU");
        let (pointer, event) = from.parts();
        // SAFETY: `from` has `len` values and does not change or free them before `event`, which is
        // recorded behind the copy; `to` outlives the work that is queued.
        unsafe {
            let values = std::slice::from_raw_parts(pointer.cast_const(), len);
            result::memcpy_htod_async(to.address(0), values, self.queue.cu_stream())
        }
        .map_err(failed)?;
        event.record(&self.queue).map_err(failed)
    }

    /// Queues a copy of the first `len` values of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if they do not fit; [`CudaError::Driver`] if the GPU fails.
    pub fn copy_out<T: Element>(
        &self,
        from: &Buffer<T>,
        to: &mut Pinned<T>,
        len: usize,
    ) -> Result<()> {
        check_len("copy", "the buffer", from.len(), Some(len))?;
        check_len("copy", "the memory of the host", to.len(), Some(len))?;
        self.ready("copying from the GPU")?;
        let failed = self.device.failed("copying from the GPU");
        let (pointer, event) = to.parts();
        if len > 0 {
            // SAFETY: as in `copy_in`; nobody reads `to` before `event`.
            unsafe {
                let values = std::slice::from_raw_parts_mut(pointer, len);
                result::memcpy_dtoh_async(values, from.address(0), self.queue.cu_stream())
            }
            .map_err(failed)?;
        }
        event.record(&self.queue).map_err(failed)
    }

    /// Records what `work` puts into this queue instead of running it. Nothing but kernels and
    /// matrix products can be recorded.
    ///
    /// # Errors
    /// Those of `work`; [`CudaError::Driver`] if the driver refuses.
    pub fn record(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        let failed = self.device.failed("recording a graph");
        self.ready("recording a graph")?;
        let capture = Capture::begin(self).map_err(failed)?;
        work(self)?;
        let (graph, memory) = capture.end().map_err(failed)?;
        let graph = graph.ok_or_else(|| CudaError::Driver {
            ordinal: self.device.ordinal(),
            action: "recording a graph",
            message: "there is none".into(),
        })?;
        graph.upload().map_err(failed)?;
        Ok(Graph { work: graph, device: self.device.clone(), _memory: memory })
    }

    /// Puts a kernel into the queue.
    ///
    /// # Safety
    /// `arguments` must be those of the kernel, of the same types and in the same order, and with
    /// them and `grid` the kernel must stay inside their memory.
    pub(super) unsafe fn launch(
        &self,
        function: Function,
        grid: Grid,
        arguments: &[&dyn Argument],
    ) -> Result<()> {
        let failed = self.device.failed("launching a kernel");
        self.device.context().bind_to_thread().map_err(failed)?;
        let memory = arguments.iter().filter_map(|argument| argument.memory());
        self.uses(memory);
        let mut values: Vec<*mut c_void> =
            arguments.iter().map(|argument| argument.value().cast_mut()).collect();
        let (x, y) = grid.blocks;
        // SAFETY: the driver copies the values before it returns; the rest is the caller's promise.
        unsafe {
            result::launch_kernel(
                function.handle,
                (x, y, 1),
                (grid.threads, 1, 1),
                function.shared_bytes,
                self.queue.cu_stream(),
                &mut values,
            )
        }
        .map_err(failed)
    }

    /// Notes memory that a graph under way uses.
    pub(super) fn uses<'a>(&self, memory: impl Iterator<Item = &'a Arc<Memory>>) {
        if let Some(recorded) = self.recorded.borrow_mut().as_mut() {
            recorded.extend(memory.cloned());
        }
    }

    /// Binds the GPU to the thread, for what cannot be recorded.
    fn ready(&self, action: &'static str) -> Result<()> {
        if self.recorded.borrow().is_some() {
            let reason = format!("{action} cannot be recorded in a graph");
            return Err(CudaError::shape("stream", reason));
        }
        self.device.context().bind_to_thread().map_err(self.device.failed(action))
    }
}

/// A queue that records. It ends with this, also after a failure or a panic: the queue is of no use
/// while it records, nor can the GPU be waited for.
struct Capture<'a> {
    stream: &'a Stream,
    /// Dropped after the queue has ended recording.
    _recording: Recording,
}

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream) -> Result<Self, DriverError> {
        let recording = stream.device.begin_recording();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.queue.begin_capture(mode)?;
        stream.recorded.replace(Some(Vec::new()));
        Ok(Self { stream, _recording: recording })
    }

    /// What was recorded, and the memory that it uses.
    fn end(self) -> Result<(Option<CudaGraph>, Vec<Arc<Memory>>), DriverError> {
        let memory = self.stream.recorded.take().unwrap_or_default();
        let graph = self.stream.queue.end_capture(sys::CUgraphInstantiate_flags(0))?;
        Ok((graph, memory))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.stream.recorded.take().is_some() {
            let _ = self.stream.queue.end_capture(sys::CUgraphInstantiate_flags(0));
        }
    }
}

/// Work that was recorded once and is launched as a whole, in the queue it was recorded from.
///
/// It keeps the memory that it uses.
pub struct Graph {
    work: CudaGraph,
    device: Device,
    _memory: Vec<Arc<Memory>>,
}

impl Graph {
    /// Puts the work into its queue.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the GPU fails.
    pub fn launch(&self) -> Result<()> {
        self.work.launch().map_err(self.device.failed("launching a graph"))
    }
}
