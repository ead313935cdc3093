//! Chooses the device that computes. Invariant: an encoder uses the GPUs that the settings name, or
//! that is an error; only `auto` falls back to the CPU, and logs that.

use std::fmt;
use std::sync::Once;

use polysift_kernels::cuda::{CudaError, Device, DeviceInfo, devices};
use polysift_kernels::{Isa, Precision};
use rayon::prelude::*;

use super::cpu::CpuEncoder;
use super::encode::Encoder;
use super::files::ModelFiles;
use polysift_base::error::{Error, Result};
use polysift_config::{DeviceChoice, EncoderConfig, EncoderPrecision};

/// Device and precision of an encoder. [`fmt::Display`] writes it like a [`DeviceChoice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Numbers of the GPUs; empty on the CPU.
    pub gpus: Vec<usize>,
    /// Never [`EncoderPrecision::Auto`]; on GPUs bf16 or fp8.
    pub precision: EncoderPrecision,
}

impl Placement {
    /// Returns the placement for `auto`: the `gpus` if there are any, else the CPU in the fastest
    /// precision that does not reduce fidelity.
    pub fn auto(gpus: Vec<usize>) -> Self {
        let precision = if gpus.is_empty() {
            resolve_on_cpu(EncoderPrecision::Auto)
        } else {
            EncoderPrecision::Bf16
        };
        Self { gpus, precision }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gpus[..] {
            [] => DeviceChoice::Cpu.fmt(f),
            gpus => DeviceChoice::Cuda(gpus.to_vec()).fmt(f),
        }
    }
}

/// A GPU, and whether it is usable.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// Properties that the driver reports.
    pub info: DeviceInfo,
    /// Free memory, or the reason why the GPU is unusable.
    pub free_bytes: Result<u64, CudaError>,
}

/// Lists all GPUs of this machine. Each is opened briefly to find out whether it is usable.
pub fn gpus() -> Result<Vec<Gpu>, CudaError> {
    let gpu = |info: DeviceInfo| {
        let free_bytes = Device::open(info.ordinal).and_then(|device| device.free_bytes());
        Gpu { info, free_bytes }
    };
    Ok(devices()?.into_par_iter().map(gpu).collect())
}

/// Returns the numbers of the usable GPUs among `gpus`, or the error of the first GPU if none is.
pub fn usable(gpus: &[Gpu]) -> Result<Vec<usize>, CudaError> {
    keep_good(gpus.iter().map(|gpu| gpu.free_bytes.clone().map(|_| gpu.info.ordinal)))
}

/// Opens the first usable GPU that `choice` allows, if any, for work that the CPU does as well.
pub fn open_any_gpu(choice: &DeviceChoice) -> Option<Device> {
    let ordinals = match choice {
        DeviceChoice::Cpu => Vec::new(),
        DeviceChoice::Cuda(named) if !named.is_empty() => named.clone(),
        _ => (0..devices().map_or(0, |gpus| gpus.len())).collect(),
    };
    let open = |ordinal| {
        let opened = Device::open(ordinal);
        opened.inspect_err(|cause| tracing::debug!("cuda:{ordinal} is not used: {cause}")).ok()
    };
    ordinals.into_iter().find_map(open)
}

/// Opens exactly the GPUs that are `named`, or all usable ones if the list is empty. Returns the
/// first error if no GPU is usable, or a named one is not.
pub fn open_gpus(named: &[usize]) -> Result<Vec<Device>, CudaError> {
    let count = if named.is_empty() { devices()?.len() } else { 0 };
    open_with(count, named, Device::open)
}

/// Implements [`open_gpus`] with a given `open`, in parallel: opening a GPU takes a second.
fn open_with<T: Send>(
    count: usize,
    named: &[usize],
    open: impl Fn(usize) -> Result<T, CudaError> + Sync + Send,
) -> Result<Vec<T>, CudaError> {
    let ordinals = if named.is_empty() { (0..count).collect() } else { named.to_vec() };
    let opened: Vec<_> = ordinals.into_par_iter().map(open).collect();
    if named.is_empty() { keep_good(opened) } else { opened.into_iter().collect() }
}

/// Returns the successful outcomes, or the first error if there are none.
fn keep_good<T>(
    outcomes: impl IntoIterator<Item = Result<T, CudaError>>,
) -> Result<Vec<T>, CudaError> {
    let (good, bad): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    match (good.is_empty(), bad.into_iter().next()) {
        (true, None) => Err(CudaError::NoDevice { ordinal: 0, count: 0 }),
        (true, Some(problem)) => problem.map(|value| vec![value]),
        _ => good.into_iter().collect(),
    }
}

