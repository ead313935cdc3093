//! A queue of work for a GPU: copies, kernels, and graphs of them.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaStream, DriverError, result, sys};

use super::device::Device;
use super::driver::driver_version;
use super::error::{CudaError, Result, check_len};
use super::memory::{Buffer, Element, Memory, Pinned};
use super::module::Function;

/// A queue of GPU work; entries run in order while the host continues.
pub struct Stream {
    device: Device,
    queue: Arc<CudaStream>,
    /// Memory that the graph uses so far, while one is recorded.
    recorded: RefCell<Option<Vec<Arc<Memory>>>>,
    /// Whether a kernel may start before the last one ends: on Hopper, kernels wait for it.
    overlaps: bool,
}

/// The first CUDA version whose graphs record that kernels may overlap.
const OVERLAP_VERSION: u32 = 12_030;

/// Blocks of a launch, across and down, and threads per block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) blocks: (u32, u32),
    pub(super) threads: u32,
}

impl Grid {
    /// Returns a grid of `blocks` blocks in one dimension.
    pub(super) fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: (blocks, 1), threads }
    }
}

pub(super) trait Argument {
    /// Returns a pointer to the argument's value.
    fn value(&self) -> *const c_void;

    /// Returns the allocation that the value points into, if the value is an address.
    fn memory(&self) -> Option<&Arc<Memory>> {
        None
    }
}

impl<T: Element> Argument for T {
    fn value(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }
}

/// Passes the address of the first value.
impl<T: Element> Argument for Buffer<T> {
    fn value(&self) -> *const c_void {
        (&raw const self.memory.pointer).cast()
    }

    fn memory(&self) -> Option<&Arc<Memory>> {
        Some(&self.memory)
    }
}

/// The address of one value in a buffer.
pub(super) struct BufferPlace<'a> {
    pub(super) memory: Option<&'a Arc<Memory>>,
    pub(super) address: sys::CUdeviceptr,
}

/// A null pointer, for an argument that the kernel does not read.
pub(super) const ABSENT: BufferPlace<'static> = BufferPlace { memory: None, address: 0 };

impl Argument for BufferPlace<'_> {
    fn value(&self) -> *const c_void {
        (&raw const self.address).cast()
    }

    /// Returns the allocation that the value points into, if the value is an address.
    fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory
    }
}

impl Device {
    /// Creates a stream.
    pub fn stream(&self) -> Result<Stream> {
        let queue = self.context().new_stream().map_err(self.failed("making a stream"))?;
        let overlaps =
            self.kernels().check_hopper().is_ok() && driver_version()? >= OVERLAP_VERSION;
        Ok(Stream { device: self.clone(), queue, recorded: RefCell::default(), overlaps })
    }
}

