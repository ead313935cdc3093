//! Documents to the verdicts of filters: which are found, by which filter and why.
//!
//! A shard is one item of work for all filters. It reads what the embed stage noted of its documents and, of the
//! input, only the columns that filters look at. Reports are sums over the shards, so they do not depend on who
//! filtered what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::context::Context;
use super::embedded::Embedded;
use super::verdicts::{FILTERS, REPORTS};
use crate::config::{FilterAction, FilterConfig, RunConfig};
use crate::error::{Error, Result};
use crate::filter::{Filter, FilteredDocument, Finding, RobotsVerdict, Verdict};
use crate::input::{ColumnKind, ColumnValues, DocumentBatch, DocumentBuilder, DocumentInfo};
use crate::parts::{VerdictRows, read_documents, write_verdicts};
use crate::progress::Stop;
use crate::run::{PartFile, Plan, Shard, ShardMarker, Stage, StageWork};

/// Hosts that a report names.
const MAX_HOSTS: usize = 1000;

/// What some documents amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DocumentAmount {
    /// Documents.
    pub documents: u64,
    /// UTF-8 bytes of their texts.
    pub bytes: u64,
    /// Content tokens of the encoder's tokenizer, where they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl DocumentAmount {
    fn add(&mut self, other: Self) {
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.tokens = match (self.tokens, other.tokens) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
    }
}

impl From<DocumentInfo<'_>> for DocumentAmount {
    fn from(document: DocumentInfo<'_>) -> Self {
        Self { documents: 1, bytes: document.num_bytes, tokens: document.num_tokens }
    }
}

/// What a filter found of the documents of a language.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The documents that it looked at.
    pub seen: DocumentAmount,
    /// Those of them that it found.
    pub found: DocumentAmount,
    /// These by why they were found.
    pub reasons: BTreeMap<String, DocumentAmount>,
    /// And by what of them was found; a document may count under several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, DocumentAmount>,
    /// And by host, where that is why; in reports those with the most documents.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, DocumentAmount>,
    /// All documents by what the filter knew of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, DocumentAmount>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.seen.add(other.seen);
        self.found.add(other.found);
        for (own, others) in [
            (&mut self.reasons, other.reasons),
            (&mut self.details, other.details),
            (&mut self.hosts, other.hosts),
            (&mut self.notes, other.notes),
        ] {
            for (key, amount) in others {
                own.entry(key).or_default().add(amount);
            }
        }
    }

    /// Leaves the hosts with the most documents, of as many those first by name.
    fn keep_largest_hosts(&mut self) {
        let mut hosts: Vec<(String, DocumentAmount)> =
            std::mem::take(&mut self.hosts).into_iter().collect();
        hosts.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
        self.hosts = hosts.into_iter().take(MAX_HOSTS).collect();
    }

    /// Counts a document that the filter looked at.
    fn count(&mut self, document: DocumentInfo<'_>, verdict: &Verdict) {
        let amount = DocumentAmount::from(document);
        self.seen.add(amount);
        let add = |counts: &mut BTreeMap<String, DocumentAmount>, key: &str| {
            counts.entry(key.to_owned()).or_default().add(amount);
        };
        if let Some(note) = verdict.note {
            add(&mut self.notes, note);
        }
        let Some(finding) = &verdict.finding else { return };
        self.found.add(amount);
        add(&mut self.reasons, finding.reason);
        finding.details.iter().for_each(|detail| add(&mut self.details, detail));
        finding.host.iter().for_each(|host| add(&mut self.hosts, host));
    }
}

/// By language what a filter found.
type FoundByLanguage = BTreeMap<String, Found>;

/// Filters every shard that is not filtered yet, and reports what was found when all are.
///
/// # Errors
/// [`Error::Missing`] before the embed stage is done, and where a list is gone; [`Error::Mismatch`] where the run
/// was filtered by other rules; those of reading lists and inputs.
pub fn filter(context: Context<'_>) -> Result<()> {
    let Context { config, run, .. } = context;
    if config.filters.is_empty() && run.frozen_settings(Stage::Filter)?.is_none() {
        return Ok(());
    }
    let embedded = Embedded::of(run)?;
    let filters = OpenFilters::open(&config.filters)?;
    context.freeze(Stage::Filter, &filters.settings()?)?;
    let work = StageWork::of_shards(context, Stage::Filter, &embedded.plan)?;
    let rows = |place: usize| embedded.summaries[place].rows;
    work.for_all(context, "documents", rows, |place| {
        filters.filter_shard(context, &embedded.plan.shards[place])
    })?;
    if run.try_finish(Stage::Filter, &work.keys)? && !run.is_done(Stage::Filter, REPORTS)? {
        write_reports(context, &embedded.plan)?;
    }
    Ok(())
}

