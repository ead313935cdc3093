//! `[heads.<name>]`: the model, samples and output of a head.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::amounts::{as_text, one_or_many};
use super::training::{Checkpoint, Loss, Negatives, TrainingConfig};
use super::{FastTextConfig, Mode, Wrong, is_default};
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;

/// Model that computes the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// Linear layers with ReLU between them, on the embedding.
    #[default]
    Mlp,
    /// Logistic regression, trained to the optimum; stored as an MLP without hidden layers.
    Logistic,
    /// Ridge regression on grades, trained to the optimum.
    Ridge,
    /// Largest cosine similarity to a set of reference embeddings.
    Cosine,
    /// A fastText classifier of the text; needs no embedding.
    #[serde(rename = "fasttext")]
    FastText,
    /// A column of the input, such as another program's score.
    Column,
    /// A random number that depends only on the id, not on the corpus; keeps a share of documents.
    Random,
}

impl HeadKind {
    /// Returns true if the score does not depend on the text; such a head has no file.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Self::Column | Self::Random)
    }

    /// Returns true if the head scores the text itself.
    pub fn is_of_texts(self) -> bool {
        self == Self::FastText
    }
}

/// Keys of heads, by the kinds that they are for; without kinds, they are for all.
const KEYS: [(&[HeadKind], &[&str]); 9] = {
    use HeadKind::{Column, Cosine, FastText, Logistic, Mlp, Ridge};
    [
        (&[], &["kind", "column"]),
        (&[Column], &["score"]),
        (&[Mlp, Logistic, Ridge, Cosine, FastText, Column], &["keep"]),
        (
            &[Mlp, Logistic, Ridge, Cosine, FastText],
            &["preset", "path", "train", "fallback", "label", "negatives"],
        ),
        (&[Mlp, Logistic, Ridge], &["languages", "weight"]),
        (&[Mlp, Logistic, Ridge, Cosine], &["training", "output", "chunk"]),
        (&[Mlp], &["hidden"]),
        (&[Cosine], &["center", "references"]),
        (&[FastText], &["fasttext"]),
    ]
};

/// Keys of heads that are trained.
const OF_SAMPLES: [&str; 7] =
    ["label", "weight", "hidden", "references", "center", "negatives", "languages"];

/// Maximum width of a layer of a head; two layers of that width take 16 GiB.
const MAX_WIDTH: usize = 1 << 16;

/// How the outputs of a head become one score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadOutput {
    /// `sigmoid`: 1 / (1 + exp(-x)) of the only output.
    #[default]
    Sigmoid,
    /// `sigmoid:K`: sigmoid of output K, for labels that do not exclude each other.
    SigmoidOf(usize),
    /// `class:K`: softmax probability of class K; its logit is the log-odds of the class.
    Class(usize),
    /// `expected`: the mean class, Σ k · p_k over the probabilities of all classes.
    Expected,
    /// `raw`: the only output, unchanged.
    Raw,
}

impl HeadOutput {
    /// Returns true if scores are probabilities.
    pub fn is_probability(self) -> bool {
        matches!(self, Self::Sigmoid | Self::SigmoidOf(_) | Self::Class(_))
    }

    /// Returns true if the score needs exactly one output.
    fn is_single(self) -> bool {
        matches!(self, Self::Sigmoid | Self::Raw)
    }

    /// Returns true if a head with this many outputs can produce the score.
    pub fn fits(self, outputs: usize) -> bool {
        match self {
            Self::Sigmoid | Self::Raw => outputs == 1,
            Self::SigmoidOf(output) => output < outputs,
            Self::Class(class) => outputs > class.max(1),
            Self::Expected => outputs > 1,
        }
    }
}

impl FromStr for HeadOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.split_once(':').map(|(kind, number)| (kind, number.parse()));
        match (text, number) {
            ("sigmoid", _) => Ok(Self::Sigmoid),
            ("expected", _) => Ok(Self::Expected),
            ("raw", _) => Ok(Self::Raw),
            (_, Some(("sigmoid", Ok(output)))) => Ok(Self::SigmoidOf(output)),
            (_, Some(("class", Ok(class)))) => Ok(Self::Class(class)),
            _ => Err(format!("`{text}` is not one of sigmoid, sigmoid:K, class:K, expected, raw")),
        }
    }
}

