//! Which device computes: what the settings ask for, held against what the machine has.
//!
//! Invariant: cards that are asked for by name are used or are an error; only `auto` falls back to
//! the CPU, and says so.

use std::fmt;
use std::sync::Once;

use polysift_kernels::cuda::{CudaError, Device, DeviceInfo, devices};
use polysift_kernels::{Arithmetic, Isa};

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
    /// On the cards of these numbers; at least one.
    Cuda(Vec<usize>),
}

impl Placement {
    /// In what it computes there: `f32`, `bf16`, `f16` or `int8`.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::Cpu(dtype) => dtype.name(),
            Self::Cuda(_) => Dtype::Bf16.name(),
        }
    }

    /// What an encoder for which the settings say nothing takes: the `cards`, if there are any, else
    /// the CPU in the type that is fastest there without harm to the embeddings.
    pub fn auto(cards: Vec<usize>) -> Self {
        if cards.is_empty() { Self::Cpu(on_this_cpu(Dtype::Auto)) } else { Self::Cuda(cards) }
    }

    /// Number of cards.
    pub fn num_cards(&self) -> usize {
        match self {
            Self::Cpu(_) => 0,
            Self::Cuda(ordinals) => ordinals.len(),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(_) => DeviceChoice::Cpu.fmt(f),
            Self::Cuda(ordinals) => DeviceChoice::Cuda(ordinals.clone()).fmt(f),
        }
    }
}

/// A card and whether it can be used.
#[derive(Debug, Clone)]
pub struct Card {
    /// What the driver says of it.
    pub info: DeviceInfo,
    /// Why it cannot be used; `None` where it can, for a model that fits it.
    pub problem: Option<CudaError>,
}

/// All cards of this machine.
///
/// # Errors
/// As [`devices`].
pub fn cards() -> Result<Vec<Card>, CudaError> {
    let card = |info: DeviceInfo| Card { problem: Device::open(info.ordinal).err(), info };
    Ok(devices()?.into_iter().map(card).collect())
}

/// The numbers of the usable ones among `cards`, or of those that are `wanted`, if there are such.
///
/// # Errors
/// The first reason why there is none, or why one that is wanted cannot be used.
pub fn usable(cards: &[Card], wanted: &[usize]) -> Result<Vec<usize>, CudaError> {
    if wanted.is_empty() {
        let (good, bad): (Vec<_>, Vec<_>) = cards.iter().partition(|card| card.problem.is_none());
        if good.is_empty() {
            let problem = bad.into_iter().find_map(|card| card.problem.clone());
            return Err(problem.unwrap_or(CudaError::NoDevice { ordinal: 0, count: 0 }));
        }
        return Ok(good.iter().map(|card| card.info.ordinal).collect());
    }
    let check = |&ordinal: &usize| {
        let card = cards.iter().find(|card| card.info.ordinal == ordinal);
        let card = card.ok_or(CudaError::NoDevice { ordinal, count: cards.len() })?;
        card.problem.clone().map_or(Ok(ordinal), Err)
    };
    wanted.iter().map(check).collect()
}

/// The cards on which heads score: those that `choice` names. None for `auto`: scoring waits for
/// the disk on either device, and so its results do not depend on the machine.
///
/// # Errors
/// [`Error::Device`] if one of them cannot be used.
pub(crate) fn scoring_cards(choice: &DeviceChoice) -> Result<Vec<Device>> {
    let DeviceChoice::Cuda(wanted) = choice else { return Ok(Vec::new()) };
    let ordinals = usable(&cards()?, wanted)?;
    Ok(ordinals.into_iter().map(Device::open).collect::<Result<_, _>>()?)
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
    let ordinals = cards().and_then(|cards| usable(&cards, wanted)).map_err(Error::from);
    let on_cards = |ordinals: &[usize]| -> Result<Placed> {
        let EncoderConfig { pooling, gelu, batch_tokens, .. } = *config;
        let encoder = CudaEncoder::load(files, pooling, gelu, ordinals, batch_tokens)?;
        Ok((Box::new(encoder), Placement::Cuda(ordinals.to_vec())))
    };
    if config.needs_card() {
        return on_cards(&ordinals?);
    }
    match ordinals.and_then(|ordinals| where_it_fits(ordinals, on_cards)) {
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

/// Loads onto those of the cards `ordinals` whose memory suffices.
fn where_it_fits<T>(mut ordinals: Vec<usize>, load: impl Fn(&[usize]) -> Result<T>) -> Result<T> {
    loop {
        match load(&ordinals) {
            Err(Error::Device(CudaError::OutOfMemory { ordinal, needed_bytes, purpose }))
                if ordinals.len() > 1 && ordinals.contains(&ordinal) =>
            {
                tracing::warn!(
                    "cuda:{ordinal} is left out: its memory does not suffice ({needed_bytes} bytes \
                     for {purpose})"
                );
                ordinals.retain(|&other| other != ordinal);
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
        Placement::Cuda(_) => placement.to_string(),
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

    use super::*;

    fn card(ordinal: usize, problem: Option<CudaError>) -> Card {
        let info = DeviceInfo {
            ordinal,
            name: "a card".into(),
            compute_capability: (9, 0),
            multiprocessors: 1,
            total_bytes: 1,
            free_bytes: 1,
        };
        Card { info, problem }
    }

    fn too_old(ordinal: usize) -> CudaError {
        let name = "a card".into();
        CudaError::DeviceTooOld { ordinal, name, compute_capability: (7, 5) }
    }

    #[test]
    fn without_numbers_all_usable_cards_are_taken() {
        let cards = [card(0, None), card(1, Some(too_old(1))), card(2, None)];
        assert_eq!(usable(&cards, &[]), Ok(vec![0, 2]));
        assert_eq!(usable(&cards[1..2], &[]), Err(too_old(1)));
        assert_eq!(usable(&[], &[]), Err(CudaError::NoDevice { ordinal: 0, count: 0 }));
    }

    #[test]
    fn a_card_that_is_named_is_used_or_an_error() {
        let cards = [card(0, None), card(1, Some(too_old(1))), card(2, None)];
        assert_eq!(usable(&cards, &[2, 0]), Ok(vec![2, 0]));
        assert_eq!(usable(&cards, &[0, 1]), Err(too_old(1)));
        assert_eq!(usable(&cards, &[3]), Err(CudaError::NoDevice { ordinal: 3, count: 3 }));
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
        let fits = where_it_fits(vec![0, 1, 2], |ordinals| load(&[0, 2], ordinals));
        assert!(fits.is_ok_and(|ordinals| ordinals == [1]));
        assert_eq!(tried.take(), [vec![0, 1, 2], vec![1, 2], vec![1]]);
        let none = where_it_fits(vec![0, 1], |ordinals| load(&[0, 1], ordinals));
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
