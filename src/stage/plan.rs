//! The plan stage: which shards there are, frozen before the first document is read.

use super::{Context, input_files, planned_languages};
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

/// Whether heads are trained before the corpus is embedded, so that what is wrong with them shows at
/// once: where the plan tells its languages and nothing is embedded yet. A share keeps the order of the
/// stages, since it would wait for other shares first. Freezes the plan, of whose languages the heads
/// are.
///
/// # Errors
/// As [`freeze`].
pub fn trains_first(context: Context<'_>, plan: &Plan) -> Result<bool> {
    let run = context.run;
    // What is done again discards the heads too; of settings that differ, those of the embeddings are to
    // be told first.
    let is_begun =
        context.redo == Some(Stage::Embed) || run.frozen_settings(Stage::Embed)?.is_some();
    if context.share.is_some() || is_begun || planned_languages(context.config, plan).is_none() {
        return Ok(false);
    }
    make_room(context, plan)?;
    run.freeze_plan(plan)?;
    Ok(true)
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
