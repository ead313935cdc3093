//! The card of an export, for a hub. What the run cannot know comes from `[card]`, or is a to-do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use arrow_schema::DataType;
use serde_json::{Value, json};

use super::spec::{CARD, new_columns, place_of, put, retention_heads, spec};
use super::template::render_card;
use polysift_base::error::Result;
use polysift_base::io::{FileStamp, is_url};
use polysift_base::language::{language_name, language_tag};
use polysift_config::{CardConfig, FixedThreshold, HeadConfig, RunConfig};
use polysift_corpus::embedded::require_done;
use polysift_corpus::heads::frozen_keep;
use polysift_corpus::select::stored_selections;
use polysift_corpus::verdicts::{REPORTS, filter_report, filter_settings};
use polysift_corpus::{Context, Embedded, FrozenEmbeddings};
use polysift_data::export::EMBEDDINGS;
use polysift_data::input::row_values;
use polysift_runs::run::{DocumentAmount, PartFile, Stage};
use polysift_selection::{Selection, ThresholdKind};

/// Maximum characters shown of a text.
const TEXT_CHARS: usize = 500;

/// Exported files that are loaded together.
#[derive(Default)]
struct Subset {
    files: u64,
    disk_bytes: u64,
    languages: BTreeMap<String, DocumentAmount>,
    is_deep: bool,
}

/// An export with all its files.
struct StoredExport {
    /// Subsets by top-level folder; the name is empty for files outside of folders.
    subsets: BTreeMap<String, Subset>,
    /// All subsets together; `is_deep` is relative to the folder of the export.
    all: Subset,
    /// The first file with rows, if it is on this machine.
    first: Option<PathBuf>,
    /// Folder of the files, relative to the folder of the card.
    folder: &'static str,
}

impl StoredExport {
    /// Reads the files from the markers of the shards `names`.
    fn open(context: Context<'_>, names: &[String]) -> Result<Self> {
        let run = context.run;
        require_done(run, Stage::Export, names, "exported")?;
        let folder = format!("{}/", run.relative(&place_of(context).join("export")));
        let below = if context.config.export.is_to_hub() { "export/" } else { "" };
        let all = Subset::default();
        let mut export = Self { subsets: BTreeMap::new(), all, first: None, folder: below };
        for name in names {
            let marker = run.done(Stage::Export, name)?;
            let mut subset = None;
            for file in &marker.files {
                let Some(path) = file.path.strip_prefix(&folder) else { continue };
                if export.first.is_none() && file.rows > 0 && !is_url(&file.path) {
                    run.check_file(file)?;
                    export.first = Some(run.path(&file.path));
                }
                let (top, rest) = path.split_once('/').unwrap_or(("", path));
                let found = export.subsets.entry(top.to_owned()).or_default();
                for (found, path) in [(found, rest), (&mut export.all, path)] {
                    found.files += 1;
                    found.disk_bytes += file.stamp.bytes;
                    found.is_deep |= path.contains('/');
                }
                subset = Some(top);
            }
            let Some(subset) = subset.and_then(|top| export.subsets.get_mut(top)) else { continue };
            for (language, amount) in &marker.exported {
                for found in [&mut *subset, &mut export.all] {
                    found.languages.entry(language.clone()).or_default().add(*amount);
                }
            }
        }
        Ok(export)
    }

    /// Lists the subsets that a hub offers: one per folder if each folder is named like its only
    /// language, else all files together, named like their language if there is only one. Those
    /// without documents are left out, as `datasets` does not load them.
    fn list_configs(&self) -> Vec<Value> {
        let is_of = |(folder, subset): (&String, &Subset)| {
            !folder.is_empty() && subset.languages.keys().all(|language| language == folder)
        };
        let config = |name: &str, folder: String, subset: &Subset| {
            let files = if subset.is_deep { "**/*.parquet" } else { "*.parquet" };
            let documents = subset.languages.values().map(|amount| amount.documents);
            json!({
                "name": name,
                "path": format!("{}{folder}{files}", self.folder),
                "files": subset.files,
                "disk_bytes": subset.disk_bytes,
                "documents": documents.sum::<u64>(),
            })
        };
        let of_folder =
            |(folder, subset): (&String, &Subset)| config(folder, format!("{folder}/"), subset);
        let mut configs: Vec<Value> = if self.subsets.iter().all(is_of) {
            self.subsets.iter().map(of_folder).collect()
        } else {
            let mut languages = self.all.languages.keys();
            let name = languages.next().filter(|_| languages.next().is_none());
            vec![config(name.map_or("default", String::as_str), String::new(), &self.all)]
        };
        configs.retain(|config| config["documents"] != 0);
        configs
    }
}

