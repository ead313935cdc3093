//! Rows of an evaluation report on one head, for all texts of a language and by source.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use super::agreement::Pair;
use super::rules::{Calls, ScoreMeaning};
use super::selections::{SelectionShares, TextGroup};
use polysift_base::metrics::{
    CalibrationBin, Confusion, DECISION, WeightedText, average_precision, binary_cross_entropy,
    calibration, calibration_error, kendall, mean_absolute_error, proportion_interval, roc_auc,
    roc_auc_interval, spearman,
};
use polysift_data::input::SkippedRows;
use polysift_heads::head::{DocumentScore, HeadSpec};

/// Group name of all texts.
pub const EVERYTHING: &str = "all";

const MEAN: &str = "mean";

/// Source name for documents without a source where other documents have one.
const NO_SOURCE: &str = "(none)";

/// Results of heads on labelled texts; for stored scores of a run only `agreement` is filled.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Report {
    /// The files of labelled texts.
    pub data: Vec<DataFile>,
    /// Number of labelled texts that were read.
    pub texts: usize,
    /// Rows left out.
    pub skipped: SkippedRows,
    /// The encoder of the embeddings; `None` if no head needed any.
    pub encoder: Option<EncoderUsed>,
    /// The heads of each language.
    pub heads: Vec<HeadUsed>,
    /// How well the heads separate the classes.
    pub measures: Vec<Measures>,
    /// The outcome of each decision rule.
    pub decisions: Vec<RuleOutcome>,
    /// How well the heads predict grades, if the labels are grades.
    pub grades: Vec<GradeMeasures>,
    /// Shares in the run's selection and at other rates, if the texts were drawn from the run.
    pub selections: Vec<SelectionShares>,
    /// Agreement of the heads.
    pub agreement: Vec<Pair>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A file of labelled texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DataFile {
    /// Path of the file.
    pub path: String,
    /// Language named by the pattern that matched the file.
    pub language: Option<String>,
    /// BLAKE3 of the size and of both ends, as in a head's card.
    pub fingerprint: String,
}

/// The encoder that computed the embeddings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EncoderUsed {
    /// Model name as the user wrote it.
    pub model: String,
    /// Digest of the model files.
    pub digest: String,
    /// Device that computed.
    pub device: String,
    /// Numeric type of the computation.
    pub precision: String,
}

/// A head on the texts of one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadUsed {
    /// Name of the head.
    pub head: String,
    /// The language.
    pub language: String,
    /// Path of the head's file.
    pub file: String,
    /// BLAKE3 of the file.
    pub digest: String,
    /// What the head computes.
    pub spec: HeadSpec,
    /// Whether the head was trained on one of the files, by its card: the texts are not unseen.
    pub trained_on_this_data: bool,
    /// Number of texts left out because their score is NaN.
    pub nan: usize,
    /// Number of texts left out because the head gave no score.
    pub unscored: usize,
}

/// How well a head separates the classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measures {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// Number of texts with a score.
    pub scored: usize,
    /// Number of positives among them.
    pub positive: usize,
    /// Area under the ROC curve.
    pub roc_auc: Option<f64>,
    /// Lower end of its 95% confidence interval, see [`roc_auc_interval`].
    pub roc_auc_low: Option<f64>,
    /// Upper end of that interval.
    pub roc_auc_high: Option<f64>,
    /// Area under the precision-recall curve, as average precision.
    pub average_precision: Option<f64>,
    /// Mean cross-entropy of the log-odds, in nats; `None` without probabilities of the labels.
    pub log_loss: Option<f64>,
    /// Mean distance of probabilities from shares, see [`calibration_error`]; `None` likewise.
    pub calibration_error: Option<f64>,
}

/// How well a head predicts grades.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GradeMeasures {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// Number of texts with a score.
    pub scored: usize,
    /// Rank correlation of scores and grades.
    pub spearman: Option<f64>,
    /// Kendall's tau-b of scores and grades.
    pub kendall: Option<f64>,
    /// Mean distance of scores from grades; `None` if the head's scores are not grades.
    pub mean_absolute_error: Option<f64>,
    /// Mean distance of mean scores from mean grades, see [`calibration_error`]; `None` likewise.
    pub calibration_error: Option<f64>,
    /// Mean score and mean grade of ten groups by score; empty if the scores are not grades.
    pub calibration: Vec<CalibrationBin>,
}

