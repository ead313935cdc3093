//! The filter stage writes which documents are found, by which filter and why.
//!
//! A shard is one unit of work for all filters. The stage reads what the embed stage noted of the
//! documents and, from the input, only the columns that filters need. Reports are sums over shards,
//! so they do not depend on which process filtered which shard.

use std::collections::BTreeMap;

use serde_json::json;

use crate::filter_counts::{FilterCounts, ShardVerdicts};
use polysift_base::error::{Error, Result};
use polysift_base::io::write_atomic;
use polysift_base::progress::Stop;
use polysift_config::{FilterConfig, FilterKind, IdsConfig, ListMode, RunConfig};
use polysift_corpus::filter::{FilteredDocument, RobotsVerdict, Verdict, digests, open_filter};
use polysift_corpus::verdicts::{FILTERS, OpenFilters, REPORTS, judge, open_filters};
use polysift_corpus::{Context, Embedded, StageWork, Texts};
use polysift_data::input::{ColumnKind, ColumnValues, DocumentInfo};
use polysift_data::parts::read_documents;
use polysift_runs::run::{Plan, Shard, ShardMarker, Stage};

/// Number of documents judged together.
const BLOCK_DOCUMENTS: usize = 1024;

type CountsByLanguage = BTreeMap<String, FilterCounts>;

/// Filters every shard that is not filtered yet, and writes the reports when all shards are.
/// Returns [`Error::Missing`] before the embed stage is done or if a list is gone;
/// [`Error::Mismatch`] if other rules filtered the run.
pub fn filter(context: Context<'_>) -> Result<()> {
    let Context { config, run, .. } = context;
    if config.row_filters().next().is_none() && run.frozen_settings(Stage::Filter)?.is_none() {
        return Ok(());
    }
    let embedded = Embedded::of(run)?;
    let mut filters = open_filters(config)?;
    context.freeze(Stage::Filter, &to_freeze(&filters)?)?;
    let work = StageWork::of_shards(context, Stage::Filter, &embedded.plan)?;
    if !work.is_over() {
        for (_, filter) in filters.values_mut() {
            filter.prepare(context.stop)?;
        }
    }
    let rows = |place: usize| Some(embedded.summaries[place].rows);
    work.for_all(context, "documents", rows, |context, place| {
        filter_shard(context, &filters, &embedded.plan.shards[place])
    })?;
    if run.try_finish(Stage::Filter, &work.items.keys)? && !run.is_done(Stage::Filter, REPORTS)? {
        write_reports(context, &filters, &embedded.plan)?;
    }
    Ok(())
}

/// Explains what robots.txt files say of each of `urls`, by all such filters or by `filter` alone.
/// Returns [`Error::Config`] for an invalid URL or if there is no such filter.
pub fn check_robots(
    config: &RunConfig,
    filter: Option<&str>,
    urls: &[String],
    stop: &Stop,
) -> Result<Vec<RobotsVerdict>> {
    let mut verdicts = Vec::new();
    let wanted = config.row_filters().filter(|(name, _)| filter.is_none_or(|only| only == *name));
    for (name, settings) in wanted {
        let filter = open_filter(name, settings)?;
        for url in urls {
            verdicts.extend(filter.explain(url, stop)?);
        }
    }
    if verdicts.is_empty() {
        let reason =
            "the settings have no such filter of `kind = \"robots\"` with a source `robots`";
        return Err(Error::config("filters", reason));
    }
    Ok(verdicts)
}

/// Returns the settings to freeze: the filters and the digests of their lists.
fn to_freeze(filters: &OpenFilters<'_>) -> Result<serde_json::Value> {
    let digests = filters.iter().map(|(name, (_, filter))| Ok((*name, digests(&**filter)?)));
    let lists: BTreeMap<&str, BTreeMap<String, String>> = digests.collect::<Result<_>>()?;
    let filters: BTreeMap<&str, &FilterConfig> =
        filters.iter().map(|(name, (config, _))| (*name, *config)).collect();
    Ok(json!({FILTERS: filters, "lists": lists}))
}