/// Opens every filter of the settings, so that a list that is not there shows before the first document is read.
///
/// # Errors
/// Those of the stage that would find it out.
pub(crate) fn check_filters(filters: &BTreeMap<String, FilterConfig>) -> Result<()> {
    OpenFilters::open(filters).map(drop)
}

/// What decides of each of `urls`, by the filters of `config` that look at robots.txt files, or the one called
/// `filter`.
///
/// # Errors
/// [`Error::Config`] for what is no URL, and where there is no such filter; those of reading the files.
pub fn check_robots(
    config: &RunConfig,
    filter: Option<&str>,
    urls: &[String],
    stop: &Stop,
) -> Result<Vec<RobotsVerdict>> {
    let mut verdicts = Vec::new();
    let wanted = config.filters.iter().filter(|(name, _)| filter.is_none_or(|only| only == *name));
    for (name, settings) in wanted {
        let filter = Filter::open(name, settings)?;
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

/// The filters of a run, by name.
struct OpenFilters<'a>(BTreeMap<&'a str, (&'a FilterConfig, Filter)>);

impl<'a> OpenFilters<'a> {
    fn open(filters: &'a BTreeMap<String, FilterConfig>) -> Result<Self> {
        let open = |(name, config): (&'a String, &'a FilterConfig)| {
            Ok((name.as_str(), (config, Filter::open(name, config)?)))
        };
        filters.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Settings that the verdicts depend on.
    fn settings(&self) -> Result<serde_json::Value> {
        let digests = self.0.iter().map(|(name, (_, filter))| Ok((*name, filter.digests()?)));
        let lists: BTreeMap<&str, BTreeMap<String, String>> = digests.collect::<Result<_>>()?;
        let filters: BTreeMap<&str, &FilterConfig> =
            self.0.iter().map(|(name, (config, _))| (*name, *config)).collect();
        Ok(json!({FILTERS: filters, "lists": lists}))
    }

    fn filter_shard(&self, context: Context<'_>, shard: &Shard) -> Result<ShardMarker> {
        let run = context.run;
        let embedded = run.shard_marker(Stage::Embed, &shard.name)?.unwrap_or_default();
        let (mut verdicts, mut found_documents) =
            (VerdictRows::default(), DocumentBuilder::default());
        let mut counts: BTreeMap<&str, FoundByLanguage> = BTreeMap::new();
        let file = shard.input()?;
        let mut urls = BTreeMap::new();
        for name in self.0.values().filter_map(|(config, _)| config.url_column()) {
            let column = ColumnValues::open(&file, &context.config.input, name, ColumnKind::Text)?;
            urls.insert(name, column);
        }
        for part in &embedded.files {
            let documents = read_documents(&run.path(&part.path))?;
            let mut found: Vec<(usize, &str, Finding)> = Vec::new();
            let texts: BTreeMap<&str, Vec<Option<String>>> = (urls.iter_mut())
                .map(|(name, column)| Ok((*name, column_texts(column, &documents)?)))
                .collect::<Result<_>>()?;
            for (name, (config, filter)) in &self.0 {
                context.stop.check()?;
                let counts = counts.entry(name).or_default();
                let urls = config.url_column().and_then(|name| texts.get(name));
                let of_filter = find(context, (*config, filter), &documents, urls, counts)?;
                found.extend(of_filter.into_iter().map(|(at, finding)| (at, *name, finding)));
            }
            found.sort_by_key(|(at, name, _)| (*at, *name));
            for (at, name, Finding { reason, details, .. }) in found {
                found_documents.push(&documents.get(at));
                verdicts.filters.push(name.to_owned());
                verdicts.actions.push(self.action(name).to_owned());
                verdicts.reasons.push(reason.to_owned());
                verdicts.details.push(details.join(","));
            }
            context.progress.advance(documents.len() as u64, 0);
        }
        verdicts.documents = found_documents.finish();
        let mut marker = ShardMarker { rows: embedded.rows, ..ShardMarker::default() };
        for (name, by_language) in &counts {
            let found = by_language.values().map(|found| found.found.documents).sum();
            marker.counts.insert((*name).to_owned(), found);
        }
        let path = run.verdicts_file(shard);
        let stamp = write_verdicts(&path, &verdicts, context.config.parts.zstd)?;
        let rows = verdicts.documents.len() as u64;
        marker.files.push(PartFile { path: run.relative(&path), rows, stamp });
        let path = run.verdict_counts_file(shard);
        let stamp = run.write_json(&path, &counts)?;
        marker.files.push(PartFile { path: run.relative(&path), rows: 1, stamp });
        Ok(marker)
    }

    fn action(&self, name: &str) -> &'static str {
        match self.0.get(name).map(|(config, _)| config.action) {
            Some(FilterAction::Flag) => "flag",
            _ => "remove",
        }
    }
}

/// The values of `column` for each of `documents`.
fn column_texts(
    column: &mut ColumnValues<'_>,
    documents: &DocumentBatch,
) -> Result<Vec<Option<String>>> {
    let rows = documents.rows().iter();
    rows.map(|&row| Ok(column.value(row)?.map(str::to_owned))).collect()
}

/// What `filter` finds of `documents`, with their places; counts what it looks at. `urls` are those of the
/// documents, where it asks for them.
fn find(
    context: Context<'_>,
    (config, filter): (&FilterConfig, &Filter),
    documents: &DocumentBatch,
    urls: Option<&Vec<Option<String>>>,
    counts: &mut FoundByLanguage,
) -> Result<Vec<(usize, Finding)>> {
    let places: Vec<usize> =
        (0..documents.len()).filter(|&at| config.is_for(documents.language(at))).collect();
    let seen: Vec<FilteredDocument<'_>> = (places.iter())
        .map(|&at| FilteredDocument {
            id: documents.id(at),
            language: documents.language(at),
            url: urls.and_then(|urls| urls[at].as_deref()),
        })
        .collect();
    let verdicts = filter.judge(&seen, context.stop)?;
    let mut found = Vec::new();
    for (at, verdict) in places.into_iter().zip(verdicts) {
        let document = documents.get(at);
        if !counts.contains_key(document.language) {
            counts.insert(document.language.to_owned(), Found::default());
        }
        if let Some(of_language) = counts.get_mut(document.language) {
            of_language.count(document, &verdict);
        }
        found.extend(verdict.finding.map(|finding| (at, finding)));
    }
    Ok(found)
}

/// Adds up what was counted of every shard of `plan`, and writes a report for each filter.
fn write_reports(context: Context<'_>, plan: &Plan) -> Result<()> {
    let Context { config, run, .. } = context;
    let mut reports: BTreeMap<&String, FoundByLanguage> =
        config.filters.keys().map(|name| (name, FoundByLanguage::new())).collect();
    for shard in &plan.shards {
        let path = run.verdict_counts_file(shard);
        let lost = || Error::missing(&path, "is gone; filter again (`--redo filter`)");
        let counts: BTreeMap<String, FoundByLanguage> = run.read_json(&path)?.ok_or_else(lost)?;
        for (name, by_language) in counts {
            let Some(report) = reports.get_mut(&name) else { continue };
            for (language, found) in by_language {
                report.entry(language).or_default().add(found);
            }
        }
    }
    let mut marker = ShardMarker::default();
    for (name, mut languages) in reports {
        let mut total = Found::default();
        for found in languages.values() {
            total.add(found.clone());
        }
        total.keep_largest_hosts();
        languages.values_mut().for_each(Found::keep_largest_hosts);
        let report = json!({
            "settings": config.filters.get(name), "total": total, "languages": languages,
        });
        let path = run.filter_report_file(name);
        let stamp = run.write_json(&path, &report)?;
        marker.files.push(PartFile { path: run.relative(&path), rows: 1, stamp });
    }
    run.mark_shard(Stage::Filter, REPORTS, &marker)
}
