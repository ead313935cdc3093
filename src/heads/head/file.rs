//! Reads polysift's head files (safetensors with a [`ModelCard`]) and imports other software's:
//! safetensors, PyTorch and whole classification models.

use std::path::{Component, Path};

use safetensors::{SafeTensorError, SafeTensors};

use super::card::{CARD_KEY, HeadSpec, ImportSource, ModelCard, Provenance};
use super::embedding::Head;
use super::scorer::Scorer;
use super::weights::KnownLayers;
use super::{pytorch, weights};
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{self, if_there};
use polysift_config::{
    Activation, ChunkRule, EncoderConfig, HeadConfig, HeadKind, HeadOutput, Keep, Pooling, Preset,
};
use polysift_encoder::{self as encoder, Recipe};

const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// Extensions of the files that heads are read from.
pub const HEAD_EXTENSIONS: [&str; 4] = ["safetensors", "pt", "pth", CKPT];
/// Extension of Lightning's checkpoints. Those that hold heads hold regressions.
const CKPT: &str = "ckpt";

/// The encoder of all published heads of this form.
const PUBLISHED_ENCODER: &str = "FacebookAI/xlm-roberta-base, mean pooling";

/// Names and short codes of published heads, with language codes. `du`, `po`, `sp` are Apertus's.
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

/// Suffixes of a name that do not tell the language.
const SUFFIXES: [&str; 3] = ["_cls", "_classifier", "_head"];

impl Head {
    /// Reads the head called `name` from a file at `path`: safetensors, or a state dict that
    /// `torch.save` wrote (PyTorch 1.6 or later), recognised by its content. Fails with
    /// [`Error::Missing`] without such a file.
    ///
    /// A file that polysift wrote brings its own spec; only what `config` sets explicitly
    /// (`output`, `chunk`, `keep`) overrides it. For other files the spec comes from `config` and
    /// its preset. Layer sizes and kind always come from the tensors.
    pub fn load(path: &Path, name: &str, config: &HeadConfig) -> Result<Self> {
        HeadFile::read(path, name, None)?.into_head(path, name, config)
    }

    /// Reads a head without settings; a preset that fits the outputs says what the file does not.
    pub fn open(path: &Path) -> Result<Self> {
        let file =
            HeadFile::read(path, &path.file_stem().unwrap_or_default().to_string_lossy(), None)?;
        let preset = file.preset();
        let config = HeadConfig { preset: Some(preset), ..HeadConfig::default() };
        file.into_head(path, preset.name(), &config)
    }
}

/// Makes the [`Error::Missing`] for a head called `name` without a file at `path`.
pub(super) fn missing_file(path: &Path, name: &str) -> Error {
    Error::missing(path, format!("the file of the head `{name}` does not exist"))
}

/// A head as read from its source, before settings complete its card.
struct HeadFile {
    /// Its card has what is known, and is complete, with `layer_sizes`, if polysift wrote the file.
    head: Head,
    /// The kind of output, if files with this extension or models of this class always have it.
    output: Option<HeadOutput>,
    /// The encoder of a model; `None` for a file.
    encoder: Option<String>,
}

impl HeadFile {
    /// Reads the file at `path`; `name` is the head's, for the error if there is no file.
    /// `activation` stands between linear layers if the file does not say what does.
    fn read(path: &Path, name: &str, activation: Option<Activation>) -> Result<Self> {
        let bytes = if_there(io::read(path))?.ok_or_else(|| missing_file(path, name))?;
        let (card, scorer) =
            decode(&bytes, activation).map_err(|reason| Error::model(path, reason))?;
        let head = Head { card, scorer, digest: blake3::hash(&bytes).to_hex().to_string() };
        let output = path.extension().is_some_and(|e| e == CKPT).then_some(HeadOutput::Raw);
        Ok(Self { head, output, encoder: None })
    }