impl Stream {
    /// Returns the GPU of this stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until all queued work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize().map_err(self.device.failed("running the kernels"))
    }

    /// Copies `values` into `buffer` from index `at` on, and waits for the copy.
    pub fn upload<T: Element>(
        &self,
        buffer: &mut Buffer<T>,
        at: usize,
        values: &[T],
    ) -> Result<()> {
        check_len("upload", "the buffer", buffer.len(), at.checked_add(values.len()))?;
        let failed = self.begin_action("copying to the GPU")?;
        if !values.is_empty() {
            let to = buffer.address(at);
            // SAFETY: both ends hold that many values, and both live until the wait below is over.
            unsafe { result::memcpy_htod_async(to, values, self.queue.cu_stream()) }
                .map_err(failed)?;
        }
        self.synchronize()
    }

    /// Copies `values` into a new buffer; an error names the `purpose`.
    pub fn to_device<T: Element>(&self, values: &[T], purpose: &'static str) -> Result<Buffer<T>> {
        let mut buffer = self.device.alloc(values.len(), purpose)?;
        self.upload(&mut buffer, 0, values)?;
        Ok(buffer)
    }

    /// Waits for the work queued so far, and copies `buffer` from index `at` on to `values`.
    pub fn download<T: Element>(
        &self,
        buffer: &Buffer<T>,
        at: usize,
        values: &mut [T],
    ) -> Result<()> {
        check_len("download", "the buffer", buffer.len(), at.checked_add(values.len()))?;
        let failed = self.begin_action("copying from the GPU")?;
        if !values.is_empty() {
            let from = buffer.address(at);
            // SAFETY: as in `upload`.
            unsafe { result::memcpy_dtoh_async(values, from, self.queue.cu_stream()) }
                .map_err(failed)?;
        }
        self.synchronize()
    }

    /// Queues a copy of `from` to the start of `to`.
    pub fn copy_in<T: Element>(&self, from: &mut Pinned<T>, to: &mut Buffer<T>) -> Result<()> {
        check_len("copy", "the buffer", to.len(), Some(from.len))?;
        let failed = self.begin_action("copying to the GPU")?;
        // SAFETY: `from` keeps its values until `event`, after the copy; `to` outlives the work.
        unsafe {
            let values = std::slice::from_raw_parts(from.pointer.cast_const(), from.len);
            result::memcpy_htod_async(to.address(0), values, self.queue.cu_stream())
        }
        .map_err(failed)?;
        from.event.record(&self.queue).map_err(failed)
    }

    /// Queues a copy of the first `len` values of `from` to the start of `to`.
    pub fn copy_out<T: Element>(
        &self,
        from: &Buffer<T>,
        to: &mut Pinned<T>,
        len: usize,
    ) -> Result<()> {
        check_len("copy", "the buffer", from.len(), Some(len))?;
        check_len("copy", "the memory of the host", to.len, Some(len))?;
        let failed = self.begin_action("copying from the GPU")?;
        if len > 0 {
            // SAFETY: as in `copy_in`; nobody reads `to` before `event`.
            unsafe {
                let values = std::slice::from_raw_parts_mut(to.pointer, len);
                result::memcpy_dtoh_async(values, from.address(0), self.queue.cu_stream())
            }
            .map_err(failed)?;
        }
        to.event.record(&self.queue).map_err(failed)
    }

    /// Records what `work` queues instead of running it. Only kernels can be recorded.
    pub fn record(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        let failed = self.begin_action("recording a graph")?;
        self.device.recordings().begin();
        let capture = Capture(self);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.queue.begin_capture(mode).map_err(failed)?;
        self.recorded.replace(Some(Vec::new()));
        work(self)?;
        let memory = self.recorded.take().unwrap_or_default();
        let graph = self.queue.end_capture(sys::CUgraphInstantiate_flags(0));
        drop(capture);
        let graph = graph.map_err(failed)?;
        let graph = graph.ok_or_else(|| CudaError::shape("graph", "nothing was recorded"))?;
        graph.upload().map_err(failed)?;
        Ok(Graph { work: graph, device: self.device.clone(), _memory: memory })
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// `arguments` must have the types and order of the kernel's parameters. With them and `grid`,
    /// the kernel must stay inside their memory.
    pub(super) unsafe fn launch(
        &self,
        function: Function,
        grid: Grid,
        arguments: &[&dyn Argument],
    ) -> Result<()> {
        let failed = self.device.failed("launching a kernel");
        self.device.context().bind_to_thread().map_err(failed)?;
        if let Some(recorded) = self.recorded.borrow_mut().as_mut() {
            recorded.extend(arguments.iter().filter_map(|argument| argument.memory()).cloned());
        }
        let mut values: Vec<*mut c_void> =
            arguments.iter().map(|argument| argument.value().cast_mut()).collect();
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid.blocks.0,
            gridDimY: grid.blocks.1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: function.shared_bytes,
            hStream: self.queue.cu_stream(),
            attrs: &raw mut overlap,
            numAttrs: u32::from(self.overlaps),
        };
        let (values, none) = (values.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the driver copies the values before it returns; the caller promises the rest.
        unsafe { sys::cuLaunchKernelEx(&raw const config, function.handle, values, none) }
            .result()
            .map_err(failed)
    }

    /// Binds the GPU to the thread for `action`, and returns a closure that names it in errors of
    /// the driver. Fails while a graph is recorded.
    fn begin_action(
        &self,
        action: &'static str,
    ) -> Result<impl FnOnce(DriverError) -> CudaError + Copy> {
        if self.recorded.borrow().is_some() {
            let reason = format!("{action} cannot be recorded in a graph");
            return Err(CudaError::shape("stream", reason));
        }
        let failed = self.device.failed(action);
        self.device.context().bind_to_thread().map_err(failed)?;
        Ok(failed)
    }
}

/// A running recording. Dropping it ends the recording, also after a failure or a panic: until
/// then, the queue runs nothing and nothing can wait for the GPU.
struct Capture<'a>(&'a Stream);

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.0.recorded.take().is_some() {
            let _ = self.0.queue.end_capture(sys::CUgraphInstantiate_flags(0));
        }
        self.0.device.recordings().end();
    }
}

/// Recorded work, launched as a whole in the stream that recorded it. It keeps its memory alive.
pub struct Graph {
    work: CudaGraph,
    device: Device,
    _memory: Vec<Arc<Memory>>,
}

impl Graph {
    /// Queues the recorded work.
    pub fn launch(&self) -> Result<()> {
        self.work.launch().map_err(self.device.failed("launching a graph"))
    }
}
