//! The plan stage: which shards there are, frozen before the first document is read.

use super::{Context, input_files};
use crate::config::RunConfig;
use crate::error::Result;
use crate::run::{Plan, Stage};

/// The plan of what `config` names now.
///
/// # Errors
/// Those of [`input_files`] and [`Plan::new`].
pub fn plan(config: &RunConfig) -> Result<Plan> {
    Plan::new(&input_files(config)?, config.input.max_shard_bytes)
}

/// Freezes `plan` and keeps the settings in the run directory.
///
/// # Errors
/// [`Error::Mismatch`](crate::Error::Mismatch) with the shards that differ where another plan is
/// frozen and shards of it are begun.
pub fn freeze(context: Context<'_>, plan: &Plan) -> Result<()> {
    if context.redo == Some(Stage::Embed) {
        context.worker.alone(context.stop, || context.run.discard_from(Stage::Embed))?;
    }
    make_room(context, plan)?;
    context.keep_settings()?;
    context.run.freeze_plan(plan)
}

/// Discards a plan other than `plan` of which nothing is begun; refuses to where it is.
pub(super) fn make_room(context: Context<'_>, plan: &Plan) -> Result<()> {
    let run = context.run;
    if !run.has_plan() || run.plan()?.digest() == plan.digest() {
        return Ok(());
    }
    if run.is_begun(Stage::Embed) {
        return run.freeze_plan(plan);
    }
    context.worker.alone(context.stop, || {
        if run.is_begun(Stage::Embed) { Ok(()) } else { run.discard_from(Stage::Embed) }
    })
}
