//! The verdicts of the filters of a run, as later stages need them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Value, json};

use crate::context::Context;
use crate::embedded::{Embedded, require_done};
use crate::filter::{CONTAMINATED, Filter, FilteredDocument, Finding, Verdict, open_filter};
use crate::left_out::RowSet;
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::{FilterAction, FilterConfig, RunConfig};
use polysift_data::parts::{FoundRow, VerdictRows, read_verdicts};
use polysift_runs::run::{RunDir, Shard, Stage};
use polysift_text::decontamination::cut_by_both;

/// Key of the reports of a stage, written when all units of work are done.
pub const REPORTS: &str = "_reports";
/// Key of the filters in the frozen settings, next to the digests of their lists.
pub const FILTERS: &str = "filters";

/// Returns whether the export of `config` has work or files that belong to no shard.
pub fn has_reports(config: &RunConfig) -> bool {
    config.pii.is_some() || config.export.card || config.export.is_to_hub()
}

/// Checks that every shard was filtered with the settings' filters of single documents.
pub fn check_row_filtered(context: Context<'_>, embedded: &Embedded) -> Result<()> {
    let Context { config, run, .. } = context;
    if let Some(mut settings) = run.frozen_settings(Stage::Filter)? {
        // The lists may be gone by now, so only the filters are compared.
        settings[FILTERS] = json!(config.row_filters().collect::<BTreeMap<_, _>>());
        run.check_frozen(Stage::Filter, &settings)?;
    }
    if config.row_filters().next().is_some() {
        require_done(run, Stage::Filter, &embedded.plan.names(), "filtered")?;
    }
    Ok(())
}

/// As [`check_row_filtered`]; also checks that near duplicates were found with these settings.
pub fn check_filtered(context: Context<'_>, embedded: &Embedded) -> Result<()> {
    let Context { config, run, .. } = context;
    check_row_filtered(context, embedded)?;
    run.check_frozen(Stage::Deduplicate, &duplicate_settings(config))?;
    let languages = deduplicated(config, embedded.languages());
    require_done(run, Stage::Deduplicate, &languages, "deduplicated").map(drop)
}

/// Returns the settings that near duplicates depend on.
pub fn duplicate_settings(config: &RunConfig) -> Value {
    let near = config.near();
    json!(near.map(|near| json!({"filter": near.name, "settings": near.filter, "head": near.head,
                                 "seed": config.seed})))
}

/// Returns the `languages` in which the run looks for near duplicates.
pub fn deduplicated(
    config: &RunConfig,
    languages: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let near = config.near();
    let is_for = |language: &String| near.is_some_and(|near| near.filter.is_for(language));
    languages.into_iter().filter(is_for).collect()
}

/// Reads the report of the filter `name` of `config`; `None` before it is written.
pub fn filter_report(run: &RunDir, config: &RunConfig, name: &str) -> Result<Option<Value>> {
    if config.near().is_some_and(|near| near.name == name) {
        return run.read_output(Stage::Deduplicate, REPORTS, &run.duplicates_report_file());
    }
    run.read_output(Stage::Filter, REPORTS, &run.filter_report_file(name))
}

/// Returns the frozen settings of the filters of `run`; null without filters.
pub fn filter_settings(run: &RunDir) -> Result<Value> {
    let mut settings = run.frozen_settings(Stage::Filter)?.unwrap_or_default();
    if let Some(near) = run.frozen_settings(Stage::Deduplicate)?.filter(|near| !near.is_null()) {
        settings["near"] = near;
    }
    Ok(settings)
}

/// Reads the verdicts on `shard` of the filters that look at one document at a time; empty for a
/// run without such filters. Filters that only flag may not have seen the shard yet.
pub fn row_verdicts(context: Context<'_>, shard: &Shard) -> Result<VerdictRows> {
    let Context { config, run, .. } = context;
    let removes = config.row_filters().any(|(_, filter)| filter.removes_before());
    if removes || run.is_done(Stage::Filter, &shard.name)? {
        return read_verdicts(&run.verdicts_file(shard));
    }
    Ok(VerdictRows::default())
}

