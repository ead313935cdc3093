//! Reports what a run selected and dropped, as JSON and as an HTML page.
//!
//! ```text
//!            ┌─ first pass ──▶ counts, sample, ends and thresholds of every order ─┐
//!  scores ───┤                                                                     ▼
//!            └─ second pass ─▶ quantiles, histograms, curves, selected ──▶ report.json, index.html
//!  input ─texts──┘             lengths, examples, domains
//! ```
//!
//! Every number is an exact count unless marked as one of a sample (the documents with the smallest
//! hashes). Sums are of integers or independent of order, so that a run always gives the same
//! bytes. Memory grows with the languages of a group and their samples, not with the corpus.

mod compare;
mod counts;
mod details;
mod language;
mod limits;
mod page;
mod stored;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::compare::Comparison;
use self::details::{LanguageDetails, ShardInput};
use self::language::SurveyedLanguage;
use self::limits::ReportLimits;
use self::stored::{KeptDocument, SelectionName, StoredRun};
use self::survey::{LanguageSurvey, sampling_hash};
use super::evaluate::{DEFAULT_SAMPLE, Pair, evaluate_run};
use polysift_base::error::{Error, Result};
use polysift_base::io::write_atomic;
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::sample::BottomKSample;
use polysift_config::RunConfig;
use polysift_corpus::Context;
use polysift_corpus::verdicts::{REPORTS, filter_report};
use polysift_runs::run::Stage;

const FORMAT: u32 = 1;
/// Rate of the top-k% overlap of two heads.
const TOP: &str = "0.1";
/// Documents of a language that take memory: further ones mostly repeat scores and lengths.
const COUNTED_DOCUMENTS: u64 = 1 << 20;

/// Settings of a report; the flags of `polysift report`.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportRequest {
    /// Folder for report.json and index.html [default: RUN/report]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Examples per end of a head's ranking and per side of a threshold; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub examples: usize,
    /// Documents sampled per language to compute other rates on the page; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub sample: usize,
    /// Ids to compare with: a run directory, or lists (text with one id per line, or Parquet or
    /// JSON lines with a column `id`)
    #[arg(long, value_name = "IDS|RUN")]
    pub compare: Option<String>,
    /// Do not read the input: the report has no lengths in words, no texts and no domains
    #[arg(long)]
    pub no_texts: bool,
}

/// A written report: paths and main counts.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenReport {
    /// Path of `report.json`.
    pub report: PathBuf,
    /// Path of `index.html`.
    pub page: PathBuf,
    /// Counts by language.
    pub languages: Vec<ReportedLanguage>,
    /// What could not be reported, and why.
    pub notes: Vec<String>,
}

/// Counts of a language.
#[derive(Debug, Clone, Serialize)]
pub struct ReportedLanguage {
    /// The language.
    pub language: String,
    /// Number of documents, without those that filters remove before the thresholds.
    pub documents: u64,
    /// Number of documents that each selection keeps, before filters that run after the thresholds.
    pub selected: BTreeMap<String, u64>,
}

/// Writes the report of a run with the program's `version`; `other` are the settings of a run
/// directory to compare with. [`Error::Missing`] without thresholds, [`Error::Corrupt`] if the
/// input changed.
pub fn write_report(
    context: Context<'_>,
    request: &ReportRequest,
    other: Option<&RunConfig>,
    version: &str,
) -> Result<WrittenReport> {
    let run = StoredRun::open(context)?;
    let limits = ReportLimits::new(&run, request.sample, request.examples);
    let groups = run.embedded.language_groups(&run.embedded.languages(), COUNTED_DOCUMENTS);
    let shards = groups.iter().flat_map(|group| run.embedded.shards_with(group));
    let rows: u64 = shards.map(|(place, ..)| run.embedded.summaries[place as usize].rows).sum();
    context.progress.begin("report", Some(2 * rows), "documents");
    let order = head_order(&run);
    let compare = request.compare.as_deref();
    let comparison = compare.map(|path| Comparison::read(context, path, other)).transpose()?;
    let (mut languages, mut compared, mut notes) = (Vec::new(), BTreeMap::new(), Vec::new());
    let (mut counts, mut without_input) = (Vec::new(), 0);
    for group in &groups {
        let surveyed = survey_languages(&run, &limits, group)?;
        count_details(&run, request, &surveyed, comparison.as_ref())?;
        for (language, surveyed) in surveyed {
            let details = lock(&surveyed.details);
            languages.push(surveyed.report(&details, &order)?);
            let selected = surveyed.thresholds.names.iter().zip(&details.selected);
            counts.push(ReportedLanguage {
                language: language.to_owned(),
                documents: surveyed.survey.totals.documents,
                selected: selected.map(|(name, sum)| (name.name.clone(), sum.documents)).collect(),
            });
            compared.insert(language.to_owned(), details.compared);
            without_input += usize::from(details.without_input);
        }
    }
    if !request.no_texts && without_input > 0 {
        notes.push(format!(
            "input files of {without_input} language(s) are gone: lengths in words, texts of examples and \
             domains are left out there"
        ));
    }
    let compare = comparison.map(|comparison| comparison.report(compared, &mut notes));
    let compare = compare.transpose()?.unwrap_or_default();
    context.progress.end();
    let [report, page] = write_files(&run, request, version, (languages, compare, &notes))?;
    Ok(WrittenReport { report, page, languages: counts, notes })
}

