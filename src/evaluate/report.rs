//! What `polysift evaluate` says of heads on labelled texts; the fields are the keys of its JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::agreement::{Agreement, mean_of};
use crate::head::HeadSpec;
use crate::metrics::{Bin, Confusion};

/// Heads on labelled texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The texts.
    pub data: Vec<DataFile>,
    /// Labelled texts that were read.
    pub texts: usize,
    /// Rows left out because their text is null or blank.
    pub skipped: u64,
    /// What made the embeddings; `None` where no head needed any.
    pub encoder: Option<EncoderUsed>,
    /// By name.
    pub heads: BTreeMap<String, HeadReport>,
    /// Between the heads.
    pub agreement: Agreement,
}

/// A file of labelled texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DataFile {
    /// Where it is.
    pub path: String,
    /// Language told by the pattern that matched it.
    pub language: Option<String>,
    /// As in a head's card: BLAKE3 of the size and of both ends.
    pub fingerprint: String,
}

/// What made the embeddings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EncoderUsed {
    /// Name as the user wrote it.
    pub model: String,
    /// Digest of its files.
    pub digest: String,
    /// What computed.
    pub device: String,
    /// In which type.
    pub precision: String,
}

/// One head on all languages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadReport {
    /// Whether its scores are probabilities. Calibration means nothing where they are not
    /// (similarities, raw outputs), and there is none.
    pub gives_probabilities: bool,
    /// By language.
    pub languages: BTreeMap<String, LanguageReport>,
    /// Languages of the texts that have no such head.
    pub without_head: Vec<String>,
    /// All texts that have a score, whatever their language.
    pub pooled: Measures,
    /// Means over the languages.
    pub mean: Means,
}

/// One head on the texts of one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LanguageReport {
    /// Its file.
    pub file: String,
    /// BLAKE3 of the file.
    pub digest: String,
    /// What it computes.
    pub spec: HeadSpec,
    /// Whether its card names one of the files of texts as what it was trained from; the figures
    /// are then not those of unseen text.
    pub trained_on_this_data: bool,
    /// What it does.
    #[serde(flatten)]
    pub measures: Measures,
}

/// What a head does on some texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measures {
    /// All of them that have a score.
    #[serde(flatten)]
    pub documents: Group,
    /// Texts left out because their score is NaN.
    pub nan: usize,
    /// Texts left out because the head gave no score.
    pub unscored: usize,
    /// 95% confidence interval of the area under the ROC curve (DeLong).
    pub roc_auc_interval: Option<[f64; 2]>,
    /// `None` where the scores are not probabilities.
    pub calibration: Option<Calibration>,
    /// By source; empty where no text tells one.
    pub sources: BTreeMap<String, Group>,
    /// By length in characters, see [`super::LENGTH_EDGES`]; empty buckets are left out.
    pub lengths: Vec<LengthGroup>,
}

/// Measures of a group of texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Texts with a score.
    pub scored: usize,
    /// Positives among them.
    pub positive: usize,
    /// Mean score.
    pub mean_score: Option<f64>,
    /// Area under the ROC curve.
    pub roc_auc: Option<f64>,
    /// Area under the precision-recall curve, as average precision.
    pub average_precision: Option<f64>,
    /// By rule.
    pub decisions: Vec<Decision>,
}

/// What a rule calls right and wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// `score above T`, `retention R`, `removal R` (rates of the texts of each language), or `run:`
    /// and a threshold of the run.
    pub rule: String,
    /// Score at the boundary; `None` where there is none or the languages have several.
    pub threshold: Option<f64>,
    /// Texts called positive.
    pub called_positive: usize,
    /// Counts.
    #[serde(flatten)]
    pub confusion: Confusion,
    /// Share called right.
    pub accuracy: Option<f64>,
    /// Share of positives among those called positive.
    pub precision: Option<f64>,
    /// Share of those called positive among the positives.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Correlation of Matthews.
    pub mcc: Option<f64>,
}

/// How far probabilities are what they claim to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Expected calibration error over `bins`.
    pub expected_error: Option<f64>,
    /// Mean squared distance from the labels.
    pub brier: Option<f64>,
    /// Mean cross-entropy, in nats, of the log-odds.
    pub log_loss: Option<f64>,
    /// The reliability table.
    pub bins: Vec<Bin>,
}

/// Texts of similar length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LengthGroup {
    /// Fewest characters.
    pub from: usize,
    /// Fewer characters than this; `None`: no limit.
    pub to: Option<usize>,
    /// Their measures.
    #[serde(flatten)]
    pub documents: Group,
}

/// Means over the languages in which the measure is defined.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Means {
    /// Languages with a score.
    pub languages: usize,
    /// Of [`Group::roc_auc`].
    pub roc_auc: Option<f64>,
    /// Of [`Group::average_precision`].
    pub average_precision: Option<f64>,
    /// Of [`Calibration::expected_error`].
    pub expected_calibration_error: Option<f64>,
    /// Of [`Calibration::brier`].
    pub brier: Option<f64>,
}

impl Means {
    /// Of the reports of the languages.
    pub(super) fn of<'a>(reports: impl Iterator<Item = &'a LanguageReport> + Clone) -> Self {
        let measures = reports.map(|report| &report.measures);
        let calibrations = measures.clone().map(|m| m.calibration.as_ref());
        Self {
            languages: measures.clone().filter(|m| m.documents.scored > 0).count(),
            roc_auc: mean_of(measures.clone().map(|m| m.documents.roc_auc)),
            average_precision: mean_of(measures.map(|m| m.documents.average_precision)),
            expected_calibration_error: mean_of(calibrations.clone().map(|c| c?.expected_error)),
            brier: mean_of(calibrations.map(|c| c?.brier)),
        }
    }
}
