//! Rows of an evaluation report on one head, for all texts of a language and by source.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::agreement::Pair;
use super::rules::Calls;
use polysift_base::metrics::{
    CalibrationBin, Confusion, DECISION, WeightedText, average_precision, binary_cross_entropy,
    calibration, calibration_error, kendall, mean_absolute_error, proportion_interval, roc_auc,
    roc_auc_interval, spearman, weighted_precision, weighted_recall,
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
    pub measures: Vec<ReportRow>,
    /// The outcome of each decision rule.
    pub decisions: Vec<ReportRow>,
    /// How well the heads predict grades, if the labels are grades.
    pub grades: Vec<ReportRow>,
    /// Shares in the run's selection and at other rates, if the texts were drawn from the run.
    pub selections: Vec<ReportRow>,
    /// Agreement of the heads.
    pub agreement: Vec<Pair>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A file of labelled texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DataFile {
    pub(super) path: String,
    /// Language named by the pattern that matched the file.
    pub(super) language: Option<String>,
    /// BLAKE3 of the size and of both ends, as in a head's card.
    pub(super) fingerprint: String,
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
    pub(super) head: String,
    /// The language.
    pub language: String,
    pub(super) file: String,
    /// BLAKE3 of the file.
    pub(super) digest: String,
    pub(super) spec: HeadSpec,
    /// Whether the head was trained on one of the files, by its card: the texts are not unseen.
    pub(super) trained_on_this_data: bool,
    /// Number of texts left out because their score is NaN.
    pub(super) nan: usize,
    /// Number of texts left out because the head gave no score.
    pub(super) unscored: usize,
}

/// The texts that a row is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextGroup {
    pub(super) head: String,
    /// The language, or `mean` for the mean over the languages.
    pub(super) language: String,
    /// `all`, or `source: NAME`.
    pub texts: String,
    /// The grade above which a text is positive; `None` if the labels are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cut: Option<f64>,
}

/// A row of a table on one head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportRow {
    /// The texts.
    #[serde(flatten)]
    pub group: TextGroup,
    /// Values by column, null where they are undefined or infinite.
    #[serde(flatten)]
    columns: Value,
}

impl Report {
    /// Appends the means over the languages of the head `name`'s results on all texts.
    pub(super) fn add_means(&mut self, name: &str) {
        for table in [&mut self.measures, &mut self.grades] {
            let is_one = |row: &&ReportRow| row.group.head == name && row.group.texts == EVERYTHING;
            let rows: Vec<&ReportRow> = table.iter().filter(is_one).collect();
            let mut cuts: Vec<Option<f64>> = rows.iter().map(|row| row.group.cut).collect();
            cuts.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
            cuts.dedup();
            let mean_at = |cut: Option<f64>| {
                let rows: Vec<_> = rows.iter().filter(|row| row.group.cut == cut).collect();
                let column = |name: &String| {
                    let values = rows.iter().map(|row| &row.columns[name]);
                    (name.clone(), combine(name, values))
                };
                let columns = rows[0].columns.as_object().into_iter().flatten();
                let columns = columns.map(|(name, _)| column(name)).collect();
                let (head, language, texts) = (name.into(), MEAN.into(), EVERYTHING.into());
                ReportRow { group: TextGroup { head, language, texts, cut }, columns }
            };
            let means: Vec<ReportRow> = cuts.into_iter().map(mean_at).collect();
            table.extend(means);
        }
    }
}

/// Returns the sum of counts, or else the mean over the rows that have a value. Ends of intervals
/// are null and `calibration` is empty: they have no mean.
fn combine<'a>(column: &str, values: impl Iterator<Item = &'a Value>) -> Value {
    match column {
        "scored" | "positive" => values.filter_map(Value::as_u64).sum::<u64>().into(),
        end if end.ends_with("_low") || end.ends_with("_high") => Value::Null,
        "calibration" => json!([]),
        _ => {
            let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
            json!((!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64))
        }
    }
}