/// Writes the report and the page from what was found (`compare` is null without another set of
/// documents) and from the run's own reports; returns their paths.
fn write_files(
    run: &StoredRun<'_>,
    request: &ReportRequest,
    version: &str,
    (languages, compare, notes): (Vec<Value>, Value, &[String]),
) -> Result<[PathBuf; 2]> {
    let order = head_order(run);
    // When the thresholds were written, in seconds since 1970.
    let files = run.languages.keys().map(|language| run.rows.context.run.selection_file(language));
    let last = files.filter_map(|file| file.metadata().ok()?.modified().ok()).max();
    let selected_at = last.and_then(|last| last.duration_since(UNIX_EPOCH).ok());
    let (config, directory) = (run.rows.context.config, run.rows.context.run);
    let heads: Vec<&str> = order.iter().map(|&head| run.rows.heads[head]).collect();
    let names: BTreeSet<&SelectionName> =
        run.languages.values().flat_map(|language| &language.names).collect();
    let mut filters = Map::new();
    for name in config.filters.keys() {
        let report = filter_report(directory, config, name)?;
        filters.extend(report.map(|report| (name.clone(), report)));
    }
    let pii: Option<Value> =
        directory.read_output(Stage::Export, REPORTS, &directory.pii_report_file())?;
    let root = directory.root();
    let title = root.canonicalize().map_err(Error::io(root, "find"))?;
    let report = json!({
        "format": FORMAT,
        "title": title.file_name().unwrap_or_default().to_string_lossy(),
        "time": selected_at.map(|time| time.as_secs()),
        "version": version,
        "encoder": config.encoder.model,
        "mode": config.selection.mode,
        "weight": config.selection.weight,
        "heads": heads,
        "selections": names.iter().map(|name| &name.name).collect::<Vec<_>>(),
        "languages": languages,
        "filters": filters,
        "pii": pii,
        "agreement": compare_heads(run.rows.context)?,
        "compare": compare,
        "notes": notes,
    });
    let out = request.out.clone().unwrap_or_else(|| directory.path("report"));
    let paths = [out.join("report.json"), out.join("index.html")];
    let json = report.to_string();
    write_atomic(&paths[0], format!("{json}\n").as_bytes())?;
    let page = page::build_page(&json).map_err(Error::io(&paths[1], "write"))?;
    write_atomic(&paths[1], page.as_bytes())?;
    Ok(paths)
}

/// Returns the agreement of each pair of heads in each language; none with a single head.
fn compare_heads(context: Context<'_>) -> Result<Vec<Value>> {
    if context.config.heads.len() < 2 {
        return Ok(Vec::new());
    }
    let top = TOP.parse().map_err(|reason: String| Error::config("report", reason))?;
    let shown = |pair: Pair| {
        let either = 2 * pair.top - pair.shared;
        let jaccard = (either > 0).then(|| pair.shared as f64 / either as f64);
        json!({
            "language": pair.language,
            "heads": [pair.a, pair.b],
            "documents": pair.documents,
            "spearman": pair.spearman,
            "overlap": {"rate": top, "jaccard": jaccard},
        })
    };
    Ok(evaluate_run(context, top, DEFAULT_SAMPLE)?.into_iter().map(shown).collect())
}

