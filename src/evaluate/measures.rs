//! The rows of a report on one head: what it does on all texts, by source and by length.

use std::collections::BTreeMap;

use serde::Serialize;

use super::agreement::{Pair, mean_of};
use super::rules::Calls;
use crate::head::{DocumentScore, HeadSpec};
use crate::metrics::{
    Bin, Confusion, average_precision, binary_cross_entropy, brier, expected_calibration_error,
    reliability, roc_auc, roc_auc_interval,
};

/// The group of all texts.
pub const EVERYTHING: &str = "all";

/// Edges of the length buckets, in characters (Unicode scalar values) of the text: a bucket runs
/// from its lower edge, included, to the next.
const LENGTH_EDGES: [usize; 6] = [0, 100, 300, 1000, 3000, 10_000];

/// Heads on labelled texts.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Report {
    /// The texts.
    pub data: Vec<DataFile>,
    /// Labelled texts that were read.
    pub texts: usize,
    /// Rows left out because their text is null or blank.
    pub skipped: u64,
    /// What made the embeddings; `None` where no head needed any.
    pub encoder: Option<EncoderUsed>,
    /// The heads of each language.
    pub heads: Vec<HeadUsed>,
    /// How well they separate the classes.
    pub measures: Vec<Measures>,
    /// What each rule calls right and wrong.
    pub decisions: Vec<RuleOutcome>,
    /// Reliability of those scores that are probabilities.
    pub calibration: Vec<Reliability>,
    /// How far the heads agree.
    pub agreement: Vec<Pair>,
    /// What else a reader should know, in words.
    pub notes: Vec<String>,
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

/// A head on the texts of one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadUsed {
    /// Its name.
    pub head: String,
    /// The language.
    pub language: String,
    /// Its file.
    pub file: String,
    /// BLAKE3 of the file.
    pub digest: String,
    /// What it computes.
    pub spec: HeadSpec,
    /// Whether its card names one of the files of texts as what it was trained from; the figures
    /// are then not those of unseen text.
    pub trained_on_this_data: bool,
    /// Texts left out because their score is NaN.
    pub nan: usize,
    /// Texts left out because the head gave no score.
    pub unscored: usize,
}

/// Which texts a row is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextGroup {
    /// Name of the head.
    pub head: String,
    /// The language, `all` for the texts of several, or `mean` for the mean over them.
    pub language: String,
    /// `all`, `source: NAME`, or `FROM-TO characters`.
    pub texts: String,
}

/// How well a head separates the classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measures {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// Texts with a score.
    pub scored: usize,
    /// Positives among them.
    pub positive: usize,
    /// Mean score.
    pub mean_score: Option<f64>,
    /// Area under the ROC curve.
    pub roc_auc: Option<f64>,
    /// Lower end of its 95% confidence interval (DeLong).
    pub roc_auc_low: Option<f64>,
    /// Upper end.
    pub roc_auc_high: Option<f64>,
    /// Area under the precision-recall curve, as average precision.
    pub average_precision: Option<f64>,
    /// Mean squared distance of the probabilities from the labels; like the next two `None` where
    /// the scores are not probabilities.
    pub brier: Option<f64>,
    /// Mean cross-entropy, in nats, of the log-odds.
    pub log_loss: Option<f64>,
    /// Expected calibration error over the bins of the reliability table.
    pub calibration_error: Option<f64>,
}

/// What a rule calls right and wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleOutcome {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// `score above T`, `retention R`, `removal R` (rates of the texts of each language), or `run:`
    /// and a rule of the run.
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

/// How far probabilities are what they claim to be: one bin of the reliability table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// The bin.
    #[serde(flatten)]
    pub bin: Bin,
}

impl Report {
    /// Appends the means over the languages of what the head `name` does on all texts.
    pub(super) fn add_means(&mut self, name: &str) {
        let is_one = |m: &&Measures| m.group.head == name && m.group.texts == EVERYTHING;
        let rows: Vec<&Measures> = self.measures.iter().filter(is_one).collect();
        let mean = |value: fn(&Measures) -> Option<f64>| {
            mean_of(rows.iter().map(|measures| value(measures)))
        };
        let group = TextGroup {
            head: name.to_owned(),
            language: super::agreement::MEAN.to_owned(),
            texts: EVERYTHING.to_owned(),
        };
        self.measures.push(Measures {
            group,
            scored: rows.iter().map(|m| m.scored).sum(),
            positive: rows.iter().map(|m| m.positive).sum(),
            mean_score: mean(|m| m.mean_score),
            roc_auc: mean(|m| m.roc_auc),
            roc_auc_low: None,
            roc_auc_high: None,
            average_precision: mean(|m| m.average_precision),
            brier: mean(|m| m.brier),
            log_loss: mean(|m| m.log_loss),
            calibration_error: mean(|m| m.calibration_error),
        });
    }
}