/// The calls of a decision rule, compared with the labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleOutcome {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// `score above T`, `retention R`, `removal R`, or `run:` and a rule of the run.
    pub rule: String,
    /// Score at the boundary; `None` if there is none.
    pub threshold: Option<f64>,
    /// Number of texts called positive.
    pub called_positive: usize,
    /// Counts of right and wrong calls.
    #[serde(flatten)]
    pub confusion: Confusion,
    /// Share of texts called right.
    pub accuracy: Option<f64>,
    /// Share of positives among those called positive.
    pub precision: Option<f64>,
    /// Lower end of its 95% confidence interval, see [`proportion_interval`].
    pub precision_low: Option<f64>,
    /// Upper end of that interval.
    pub precision_high: Option<f64>,
    /// Share of those called positive among the positives.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
}

impl Report {
    /// Appends the means over the languages of the head `name`'s results on all texts.
    pub(super) fn add_means(&mut self, name: &str) {
        let is_one = |group: &TextGroup| group.head == name && group.texts == EVERYTHING;
        let rows: Vec<Measures> =
            self.measures.iter().filter(|m| is_one(&m.group)).cloned().collect();
        let mut cuts: Vec<Option<f64>> = rows.iter().map(|m| m.group.cut).collect();
        cuts.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        cuts.dedup();
        for cut in cuts {
            let rows: Vec<&Measures> = rows.iter().filter(|m| m.group.cut == cut).collect();
            self.measures.push(Measures {
                group: TextGroup { cut, ..group(name, MEAN, EVERYTHING) },
                scored: rows.iter().map(|m| m.scored).sum(),
                positive: rows.iter().map(|m| m.positive).sum(),
                roc_auc: mean(&rows, |m| m.roc_auc),
                roc_auc_low: None,
                roc_auc_high: None,
                average_precision: mean(&rows, |m| m.average_precision),
                log_loss: mean(&rows, |m| m.log_loss),
                calibration_error: mean(&rows, |m| m.calibration_error),
            });
        }
        let rows: Vec<&GradeMeasures> = self.grades.iter().filter(|m| is_one(&m.group)).collect();
        if !rows.is_empty() {
            let means = GradeMeasures {
                group: group(name, MEAN, EVERYTHING),
                scored: rows.iter().map(|m| m.scored).sum(),
                spearman: mean(&rows, |m| m.spearman),
                kendall: mean(&rows, |m| m.kendall),
                mean_absolute_error: mean(&rows, |m| m.mean_absolute_error),
                calibration_error: mean(&rows, |m| m.calibration_error),
                calibration: Vec::new(),
            };
            self.grades.push(means);
        }
    }
}

/// Returns the mean over the rows that have a value.
fn mean<R>(rows: &[&R], value: fn(&R) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| value(row)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn group(head: &str, language: &str, texts: &str) -> TextGroup {
    let (head, language, texts) = (head.to_owned(), language.to_owned(), texts.to_owned());
    TextGroup { head, language, texts, cut: None }
}

/// Returns whether a text with `label` is positive in `group`.
fn is_above(label: f32, group: &TextGroup) -> bool {
    label > group.cut.map_or(DECISION, |cut| cut as f32)
}

/// Scored documents of a language, column by column.
#[derive(Debug, Clone, Default)]
pub(super) struct Judged<'a> {
    pub(super) scores: Vec<DocumentScore>,
    /// Class labels (1 and 0) or grades.
    pub(super) labels: Vec<f32>,
    pub(super) sources: Vec<Option<&'a str>>,
    pub(super) calls: Vec<Calls>,
    /// Calls of the run's selection, and of the head at other rates.
    pub(super) selected: Vec<Calls>,
    /// Label of each text, also without a score, and how it was drawn; empty if that is unknown.
    pub(super) drawn: Vec<(f32, WeightedText)>,
    pub(super) nan: usize,
    pub(super) unscored: usize,
}