/// Returns the places of the heads in the order of their thresholds, then of heads without one.
fn head_order(run: &StoredRun<'_>) -> Vec<usize> {
    let (heads, mut seen) = (&run.rows.heads, BTreeSet::new());
    let thresholds = run.languages.values().flat_map(|language| &language.selection.thresholds);
    let place = |name: &String| heads.iter().position(|head| head == name);
    let places = thresholds.filter_map(|report| place(&report.threshold.head_name));
    places.chain(0..heads.len()).filter(|head| seen.insert(*head)).collect()
}

/// Runs the first pass over the documents of `languages` that reach the thresholds.
fn survey_languages<'r>(
    run: &'r StoredRun<'r>,
    limits: &'r ReportLimits,
    languages: &[&'r str],
) -> Result<BTreeMap<&'r str, SurveyedLanguage<'r>>> {
    let begin = |language: &&'r str| {
        let survey = LanguageSurvey::new(&run.languages[*language], limits);
        (*language, (Mutex::new(survey), BottomKSample::new(limits.sample)))
    };
    let surveys: BTreeMap<&str, (Mutex<LanguageSurvey>, BottomKSample<KeptDocument>)> =
        languages.iter().map(begin).collect();
    let shards = run.embedded.shards_with(languages).into_par_iter();
    shards.try_for_each(|(place, ..)| -> Result<()> {
        let mut new: BTreeMap<&str, LanguageSurvey> = BTreeMap::new();
        run.for_each_document(place, |_, document| {
            let survey = surveys.get_key_value(document.info.language);
            let Some((&language, (_, sample))) = survey.filter(|_| !document.is_removed) else {
                return Ok(());
            };
            let thresholds = &run.languages[language];
            let make = || LanguageSurvey::new(thresholds, limits);
            new.entry(language).or_insert_with(make).add(document, thresholds);
            let hash = u128::from(sampling_hash(document.info.id));
            let rank = hash << 64 | u128::from(document.scored.ordinal);
            sample.offer(rank, || KeptDocument::of(document));
            Ok(())
        })?;
        for (language, survey) in new {
            lock(&surveys[language].0).merge(survey);
        }
        Ok(())
    })?;
    let finished = |(language, (survey, sample)): (_, (Mutex<_>, BottomKSample<_>))| {
        let found = (unpoisoned(survey.into_inner()), sample.into_items());
        (language, SurveyedLanguage::new((run, limits), language, found))
    };
    Ok(surveys.into_iter().map(finished).collect())
}

/// Runs the second pass over the documents of `languages` and adds what it counts to their details.
fn count_details(
    run: &StoredRun<'_>,
    request: &ReportRequest,
    languages: &BTreeMap<&str, SurveyedLanguage<'_>>,
    comparison: Option<&Comparison<'_>>,
) -> Result<()> {
    let names: Vec<&str> = languages.keys().copied().collect();
    let shards = run.embedded.shards_with(&names).into_par_iter();
    shards.try_for_each(|(place, shard, _)| -> Result<()> {
        let file = match (!request.no_texts).then(|| shard.input()) {
            None | Some(Err(Error::Missing { .. })) => None, // it may be gone
            Some(file) => Some(file?),
        };
        let mut input = ShardInput::open(run.rows.context, shard, file.as_ref())?;
        let mut new: BTreeMap<&str, LanguageDetails> = BTreeMap::new();
        run.for_each_document(place, |shard, document| {
            let is_listed = comparison.is_some_and(|other| other.note_id(document.info.id));
            let surveyed = languages.get_key_value(document.info.language);
            let Some((&name, language)) = surveyed else { return Ok(()) };
            let details = new.entry(name).or_insert_with(|| language.begin_details());
            details.compared[1] += u64::from(is_listed);
            if document.is_removed {
                return Ok(());
            }
            let wanted = (language.thresholds, &language.wanted);
            details.add((shard, document), wanted, &mut input, comparison)
        })?;
        for (language, details) in new {
            lock(&languages[language].details).merge(details);
        }
        Ok(())
    })
}