    /// Reads the head of a sequence classification model: a directory, or a hub id, whose files are
    /// downloaded.
    fn read_model(path: &Path, activation: Option<Activation>, hub: &HubSettings) -> Result<Self> {
        let model = path.display().to_string();
        let config =
            EncoderConfig { model: model.clone(), max_tokens: 1, ..EncoderConfig::default() };
        let files = encoder::resolve(&config, hub)?;
        let fail = |reason: String| Error::model(path, reason);
        let classifier = files.classifier.as_ref().ok_or_else(|| {
            fail("`architectures` in its config.json names no `*ForSequenceClassification`".into())
        })?;
        let (activation, norm_eps) = (activation.or(classifier.activation), classifier.norm_eps);
        let known = KnownLayers { is_own: false, activation, norm_eps };
        let (scorer, _) = weights::parse_safetensors(&files.tensors()?, known).map_err(fail)?;
        let outputs = scorer.spec().layer_sizes.last().copied().unwrap_or_default();
        let digest = files.recipe.model_digest.clone();
        let encoder = Some(format!("{model}, {} pooling", classifier.pooling));
        let provenance =
            Some(Provenance { encoder_digest: digest.clone(), model, ..Default::default() });
        let labels = classifier.labels(outputs);
        let card = ModelCard { labels, provenance, ..ModelCard::default() };
        let output = classifier.output(outputs);
        Ok(Self { head: Head { card, scorer, digest }, output, encoder })
    }

    /// Returns the preset that fits the outputs: toxicity for several outputs without labels.
    fn preset(&self) -> Preset {
        let Head { card, scorer, .. } = &self.head;
        let HeadSpec { kind, layer_sizes, .. } = scorer.spec();
        let is_class = kind == HeadKind::Mlp && card.labels.is_empty();
        if is_class && layer_sizes.last() > Some(&1) { Preset::Toxicity } else { Preset::Quality }
    }

    /// Parses the value of `--output`, in which a label may stand for the number of an output.
    fn parse_output(&self, text: &str) -> Result<HeadOutput> {
        let number = |label| self.head.card.labels.iter().position(|known| known == label);
        let named = text.split_once(':').and_then(|(kind, label)| Some((kind, number(label)?)));
        let fail = |reason| Error::config("--output", reason);
        match (text.parse(), named) {
            (Ok(output), _) => Ok(output),
            (_, Some((kind, k))) => format!("{kind}:{k}").parse().map_err(fail),
            (Err(reason), None) => Err(fail(reason)),
        }
    }

    /// Makes the head called `name`; `config` provides what the file does not say.
    fn into_head(self, path: &Path, name: &str, config: &HeadConfig) -> Result<Head> {
        let Self { mut head, output, .. } = self;
        let Head { card, scorer, .. } = &mut head;
        let fail = |reason: String| Error::model(path, reason);
        if card.spec.layer_sizes.is_empty() {
            let output = config.output.or(output);
            let spec = scorer.spec();
            let config = HeadConfig { kind: spec.kind, output, ..config.clone() };
            card.spec = spec.configured(&config, name);
            name.clone_into(&mut card.head);
        }
        let spec = &mut card.spec;
        spec.output = config.output.unwrap_or(spec.output);
        spec.chunk = config.chunk.unwrap_or(spec.chunk);
        spec.keep = config.keep.unwrap_or(spec.keep);
        if config.kind == HeadKind::Cosine && spec.kind != HeadKind::Cosine {
            return Err(fail("holds linear layers; a cosine head was asked for".into()));
        }
        spec.check().map_err(|reason| fail(format!("head `{name}`: {reason}")))?;
        Ok(head)
    }
}

/// Reads the card and the weights. The card of a foreign file has only the counts of references.
fn decode(bytes: &[u8], activation: Option<Activation>) -> Result<(ModelCard, Scorer), String> {
    let mut known = KnownLayers { activation, ..KnownLayers::default() };
    let foreign = |(scorer, references)| (ModelCard { references, ..ModelCard::default() }, scorer);
    if bytes.starts_with(ZIP_MAGIC) {
        return pytorch::read(bytes, known).map(foreign);
    }
    let unreadable = |e: SafeTensorError| {
        format!("neither a safetensors file ({e}) nor one of PyTorch 1.6 or later (no zip file)")
    };
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(unreadable)?.tensors();
    let card = metadata.metadata().as_ref().and_then(|entries| entries.get(CARD_KEY));
    let Some(card) = card else {
        return weights::parse_safetensors(&tensors, known).map(foreign);
    };
    let card = serde_json::from_str::<ModelCard>(card);
    let card = card.map_err(|e| format!("its card cannot be read: {e}"))?;
    let HeadSpec { kind, layer_sizes, activation, norm_eps, .. } = &card.spec;
    known = KnownLayers { is_own: true, activation: Some(*activation), norm_eps: *norm_eps };
    let (scorer, references) = weights::parse_safetensors(&tensors, known)?;
    let [center, found] = [card.references, references].map(|counts| counts?.center);
    let said = (*kind, layer_sizes.clone(), center);
    let spec = scorer.spec();
    let found = (spec.kind, spec.layer_sizes, found);
    if said != found || norm_eps.is_some_and(|eps| eps < 0.0) {
        return Err(format!("its card says {said:?}, its tensors are {found:?}"));
    }
    Ok((card, scorer))
}

