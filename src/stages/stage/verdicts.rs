//! The verdicts of the filters of a run, as later stages need them.

use serde_json::{Value, json};

use super::context::Context;
use super::embedded::all_done;
use polysift_base::error::Result;
use polysift_config::FilterConfig;
use polysift_data::parts::{VerdictRows, read_verdicts};
use polysift_runs::run::{Plan, RunDir, Shard, Stage};

/// Action of a verdict: the document is not exported.
pub(super) const REMOVE: &str = "remove";
/// Action of a verdict: the document is flagged.
pub(super) const FLAG: &str = "flag";
/// Action of a verdict: only pieces of the text are exported.
pub(super) const CUT: &str = "cut";
/// Key in [`Stage::Filter`] of the reports, written when all shards are filtered.
pub(super) const REPORTS: &str = "_reports";
/// Key of the filters in the frozen settings, next to the digests of their lists.
pub(super) const FILTERS: &str = "filters";

/// Checks that every shard of `plan` was filtered with the filters of the settings.
///
/// # Errors
/// [`Error::Missing`](polysift_base::Error::Missing) if a shard was not filtered,
/// [`Error::Mismatch`](polysift_base::Error::Mismatch) if other filters were used.
pub(crate) fn check_filtered(context: Context<'_>, plan: &Plan) -> Result<()> {
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
pub(crate) fn filter_settings(run: &RunDir) -> Result<Value> {
    Ok(run.frozen_settings(Stage::Filter)?.unwrap_or_default())
}

/// Reads the verdicts on `shard`; empty for a run without filters.
pub(crate) fn verdicts_of(context: Context<'_>, shard: &Shard) -> Result<VerdictRows> {
    if context.config.filters.is_empty() {
        return Ok(VerdictRows::default());
    }
    read_verdicts(&context.run.verdicts_file(shard))
}

/// Returns the rows of `shard` that filters remove before thresholds are computed, ascending.
pub(crate) fn removed_rows(context: Context<'_>, shard: &Shard) -> Result<Vec<u64>> {
    if !context.config.filters.values().any(FilterConfig::removes_before) {
        return Ok(Vec::new());
    }
    let verdicts = verdicts_of(context, shard)?;
    let removes =
        |name: &String| context.config.filters.get(name).is_some_and(FilterConfig::removes_before);
    let verdict = verdicts.filters.iter().zip(&verdicts.actions);
    let rows = verdicts.documents.rows().iter().zip(verdict);
    let mut rows: Vec<u64> = rows
        .filter(|(_, (name, action))| *action == REMOVE && removes(name))
        .map(|(&row, _)| row)
        .collect();
    rows.dedup();
    Ok(rows)
}
