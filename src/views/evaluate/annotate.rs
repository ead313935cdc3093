//! Scores, verdicts and filter findings of single documents, with or without a run.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::texts::TextScorer;
use polysift_base::error::Result;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{FilterAction, FilterConfig, KEPT, LanguageSource, Rate, RunConfig};
use polysift_corpus::filter::FilteredDocument;
use polysift_corpus::heads::{Heads, head_file};
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::rows::Fate;
use polysift_corpus::select::selections;
use polysift_corpus::verdicts::{OpenFilters, judge, open_filters};
use polysift_data::input::{LANG, StreamDocument, languages_of, score_value};
use polysift_data::parts::FoundRow;
use polysift_fasttext::{LanguageIdentifier, TextScratch};
use polysift_heads::head::DocumentScore;
use polysift_runs::run::RunDir;
use polysift_selection::{ScoredDocument, Selection, ThresholdKind};

/// The annotation of one document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Annotation<'a> {
    /// Language of the document.
    pub language: &'a str,
    /// Score by head name; `None` for NaN and without a score (no text, no head for the language).
    pub scores: BTreeMap<&'a str, Option<f64>>,
    /// `kept`, or `removed` from the export; `None` if the language has no thresholds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
    /// Why the document is removed: its folder in an export with `export.keep_removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a kept document, the smallest retention rate that keeps it, by head name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub retention: BTreeMap<&'a str, Rate>,
    /// Names of the filters that flag the document, each with the text of its column in an export.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flags: BTreeMap<String, String>,
    /// The thresholds of the language: `head`; its rate, score or budget as `retention`, `removal`,
    /// `threshold` or `budget`; `score` at the boundary, null if all or no documents are kept.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub thresholds: &'a [Value],
}

/// Annotates documents with scores, verdicts and filter findings.
pub struct Annotator<'a> {
    scorer: TextScorer<'a>,
    filters: OpenFilters<'a>,
    /// By language, the selection of the run and the description of its thresholds.
    selections: BTreeMap<String, (Selection, Vec<Value>)>,
    /// Identifies the language of every text, if the settings name a classifier.
    languages: Option<LanguageIdentifier>,
    /// Columns that heads and filters read, besides text and id.
    pub columns: Vec<String>,
}

/// Finds the heads for the languages of `run`, and for the languages that the head files are for.
pub fn find_heads(config: &RunConfig, run: Option<&RunDir>) -> Result<Heads> {
    let mut languages = BTreeSet::new();
    for (name, head) in config.heads.iter().filter(|(_, head)| !head.kind.is_of_rows()) {
        if let Some(pattern) = head_file(run, name, head, LANG) {
            languages.extend(languages_of(&pattern.display().to_string())?);
        }
    }
    languages.remove(ALL_LANGUAGES);
    if let Some(run) = run {
        languages.extend(selections(run)?.into_keys());
    }
    Heads::find(&config.heads, run, languages, config.seed)
}

impl<'a> Annotator<'a> {
    /// Opens an annotator with a scorer for the heads of [`find_heads`], and thresholds of `run`.
    pub fn open(scorer: TextScorer<'a>, run: Option<&RunDir>) -> Result<Self> {
        let config = scorer.config;
        let selections = run.map(selections).transpose()?.unwrap_or_default();
        let mut filters = open_filters(config)?;
        filters.values_mut().try_for_each(|(_, filter)| filter.prepare(scorer.stop))?;
        let with_thresholds = |(language, selection): (String, Selection)| {
            let thresholds = describe_thresholds(&selection);
            (language, (selection, thresholds))
        };
        let selections = selections.into_iter().map(with_thresholds).collect();
        let languages = LanguageIdentifier::load(&config.input)?;
        let of_heads = config.heads.keys().filter_map(|name| scorer.heads.of_rows(name)?.column());
        let of_filters = config.filters.values().filter_map(FilterConfig::url_column);
        let columns = of_heads.chain(of_filters).map(str::to_owned).collect();
        Ok(Self { scorer, filters, selections, languages, columns })
    }