/// Writes the verdicts of `filters` on `shard` and their counts; returns its marker.
fn filter_shard<'a>(
    context: Context<'_>,
    filters: &OpenFilters<'a>,
    shard: &Shard,
) -> Result<ShardMarker> {
    let (run, input) = (context.run, &context.config.input);
    let embedded = run.done(Stage::Embed, &shard.name)?;
    let mut verdicts = ShardVerdicts::default();
    let mut counts: BTreeMap<&'a str, CountsByLanguage> = BTreeMap::new();
    let file = shard.input()?;
    let configs = || filters.values().map(|(config, _)| *config);
    let open = |name| Ok((name, ColumnValues::open(&file, input, name, ColumnKind::Text)?));
    let urls = configs().filter_map(FilterConfig::url_column);
    let mut urls: BTreeMap<&str, ColumnValues<'_>> = urls.map(open).collect::<Result<_>>()?;
    let needs_text = configs().any(FilterConfig::needs_text);
    let mut texts = needs_text.then(|| Texts::open(context, shard)).transpose()?;
    for part in &embedded.files {
        let documents = read_documents(&run.path(&part.path))?;
        for start in (0..documents.len()).step_by(BLOCK_DOCUMENTS) {
            context.stop.check()?;
            let block = start..documents.len().min(start + BLOCK_DOCUMENTS);
            let documents: Vec<_> = block.map(|at| documents.get(at)).collect();
            let of_column = |(&name, column): (&&'a str, &mut ColumnValues<'_>)| {
                let mut url = |it: &DocumentInfo<'_>| Ok(column.value(it.row)?.map(str::to_owned));
                Ok((name, documents.iter().map(&mut url).collect::<Result<_>>()?))
            };
            let urls: BTreeMap<&str, Vec<Option<String>>> =
                urls.iter_mut().map(of_column).collect::<Result<_>>()?;
            let texts: Vec<Option<String>> = texts.as_mut().map_or(Ok(Vec::new()), |texts| {
                documents.iter().map(|it| texts.text(it.row, it.num_bytes)).collect()
            })?;
            let seen = documents.iter().enumerate().map(|(at, document)| {
                let DocumentInfo { id, language, .. } = *document;
                let text = texts.get(at).and_then(Option::as_deref);
                FilteredDocument { id, language, url: None, text }
            });
            let seen: Vec<_> = seen.collect();
            let url =
                |config: &FilterConfig, at: usize| urls.get(config.url_column()?)?[at].as_deref();
            // A filter without a document of its languages has counts too.
            for name in filters.keys() {
                counts.entry(name).or_default();
            }
            let count = |name, at: usize, verdict: &Verdict| {
                let counts = counts.entry(name).or_default();
                let language = documents[at].language.to_owned();
                counts.entry(language).or_default().count(documents[at], verdict);
            };
            let found = judge(filters, &seen, url, context.stop, count)?;
            for (document, found) in documents.iter().zip(found) {
                for found in found {
                    verdicts.push(document, found);
                }
            }
        }
        context.progress.advance(documents.len() as u64, 0);
    }
    let mut marker = ShardMarker { rows: embedded.rows, ..ShardMarker::default() };
    for (name, by_language) in &counts {
        let found = by_language.values().map(|found| found.found.documents).sum();
        marker.counts.insert((*name).to_owned(), found);
    }
    context.check_held()?;
    marker.files.push(verdicts.write(context, &run.verdicts_file(shard))?);
    marker.files.push(run.write_json(&run.verdict_counts_file(shard), &counts)?);
    Ok(marker)
}

/// Adds up the counts of all shards and writes the report of each filter.
fn write_reports(context: Context<'_>, filters: &OpenFilters<'_>, plan: &Plan) -> Result<()> {
    let run = context.run;
    let mut reports: BTreeMap<String, CountsByLanguage> = BTreeMap::new();
    for shard in &plan.shards {
        let path = run.verdict_counts_file(shard);
        let lost = || Error::missing(&path, "is gone; filter again (`--redo filter`)");
        let counts: BTreeMap<String, CountsByLanguage> =
            run.read_output(Stage::Filter, &shard.name, &path)?.ok_or_else(lost)?;
        for (name, by_language) in counts {
            let report = reports.entry(name).or_default();
            for (language, found) in by_language {
                report.entry(language).or_default().add(found);
            }
        }
    }
    let mut marker = ShardMarker::default();
    for (&name, (config, filter)) in filters {
        let mut languages = reports.remove(name).unwrap_or_default();
        let mut total = FilterCounts::default();
        for found in languages.values_mut() {
            total.add(found.clone());
            found.keep_for_report();
        }
        if total.seen.documents == 0 && !plan.shards.is_empty() {
            tracing::warn!(filter = name, "it looked at no document: none is in its languages");
        }
        let leaks = filter.leaks(&total.ngrams);
        total.keep_for_report();
        let mut report = json!({"settings": config, "total": total, "languages": languages});
        // With `languages`, the filter does not look for ids among the other documents.
        if config.languages.is_empty()
            && let Some(listed) = filter.num_listed_ids(context.stop)?
        {
            let found = match config.kind {
                FilterKind::Ids(IdsConfig { mode: ListMode::Include, .. }) => {
                    total.seen.documents - total.found.documents
                }
                _ => total.found.documents,
            };
            let unmatched = listed.saturating_sub(found);
            report["ids"] = json!({"listed": listed, "unmatched_at_least": unmatched});
            if unmatched > 0 {
                tracing::warn!(
                    filter = name,
                    "at least {unmatched} of {listed} listed ids match no document"
                );
            }
        }
        if let Some(leaks) = leaks {
            report["leaks"] = leaks.report;
            let line = |item: &serde_json::Value| format!("{item}\n");
            let lines: String = leaks.items.iter().map(line).collect();
            let path = run.path(format!("filters/{name}.items.jsonl"));
            let stamp = write_atomic(&path, lines.as_bytes())?;
            marker.files.push(run.file(&path, leaks.items.len() as u64, stamp));
        }
        marker.files.push(run.write_json(&run.filter_report_file(name), &report)?);
    }
    run.mark_shard(Stage::Filter, REPORTS, &marker)
}
