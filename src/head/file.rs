//! The head file: safetensors whose metadata holds the [`Card`]. Files of others, safetensors or
//! PyTorch's, are read as well.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::pytorch::{StateDict, is_legacy, is_zip};
use super::{Card, Head, HeadSpec, ReferenceCounts, Scorer, weights};
use crate::config::{HeadConfig, HeadKind, Preset};
use crate::error::{Error, Result};

/// Key of the card in the metadata. It is the only key: safetensors writes metadata in the order
/// of a hash map, and the bytes must not depend on that.
const CARD_KEY: &str = "polysift.card";

impl Head {
    /// Reads the head called `name` from a file at `path`: safetensors, or a state dict that
    /// `torch.save` wrote (PyTorch 1.6 or later), which is told by its content.
    ///
    /// The spec is the file's own where polysift wrote it; there, only what `config` sets
    /// explicitly (`activation`, `chunk`, `keep`) overrides it. For other files it comes from
    /// `config` and its preset. Layer sizes and kind always come from the tensors. Tensors may be
    /// f32, f64, f16 or bf16; a file of a whole model may hold an encoder besides.
    ///
    /// # Errors
    /// [`Error::Missing`] without such a file; [`Error::Model`] if it is of neither format, is
    /// truncated, lacks a tensor, holds shapes that do not fit together or values that are not
    /// finite, or if the spec does not fit the number of outputs.
    pub fn load(path: &Path, name: &str, config: &HeadConfig) -> Result<Self> {
        HeadFile::read(path, name)?.into_head(path, name, config)
    }

    /// Reads a head of which nothing else is known: what the file does not say comes from the preset
    /// that fits the number of outputs, which also names the head. Errors as of [`Head::load`].
    pub fn open(path: &Path) -> Result<Self> {
        let file = HeadFile::read(path, "head")?;
        let preset = file.preset();
        let config = HeadConfig { preset: Some(preset), ..HeadConfig::default() };
        file.into_head(path, preset.name(), &config)
    }

    /// The file's bytes: the same head gives the same bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let invalid = |reason: String| Error::shape("head file", reason);
        let card = serde_json::to_string(&self.card).map_err(|e| invalid(e.to_string()))?;
        let metadata = HashMap::from([(CARD_KEY.to_owned(), card)]);
        let tensors = weights::named(&self.scorer, weights::PREFIX);
        serialize(tensors, Some(metadata)).map_err(invalid)
    }

    /// [`Error::Model`], naming `path`, unless the head scores embeddings of `hidden_size`.
    pub fn check_hidden_size(&self, path: &Path, hidden_size: usize) -> Result<()> {
        if self.hidden_size() == hidden_size {
            return Ok(());
        }
        Err(Error::model(
            path,
            format!(
                "scores embeddings of {} values, the corpus's have {hidden_size}",
                self.hidden_size()
            ),
        ))
    }
}

/// What a file holds.
pub(super) struct HeadFile {
    /// BLAKE3 of its bytes, in hex.
    pub(super) digest: String,
    /// There where polysift wrote it.
    pub(super) card: Option<Card>,
    references: Option<ReferenceCounts>,
    scorer: Scorer,
}

impl HeadFile {
    /// Reads the file at `path`; `name` is that of the head, for the message if there is none.
    pub(super) fn read(path: &Path, name: &str) -> Result<Self> {
        let bytes = fs_err::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Missing {
                path: path.display().to_string(),
                reason: format!("the file of the head `{name}` does not exist"),
            },
            _ => Error::io(path, "read")(error),
        })?;
        let (card, references, scorer) =
            decode(&bytes).map_err(|reason| Error::model(path, reason))?;
        Ok(Self { digest: blake3::hash(&bytes).to_hex().to_string(), card, references, scorer })
    }

    /// The preset whose head has as many outputs.
    pub(super) fn preset(&self) -> Preset {
        match &self.scorer {
            Scorer::Mlp(layers) if layers.last().is_some_and(|l| l.outputs() > 1) => {
                Preset::Toxicity
            }
            _ => Preset::Quality,
        }
    }

    /// The head called `name`; `config` says what the file does not.
    pub(super) fn into_head(self, path: &Path, name: &str, config: &HeadConfig) -> Result<Head> {
        let Self { digest, card, references, scorer } = self;
        let fail = |reason: String| Error::model(path, reason);
        let mut card = match card {
            Some(card) => card,
            None => Card { references, ..foreign_card(name, config, &scorer) },
        };
        let spec = &mut card.spec;
        spec.activation = config.activation.unwrap_or(spec.activation);
        spec.chunk = config.chunk.unwrap_or(spec.chunk);
        spec.keep = config.keep.unwrap_or(spec.keep);
        if config.kind == HeadKind::Cosine && spec.kind != HeadKind::Cosine {
            return Err(fail("holds linear layers; a cosine head was asked for".into()));
        }
        spec.check().map_err(|reason| fail(format!("head `{name}`: {reason}")))?;
        Ok(Head { card, scorer, digest, gpus: None })
    }
}

/// The bytes of a safetensors file of f32 tensors.
pub(super) fn serialize(
    tensors: Vec<weights::Named<'_>>,
    metadata: Option<HashMap<String, String>>,
) -> Result<Vec<u8>, String> {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, shape, values)| {
            (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, data)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), data)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| e.to_string())?;
    safetensors::serialize(views, metadata).map_err(|e| e.to_string())
}

/// The card, if the file has one, the counts of its references, if it has any, and the weights.
fn decode(bytes: &[u8]) -> Result<(Option<Card>, Option<ReferenceCounts>, Scorer), String> {
    if is_legacy(bytes) {
        return Err(
            "is in PyTorch's format before 1.6; load it there and torch.save it again".into()
        );
    }
    if is_zip(bytes) {
        let (scorer, references) = weights::parse(&mut StateDict::open(bytes)?, false)?;
        return Ok((None, references, scorer));
    }
    let unreadable = |e: safetensors::SafeTensorError| {
        format!("neither a safetensors file ({e}) nor one of PyTorch (no zip file)")
    };
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let mut tensors = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let card: Option<Card> = metadata
        .metadata()
        .as_ref()
        .and_then(|entries| entries.get(CARD_KEY))
        .map(|json| serde_json::from_str(json))
        .transpose()
        .map_err(|e| format!("its card cannot be read: {e}"))?;
    let (scorer, references) = weights::parse(&mut tensors, card.is_some())?;
    if let Some(card) = &card {
        let sizes = scorer.layer_sizes();
        if card.spec.layer_sizes != sizes || card.spec.kind != kind(&scorer) {
            return Err(format!(
                "its card tells of layers {:?}, its tensors are {sizes:?}",
                card.spec.layer_sizes
            ));
        }
    }
    Ok((card, references, scorer))
}

/// The card of a file that polysift did not write.
fn foreign_card(name: &str, config: &HeadConfig, scorer: &Scorer) -> Card {
    let kind = kind(scorer);
    let config = HeadConfig { kind, ..config.clone() };
    let spec = HeadSpec {
        kind,
        layer_sizes: scorer.layer_sizes(),
        activation: config.activation(name),
        chunk: config.chunk(name),
        keep: config.keep(name),
    };
    Card::new(name, spec)
}

/// Which kind of head computes with `scorer`.
fn kind(scorer: &Scorer) -> HeadKind {
    match scorer {
        Scorer::Mlp(_) => HeadKind::Mlp,
        Scorer::Cosine(_) => HeadKind::Cosine,
    }
}