/// Reads the verdicts of all filters on `shard`; filters that only flag are left out until they
/// have run. Near duplicates are read of the language `only`, or of all languages.
pub(crate) fn verdicts_of(
    context: Context<'_>,
    shard: &Shard,
    only: Option<&str>,
) -> Result<VerdictRows> {
    let (run, verdicts) = (context.run, row_verdicts(context, shard)?);
    let Some(near) = context.config.near() else { return Ok(verdicts) };
    let mut all = vec![verdicts];
    for language in run.done(Stage::Embed, &shard.name)?.counts.keys() {
        let is_for = near.filter.is_for(language) && only.is_none_or(|only| only == language);
        if is_for && (near.filter.removes_before() || run.is_done(Stage::Deduplicate, language)?) {
            all.push(read_verdicts(&run.duplicate_verdicts_file(language, shard))?);
        }
    }
    Ok(VerdictRows::merged(&all))
}

/// Returns the rows that filters remove before the thresholds, by their `verdicts`.
pub(crate) fn removed_by_filters(config: &RunConfig, verdicts: &VerdictRows) -> RowSet {
    let removes = |name: &str| config.filters.get(name).is_some_and(FilterConfig::removes_before);
    RowSet::removed(verdicts, removes)
}

/// Reads the rows of `shard` that filters remove before the thresholds are computed: of the
/// language `only`, or of all languages.
pub(crate) fn removed_rows(
    context: Context<'_>,
    shard: &Shard,
    only: Option<&str>,
) -> Result<RowSet> {
    if !context.config.filters.values().any(FilterConfig::removes_before) {
        return Ok(RowSet::default());
    }
    Ok(removed_by_filters(context.config, &verdicts_of(context, shard, only)?))
}

/// Filters with their settings, by name.
pub type OpenFilters<'a> = BTreeMap<&'a str, (&'a FilterConfig, Box<dyn Filter>)>;

/// Opens the filters of `config` that look at one document at a time.
pub fn open_filters(config: &RunConfig) -> Result<OpenFilters<'_>> {
    let open = |(name, filter)| Ok((name, (filter, open_filter(name, filter)?)));
    config.row_filters().map(open).collect()
}

/// Judges `documents` by `filters`; returns what they found, by document and name of the filter.
/// `url` returns a document's URL for a filter, in place of its own; `count` takes every verdict.
pub fn judge<'d, 'f>(
    filters: &OpenFilters<'f>,
    documents: &[FilteredDocument<'d>],
    url: impl Fn(&FilterConfig, usize) -> Option<&'d str>,
    stop: &Stop,
    mut count: impl FnMut(&'f str, usize, &Verdict),
) -> Result<Vec<Vec<FoundRow>>> {
    let mut found: Vec<Vec<_>> = documents.iter().map(|_| Vec::new()).collect();
    for (&name, (config, filter)) in filters {
        let is_seen = |at: &usize| config.is_for(documents[*at].language);
        let places: Vec<usize> = (0..documents.len()).filter(is_seen).collect();
        let seen = |&at: &usize| FilteredDocument { url: url(config, at), ..documents[at] };
        let seen: Vec<FilteredDocument<'_>> = places.iter().map(seen).collect();
        for (at, verdict) in places.into_iter().zip(filter.judge(&seen, stop)?) {
            count(name, at, &verdict);
            found[at].extend(verdict.finding.map(|finding| (name, config.action, finding)));
        }
    }
    let rows = documents.iter().zip(found).map(|(document, mut found)| {
        decide(document.text.unwrap_or_default(), &mut found);
        found.into_iter().map(|(name, action, finding)| finding.row(name, action)).collect()
    });
    Ok(rows.collect())
}

/// Turns the actions of the filters that `found` one document with `text`, in the order of their
/// names, into what happens to it. If several filters cut the text, the intersection of their
/// pieces remains and is stored with the last of them; a document with nothing left is removed.
fn decide(text: &str, found: &mut [(&str, FilterAction, Finding)]) {
    // The pieces that all filters so far leave, and whether all of them look for benchmarks.
    let mut before: Option<(Vec<Range<usize>>, bool)> = None;
    for (_, action, finding) in found.iter_mut().filter(|it| it.1 == FilterAction::Cut) {
        *action = FilterAction::Remove;
        let Some(own) = finding.pieces.take() else { continue };
        let by_index = finding.reason == CONTAMINATED;
        let (left, by_index) = match before {
            Some((pieces, all)) => {
                let by_indexes = all && by_index;
                (cut_by_both(text, &pieces, &own, by_indexes), by_indexes)
            }
            None => (Some(own), by_index),
        };
        if left.is_some() {
            *action = FilterAction::Cut;
        }
        before = Some((left.clone().unwrap_or_default(), by_index));
        finding.pieces = left;
    }
}