/// Collects the facts that a card's template gets, from the run, its export and `settings`. Returns
/// [`Error::Missing`](polysift_base::Error::Missing) if the run is not exported.
pub fn card_facts(context: Context<'_>, settings: &CardConfig) -> Result<Value> {
    let Context { config, run, .. } = context;
    let embedded = Embedded::of(run)?;
    let export = StoredExport::open(context, &embedded.plan.names())?;
    let selections = stored_selections(run, embedded.languages())?;
    let (mut languages, mut tags) = (Vec::new(), BTreeSet::new());
    let mut total = DocumentAmount::default();
    let documents_read = embedded.num_documents();
    for (&code, &read) in &documents_read {
        let amount = export.all.languages.get(code).copied().unwrap_or_default();
        total.add(amount);
        let mut language = json!(amount);
        language["code"] = json!(code);
        language["name"] = json!(language_name(code));
        language["documents_read"] = json!(read);
        languages.push(language);
        tags.extend(language_tag(code).filter(|_| amount.documents > 0));
    }
    let mut facts = json!({
        "card": settings,
        "version": env!("CARGO_PKG_VERSION"),
        "documents": total.documents,
        "bytes": total.bytes,
        "tokens": total.tokens,
        "disk_bytes": export.all.disk_bytes,
        "documents_read": documents_read.values().sum::<u64>(),
        "size_category": size_category(total.documents),
        "configs": export.list_configs(),
        "languages": languages,
        "language_tags": tags,
        "encoder": describe_encoder(context)?,
        "heads": list_heads(context)?,
        "selection": config.selection,
        "thresholds": selections.iter().flat_map(|(language, s)| list_thresholds(language, s)).collect::<Vec<_>>(),
        "filters": list_filters(context)?,
        "pii": config.pii.as_ref().map(|pii| json!(pii)),
        "columns": list_columns(config),
        "example": export.first.map(|path| read_example(path, context)).transpose()?.flatten(),
    });
    if config.pii.is_some() {
        let report: Option<Value> =
            run.read_output(Stage::Export, REPORTS, &run.pii_report_file())?;
        facts["pii"]["found"] = report.map_or(Value::Null, |mut report| report["languages"].take());
    }
    Ok(facts)
}

/// Writes the card at the place of the export and returns its entry in a marker.
pub(super) fn write_card(context: Context<'_>) -> Result<PartFile> {
    let settings = &context.config.card;
    let card = render_card(settings, Some(&card_facts(context, settings)?))?;
    // A hub shows the card of its repository's root.
    let folder = if context.config.export.is_to_hub() { "" } else { "export" };
    let path = place_of(context).join(folder).join(CARD);
    put(&path, &card, true)?;
    Ok(context.run.file(&path, 1, FileStamp::of(card.as_bytes())))
}

/// Describes how the embeddings were made; null without embeddings.
fn describe_encoder(context: Context<'_>) -> Result<Value> {
    let Context { config, run, .. } = context;
    if !config.has_embeddings() {
        return Ok(Value::Null);
    }
    let recipe = FrozenEmbeddings::read(run, Stage::Embed)?.encoder;
    let brought = config.input.embeddings.as_ref();
    let model = brought.map_or_else(|| json!(config.encoder.model), |_| Value::Null);
    Ok(json!({"model": model, "recipe": recipe, "chunks": config.encoder.chunks}))
}

/// Lists the heads, with the digests of their files by language.
fn list_heads(context: Context<'_>) -> Result<Vec<Value>> {
    let frozen = context.run.frozen_settings(Stage::Score)?.unwrap_or_default();
    let retention = retention_heads(context.config);
    let head = |(name, head): (&String, &HeadConfig)| {
        let column = retention.contains(name).then(|| head.retention_column(name));
        // A loaded head says itself what it keeps.
        let language = frozen[name].as_object().and_then(|files| files.keys().next());
        let own = language.and_then(|language| frozen_keep(&frozen, name, language));
        json!({
            "name": name,
            "kind": head.kind,
            "keeps": own.unwrap_or_else(|| head.keep(name)),
            "column": head.column(name),
            "retention_column": column,
            "files": frozen[name],
        })
    };
    Ok(context.config.heads.iter().map(head).collect())
}

