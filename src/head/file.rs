//! Reading head files: safetensors whose metadata holds the [`ModelCard`], and those of others,
//! safetensors or PyTorch's, which are imported with a card that says where they come from.

use std::path::Path;

use safetensors::SafeTensors;

use super::card::{HeadSpec, ImportSource, ModelCard, ReferenceCounts};
use super::embedding::{CARD_KEY, Head};
use super::scorer::Scorer;
use super::{pytorch, weights};
use crate::config::{Activation, ChunkRule, HeadConfig, HeadKind, Keep, Preset};
use crate::error::{Error, Result};

/// First bytes of a zip file.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// First bytes of what `torch.save` wrote before PyTorch 1.6: the pickled number 0x1950a86a20f9469cfc6c.
const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Extensions of the files that heads are read from.
pub const HEAD_EXTENSIONS: [&str; 3] = ["safetensors", "pt", "pth"];

/// The encoder of all published heads of this form.
const PUBLISHED_ENCODER: &str = "FacebookAI/xlm-roberta-base, mean pooling";

/// Names and short codes that published heads are called by, and their language codes. `du`, `po`
/// and `sp` are Apertus's own.
const LANGUAGES: [(&[&str], &str); 9] = [
    (&["english", "en"], "eng_Latn"),
    (&["german", "de"], "deu_Latn"),
    (&["french", "fr"], "fra_Latn"),
    (&["italian", "it"], "ita_Latn"),
    (&["spanish", "es", "sp"], "spa_Latn"),
    (&["portuguese", "pt", "po"], "por_Latn"),
    (&["polish", "pl"], "pol_Latn"),
    (&["chinese", "zh"], "cmn_Hani"),
    (&["dutch", "nl", "du"], "nld_Latn"),
];

/// Ends of a name that say nothing of the language.
const SUFFIXES: [&str; 3] = ["_cls", "_classifier", "_head"];

impl Head {
    /// Reads the head called `name` from a file at `path`: safetensors, or a state dict that
    /// `torch.save` wrote (PyTorch 1.6 or later), recognised by its content.
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
}

/// What a file holds.
struct HeadFile {
    /// BLAKE3 of its bytes, in hex.
    digest: String,
    /// There where polysift wrote it.
    card: Option<ModelCard>,
    references: Option<ReferenceCounts>,
    scorer: Scorer,
}

impl HeadFile {
    /// Reads the file at `path`; `name` is that of the head, for the message if there is none.
    fn read(path: &Path, name: &str) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::missing(path, format!("the file of the head `{name}` does not exist"))
            }
            _ => Error::io(path, "read")(error),
        })?;
        let (card, references, scorer) =
            decode(&bytes).map_err(|reason| Error::model(path, reason))?;
        Ok(Self { digest: blake3::hash(&bytes).to_hex().to_string(), card, references, scorer })
    }

    /// The preset whose head has as many outputs.
    fn preset(&self) -> Preset {
        match &self.scorer {
            Scorer::Mlp(layers) if layers.last().is_some_and(|l| l.outputs() > 1) => {
                Preset::Toxicity
            }
            _ => Preset::Quality,
        }
    }

    /// The head called `name`; `config` says what the file does not.
    fn into_head(self, path: &Path, name: &str, config: &HeadConfig) -> Result<Head> {
        let Self { digest, card, references, scorer } = self;
        let fail = |reason: String| Error::model(path, reason);
        let mut card = match card {
            Some(card) => card,
            None => ModelCard { references, ..foreign_card(name, config, &scorer) },
        };
        let spec = &mut card.spec;
        spec.activation = config.activation.unwrap_or(spec.activation);
        spec.chunk = config.chunk.unwrap_or(spec.chunk);
        spec.keep = config.keep.unwrap_or(spec.keep);
        if config.kind == HeadKind::Cosine && spec.kind != HeadKind::Cosine {
            return Err(fail("holds linear layers; a cosine head was asked for".into()));
        }
        spec.check().map_err(|reason| fail(format!("head `{name}`: {reason}")))?;
        Ok(Head::of_file(card, scorer, digest))
    }
}

/// The card, if the file has one, the counts of its references, if it has any, and the weights.
fn decode(bytes: &[u8]) -> Result<(Option<ModelCard>, Option<ReferenceCounts>, Scorer), String> {
    if bytes.starts_with(LEGACY_MAGIC) {
        return Err(
            "is in PyTorch's format before 1.6; load it there and torch.save it again".into()
        );
    }
    if bytes.starts_with(ZIP_MAGIC) {
        let (scorer, references) = pytorch::read(bytes)?;
        return Ok((None, references, scorer));
    }
    let unreadable = |e: safetensors::SafeTensorError| {
        format!("neither a safetensors file ({e}) nor one of PyTorch (no zip file)")
    };
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let card: Option<ModelCard> = metadata
        .metadata()
        .as_ref()
        .and_then(|entries| entries.get(CARD_KEY))
        .map(|json| serde_json::from_str(json))
        .transpose()
        .map_err(|e| format!("its card cannot be read: {e}"))?;
    let (scorer, references) = weights::parse_safetensors(&tensors, card.is_some())?;
    if let Some(card) = &card {
        let sizes = scorer.layer_sizes();
        if card.spec.layer_sizes != sizes || card.spec.kind != scorer.kind() {
            return Err(format!(
                "its card says layers {:?}, its tensors are {sizes:?}",
                card.spec.layer_sizes
            ));
        }
    }
    Ok((card, references, scorer))
}