/// What a document without a source is counted under where others have one.
const NO_SOURCE: &str = "(none)";

/// Documents with a score, column by column.
#[derive(Debug, Clone, Default)]
pub(super) struct Judged<'a> {
    pub(super) scores: Vec<DocumentScore>,
    pub(super) labels: Vec<bool>,
    pub(super) sources: Vec<Option<&'a str>>,
    /// Characters.
    pub(super) lengths: Vec<usize>,
    pub(super) calls: Vec<Calls>,
    /// Documents that are not here because their score is NaN.
    pub(super) nan: usize,
    /// Documents that are not here because they have no score.
    pub(super) unscored: usize,
}

impl<'a> Judged<'a> {
    /// Appends the documents of another language; rules are joined by name, and a rule that has
    /// two thresholds has none.
    pub(super) fn append(&mut self, other: &Judged<'a>) {
        let (before, added) = (self.scores.len(), other.scores.len());
        for theirs in &other.calls {
            if self.calls.iter().all(|own| own.rule != theirs.rule) {
                let positive = vec![None; before];
                self.calls.push(Calls { positive, ..theirs.clone() });
            }
        }
        for own in &mut self.calls {
            match other.calls.iter().find(|theirs| theirs.rule == own.rule) {
                None => own.positive.extend(std::iter::repeat_n(None, added)),
                Some(theirs) => {
                    own.positive.extend(&theirs.positive);
                    own.threshold = own.threshold.filter(|t| Some(*t) == theirs.threshold);
                }
            }
        }
        self.scores.extend(&other.scores);
        self.labels.extend(&other.labels);
        self.sources.extend(&other.sources);
        self.lengths.extend(&other.lengths);
        self.nan += other.nan;
        self.unscored += other.unscored;
    }