    /// Returns the value of `document` in a column of [`Annotator::columns`].
    fn value_of<'d>(&self, document: &'d StreamDocument, column: &str) -> Option<&'d str> {
        let place = self.columns.iter().position(|name| name == column)?;
        document.columns.get(place)?.as_deref()
    }

    /// Returns the language of documents that name none: the settings' language, else the only
    /// one, or [`UNDETERMINED_LANGUAGE`] if every head serves all languages or a classifier
    /// identifies the language.
    pub fn default_language(&self) -> Option<&'a str> {
        if let LanguageSource::Fixed(code) = &self.scorer.config.input.language {
            return Some(code);
        }
        if self.languages.is_some() {
            return Some(UNDETERMINED_LANGUAGE);
        }
        let mut languages = self.scorer.heads.languages().iter();
        match (languages.next(), languages.next()) {
            (None, _) => Some(UNDETERMINED_LANGUAGE),
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => None,
        }
    }

    /// Sets the languages of `documents` with text, if the settings name a classifier.
    pub fn identify_languages(&self, documents: &mut [StreamDocument]) {
        let Some(languages) = &self.languages else { return };
        documents.par_iter_mut().for_each_init(TextScratch::default, |scratch, document| {
            if let Some(text) = nonblank_text(document) {
                document.language = languages.identify(text, scratch).to_owned();
            }
        });
    }

    /// Annotates each of `documents`, which carry the columns [`Annotator::columns`]. A document
    /// with an invalid value in a head's column gets the reason as its `Err`.
    pub fn annotate<'d>(
        &'d self,
        documents: &'d [StreamDocument],
    ) -> Result<Vec<Result<Annotation<'d>, String>>> {
        let texts: Vec<Option<&str>> = documents.iter().map(nonblank_text).collect();
        let languages: Vec<&str> = documents.iter().map(|d| d.language.as_str()).collect();
        let embedded = self.scorer.embed(&texts, &mut |_, _| ())?;
        let mut wrong: BTreeMap<usize, String> = BTreeMap::new();
        let mut scores: Vec<Vec<Option<DocumentScore>>> = Vec::new();
        let &TextScorer { config, heads, .. } = &self.scorer;
        for name in config.heads.keys() {
            let Some(head) = heads.of_rows(name) else {
                scores.push(heads.score_embedded(name, &languages, &texts, &embedded)?);
                continue;
            };
            let score = |(at, document): (usize, &StreamDocument)| {
                nonblank_text(document)?;
                let read = |column| Some(score_value(column, self.value_of(document, column)?));
                let value = head.column().and_then(read).transpose();
                let value = value.unwrap_or_else(|reason| {
                    wrong.insert(at, reason);
                    None
                });
                head.score(&document.id, value)
            };
            scores.push(documents.iter().enumerate().map(score).collect());
        }
        let found = self.run_filters(documents)?;
        let annotation = |(at, document): (usize, &'d StreamDocument)| {
            let scores: Vec<_> = scores.iter().map(|of_head| of_head[at]).collect();
            let found = &found[at];
            wrong
                .remove(&at)
                .map_or_else(|| Ok(self.build_annotation(document, &scores, found)), Err)
        };
        Ok(documents.iter().enumerate().map(annotation).collect())
    }

    /// Returns what the filters find in each document.
    fn run_filters(&self, documents: &[StreamDocument]) -> Result<Vec<Vec<FoundRow>>> {
        let url =
            |config: &FilterConfig, at: usize| self.value_of(&documents[at], config.url_column()?);
        let seen = documents.iter().map(|document| {
            let StreamDocument { id, language, .. } = document;
            FilteredDocument { id, language, url: None, text: nonblank_text(document) }
        });
        judge(&self.filters, &seen.collect::<Vec<_>>(), url, self.scorer.stop, |_, _, _| ())
    }

    /// Builds an annotation from the scores by all heads and what filters `found`. It has a verdict
    /// only if the run has thresholds of the language.
    fn build_annotation<'d>(
        &'d self,
        document: &'d StreamDocument,
        scores: &[Option<DocumentScore>],
        found: &[FoundRow],
    ) -> Annotation<'d> {
        let language = document.language.as_str();
        let names = self.scorer.config.heads.keys().map(String::as_str);
        let shown = |score: &Option<DocumentScore>| {
            score.map(|s| f64::from(s.score)).filter(|score| !score.is_nan())
        };
        let flags = found.iter().filter(|row| row.action == FilterAction::Flag);
        let mut annotation = Annotation {
            language,
            scores: names.zip(scores.iter().map(shown)).collect(),
            verdict: None,
            reason: None,
            retention: BTreeMap::new(),
            flags: flags.map(|row| (row.filter.clone(), row.why().to_owned())).collect(),
            thresholds: &[],
        };
        let Some((selection, thresholds)) = self.selections.get(language) else {
            return annotation;
        };
        annotation.thresholds = thresholds;
        // A cascade of the run is not asked.
        let has_text = nonblank_text(document).is_some();
        // The ordinal only breaks ties of equal ids.
        let scored = ScoredDocument { id: &document.id, ordinal: 0, scores };
        match Fate::of(has_text, self.scorer.config, found, false, selection, &scored) {
            Fate::Kept(retentions) => {
                annotation.retention = selection.retention_heads().zip(retentions).collect();
            }
            fate => annotation.reason = Some(fate.to_string()),
        }
        annotation.verdict = Some(if annotation.reason.is_none() { KEPT } else { "removed" });
        annotation
    }
}

/// Returns the text of `document`; `None` without one, or if it is only white space.
fn nonblank_text(document: &StreamDocument) -> Option<&str> {
    document.text.as_deref().filter(|text| !text.trim().is_empty())
}

/// Describes the distinct thresholds of `selection`, one for each rate.
fn describe_thresholds(selection: &Selection) -> Vec<Value> {
    let mut thresholds = Vec::new();
    for report in &selection.thresholds {
        let threshold = &report.threshold;
        for (at, outcome) in report.outcomes.iter().enumerate() {
            let (kind, value) = match &threshold.kind {
                ThresholdKind::Retain(_) => ("retention", json!(threshold.rate(at))),
                ThresholdKind::Remove(rate) => ("removal", json!(rate)),
                ThresholdKind::Fixed(score) => ("threshold", json!(score)),
                ThresholdKind::Budget(budget) => ("budget", json!(budget)),
            };
            let score = outcome.threshold_score;
            let described = json!({"head": threshold.head_name, kind: value, "score": score});
            if !thresholds.contains(&described) {
                thresholds.push(described);
            }
        }
    }
    thresholds
}