/// The card of a file that polysift did not write.
fn foreign_card(name: &str, config: &HeadConfig, scorer: &Scorer) -> ModelCard {
    let config = HeadConfig { kind: scorer.kind(), ..config.clone() };
    let spec = HeadSpec::of_config(&config, name, scorer.layer_sizes());
    ModelCard { head: name.to_owned(), spec, ..ModelCard::default() }
}

/// What is known of a head beyond its file; all of it may be left open.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ImportRequest {
    /// Name of the head [default: the preset's]
    #[arg(long)]
    pub name: Option<String>,
    /// Language of the head [default: that in the file's name, as in deu_Latn.pt or german_cls.pth]
    #[arg(long, value_name = "CODE")]
    pub language: Option<String>,
    /// Where the defaults come from [default: quality for one output, toxicity for more]
    #[arg(long)]
    pub preset: Option<Preset>,
    /// sigmoid, softmax:CLASS or raw [default: the preset's]
    #[arg(long)]
    pub activation: Option<Activation>,
    /// Which chunks of a document count [default: the preset's]
    #[arg(long)]
    pub chunk: Option<ChunkRule>,
    /// Which side of a threshold is kept [default: the preset's]
    #[arg(long)]
    pub keep: Option<Keep>,
}

/// Reads a head that other software wrote from a file at `path` (see [`Head::load`]); its card says
/// where it comes from.
///
/// # Errors
/// As of [`Head::load`]; [`Error::Model`] also for a file that polysift wrote.
pub fn import(path: &Path, request: &ImportRequest) -> Result<Head> {
    let file = HeadFile::read(path, request.name.as_deref().unwrap_or("head"))?;
    if file.card.is_some() {
        return Err(Error::model(path, "is a head of polysift already; use it as it is"));
    }
    let preset = request.preset.unwrap_or_else(|| file.preset());
    let config = HeadConfig {
        preset: Some(preset),
        activation: request.activation,
        chunk: request.chunk,
        keep: request.keep,
        ..HeadConfig::default()
    };
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let blake3 = file.digest.clone();
    let name = request.name.as_deref().unwrap_or(preset.name());
    let Head { mut card, scorer, .. } = file.into_head(path, name, &config)?;
    card.language = request.language.clone().or_else(|| language_of(&file_name));
    card.source = Some(ImportSource {
        file: file_name,
        blake3,
        assumed_encoder: PUBLISHED_ENCODER.to_owned(),
    });
    Head::new(card, scorer)
}

/// The language code in `file_name`: it is a code as `deu_Latn.pt` or begins with one, or
/// it is the name of a language as `german_cls.pth` or its two letters as `de.pth`.
pub fn language_of(file_name: &str) -> Option<String> {
    let stem = file_name.rsplit_once('.').map_or(file_name, |(stem, _)| stem);
    if let Some(code) = stem.get(..8)
        && is_code(code)
        && !stem[8..].starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return Some(code.to_owned());
    }
    let stem = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)).unwrap_or(stem);
    let stem = stem.to_ascii_lowercase();
    let known = LANGUAGES.iter().find(|(names, _)| names.contains(&&*stem));
    known.map(|(_, code)| (*code).to_owned())
}

/// Whether `text` is of the form `deu_Latn`.
fn is_code(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 8
        && bytes[..3].iter().all(u8::is_ascii_lowercase)
        && bytes[3] == b'_'
        && bytes[4].is_ascii_uppercase()
        && bytes[5..].iter().all(u8::is_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_names_tell_their_language() {
        for (name, expected) in [
            ("deu_Latn.pt", Some("deu_Latn")),
            ("rus_Cyrl_mlp.pth", Some("rus_Cyrl")),
            ("german_cls.pth", Some("deu_Latn")),
            ("Chinese.pth", Some("cmn_Hani")),
            ("du.pth", Some("nld_Latn")),
            ("model.pt", None),
            ("deu_Latnx.pt", None),
            ("pt", Some("por_Latn")),
            ("größe_ä.pt", None),
            ("", None),
        ] {
            assert_eq!(language_of(name).as_deref(), expected, "{name}");
        }
    }
}