/// Returns whether the grade `label` is above the threshold of `group`, or the class is positive.
fn is_above(label: f32, group: &TextGroup) -> bool {
    label > group.cut.map_or(DECISION, |cut| cut as f32)
}

/// Scored documents of a language, column by column.
#[derive(Debug, Clone, Default)]
pub(super) struct Judged<'a> {
    /// Whether scores are probabilities of the positive class.
    pub(super) is_probability: bool,
    pub(super) gives_grades: bool,
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
        cuts: &[f64],
        report: &mut Report,
    ) {
        let of_classes = cuts.is_empty().then_some(None);
        let cuts: Vec<Option<f64>> = cuts.iter().copied().map(Some).chain(of_classes).collect();
        for (texts, rows) in self.group_rows() {
            let (head, language) = (head.to_owned(), language.to_owned());
            let group = TextGroup { head, language, texts, cut: None };
            if of_classes.is_none() {
                let columns = self.measure_grades(&rows);
                report.grades.push(ReportRow { group: group.clone(), columns });
            }
            for &cut in &cuts {
                let group = TextGroup { cut, ..group.clone() };
                let row = |columns| ReportRow { group: group.clone(), columns };
                report.measures.push(row(self.measure_separation(&rows, &group)));
                report.decisions.extend(self.count_outcomes(&rows, &group).into_iter().map(row));
                report.selections.extend(self.estimate_selections(&group).into_iter().map(row));
            }
        }
    }

    /// Returns the rows of all documents, then of each source if any text names one, by group name.
    fn group_rows(&self) -> Vec<(String, Vec<usize>)> {
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

    /// Measures how well the scores of `rows` separate the positive texts of `group` from others.
    fn measure_separation(&self, rows: &[usize], group: &TextGroup) -> Value {
        let logits: Vec<f32> = rows.iter().map(|&row| self.scores[row].logit).collect();
        let labels: Vec<bool> = rows.iter().map(|&row| is_above(self.labels[row], group)).collect();
        let interval = roc_auc_interval(&logits, &labels);
        let is_probability = self.is_probability && group.cut.is_none();
        let log_loss = binary_cross_entropy(&logits, &labels);
        let error = calibration_error(&self.bin_scores(rows));
        json!({
            "scored": rows.len(),
            "positive": labels.iter().filter(|&&label| label).count(),
            "roc_auc": roc_auc(&logits, &labels),
            "roc_auc_low": interval.map(|[low, _]| low),
            "roc_auc_high": interval.map(|[_, high]| high),
            "average_precision": average_precision(&logits, &labels),
            "log_loss": log_loss.filter(|_| is_probability),
            "calibration_error": error.filter(|_| is_probability),
        })
    }

    /// Bins the scores by size and compares them with the labels.
    fn bin_scores(&self, rows: &[usize]) -> Vec<CalibrationBin> {
        let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].score).collect();
        let labels: Vec<f32> = rows.iter().map(|&row| self.labels[row]).collect();
        calibration(&scores, &labels)
    }

    /// Measures how well the logits of `rows` predict their grades.
    fn measure_grades(&self, rows: &[usize]) -> Value {
        let scores: Vec<f32> = rows.iter().map(|&row| self.scores[row].logit).collect();
        let grades: Vec<f32> = rows.iter().map(|&row| self.labels[row]).collect();
        let calibration = if self.gives_grades { self.bin_scores(rows) } else { Vec::new() };
        json!({
            "scored": rows.len(),
            "spearman": spearman(&scores, &grades),
            "kendall": kendall(&scores, &grades),
            "mean_absolute_error":
                mean_absolute_error(&scores, &grades).filter(|_| self.gives_grades),
            "calibration_error": calibration_error(&calibration),
            "calibration": calibration,
        })
    }

    /// Counts the outcomes of the rules for the grade threshold of `group`; none without rows.
    fn count_outcomes(&self, rows: &[usize], group: &TextGroup) -> Vec<Value> {
        let applies = |calls: &&Calls| calls.cut.is_none_or(|cut| Some(cut) == group.cut);
        let outcome = |calls: &Calls| {
            let is_positive = |row: usize| is_above(self.labels[row], group);
            let called = rows.iter().map(|&row| (calls.positive[row], is_positive(row)));
            let confusion = Confusion::of_calls(called);
            let interval =
                proportion_interval(confusion.true_positives, confusion.called_positive());
            json!({
                "rule": calls.rule,
                "threshold": calls.threshold,
                "called_positive": confusion.called_positive(),
                "tp": confusion.true_positives,
                "fp": confusion.false_positives,
                "tn": confusion.true_negatives,
                "fn": confusion.false_negatives,
                "accuracy": confusion.accuracy(),
                "precision": confusion.precision(),
                "precision_low": interval.map(|[low, _]| low),
                "precision_high": interval.map(|[_, high]| high),
                "recall": confusion.recall(),
                "f1": confusion.f1(),
            })
        };
        self.calls.iter().filter(applies).filter(|_| !rows.is_empty()).map(outcome).collect()
    }

    /// Estimates precision and recall of each selection; empty unless `group` is of all documents.
    fn estimate_selections(&self, group: &TextGroup) -> Vec<Value> {
        let calls = self.selected.iter().filter(|_| group.texts == EVERYTHING);
        let estimated = |calls: &Calls| {
            let drawn = self.drawn.iter().zip(&calls.positive);
            let texts = drawn.map(|((label, drawn), &is_selected)| WeightedText {
                is_selected,
                is_positive: is_above(*label, group),
                ..*drawn
            });
            let texts: Vec<WeightedText> = texts.collect();
            let (precision, recall) = (weighted_precision(&texts), weighted_recall(&texts));
            json!({
                "rule": calls.rule,
                "threshold": calls.threshold,
                "selected": calls.positive.iter().filter(|selected| **selected).count(),
                "effective_size": precision.map(|share| share.effective_size),
                "precision": precision.map(|share| share.share),
                "precision_low": precision.map(|share| share.low),
                "precision_high": precision.map(|share| share.high),
                "recall": recall.map(|share| share.share),
                "recall_low": recall.map(|share| share.low),
                "recall_high": recall.map(|share| share.high),
            })
        };
        calls.map(estimated).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_config::HeadOutput;

    fn tables(judged: &Judged<'_>) -> Report {
        let mut report = Report::default();
        judged.tabulate(("h", "und"), &[], &mut report);
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
        let all = ["scored", "positive", "roc_auc", "log_loss"].map(|name| &all.columns[name]);
        assert_eq!(all, [&json!(4), &json!(3), &json!(1.0), &Value::Null]);
        let outcome = &decisions[0].columns;
        assert_eq!(
            (&outcome["rule"], &outcome["threshold"]),
            (&json!("retention 0.1"), &json!(0.5))
        );
        let counts = ["tp", "fn", "called_positive"].map(|name| &outcome[name]);
        assert_eq!(counts, [&json!(2), &json!(1), &json!(2)]);
    }

    #[test]
    fn means_are_those_of_the_languages_that_have_a_value() {
        let mut report = Report::default();
        for (language, logits) in [("a", [1.0, -1.0]), ("b", [2.0, 1.0])] {
            let judged = Judged { is_probability: true, ..judged(&logits, "r", 0.0) };
            judged.tabulate(("h", language), &[], &mut report);
        }
        report.add_means("h");
        let mean = &report.measures[2];
        assert_eq!(mean.group.language, "mean");
        let found = ["scored", "positive", "roc_auc"].map(|name| &mean.columns[name]);
        assert_eq!(found, [&json!(4), &json!(3), &json!(1.0)]);
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
        let columns = &measures[0].columns;
        assert_eq!((&columns["roc_auc"], &columns["log_loss"]), (&Value::Null, &Value::Null));
        assert_eq!((measures.len(), decisions.len()), (1, 0));
    }
}