/// Lists the thresholds of a language with what they keep in each of their selections.
fn list_thresholds(language: &str, selection: &Selection) -> Vec<Value> {
    let mut rows = Vec::new();
    for report in &selection.thresholds {
        let threshold = &report.threshold;
        for (i, outcome) in report.outcomes.iter().enumerate() {
            let (kind, value) = match &threshold.kind {
                ThresholdKind::Retain(_) => ("retention", json!(threshold.rate(i))),
                ThresholdKind::Remove(_) => ("removal", json!(threshold.rate(i))),
                ThresholdKind::Fixed(FixedThreshold::Beyond(score)) => ("threshold", json!(score)),
                ThresholdKind::Fixed(FixedThreshold::AtLeast { at_least }) => {
                    ("at least", json!(at_least))
                }
                ThresholdKind::Fixed(FixedThreshold::AtMost { at_most }) => {
                    ("at most", json!(at_most))
                }
                ThresholdKind::Budget(budget) => ("budget", json!(budget.0)),
            };
            rows.push(json!({
                "language": language,
                "head": threshold.head_name,
                "kind": kind,
                "value": value,
                "candidates": outcome.candidates.num_documents,
                "kept": outcome.kept.num_documents,
                "score": outcome.threshold_score,
            }));
        }
    }
    rows
}

/// Lists the filters with their counts, and the digests of their lists.
fn list_filters(context: Context<'_>) -> Result<Vec<Value>> {
    let (run, lists) = (context.run, filter_settings(context.run)?);
    let mut filters = Vec::new();
    for (name, filter) in &context.config.filters {
        let report = filter_report(run, context.config, name)?;
        let mut row = json!(filter);
        row["name"] = json!(name);
        row["action"] = json!(filter.action);
        row["when"] = json!(filter.when());
        row["digests"] = lists["lists"][name].clone();
        row["looked_at"] = json!(0);
        if let Some(report) = report {
            row["looked_at"] = report["total"]["seen"]["documents"].clone();
            row["found"] = report["total"]["found"]["documents"].clone();
        }
        filters.push(row);
    }
    Ok(filters)
}

/// Lists the columns that the export adds to the input's columns.
fn list_columns(config: &RunConfig) -> Vec<Value> {
    let meaning = "a vector for each chunk of the text";
    let vectors = spec(config).embeddings.map(|_| (EMBEDDINGS, "list of lists of floats", meaning));
    let new = new_columns(config);
    let new = new.iter().map(|(name, kind, meaning)| {
        let kind = match kind {
            DataType::Utf8 => "string",
            DataType::Int32 => "int",
            _ => "double",
        };
        (name.as_str(), kind, meaning.as_str())
    });
    let all = vectors.into_iter().chain(new);
    all.map(|(name, kind, meaning)| json!({"name": name, "type": kind, "meaning": meaning}))
        .collect()
}

/// Reads the first row of the file `path`, with texts and nested values shortened.
fn read_example(path: PathBuf, context: Context<'_>) -> Result<Option<Value>> {
    let row = row_values(&[path], 1, None, false, context.stop)?.into_iter().next();
    Ok(row.map(|mut row| {
        let mut columns = row["columns"].take();
        for value in columns.as_object_mut().into_iter().flatten().map(|(_, value)| value) {
            if let Value::String(text) = value
                && let Some((end, _)) = text.char_indices().nth(TEXT_CHARS)
            {
                text.truncate(end);
                text.push('…');
            }
        }
        columns
    }))
}

/// Returns the hub's size category for a data set with this number of documents.
fn size_category(documents: u64) -> String {
    let names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"];
    let powers = (0..names.len() as u32).map(|power| 1000 * 10u64.pow(power));
    match powers.filter(|least| documents >= *least).count() {
        0 => "n<1K".to_owned(),
        10 => "n>1T".to_owned(),
        passed => format!("{}<n<{}", names[passed - 1], names[passed]),
    }
}