impl fmt::Display for HeadOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sigmoid => f.write_str("sigmoid"),
            Self::SigmoidOf(output) => write!(f, "sigmoid:{output}"),
            Self::Class(class) => write!(f, "class:{class}"),
            Self::Expected => f.write_str("expected"),
            Self::Raw => f.write_str("raw"),
        }
    }
}

as_text!(HeadOutput);

/// Activation between the linear layers of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// max(0, x).
    #[default]
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// x · Φ(x), with the error function.
    Gelu,
}

/// How the scores of a document's chunks become its score. The rule is applied to logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ChunkRule {
    /// The score of the first chunk.
    #[default]
    First,
    /// The largest score of a chunk.
    Max,
    /// The mean of the chunks' logits.
    Mean,
}

/// Which side of a threshold is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Keep high scores.
    #[default]
    Above,
    /// Keep low scores.
    Below,
}

/// Transformation of embeddings before a cosine head compares them. An encoder's embeddings lie in
/// a narrow cone, so without it the largest similarity follows the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Centering {
    /// Subtract the mean of the negatives.
    #[default]
    Mean,
    /// No transformation, as in FineWeb2-HQ.
    None,
}

/// Named sets of defaults for heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// FineWeb2-HQ: layers `D`→256→1, sigmoid, first chunk, high scores are kept.
    Quality,
    /// Apertus: layers `D`→`D`→2, probability of class 1, largest over chunks, low scores are kept.
    Toxicity,
}

impl Preset {
    /// Returns the name of the preset, which is also the usual name of its head.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quality => "quality",
            Self::Toxicity => "toxicity",
        }
    }
}

/// Type of the labels of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelKind {
    /// Two classes: positive (toxic...) and negative.
    #[default]
    Classes,
    /// Numbers; higher is better.
    Grades,
    /// Numbers, or classes as 1 and 0.
    Any,
}

/// Which languages a trained head learns from and serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(
    rename_all = "kebab-case",
    expecting = "`each`, `all`, `others` or lists of languages are needed, as in [[\"deu_Latn\", \"nld_Latn\"]]"
)]
pub enum HeadLanguages {
    /// One head for each language, trained on its own samples.
    #[default]
    Each,
    /// One head for all languages, trained on all samples.
    All,
    /// For each language, one head trained on the samples of all other languages; it shows how well
    /// they serve a language without samples.
    Others,
    /// `[["deu_Latn", "nld_Latn"]]`: one head for each list of languages, which joined by `+` have
    /// at most 220 bytes.
    #[serde(untagged)]
    Groups(Vec<Vec<String>>),
}

/// A table `[heads.NAME]` defines a head, which gives every document a score. Except for the kinds
/// `column` and `random`, it has one of `path` and `train`. Keys that are not set come from the
/// preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct HeadConfig {
    /// Model that computes the score.
    pub kind: HeadKind,
    /// Preset that the defaults come from. A loaded head that polysift wrote has its own `output`,
    /// `chunk` and `keep` in its file instead. Default: `toxicity` if the head has this name, else
    /// `quality`.
    pub preset: Option<Preset>,
    /// Head file to load. `{lang}` in it stands for the language; without `{lang}` one head serves
    /// all languages.
    pub path: Option<String>,
    /// Files, directories, globs and URLs of labelled samples to train the head on, with the
    /// columns `text` and `label`. `{lang}` stands for the language.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub train: Vec<String>,
    /// Negatives that are drawn from the corpus, beside the negatives in `train`.
    pub negatives: Option<Negatives>,
    /// Languages that one head learns from and serves. Several languages have equal weight.
    #[serde(skip_serializing_if = "is_default")]
    pub languages: HeadLanguages,
    /// Name of another head of the same sort (texts or embeddings), which scores the languages that
    /// this head has no file for. Default: these languages have no score.
    pub fallback: Option<String>,
    /// Label column of the samples, which holds `positive` or `negative`, `toxic` or `nontoxic`, 1
    /// or 0, or a boolean; a grade if the loss is for grades. Of several columns of grades
    /// (annotators), the mean of the values that are not null counts. Samples without a label are
    /// left out. Default: `label`.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<String>,
    /// Column of the samples with their weight in training, a number of at least 0; null means 1.
    /// Default: all samples weigh the same.
    pub weight: Option<String>,
    /// Widths of the hidden layers, at most 65536; 0 stands for the width of the embeddings.
    /// Default: `[256]`; with the preset `toxicity` `[0]`.
    pub hidden: Option<Vec<usize>>,
    /// How the outputs of the layers become one score. Default: `sigmoid`; `class:1` for an MLP
    /// with the preset `toxicity`; `raw` for the kind `cosine` and for grades, but `expected` with
    /// the loss `ordinal`.
    pub output: Option<HeadOutput>,
    /// How the scores of a document's chunks become its score; `encoder.chunks` says which chunks
    /// are embedded. Default: `first`; with the preset
    /// `toxicity` `max`.
    pub chunk: Option<ChunkRule>,
    /// Side of the thresholds that is kept. Default: `above`; with the preset `toxicity` `below`.
    pub keep: Option<Keep>,
    /// Column of the input that holds the score as a number. It has to be set.
    pub score: Option<String>,
    /// Name of the exported column of scores; without a final `_score` it also names the column of
    /// rates, as in `NAME_retention`. Default: `NAME_score`.
    pub column: Option<String>,
    /// Maximum number of reference embeddings of a cosine head, which are sampled from the
    /// positives. Default: 8192.
    pub references: Option<usize>,
    /// Transformation of embeddings before a cosine head compares them. Default: `mean`.
    pub center: Option<Centering>,
    /// How the head is trained.
    pub training: TrainingConfig,
    /// How texts become words, and how a fastText head is trained.
    #[serde(skip_serializing_if = "is_default")]
    pub fasttext: FastTextConfig,
}