type Placed = (Box<dyn Encoder>, Placement);

/// Loads the encoder onto the GPUs or the CPU and logs what `auto` chose. Under `auto`, the CPU
/// takes the place of GPUs that fail, unless their memory is too small.
pub(super) fn load(files: &ModelFiles, config: &EncoderConfig) -> Result<Placed> {
    let (is_chosen, no_gpu, (encoder, placement)) = if config.needs_cpu() {
        (config.precision == EncoderPrecision::Auto, None, load_on_cpu(files, config)?)
    } else {
        // On a CPU the job would take a hundred times as long as on a GPU with room for it.
        let is_full = |cause: &CudaError| matches!(cause, CudaError::OutOfMemory { .. });
        let is_chosen = !config.needs_gpu();
        match load_on_gpus(files, config) {
            Err(Error::Device(cause)) if is_chosen && !is_full(&cause) => {
                (is_chosen, Some(cause), load_on_cpu(files, config)?)
            }
            placed => (is_chosen, None, placed?),
        }
    };
    if is_chosen {
        log_choice(&placement, no_gpu.as_ref());
    }
    Ok((files.output.wrap_encoder(encoder), placement))
}

/// Loads the encoder onto the GPUs that `config` names, or onto all usable ones.
fn load_on_gpus(files: &ModelFiles, config: &EncoderConfig) -> Result<Placed> {
    let load = |gpus: &[Device]| load_cuda(files, config, gpus);
    match &config.device {
        DeviceChoice::Cuda(named) => load(&open_gpus(named)?),
        _ => load_where_it_fits(open_gpus(&[])?, Device::ordinal, load),
    }
}

/// Loads the encoder onto exactly these `gpus`: in fp8 if it is set, else in bf16.
#[cfg(feature = "cuda")]
fn load_cuda(files: &ModelFiles, config: &EncoderConfig, gpus: &[Device]) -> Result<Placed> {
    let encoder = super::cuda::CudaEncoder::load(files, config, gpus)?;
    let is_fp8 = config.precision == EncoderPrecision::Fp8;
    let precision = if is_fp8 { EncoderPrecision::Fp8 } else { EncoderPrecision::Bf16 };
    let gpus = gpus.iter().map(Device::ordinal).collect();
    Ok((Box::new(encoder), Placement { gpus, precision }))
}

#[cfg(not(feature = "cuda"))]
fn load_cuda(_: &ModelFiles, _: &EncoderConfig, _: &[Device]) -> Result<Placed> {
    Err(CudaError::NotBuilt.into())
}

/// Loads the encoder onto the CPU, in a precision that [`resolve_on_cpu`] returns.
fn load_on_cpu(files: &ModelFiles, config: &EncoderConfig) -> Result<Placed> {
    let precision = resolve_on_cpu(config.precision);
    let encoder = CpuEncoder::load(files, precision)?;
    Ok((Box::new(encoder), Placement { gpus: Vec::new(), precision }))
}

/// Resolves `precision` for this CPU. `auto` never means int8, because int8 reduces fidelity.
fn resolve_on_cpu(precision: EncoderPrecision) -> EncoderPrecision {
    match (precision, Precision::fastest_half(Isa::detect())) {
        (EncoderPrecision::Auto, Some(Precision::F16)) => EncoderPrecision::F16,
        (EncoderPrecision::Auto, Some(Precision::Bf16)) => EncoderPrecision::Bf16,
        (EncoderPrecision::Auto, _) => EncoderPrecision::F32,
        (given, _) => given,
    }
}

/// Loads onto the GPUs with enough memory; the others are left out with a warning.
fn load_where_it_fits<C, T>(
    mut gpus: Vec<C>,
    ordinal_of: impl Fn(&C) -> usize,
    load: impl Fn(&[C]) -> Result<T>,
) -> Result<T> {
    loop {
        match load(&gpus) {
            Err(Error::Device(CudaError::OutOfMemory { ordinal, needed_bytes, purpose }))
                if gpus.len() > 1 && gpus.iter().any(|gpu| ordinal_of(gpu) == ordinal) =>
            {
                tracing::warn!(
                    "cuda:{ordinal} is left out: its memory does not suffice ({needed_bytes} bytes \
                     for {purpose})"
                );
                gpus.retain(|gpu| ordinal_of(gpu) != ordinal);
            }
            outcome => return outcome,
        }
    }
}