    /// Appends the rows of the `head` on these texts, which are in `language`; `num_bins` bins of
    /// calibration where the scores are probabilities.
    pub(super) fn tabulate(
        &self,
        (head, language): (&str, &str),
        num_bins: Option<usize>,
        report: &mut Report,
    ) {
        for (texts, rows) in self.groups() {
            let group = TextGroup { head: head.to_owned(), language: language.to_owned(), texts };
            let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].score).collect();
            let labels: Vec<bool> = rows.iter().map(|&row| self.labels[row]).collect();
            let bins = num_bins.map(|num_bins| reliability(&scores, &labels, num_bins));
            report.measures.push(self.measures(&group, &rows, bins.as_deref()));
            report
                .decisions
                .extend(self.calls.iter().filter_map(|calls| self.decision(&group, calls, &rows)));
            if group.texts == EVERYTHING {
                let bins = bins.into_iter().flatten();
                report
                    .calibration
                    .extend(bins.map(|bin| Reliability { group: group.clone(), bin }));
            }
        }
    }

    /// The rows of all documents, of each source if a text tells one, and of each length.
    fn groups(&self) -> Vec<(String, Vec<usize>)> {
        let all = 0..self.scores.len();
        let mut sources: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        if self.sources.iter().any(Option::is_some) {
            for (row, source) in self.sources.iter().enumerate() {
                sources.entry(source.unwrap_or(NO_SOURCE)).or_default().push(row);
            }
        }
        let mut lengths: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for row in all.clone() {
            let bucket = LENGTH_EDGES.partition_point(|&edge| edge <= self.lengths[row]);
            lengths.entry(bucket).or_default().push(row);
        }
        let source = |(source, rows)| (format!("source: {source}"), rows);
        let length = |(bucket, rows)| {
            let to = LENGTH_EDGES
                .get(bucket)
                .map_or_else(String::new, |to: &usize| (to - 1).to_string());
            (format!("{}-{to} characters", LENGTH_EDGES[bucket - 1]), rows)
        };
        let parts = sources.into_iter().map(source).chain(lengths.into_iter().map(length));
        [(EVERYTHING.to_owned(), all.collect())].into_iter().chain(parts).collect()
    }

    fn measures(&self, group: &TextGroup, rows: &[usize], bins: Option<&[Bin]>) -> Measures {
        let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].score).collect();
        let logits: Vec<f32> = rows.iter().map(|&row| self.scores[row].logit).collect();
        let labels: Vec<bool> = rows.iter().map(|&row| self.labels[row]).collect();
        let sum: f64 = scores.iter().copied().map(f64::from).sum();
        let interval = roc_auc_interval(&logits, &labels);
        Measures {
            group: group.clone(),
            scored: rows.len(),
            positive: labels.iter().filter(|&&label| label).count(),
            mean_score: (!rows.is_empty()).then(|| sum / rows.len() as f64),
            roc_auc: roc_auc(&logits, &labels),
            roc_auc_low: interval.map(|[low, _]| low),
            roc_auc_high: interval.map(|[_, high]| high),
            average_precision: average_precision(&logits, &labels),
            brier: bins.and_then(|_| brier(&scores, &labels)),
            log_loss: bins.and_then(|_| binary_cross_entropy(&logits, &labels)),
            calibration_error: bins.and_then(expected_calibration_error),
        }
    }

    /// `None` where the rule applies to no document.
    fn decision(&self, group: &TextGroup, calls: &Calls, rows: &[usize]) -> Option<RuleOutcome> {
        let called: Vec<(bool, bool)> =
            rows.iter().filter_map(|&row| Some((calls.positive[row]?, self.labels[row]))).collect();
        let confusion = Confusion::of_calls(called.iter().copied());
        (!called.is_empty()).then(|| RuleOutcome {
            group: group.clone(),
            rule: calls.rule.clone(),
            threshold: calls.threshold,
            called_positive: confusion.called_positive(),
            confusion,
            accuracy: confusion.accuracy(),
            precision: confusion.precision(),
            recall: confusion.recall(),
            f1: confusion.f1(),
            mcc: confusion.mcc(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Activation;

    fn tables(judged: &Judged<'_>, num_bins: Option<usize>) -> Report {
        let mut report = Report::default();
        judged.tabulate(("h", "und"), num_bins, &mut report);
        report
    }

    fn judged(logits: &[f32], rule: &str, threshold: f64) -> Judged<'static> {
        let score = |&logit: &f32| DocumentScore::new(logit, Activation::Raw);
        Judged {
            scores: logits.iter().map(score).collect(),
            labels: logits.iter().map(|&logit| logit > 0.0).collect(),
            sources: vec![None; logits.len()],
            lengths: vec![100; logits.len()],
            calls: vec![Calls {
                rule: rule.to_owned(),
                threshold: Some(threshold),
                positive: logits.iter().map(|&l| Some(f64::from(l) > threshold)).collect(),
            }],
            ..Judged::default()
        }
    }

    #[test]
    fn rules_of_two_languages_are_joined_by_name() {
        let mut all = Judged::default();
        all.append(&judged(&[1.0, -1.0], "retention 0.1", 0.5));
        all.append(&judged(&[2.0, -2.0, 3.0], "retention 0.1", 0.6));
        all.append(&judged(&[4.0], "score above 0", 0.0));
        let Report { measures, decisions, .. } = tables(&all, None);
        let all = &measures[0];
        assert_eq!((all.scored, all.positive, all.roc_auc), (6, 4, Some(1.0)));
        let found: Vec<_> = decisions[..2].iter().map(|d| (d.rule.as_str(), d.threshold)).collect();
        assert_eq!(found, [("retention 0.1", None), ("score above 0", Some(0.0))]);
        assert_eq!(decisions[0].confusion.true_positives, 3);
        assert_eq!(decisions[1].confusion.true_positives, 1);
    }

    #[test]
    fn a_length_belongs_to_the_bucket_that_starts_with_it() {
        let mut judged = judged(&[1.0; 4], "r", 0.0);
        judged.lengths = vec![99, 100, 299, 10_000];
        let found: Vec<_> =
            tables(&judged, None).measures.into_iter().map(|m| (m.group.texts, m.scored)).collect();
        let expected = [
            ("all", 4),
            ("0-99 characters", 1),
            ("100-299 characters", 2),
            ("10000- characters", 1),
        ];
        assert_eq!(found, expected.map(|(texts, scored)| (texts.to_owned(), scored)));
    }

    #[test]
    fn documents_without_a_source_are_a_group_only_beside_others() {
        let mut judged = judged(&[1.0, 2.0], "r", 0.0);
        let sources = |judged: &Judged<'_>| -> Vec<String> {
            let texts = tables(judged, None).measures.into_iter().map(|m| m.group.texts);
            texts.filter(|texts| texts.starts_with("source")).collect()
        };
        assert!(sources(&judged).is_empty());
        judged.sources[1] = Some("ewt");
        assert_eq!(sources(&judged), ["source: (none)", "source: ewt"]);
    }

    #[test]
    fn without_documents_every_measure_is_undefined() {
        let Report { measures, decisions, calibration, .. } = tables(&Judged::default(), Some(10));
        assert_eq!((measures[0].roc_auc, measures[0].mean_score), (None, None));
        assert_eq!((measures.len(), decisions.len(), calibration.len()), (1, 0, 10));
    }
}