impl Judged<'_> {
    /// Appends the rows of `head` on these texts, for classes or for each of the grades `cuts`.
    pub(super) fn tabulate(
        &self,
        (head, language): (&str, &str),
        output: ScoreMeaning,
        cuts: &[f64],
        report: &mut Report,
    ) {
        let of_classes = cuts.is_empty().then_some(None);
        let cuts: Vec<Option<f64>> = cuts.iter().copied().map(Some).chain(of_classes).collect();
        for (texts, rows) in self.groups() {
            let group = group(head, language, &texts);
            if of_classes.is_none() {
                report.grades.push(self.grades(&group, &rows, output));
            }
            for &cut in &cuts {
                let group = TextGroup { cut, ..group.clone() };
                report.measures.push(self.measures(&group, &rows, output));
                report.decisions.extend(self.outcomes(&group, &rows));
                report.selections.extend(self.selections(&group));
            }
        }
    }

    /// Returns the rows of all documents, and of each source if any text names one.
    fn groups(&self) -> Vec<(String, Vec<usize>)> {
        let mut sources: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        if self.sources.iter().any(Option::is_some) {
            for (row, source) in self.sources.iter().enumerate() {
                sources.entry(source.unwrap_or(NO_SOURCE)).or_default().push(row);
            }
        }
        let all = (EVERYTHING.to_owned(), (0..self.scores.len()).collect());
        let sources = sources.into_iter().map(|(name, rows)| (format!("source: {name}"), rows));
        [all].into_iter().chain(sources).collect()
    }

    fn measures(&self, group: &TextGroup, rows: &[usize], output: ScoreMeaning) -> Measures {
        let logits: Vec<f32> = rows.iter().map(|&row| self.scores[row].logit).collect();
        let labels: Vec<bool> = rows.iter().map(|&row| is_above(self.labels[row], group)).collect();
        let interval = roc_auc_interval(&logits, &labels);
        let is_probability = output == ScoreMeaning::Probability && group.cut.is_none();
        Measures {
            group: group.clone(),
            scored: rows.len(),
            positive: labels.iter().filter(|&&label| label).count(),
            roc_auc: roc_auc(&logits, &labels),
            roc_auc_low: interval.map(|[low, _]| low),
            roc_auc_high: interval.map(|[_, high]| high),
            average_precision: average_precision(&logits, &labels),
            log_loss: binary_cross_entropy(&logits, &labels).filter(|_| is_probability),
            calibration_error: calibration_error(&self.calibration(rows))
                .filter(|_| is_probability),
        }
    }

    /// Bins the scores by size and compares them with the labels.
    fn calibration(&self, rows: &[usize]) -> Vec<CalibrationBin> {
        let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].score).collect();
        let labels: Vec<f32> = rows.iter().map(|&row| self.labels[row]).collect();
        calibration(&scores, &labels)
    }

    fn grades(&self, group: &TextGroup, rows: &[usize], output: ScoreMeaning) -> GradeMeasures {
        let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].logit).collect();
        let grades: Vec<f32> = rows.iter().map(|&row| self.labels[row]).collect();
        let gives_grades = output == ScoreMeaning::Grade;
        let calibration = if gives_grades { self.calibration(rows) } else { Vec::new() };
        GradeMeasures {
            group: group.clone(),
            scored: rows.len(),
            spearman: spearman(&scores, &grades),
            kendall: kendall(&scores, &grades),
            mean_absolute_error: mean_absolute_error(&scores, &grades).filter(|_| gives_grades),
            calibration_error: calibration_error(&calibration),
            calibration,
        }
    }

    /// Evaluates the rules that apply to the group's grade threshold; empty if `rows` is empty.
    fn outcomes(&self, group: &TextGroup, rows: &[usize]) -> Vec<RuleOutcome> {
        let applies = |calls: &&Calls| calls.cut.is_none_or(|cut| Some(cut) == group.cut);
        let outcome = |calls: &Calls| {
            let is_positive = |row: usize| is_above(self.labels[row], group);
            let called = rows.iter().map(|&row| (calls.positive[row], is_positive(row)));
            let confusion = Confusion::of_calls(called);
            let called_positive = confusion.called_positive();
            let interval = proportion_interval(confusion.true_positives, called_positive);
            RuleOutcome {
                group: group.clone(),
                rule: calls.rule.clone(),
                threshold: calls.threshold,
                called_positive,
                confusion,
                accuracy: confusion.accuracy(),
                precision: confusion.precision(),
                precision_low: interval.map(|[low, _]| low),
                precision_high: interval.map(|[_, high]| high),
                recall: confusion.recall(),
                f1: confusion.f1(),
            }
        };
        self.calls.iter().filter(applies).filter(|_| !rows.is_empty()).map(outcome).collect()
    }

    /// Estimates the shares of each selection over all documents; empty for other groups.
    fn selections(&self, group: &TextGroup) -> Vec<SelectionShares> {
        let drawn = self.drawn.iter().map(|(label, drawn)| {
            let is_positive = is_above(*label, group);
            WeightedText { is_positive, ..*drawn }
        });
        let drawn: Vec<WeightedText> = drawn.collect();
        let calls = self.selected.iter().filter(|_| group.texts == EVERYTHING);
        calls.map(|calls| SelectionShares::new(group, calls, &drawn)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_config::HeadOutput;

    fn tables(judged: &Judged<'_>) -> Report {
        let mut report = Report::default();
        judged.tabulate(("h", "und"), ScoreMeaning::Other, &[], &mut report);
        report
    }

    fn judged(logits: &[f32], rule: &str, threshold: f64) -> Judged<'static> {
        let score = |&logit: &f32| DocumentScore::new(logit, HeadOutput::Raw);
        Judged {
            scores: logits.iter().map(score).collect(),
            labels: logits.iter().map(|&logit| f32::from(u8::from(logit > 0.0))).collect(),
            sources: vec![None; logits.len()],
            calls: vec![Calls {
                rule: rule.to_owned(),
                threshold: Some(threshold),
                cut: None,
                positive: logits.iter().map(|&l| f64::from(l) > threshold).collect(),
            }],
            ..Judged::default()
        }
    }

    #[test]
    fn a_rule_is_counted_and_separation_is_that_of_the_logits() {
        let Report { measures, decisions, .. } =
            tables(&judged(&[2.0, -2.0, 3.0, 0.25], "retention 0.1", 0.5));
        let all = &measures[0];
        assert_eq!((all.scored, all.positive, all.roc_auc), (4, 3, Some(1.0)));
        assert_eq!(all.log_loss, None);
        assert_eq!(
            (decisions[0].rule.as_str(), decisions[0].threshold),
            ("retention 0.1", Some(0.5))
        );
        let Confusion { true_positives, false_negatives, .. } = decisions[0].confusion;
        assert_eq!((true_positives, false_negatives, decisions[0].called_positive), (2, 1, 2));
    }

    #[test]
    fn means_are_those_of_the_languages_that_have_a_value() {
        let mut report = Report::default();
        for (language, logits) in [("a", [1.0, -1.0]), ("b", [2.0, 1.0])] {
            judged(&logits, "r", 0.0).tabulate(
                ("h", language),
                ScoreMeaning::Probability,
                &[],
                &mut report,
            );
        }
        report.add_means("h");
        let mean = &report.measures[2];
        assert_eq!((mean.group.language.as_str(), mean.scored, mean.positive), ("mean", 4, 3));
        assert_eq!(mean.roc_auc, Some(1.0));
    }

    #[test]
    fn documents_without_a_source_are_a_group_only_beside_others() {
        let mut judged = judged(&[1.0, 2.0], "r", 0.0);
        let sources = |judged: &Judged<'_>| -> Vec<String> {
            let texts = tables(judged).measures.into_iter().map(|m| m.group.texts);
            texts.filter(|texts| texts.starts_with("source")).collect()
        };
        assert!(sources(&judged).is_empty());
        judged.sources[1] = Some("ewt");
        assert_eq!(sources(&judged), ["source: (none)", "source: ewt"]);
    }

    #[test]
    fn without_documents_every_measure_is_undefined() {
        let Report { measures, decisions, .. } = tables(&Judged::default());
        assert_eq!((measures[0].roc_auc, measures[0].log_loss), (None, None));
        assert_eq!((measures.len(), decisions.len()), (1, 0));
    }
}
