//! Which device computes: what the settings ask for, held against what the machine has.
//!
//! Invariant: cards that are asked for by name are used or are an error; only `auto` falls back to
//! the CPU, and says so.

use std::fmt;
use std::sync::Once;

use polysift_kernels::cuda::{CudaError, Device, DeviceInfo, devices};
use polysift_kernels::{Arithmetic, Isa};
use rayon::prelude::*;

use super::cpu::CpuEncoder;
use super::cuda::CudaEncoder;
use super::{Encoder, ModelFiles};
use crate::config::{DeviceChoice, Dtype, EncoderConfig};
use crate::error::{Error, Result};

/// Where and in what an encoder computes; displayed as a [`DeviceChoice`] is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// On the CPU, in this type, which is not [`Dtype::Auto`].
    Cpu(Dtype),
    /// On the cards of these numbers, at least one, in [`Dtype::Bf16`] or [`Dtype::Fp8`].
    Cuda(Vec<usize>, Dtype),
}

impl Placement {
    /// In what it computes there: `f32`, `bf16`, `f16`, `int8` or `fp8`.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::Cpu(dtype) | Self::Cuda(_, dtype) => dtype.name(),
        }
    }

    /// What an encoder for which the settings say nothing takes: the `cards`, if there are any, else
    /// the CPU in the type that is fastest there without harm to the embeddings.
    pub fn auto(cards: Vec<usize>) -> Self {
        if cards.is_empty() {
            Self::Cpu(on_this_cpu(Dtype::Auto))
        } else {
            Self::Cuda(cards, Dtype::Bf16)
        }
    }

    /// Number of cards.
    pub fn num_cards(&self) -> usize {
        match self {
            Self::Cpu(_) => 0,
            Self::Cuda(ordinals, _) => ordinals.len(),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(_) => DeviceChoice::Cpu.fmt(f),
            Self::Cuda(ordinals, _) => DeviceChoice::Cuda(ordinals.clone()).fmt(f),
        }
    }
}

/// A card and whether it can be used.
#[derive(Debug, Clone)]
pub struct Card {
    /// What the driver says of it.
    pub info: DeviceInfo,
    /// Memory that nobody uses now; `None` where the card cannot be used.
    pub free_bytes: Option<u64>,
    /// Why it cannot be used; `None` where it can, for a model that fits it.
    pub problem: Option<CudaError>,
}

/// All cards of this machine. Each is opened for a moment to find out what can be used.
///
/// # Errors
/// As [`devices`].
pub fn cards() -> Result<Vec<Card>, CudaError> {
    let card = |info: DeviceInfo| {
        let free_bytes = Device::open(info.ordinal).and_then(|device| device.free_bytes());
        Card { info, problem: free_bytes.clone().err(), free_bytes: free_bytes.ok() }
    };
    Ok(devices()?.into_par_iter().map(card).collect())
}

/// The numbers of the usable ones among `cards`.
///
/// # Errors
/// The first reason why there is none.
pub fn usable(cards: &[Card]) -> Result<Vec<usize>, CudaError> {
    good_ones(cards.iter().map(|card| card.problem.clone().map_or(Ok(card.info.ordinal), Err)))
}

/// Opens the cards that are `wanted` and no other, or all that can be used if none is named.
///
/// # Errors
/// The first reason why there is none, or why one that is wanted cannot be used.
pub fn open_cards(wanted: &[usize]) -> Result<Vec<Device>, CudaError> {
    let count = if wanted.is_empty() { devices()?.len() } else { 0 };
    open_with(count, wanted, Device::open)
}

/// [`open_cards`] of the first `count` numbers, with any way to `open`. It takes a second a card, so
/// all are opened at once.
fn open_with<T: Send>(
    count: usize,
    wanted: &[usize],
    open: impl Fn(usize) -> Result<T, CudaError> + Sync + Send,
) -> Result<Vec<T>, CudaError> {
    let ordinals = if wanted.is_empty() { (0..count).collect() } else { wanted.to_vec() };
    let opened: Vec<_> = ordinals.into_par_iter().map(open).collect();
    if wanted.is_empty() { good_ones(opened) } else { opened.into_iter().collect() }
}