/// Logs what `auto` chose, once per process.
fn log_choice(placement: &Placement, cause: Option<&CudaError>) {
    static SAID: Once = Once::new();
    let precision = placement.precision;
    let is_cpu = placement.gpus.is_empty();
    let place = if is_cpu { "the CPU".to_owned() } else { placement.to_string() };
    SAID.call_once(|| match cause {
        None => tracing::info!("encoding on {place}, in {precision}"),
        Some(cause @ (CudaError::NoDriver | CudaError::NotBuilt)) => {
            tracing::info!("encoding on {place}, in {precision}: {cause}");
        }
        Some(cause) => {
            tracing::warn!("encoding on {place}, in {precision}: no GPU can be used: {cause}");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use polysift_base::panics::{lock, unpoisoned};

    use super::*;

    fn too_old(ordinal: usize) -> CudaError {
        let name = "a GPU".into();
        CudaError::DeviceTooOld(DeviceInfo {
            ordinal,
            name,
            compute_capability: (7, 5),
            multiprocessors: 1,
            total_bytes: 1,
        })
    }

    /// Opens GPUs, where number 1 is too old; also returns the GPUs that were tried.
    fn open(count: usize, named: &[usize]) -> (Result<Vec<usize>, CudaError>, Vec<usize>) {
        let tried = Mutex::new(Vec::new());
        let opened = open_with(count, named, |ordinal| {
            lock(&tried).push(ordinal);
            match ordinal {
                1 => Err(too_old(1)),
                3.. => Err(CudaError::NoDevice { ordinal, count: 3 }),
                good => Ok(good),
            }
        });
        let mut tried = unpoisoned(tried.into_inner());
        tried.sort_unstable();
        (opened, tried)
    }

    #[test]
    fn without_numbers_all_usable_gpus_are_taken() {
        assert_eq!(open(3, &[]), (Ok(vec![0, 2]), vec![0, 1, 2]));
        assert_eq!(open(0, &[]).0, Err(CudaError::NoDevice { ordinal: 0, count: 0 }));
        let none = open_with(2, &[], |ordinal| Err::<usize, _>(too_old(ordinal)));
        assert_eq!(none, Err(too_old(0)));
    }

    #[test]
    fn a_gpu_that_is_named_is_used_or_an_error_and_no_other_is_opened() {
        assert_eq!(open(3, &[2, 0]), (Ok(vec![2, 0]), vec![0, 2]));
        assert_eq!(open(3, &[0, 1]).0, Err(too_old(1)));
        assert_eq!(open(3, &[3]).0, Err(CudaError::NoDevice { ordinal: 3, count: 3 }));
    }

    #[test]
    fn gpus_without_memory_are_left_out_until_none_is_left() {
        let tried = RefCell::new(Vec::new());
        let load = |full: &[usize], ordinals: &[usize]| {
            tried.borrow_mut().push(ordinals.to_vec());
            match ordinals.iter().find(|ordinal| full.contains(ordinal)) {
                None => Ok(ordinals.to_vec()),
                Some(&ordinal) => {
                    let (needed_bytes, purpose) = (7, "weights");
                    Err(CudaError::OutOfMemory { ordinal, needed_bytes, purpose }.into())
                }
            }
        };
        let fits =
            load_where_it_fits(vec![0, 1, 2], |&gpu| gpu, |ordinals| load(&[0, 2], ordinals));
        assert!(fits.is_ok_and(|ordinals| ordinals == [1]));
        assert_eq!(tried.take(), [vec![0, 1, 2], vec![1, 2], vec![1]]);
        let none = load_where_it_fits(vec![0, 1], |&gpu| gpu, |ordinals| load(&[0, 1], ordinals));
        assert!(matches!(none, Err(Error::Device(CudaError::OutOfMemory { ordinal: 1, .. }))));
    }

    #[test]
    fn a_placement_is_written_as_the_device_in_settings_is() {
        let gpus = Placement::auto(vec![0, 2]);
        let bf16 = EncoderPrecision::Bf16;
        assert_eq!((gpus.to_string(), gpus.precision), ("cuda:0,2".into(), bf16));
        let cpu = Placement { gpus: Vec::new(), precision: EncoderPrecision::Int8 };
        assert_eq!(cpu.to_string(), "cpu");
    }

    #[test]
    fn by_itself_the_cpu_takes_no_type_that_harms_embeddings() {
        let auto = Placement::auto(Vec::new());
        assert!(["f32", "bf16", "f16"].contains(&&*auto.precision.to_string()), "{auto:?}");
        assert_eq!(resolve_on_cpu(EncoderPrecision::Int8), EncoderPrecision::Int8);
    }
}