/// Groups of published heads that share an encoder, recipe and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PublishedRecipe {
    /// FineWeb2-HQ, FineWeb-HQ: XLM-R base, mean
    Fineweb2Hq,
    /// Toxicity of Apertus: XLM-R base, mean, class 1, the largest of all chunks
    Apertus,
    /// JQL: arctic-embed-m-v2.0, first token, normalised, 8,192 tokens
    Jql,
    /// FineWeb-Edu: arctic-embed-m, first token
    FinewebEdu,
    /// FinePDFs: the encoder in the model itself, mean, 2,048 tokens of the first 10,000 characters
    Finepdfs,
    /// Registers of HPLT: the encoder in the model itself, first token
    HpltRegisters,
}

/// What all heads of a [`PublishedRecipe`] have in common.
struct Published {
    encoder: &'static str,
    preset: Preset,
    /// `None` if each output is a label of its own.
    output: Option<HeadOutput>,
    /// The recipe without the digest of the encoder, which the publishers do not state.
    recipe: Recipe,
}

impl PublishedRecipe {
    /// Returns how the embeddings are made, which the files of the heads do not say.
    fn describe(self) -> Published {
        const XLM_R: &str = "FacebookAI/xlm-roberta-base";
        const ARCTIC: &str = "Snowflake/snowflake-arctic-embed-m";
        const ARCTIC_2: &str = "Snowflake/snowflake-arctic-embed-m-v2.0";
        // These encoders were trained with the head: mmBERT or ModernBERT, and XLM-R large.
        const OWN: &str = "the default of the model";
        let (encoder, pooling, max_tokens, output) = match self {
            Self::Fineweb2Hq => (XLM_R, Pooling::Mean, 512, Some(HeadOutput::Sigmoid)),
            Self::Apertus => (XLM_R, Pooling::Mean, 512, Some(HeadOutput::Class(1))),
            Self::Jql => (ARCTIC_2, Pooling::Cls, 8192, Some(HeadOutput::Raw)),
            Self::FinewebEdu => (ARCTIC, Pooling::Cls, 512, Some(HeadOutput::Raw)),
            Self::Finepdfs => (OWN, Pooling::Mean, 2048, Some(HeadOutput::Raw)),
            Self::HpltRegisters => (OWN, Pooling::Cls, 512, None),
        };
        let preset = if self == Self::Apertus { Preset::Toxicity } else { Preset::Quality };
        let normalize = self == Self::Jql;
        let max_chars = (self == Self::Finepdfs).then_some(10_000);
        let recipe = Recipe { pooling, normalize, max_tokens, max_chars, ..Recipe::default() };
        Published { encoder, preset, output, recipe }
    }
}

/// Facts about a head that its file does not hold; all of them are optional.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ImportRequest {
    /// Name of the head [default: the preset's]
    #[arg(long)]
    pub name: Option<String>,
    /// Language of the head [default: from the file's name, as in deu_Latn.pt or german_cls.pth]
    #[arg(long, value_name = "CODE")]
    pub language: Option<String>,
    /// Published heads with the encoder, pooling, length and output of this head; checked when
    /// the head scores
    #[arg(long)]
    pub recipe: Option<PublishedRecipe>,
    /// Where the defaults come from [default: quality for one output, toxicity for more]
    #[arg(long)]
    pub preset: Option<Preset>,
    /// The score: sigmoid, sigmoid:K, class:K, expected or raw; K is a number or a label of the
    /// model [default: the preset's; raw for .ckpt; for a model with one output, from its config]
    #[arg(long)]
    pub output: Option<String>,
    /// Activation between linear layers [default: implied by their names, else relu]
    #[arg(long)]
    pub activation: Option<Activation>,
    /// Which chunks of a document count [default: the preset's]
    #[arg(long)]
    pub chunk: Option<ChunkRule>,
    /// Which side of a threshold is kept [default: the preset's]
    #[arg(long)]
    pub keep: Option<Keep>,
}