impl HeadConfig {
    /// Returns the preset of the head called `name`.
    pub fn preset(&self, name: &str) -> Preset {
        self.preset.unwrap_or(if name == "toxicity" { Preset::Toxicity } else { Preset::Quality })
    }

    /// Returns how outputs become a score, from the preset if unset. Cosine similarities, grades
    /// and scores of rows are raw; a fastText head gives the probability of its positive label.
    pub fn output(&self, name: &str) -> HeadOutput {
        let default = match (self.kind, self.preset(name)) {
            (HeadKind::Cosine | HeadKind::Column | HeadKind::Random, _) => HeadOutput::Raw,
            (HeadKind::Mlp, Preset::Toxicity) | (HeadKind::FastText, _) => HeadOutput::Class(1),
            _ => HeadOutput::Sigmoid,
        };
        self.output.or(self.output_of_grades()).unwrap_or(default)
    }

    /// Returns the output of a head that gives grades; `None` for other heads.
    fn output_of_grades(&self) -> Option<HeadOutput> {
        match self.loss() {
            Loss::CrossEntropy => None,
            Loss::SquaredError | Loss::Huber => Some(HeadOutput::Raw),
            Loss::Ordinal => Some(HeadOutput::Expected),
        }
    }

    /// Returns the chunk rule; the default comes from the preset.
    pub fn chunk(&self, name: &str) -> ChunkRule {
        self.chunk.unwrap_or(match self.preset(name) {
            Preset::Quality => ChunkRule::First,
            Preset::Toxicity => ChunkRule::Max,
        })
    }

    /// Returns the kept side; by default the preset's, or low scores for random heads.
    pub fn keep(&self, name: &str) -> Keep {
        self.keep.unwrap_or(match (self.kind, self.preset(name)) {
            (HeadKind::Random, _) | (_, Preset::Toxicity) => Keep::Below,
            (_, Preset::Quality) => Keep::Above,
        })
    }

    /// Returns true if the outputs are classes, one of which is scored.
    pub fn is_class(&self, name: &str) -> bool {
        matches!(self.output(name), HeadOutput::Class(_))
    }

    /// Returns the training loss.
    pub fn loss(&self) -> Loss {
        let default =
            if self.kind == HeadKind::Ridge { Loss::SquaredError } else { Loss::CrossEntropy };
        self.training.loss.unwrap_or(default)
    }

    /// Returns the type of the labels.
    pub fn label_kind(&self) -> LabelKind {
        if self.loss() == Loss::CrossEntropy { LabelKind::Classes } else { LabelKind::Grades }
    }

    /// Returns true if the head is trained on embeddings of its samples rather than on their texts.
    pub fn learns_from_embeddings(&self) -> bool {
        !self.train.is_empty() && !self.kind.is_of_texts()
    }