/// What is good among `outcomes`, else why the first one is not.
fn good_ones<T>(
    outcomes: impl IntoIterator<Item = Result<T, CudaError>>,
) -> Result<Vec<T>, CudaError> {
    let (mut good, mut problem) = (Vec::new(), None);
    for outcome in outcomes {
        match outcome {
            Ok(value) => good.push(value),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    if good.is_empty() {
        return Err(problem.unwrap_or(CudaError::NoDevice { ordinal: 0, count: 0 }));
    }
    Ok(good)
}

/// The cards on which heads score: those that `choice` names. None for `auto`: scoring waits for
/// the disk on either device, and so its results do not depend on the machine.
///
/// # Errors
/// [`Error::Device`] if one of them cannot be used.
pub(crate) fn scoring_cards(choice: &DeviceChoice) -> Result<Vec<Device>> {
    let DeviceChoice::Cuda(wanted) = choice else { return Ok(Vec::new()) };
    Ok(open_cards(wanted)?)
}

/// An encoder with the place where it computes.
type Placed = (Box<dyn Encoder>, Placement);

/// Loads the encoder onto the device that `config` asks for.
pub(super) fn load(files: &ModelFiles, config: &EncoderConfig) -> Result<Placed> {
    if config.needs_cpu() {
        let placed = on_cpu(files, config)?;
        if config.dtype == Dtype::Auto {
            say(&placed.1, None);
        }
        return Ok(placed);
    }
    let wanted = match &config.device {
        DeviceChoice::Cuda(wanted) => wanted.as_slice(),
        DeviceChoice::Auto | DeviceChoice::Cpu => &[],
    };
    let cards = open_cards(wanted).map_err(Error::from);
    let on_cards = |cards: &[Device]| -> Result<Placed> {
        let encoder = CudaEncoder::load(files, config, cards)?;
        let dtype = if config.dtype == Dtype::Fp8 { Dtype::Fp8 } else { Dtype::Bf16 };
        let ordinals = cards.iter().map(Device::ordinal).collect();
        Ok((Box::new(encoder), Placement::Cuda(ordinals, dtype)))
    };
    if config.needs_card() {
        return on_cards(&cards?);
    }
    match cards.and_then(|cards| where_it_fits(cards, Device::ordinal, on_cards)) {
        Ok(placed) => {
            say(&placed.1, None);
            Ok(placed)
        }
        Err(Error::Device(cause)) => {
            let placed = on_cpu(files, config)?;
            say(&placed.1, Some(&cause));
            Ok(placed)
        }
        Err(error) => Err(error),
    }
}

fn on_cpu(files: &ModelFiles, config: &EncoderConfig) -> Result<Placed> {
    let dtype = on_this_cpu(config.dtype);
    Ok((Box::new(CpuEncoder::load(files, config.pooling, dtype)?), Placement::Cpu(dtype)))
}

/// What `dtype` means on this CPU. Nothing takes int8 by itself: it costs fidelity.
fn on_this_cpu(dtype: Dtype) -> Dtype {
    match (dtype, Isa::detect().fastest_half()) {
        (Dtype::Auto, Some(Arithmetic::F16)) => Dtype::F16,
        (Dtype::Auto, Some(Arithmetic::Bf16)) => Dtype::Bf16,
        (Dtype::Auto, _) => Dtype::F32,
        (given, _) => given,
    }
}

/// Loads onto those of `cards` whose memory suffices.
fn where_it_fits<C, T>(
    mut cards: Vec<C>,
    ordinal_of: impl Fn(&C) -> usize,
    load: impl Fn(&[C]) -> Result<T>,
) -> Result<T> {
    loop {
        match load(&cards) {
            Err(Error::Device(CudaError::OutOfMemory { ordinal, needed_bytes, purpose }))
                if cards.len() > 1 && cards.iter().any(|card| ordinal_of(card) == ordinal) =>
            {
                tracing::warn!(
                    "cuda:{ordinal} is left out: its memory does not suffice ({needed_bytes} bytes \
                     for {purpose})"
                );
                cards.retain(|card| ordinal_of(card) != ordinal);
            }
            outcome => return outcome,
        }
    }
}

/// Says what `auto` took, once for all stages of the process.
fn say(placement: &Placement, cause: Option<&CudaError>) {
    static SAID: Once = Once::new();
    let dtype = placement.dtype();
    let place = match placement {
        Placement::Cpu(_) => "the CPU".to_owned(),
        Placement::Cuda(..) => placement.to_string(),
    };
    SAID.call_once(|| match cause {
        None => tracing::info!("encoding on {place}, in {dtype}"),
        Some(CudaError::NoDriver) => {
            tracing::info!("encoding on {place}, in {dtype}: there is no CUDA driver");
        }
        Some(cause) => {
            tracing::warn!("encoding on {place}, in {dtype}: no card can be used: {cause}");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use crate::panics::{lock, unpoisoned};

    use super::*;

    fn too_old(ordinal: usize) -> CudaError {
        let name = "a card".into();
        CudaError::DeviceTooOld { ordinal, name, compute_capability: (7, 5) }
    }

    /// What opening gives where the second of three cards is too old, and the cards that were
    /// opened for it.
    fn open(count: usize, wanted: &[usize]) -> (Result<Vec<usize>, CudaError>, Vec<usize>) {
        let tried = Mutex::new(Vec::new());
        let opened = open_with(count, wanted, |ordinal| {
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
    fn without_numbers_all_usable_cards_are_taken() {
        assert_eq!(open(3, &[]), (Ok(vec![0, 2]), vec![0, 1, 2]));
        assert_eq!(open(0, &[]).0, Err(CudaError::NoDevice { ordinal: 0, count: 0 }));
        let none = open_with(2, &[], |ordinal| Err::<usize, _>(too_old(ordinal)));
        assert_eq!(none, Err(too_old(0)));
    }

    #[test]
    fn a_card_that_is_named_is_used_or_an_error_and_no_other_is_opened() {
        assert_eq!(open(3, &[2, 0]), (Ok(vec![2, 0]), vec![0, 2]));
        assert_eq!(open(3, &[0, 1]).0, Err(too_old(1)));
        assert_eq!(open(3, &[3]).0, Err(CudaError::NoDevice { ordinal: 3, count: 3 }));
    }

    #[test]
    fn cards_without_memory_are_left_out_until_none_is_left() {
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
        let fits = where_it_fits(vec![0, 1, 2], |&card| card, |ordinals| load(&[0, 2], ordinals));
        assert!(fits.is_ok_and(|ordinals| ordinals == [1]));
        assert_eq!(tried.take(), [vec![0, 1, 2], vec![1, 2], vec![1]]);
        let none = where_it_fits(vec![0, 1], |&card| card, |ordinals| load(&[0, 1], ordinals));
        assert!(matches!(none, Err(Error::Device(CudaError::OutOfMemory { ordinal: 1, .. }))));
    }

    #[test]
    fn cards_compute_in_bf16_and_the_cpu_in_what_it_is_told() {
        let cards = Placement::auto(vec![0, 2]);
        assert_eq!((cards.to_string(), cards.dtype()), ("cuda:0,2".into(), "bf16"));
        let cpu = Placement::Cpu(Dtype::Int8);
        assert_eq!((cpu.to_string(), cpu.dtype()), ("cpu".into(), "int8"));
    }

    #[test]
    fn by_itself_the_cpu_takes_no_type_that_harms_embeddings() {
        let auto = Placement::auto(Vec::new());
        assert!(["f32", "bf16", "f16"].contains(&auto.dtype()), "{auto:?}");
        assert_eq!(on_this_cpu(Dtype::Int8), Dtype::Int8);
    }
}
