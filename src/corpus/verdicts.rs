//! The verdicts of the filters of a run, as later stages need them.

use std::ops::Range;

use serde_json::{Value, json};

use crate::context::Context;
use crate::embedded::all_done;
use crate::filter::Finding;
use polysift_base::error::Result;
use polysift_config::{FilterAction, FilterConfig, RunConfig};
use polysift_data::parts::{VerdictAction, VerdictRows, read_verdicts};
use polysift_runs::run::{Plan, RunDir, Shard, Stage};
use polysift_text::decontamination::cut_by_both;

/// Key in [`Stage::Filter`] of the reports, written when all shards are filtered.
pub const REPORTS: &str = "_reports";
/// Key of the filters in the frozen settings, next to the digests of their lists.
pub const FILTERS: &str = "filters";

/// Returns whether the export of `config` has work or files that belong to no shard.
pub fn has_reports(config: &RunConfig) -> bool {
    config.pii.is_some() || config.export.card || config.export.is_to_hub()
}

/// Checks that every shard of `plan` was filtered with the filters of the settings.
///
/// # Errors
/// [`Error::Missing`](polysift_base::Error::Missing) if a shard was not filtered,
/// [`Error::Mismatch`](polysift_base::Error::Mismatch) if other filters were used.
pub fn check_filtered(context: Context<'_>, plan: &Plan) -> Result<()> {
    let Context { config, run, .. } = context;
    if let Some(mut settings) = run.frozen_settings(Stage::Filter)? {
        // The lists may be gone by now, so only the filters are compared.
        settings[FILTERS] = json!(config.filters);
        run.check_frozen(Stage::Filter, &settings)?;
    }
    if !config.filters.is_empty() {
        all_done(run, Stage::Filter, &plan.names(), "filtered")?;
    }
    Ok(())
}

/// Returns the frozen settings of the filters of `run`; null without filters.
pub fn filter_settings(run: &RunDir) -> Result<Value> {
    Ok(run.frozen_settings(Stage::Filter)?.unwrap_or_default())
}

/// Reads the verdicts on `shard`; empty for a run without filters.
pub(crate) fn verdicts_of(context: Context<'_>, shard: &Shard) -> Result<VerdictRows> {
    if context.config.filters.is_empty() {
        return Ok(VerdictRows::default());
    }
    read_verdicts(&context.run.verdicts_file(shard))
}

/// Returns the rows that filters remove before thresholds are computed, ascending.
pub(crate) fn removed_by_filters(config: &RunConfig, verdicts: &VerdictRows) -> Vec<u64> {
    let removes =
        |name: &String| config.filters.get(name).is_some_and(FilterConfig::removes_before);
    let verdict = verdicts.filters.iter().zip(&verdicts.actions);
    let rows = verdicts.documents.rows().iter().zip(verdict);
    let mut rows: Vec<u64> = rows
        .filter(|(_, (name, action))| **action == VerdictAction::Remove && removes(name))
        .map(|(&row, _)| row)
        .collect();
    rows.dedup();
    rows
}

/// Reads the rows of `shard` that filters remove before thresholds are computed, ascending.
pub(crate) fn removed_rows(context: Context<'_>, shard: &Shard) -> Result<Vec<u64>> {
    if !context.config.filters.values().any(FilterConfig::removes_before) {
        return Ok(Vec::new());
    }
    Ok(removed_by_filters(context.config, &verdicts_of(context, shard)?))
}

/// Returns the actions of the filters that found one document with `text`, given with their
/// settings in the order of their names. Of pieces that several filters leave, the intersection
/// remains, and the last of them has it; a document with nothing left is removed.
pub fn actions(text: &str, found: &mut [(FilterAction, &mut Finding)]) -> Vec<VerdictAction> {
    let mut before: Option<Vec<Range<usize>>> = None;
    let action =
        |(action, finding): &mut (FilterAction, &mut Finding)| match (action, &finding.pieces) {
            (FilterAction::Flag, _) => VerdictAction::Flag,
            (FilterAction::Cut, Some(own)) => {
                let left = match before.take() {
                    Some(pieces) => cut_by_both(text, &pieces, own),
                    None => Some(own.clone()),
                };
                before = Some(left.clone().unwrap_or_default());
                finding.pieces = left;
                if finding.pieces.is_some() { VerdictAction::Cut } else { VerdictAction::Remove }
            }
            (FilterAction::Cut | FilterAction::Remove, _) => VerdictAction::Remove,
        };
    found.iter_mut().map(action).collect()
}