    /// Returns the training settings for `num_samples`; only the weight decay may be unset.
    pub fn training(&self, name: &str, num_samples: usize) -> TrainingConfig {
        let (own, is_class) = (&self.training, self.is_class(name));
        let is_published = own.mode == Mode::Published;
        let batch_size = own.batch_size.unwrap_or(match (is_published, is_class) {
            (true, true) => 64,
            (true, false) => 256,
            (false, _) => (num_samples / 8).clamp(32, 256),
        });
        let steps_per_epoch = num_samples.div_ceil(batch_size.max(1)).max(1);
        let enough = TrainingConfig::MIN_STEPS.div_ceil(steps_per_epoch);
        let epochs = if is_published { 0 } else { enough }.max(TrainingConfig::MIN_EPOCHS);
        let checkpoint = match (is_published, is_class) {
            (true, false) => Checkpoint::Last,
            _ => Checkpoint::LowestLoss,
        };
        TrainingConfig {
            epochs: own.epochs.or(Some(epochs)),
            batch_size: Some(batch_size),
            learning_rate: own.learning_rate.or(Some(if is_published { 3e-4 } else { 1e-3 })),
            weight_decay: own.weight_decay.or(is_published.then_some(0.01)),
            dropout: own.dropout.or(Some(0.2)),
            checkpoint: own.checkpoint.or(Some(checkpoint)),
            ..own.clone()
        }
    }

    /// Returns the widths of all layers for embeddings of `hidden_size`: input, hidden..., outputs.
    /// An ordinal head has one output for each of the grades 0 to `highest_grade`.
    pub fn layer_sizes(&self, name: &str, hidden_size: usize, highest_grade: usize) -> Vec<usize> {
        let default = match self.preset(name) {
            Preset::Quality => vec![256],
            Preset::Toxicity => vec![hidden_size],
        };
        let hidden = self.hidden.clone().unwrap_or(default);
        let outputs = match self.output(name) {
            HeadOutput::Class(class) => (class + 1).max(2),
            HeadOutput::Expected => highest_grade + 1,
            _ => 1,
        };
        let width = |w| if w == 0 { hidden_size } else { w };
        [hidden_size].into_iter().chain(hidden.into_iter().map(width)).chain([outputs]).collect()
    }

    /// Returns the name of the exported column.
    pub fn column(&self, name: &str) -> String {
        self.column.clone().unwrap_or_else(|| format!("{name}_score"))
    }