/// Returns true if `path` is not a head file but a model: a directory with a configuration, or a
/// path that does not exist and may be a hub id.
pub fn is_classifier(path: &Path) -> bool {
    let is_file = path.extension().is_some_and(|e| HEAD_EXTENSIONS.iter().any(|known| e == *known));
    path.join("config.json").is_file()
        || !path.exists()
            && !is_file
            && !path.parent().is_some_and(Path::is_dir)
            && path.components().all(|part| matches!(part, Component::Normal(_)))
            && path.components().count() == 2
}

/// Imports a head that other software wrote, from a file (see [`Head::load`]) or from a model for
/// sequence classification (see [`is_classifier`]). Its card names the source. Refuses files that
/// polysift wrote, and models of several labels if `request` names none.
pub fn import(path: &Path, request: &ImportRequest, hub: &HubSettings) -> Result<Head> {
    let file = if is_classifier(path) {
        HeadFile::read_model(path, request.activation, hub)?
    } else {
        HeadFile::read(path, request.name.as_deref().unwrap_or("head"), request.activation)?
    };
    if !file.head.card.spec.layer_sizes.is_empty() {
        return Err(Error::model(path, "is a head of polysift already; use it as it is"));
    }
    let published = request.recipe.map(PublishedRecipe::describe);
    let known = published.as_ref();
    let output = request.output.as_deref().map(|text| file.parse_output(text)).transpose()?;
    let output = output.or(known.and_then(|known| known.output));
    let labels = &file.head.card.labels;
    if output.or(file.output).is_none() && !labels.is_empty() {
        let reason = format!(
            "{} has the labels {}; give sigmoid:LABEL, class:LABEL or expected",
            path.display(),
            labels.join(", ")
        );
        return Err(Error::config("--output", reason));
    }
    let preset = request.preset.or(known.map(|known| known.preset));
    let preset = preset.unwrap_or_else(|| file.preset());
    let (chunk, keep) = (request.chunk, request.keep);
    let config = HeadConfig { preset: Some(preset), output, chunk, keep, ..HeadConfig::default() };
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let published_encoder = known.map_or(PUBLISHED_ENCODER, |known| known.encoder);
    let assumed_encoder = file.encoder.clone().unwrap_or_else(|| published_encoder.to_owned());
    let name = request.name.as_deref().unwrap_or(preset.name());
    let Head { mut card, scorer, digest } = file.into_head(path, name, &config)?;
    card.language = request.language.clone().or_else(|| language_of(&file_name));
    card.source = Some(ImportSource { file: file_name, blake3: digest, assumed_encoder });
    if let Some(known) = published {
        let provenance = card.provenance.get_or_insert_default();
        let model_digest = provenance.encoder_digest.clone();
        let dimensions = Some(scorer.hidden_size());
        provenance.recipe = Some(Recipe { model_digest, dimensions, ..known.recipe });
    }
    Head::new(card, scorer)
}

/// Finds the language code in `file_name`: the name is a code (`deu_Latn.pt`), begins or ends with
/// one, or is the name of a language (`german_cls.pth`) or its two letters (`de.pth`).
pub fn language_of(file_name: &str) -> Option<String> {
    let stem = file_name.rsplit_once('.').map_or(file_name, |(stem, _)| stem);
    let first = stem.split_at_checked(8).filter(|(code, after)| {
        is_code(code) && !after.starts_with(|c: char| c.is_ascii_alphanumeric())
    });
    let last = stem.len().checked_sub(8).and_then(|at| stem.split_at_checked(at));
    let last = last.filter(|(before, code)| is_code(code) && before.ends_with(['_', '-']));
    if let Some(code) = first.map(|(code, _)| code).or(last.map(|(_, code)| code)) {
        return Some(code.to_owned());
    }
    let stem = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)).unwrap_or(stem);
    let stem = stem.to_ascii_lowercase();
    let known = LANGUAGES.iter().find(|(names, _)| names.contains(&&*stem));
    known.map(|(_, code)| (*code).to_owned())
}

/// Returns true if `text` has the form `deu_Latn`.
fn is_code(text: &str) -> bool {
    let form = text.chars().map(|c| match c {
        'a'..='z' => 'a',
        'A'..='Z' => 'A',
        other => other,
    });
    form.eq("aaa_Aaaa".chars())
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
            ("edu_classifier_v2_eng_Latn", Some("eng_Latn")),
            ("edueng_Latn", None),
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