    /// Returns the label columns of the samples.
    pub fn labels(&self) -> Vec<&str> {
        match self.label.as_slice() {
            [] => vec!["label"],
            columns => columns.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the exported column of retention rates: `quality_retention` for `quality_score`.
    pub fn retention_column(&self, name: &str) -> String {
        let column = self.column(name);
        format!("{}_retention", column.strip_suffix("_score").unwrap_or(&column))
    }

    /// Returns the number K of references of a cosine head (default from FineWeb2-HQ's `cs.py`).
    pub fn references(&self) -> usize {
        self.references.unwrap_or(8192)
    }

    /// Checks the settings of the head called `name`, without those of other heads.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let place = format!("heads.{name}");
        let set = self.check_keys(&place)?;
        let has_one_source = self.path.is_some() == self.train.is_empty();
        if !self.kind.is_of_rows() && !has_one_source {
            let reason = "give either `path` (a head to load) or `train` (samples to train on)";
            return Err(Error::config(place, reason));
        }
        let wrong = self.wrong_source(&set).or_else(|| self.wrong_labels());
        let wrong = wrong.or_else(|| self.wrong_output(name)).or_else(|| self.wrong_training(name));
        if let Some((key, reason)) = wrong {
            return Err(Error::config(format!("{place}.{key}"), reason));
        }
        self.fasttext.check(&format!("{place}.fasttext"), !self.train.is_empty())
    }

    /// Checks that only keys for the kind are set, and returns what is set.
    fn check_keys(&self, place: &str) -> Result<toml::Table> {
        let wrong = |error: toml::ser::Error| Error::config(place, error.to_string());
        let mut set = toml::Table::try_from(self).map_err(wrong)?;
        set.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
        let is_set = |key: &&&str| set.contains_key(**key);
        let is_for_kind = |kinds: &[HeadKind]| kinds.is_empty() || kinds.contains(&self.kind);
        let (own, foreign): (Vec<_>, Vec<_>) =
            KEYS.iter().partition(|(kinds, _)| is_for_kind(kinds));
        let foreign =
            foreign.iter().find_map(|(kinds, keys)| Some((kinds, keys.iter().find(is_set)?)));
        let Some((kinds, key)) = foreign else { return Ok(set) };
        let own: Vec<&str> = own.iter().flat_map(|(_, keys)| *keys).copied().collect();
        let reason = format!(
            "is not for heads of the kind {}, which take the keys {}; it is for {}",
            set["kind"],
            own.join(", "),
            toml::Value::try_from(kinds).map_err(wrong)?.to_string().trim_matches(['[', ']']),
        );
        Err(Error::config(format!("{place}.{key}"), reason))
    }

    /// Returns the first mistake in what the head is made from; `set` are the keys that are set.
    fn wrong_source(&self, set: &toml::Table) -> Option<Wrong> {
        let of_texts = self.kind.is_of_texts();
        if self.kind == HeadKind::Column && self.score.is_none() {
            Some(("score", "is missing; it names the column of the input"))
        } else if self.path.as_deref().is_some_and(is_url) {
            Some(("path", "is a URL; heads are loaded from files, so download it first"))
        } else if self.references == Some(0) {
            Some(("references", "is 0; at least 1 is needed"))
        } else if self.column.as_deref() == Some("") {
            Some(("column", "is empty; a name is needed"))
        } else if let Some(wrong) = self.negatives.and_then(|own| own.wrong(of_texts)) {
            Some(wrong)
        } else {
            let key = OF_SAMPLES.into_iter().find(|key| set.contains_key(*key))?;
            self.train.is_empty().then_some((key, "is for heads that are trained"))
        }
    }

    /// Returns the first mistake in the loss, the labels and the languages of the samples.
    fn wrong_labels(&self) -> Option<Wrong> {
        if self.training.loss.is_some() && self.kind != HeadKind::Mlp {
            Some(("training.loss", "is for MLPs; the kinds `logistic` and `ridge` have theirs"))
        } else if self.label.len() > 1 && self.label_kind() != LabelKind::Grades {
            let reason =
                "names several columns, which are for grades (`training.loss`, `kind = \"ridge\"`)";
            Some(("label", reason))
        } else if self.negatives.is_some() && self.label_kind() != LabelKind::Classes {
            Some(("negatives", "are for heads of classes, and this one learns grades"))
        } else {
            let HeadLanguages::Groups(groups) = &self.languages else { return None };
            let mut seen = BTreeSet::new();
            let is_wrong = groups.is_empty()
                || groups.iter().any(Vec::is_empty)
                || !groups.iter().flatten().all(|language| seen.insert(language));
            // Files are named after the languages, and a name of a file has at most 255 bytes.
            let is_long = groups.iter().any(|group| group.join("+").len() > 220);
            if is_wrong {
                Some(("languages", "has an empty list, or a language twice"))
            } else {
                is_long
                    .then_some(("languages", "has a list too long for a file's name (220 bytes)"))
            }
        }
    }

    /// Returns the first mistake in the output and the widths of the layers.
    fn wrong_output(&self, name: &str) -> Option<Wrong> {
        let output = self.output(name);
        let is_linear = matches!(self.kind, HeadKind::Logistic | HeadKind::Ridge);
        let class = match output {
            HeadOutput::Class(class) | HeadOutput::SigmoidOf(class) => class,
            _ => 0,
        };
        if self.hidden.iter().flatten().any(|width| *width > MAX_WIDTH) {
            return Some(("hidden", "has a width above 65536"));
        }
        let reason = if class > MAX_WIDTH {
            "names a class above 65536"
        } else if self.kind == HeadKind::Cosine && output != HeadOutput::Raw {
            "a cosine head's score is the similarity itself: `raw`"
        } else if is_linear && !output.is_single() {
            "a logistic or ridge head has one output: `sigmoid` or `raw`"
        } else if self.output_of_grades().is_some_and(|of_grades| output != of_grades) {
            "a head that gives grades has `raw`, or `expected` for the loss `ordinal`"
        } else if matches!(output, HeadOutput::SigmoidOf(_) | HeadOutput::Expected)
            && self.path.is_none()
            && self.loss() != Loss::Ordinal
        {
            "is for heads that are loaded, and `expected` for `training.loss = \"ordinal\"`; \
             train `sigmoid`, `class:K` or `raw`"
        } else {
            return None;
        };
        Some(("output", reason))
    }

    /// Returns the first mistake in the settings of the training.
    fn wrong_training(&self, name: &str) -> Option<Wrong> {
        let (t, output) = (&self.training, self.output(name));
        let is_rate = t.learning_rate.is_none_or(|rate| rate > 0.0 && rate.is_finite())
            && t.weight_decay.is_none_or(|decay| decay >= 0.0 && decay.is_finite())
            && t.dropout.is_none_or(|rate| (0.0..1.0).contains(&rate));
        let was_published = self.kind == HeadKind::Mlp
            && self.label_kind() == LabelKind::Classes
            && (output.is_single() || matches!(output, HeadOutput::Class(0 | 1)));
        Some(if t.epochs == Some(0) || t.batch_size == Some(0) {
            ("training", "`epochs` and `batch_size` are at least 1")
        } else if !is_rate {
            ("training", "needs finite learning_rate > 0, weight_decay >= 0 and 0 <= dropout < 1")
        } else if t.checkpoint == Some(Checkpoint::Best) && self.label_kind() != LabelKind::Classes
        {
            ("training.checkpoint", "`best` compares accuracies, and grades have none")
        } else if t.mode == Mode::Published && !was_published {
            let reason =
                "`published` trains MLPs of one output, or of two classes (`class:1`, `class:0`)";
            ("training.mode", reason)
        } else {
            return None;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_heads_are_two_presets() {
        let head = HeadConfig::default();
        assert_eq!(head.layer_sizes("quality", 768, 0), [768, 256, 1]);
        assert_eq!(head.layer_sizes("toxicity", 768, 0), [768, 768, 2]);
        assert_eq!(head.output("toxicity"), HeadOutput::Class(1));
        assert_eq!((head.keep("quality"), head.keep("toxicity")), (Keep::Above, Keep::Below));
    }

    #[test]
    fn published_mode_is_for_the_heads_that_were_published() {
        let training = TrainingConfig { mode: Mode::Published, ..TrainingConfig::default() };
        let head = HeadConfig { train: vec!["a".into()], training, ..HeadConfig::default() };
        for (name, batch_size, checkpoint) in
            [("toxicity", 64, Checkpoint::LowestLoss), ("quality", 256, Checkpoint::Last)]
        {
            assert!(head.check(name).is_ok());
            let constants = head.training(name, 1000);
            assert_eq!((constants.epochs, constants.weight_decay), (Some(6), Some(0.01)));
            assert_eq!(constants.batch_size, Some(batch_size));
            assert_eq!(constants.checkpoint, Some(checkpoint));
        }
        for other in [
            HeadConfig { kind: HeadKind::Cosine, ..head.clone() },
            HeadConfig { kind: HeadKind::Logistic, ..head.clone() },
            HeadConfig { output: Some(HeadOutput::Class(2)), ..head },
        ] {
            let refused = other.check("quality").map_err(|e| e.to_string());
            assert!(refused.is_err_and(|e| e.contains("training.mode")), "{other:?}");
        }
    }

    #[test]
    fn grades_have_no_best_accuracy() {
        let check = |loss| {
            let (loss, checkpoint) = (Some(loss), Some(Checkpoint::Best));
            let training = TrainingConfig { loss, checkpoint, ..TrainingConfig::default() };
            let head = HeadConfig { train: vec!["a".into()], training, ..HeadConfig::default() };
            head.check("quality").map_err(|error| error.to_string())
        };
        assert_eq!(check(Loss::CrossEntropy), Ok(()));
        for loss in [Loss::SquaredError, Loss::Huber, Loss::Ordinal] {
            assert!(check(loss).is_err_and(|e| e.contains("training.checkpoint")), "{loss:?}");
        }
    }

    #[test]
    fn languages_of_a_head_fit_the_name_of_its_file() {
        let check = |languages: usize| {
            let group = (0..languages).map(|i| format!("a{i:02}_Latn")).collect();
            let languages = HeadLanguages::Groups(vec![group]);
            let head = HeadConfig { train: vec!["a".into()], languages, ..HeadConfig::default() };
            head.check("quality").map_err(|error| error.to_string())
        };
        assert_eq!(check(24), Ok(()));
        assert!(check(25).is_err_and(|error| error.contains("220")));
    }

    #[test]
    fn small_sets_are_given_more_passes() {
        for (num_samples, batch_size, epochs) in
            [(10, 32, 600), (240, 32, 75), (1600, 200, 75), (6400, 256, 24), (130_000, 256, 6)]
        {
            let constants = HeadConfig::default().training("quality", num_samples);
            assert_eq!(constants.batch_size, Some(batch_size));
            assert_eq!(constants.epochs, Some(epochs));
            assert_eq!(constants.weight_decay, None);
        }
    }

    #[test]
    fn labels_loss_and_output_go_together() {
        let parsed = |settings: &str| {
            let text = format!("[heads.edu]\ntrain=['a']\n{settings}");
            crate::RunConfig::from_toml(&text, "run.toml").map_err(|e| e.to_string())
        };
        for (settings, output) in [
            ("kind='ridge'\nlabel=['a','b']\nweight='w'", HeadOutput::Raw),
            ("training.loss='huber'", HeadOutput::Raw),
            ("training.loss='ordinal'", HeadOutput::Expected),
            ("label='a'", HeadOutput::Sigmoid),
            ("languages=[['a','b'],['c']]\nfallback='q'\n[heads.q]\npath='q'", HeadOutput::Sigmoid),
        ] {
            let config = parsed(settings);
            assert!(config.is_ok_and(|c| c.heads["edu"].output("edu") == output), "{settings}");
        }
        for (settings, wrong) in [
            ("label=['a','b']", "heads.edu.label"),
            ("label=3", "is the number 3; text in quotes is needed"),
            ("kind='logistic'\ntraining.loss='huber'", "heads.edu.training.loss"),
            (
                "training.loss='huber'\noutput='sigmoid'",
                "heads.edu.output: a head that gives grades",
            ),
            ("training.loss='ordinal'\ntraining.mode='published'", "heads.edu.training.mode"),
            ("kind='ridge'\nhidden=[3]", "heads.edu"),
            ("kind='cosine'\nhidden=[3]", "heads.edu.hidden"),
            ("kind='cosine'\nweight='w'", "heads.edu.weight"),
            ("kind='cosine'\nlanguages='all'", "heads.edu.languages"),
            ("languages='some'", "`each`, `all`, `others` or lists of languages"),
            ("languages=[['a'],['b','a']]", "a language twice"),
            ("languages=[]", "heads.edu.languages: has an empty list"),
            ("label=[]", "is an empty list"),
            ("references=3", "heads.edu.references: is not for heads of the kind \"mlp\""),
            ("training.learning_rate=inf", "heads.edu.training: needs finite"),
            ("training.weight_decay=inf", "heads.edu.training: needs finite"),
            ("fallback='none'", "heads.edu.fallback: names the head `none`"),
            ("kind='random'", "heads.edu.train: is not for heads of the kind \"random\""),
            ("score='a'", "which take the keys kind, column, keep,"),
            ("fallback='edu'", "heads.edu.fallback"),
            ("negatives={corpus=0}", "heads.edu.negatives.corpus: is 0"),
            ("negatives={}", "missing field `corpus`"),
            ("negatives={corpus=9,quantiles=[0.5,0.5]}", "heads.edu.negatives.quantiles"),
            ("negatives={corpus=9,rounds=2}", "heads.edu.negatives.rounds"),
            ("negatives={corpus=9,rounds=1,quantiles=[0.5,0.75]}", "heads.edu.negatives.rounds"),
            (
                "kind='fasttext'\nnegatives={corpus=9,quantiles=[0.5,0.75]}",
                "heads.edu.negatives.quantiles: are for heads on embeddings",
            ),
            ("kind='ridge'\nnegatives={corpus=9}", "heads.edu.negatives: are for heads of classes"),
        ] {
            let error = parsed(settings).err().unwrap_or_default();
            assert!(error.contains(wrong), "{settings}: {error}");
        }
    }

    #[test]
    fn outputs_read_as_they_print() -> Result<(), String> {
        for text in ["sigmoid", "sigmoid:24", "class:1", "expected", "raw"] {
            assert_eq!(text.parse::<HeadOutput>()?.to_string(), text);
        }
        for text in ["softmax", "class", "class:-1", "raw:0", "sigmoid:"] {
            assert!(text.parse::<HeadOutput>().is_err(), "{text}");
        }
        Ok(())
    }
}
