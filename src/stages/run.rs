//! Runs stages in order, after checks of everything that they will read.

use std::path::Path;

use crate::cascade::{cascade, repair};
use crate::deduplicate::deduplicate;
use crate::embed::embed;
use crate::export::{check_export, check_place, export};
use crate::filter::filter;
use crate::inputs::{check_ids, check_inputs, warn_of_settings};
use crate::refine::refine;
use crate::score::score;
use crate::threshold::threshold;
use crate::train::train;
use polysift_base::error::{Error, Result};
use polysift_base::progress::{Progress, Stop};
use polysift_config::RunConfig;
use polysift_corpus::Context;
use polysift_corpus::heads::check_head_files;
use polysift_corpus::languages::planned_languages;
use polysift_corpus::plan::{frozen_plan, plan};
use polysift_corpus::training::PlannedHead;
use polysift_corpus::work::stages_of;
use polysift_encoder::HubSettings;
use polysift_runs::cluster::Task;
use polysift_runs::run::{Plan, RunDir, Stage, Worker};

/// Which stages of which run a process does.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// Settings of the run.
    pub config: &'a RunConfig,
    /// The run directory, which may not exist yet.
    pub root: &'a Path,
    /// The stages, in the order of [`Stage::ALL`].
    pub stages: &'a [Stage],
    /// First stage to redo; one of `stages`.
    pub redo: Option<Stage>,
    /// The share of every stage that this process does; `None`: all that no other process does.
    pub task: Option<Task>,
    /// How models are downloaded.
    pub hub: &'a HubSettings,
    /// Tells whether the process is asked to stop.
    pub stop: &'a Stop,
}

impl RunRequest<'_> {
    /// Checks what the stages will read and joins the run. The checks come before a directory is
    /// created and before hours of work. Only embedding, a cascade and training can begin a run.
    /// [`Error::Config`] for an impossible `redo`; [`Error::Missing`] for a run that does not
    /// exist; the error of [`RunDir::check_settings`]. The plan is `None` if only stages need it.
    pub fn join(&self) -> Result<(RunDir, Worker, Option<Plan>)> {
        let Self { config, root, stages, redo, task, hub, stop } = *self;
        check_redo(redo, stages)?;
        if redo == Some(Stage::Embed) && config.cascade.is_some() {
            let reason = "`embed` follows from the cascade; give `polysift run --redo cascade`, which \
                          discards both";
            return Err(Error::config("--redo", reason));
        }
        let embeds = stages.contains(&Stage::Embed) || stages.contains(&Stage::Cascade);
        if embeds {
            check_input(config, root)?;
        }
        let opened = RunDir::open(root).ok();
        let planned = opened.filter(|run| run.has_plan() && redo != Some(Stage::Embed));
        let plan = match &planned {
            // A single task does not list the input files; with hundreds of tasks, hundreds would.
            Some(run) => Some(frozen_plan(run, config, embeds && task.is_none())?),
            None => embeds.then(|| plan(config)).transpose()?,
        };
        let checked = plan.as_ref().filter(|_| embeds && (task.is_none() || planned.is_none()));
        if let Some(plan) = checked {
            check_ids(config, plan)?;
            if stages.contains(&Stage::Export) {
                warn_of_settings(config, plan);
            }
        }
        if stages.contains(&Stage::Export) {
            let shards = checked.map_or(&[][..], |plan| &plan.shards);
            check_export(config, shards)?;
            check_place(config, root, shards)?;
        }
        if stages == [Stage::Embed, Stage::Score] {
            check_head_files(config)?;
        }
        if let (Some(plan), true) = (checked, stages.contains(&Stage::Score)) {
            let run = RunDir::open(root).ok().filter(|_| redo.is_none());
            check_inputs(config, plan, run.as_ref(), hub, stop)?;
        }
        let begins = embeds || stages.contains(&Stage::Train);
        let run = if begins { RunDir::create(root)? } else { RunDir::open(root)? };
        let worker = Worker::join(&run, stop)?;
        run.check_settings(redo)?;
        if task.is_none() {
            worker.clean_up(stop, None)?;
        }
        Ok((run, worker, plan))
    }

    /// Returns the arguments of the stages on the joined `run`.
    pub fn context<'b>(
        &'b self,
        run: &'b RunDir,
        worker: &'b Worker,
        progress: &'b dyn Progress,
    ) -> Context<'b> {
        let Self { config, stages, redo, task, hub, stop, .. } = *self;
        let context = Context::observing(config, run, hub, stop, progress, worker);
        Context { redo, task, waits: task.is_none() || stages.len() > 1, ..context }
    }

    /// Runs the stages with `context` and returns them in the order in which they ran. Every stage
    /// runs inside `around`. With `cascade.repair`, embedding and the later stages run again until
    /// the audit proves the recall; without the embed stage, that is [`Error::Missing`].
    pub fn run(
        &self,
        context: Context<'_>,
        plan: Option<&Plan>,
        around: impl Fn(Stage, &dyn Fn() -> Result<()>) -> Result<()>,
    ) -> Result<Vec<Stage>> {
        let stages = ordered(context, self.stages, plan)?;
        // A stage that the settings lack discards nothing itself; `cascade` alone refuses to run.
        let is_lacking = |stage: &Stage| !stages_of(context.config).contains(stage);
        let lacking = context.redo.filter(is_lacking).filter(|_| stages != [Stage::Cascade]);
        lacking.map_or(Ok(()), |stage| context.discard_redone(stage))?;
        let repairs = context.config.cascade.as_ref().is_some_and(|cascade| cascade.repair);
        let embed = stages.iter().position(|stage| *stage == Stage::Embed);
        let mut next = 0;
        while let Some(&stage) = stages.get(next) {
            around(stage, &|| run_stage(context, plan, stage))?;
            next += 1;
            if repairs && stage == Stage::Threshold && repair(context)? {
                let reason = "the audit does not prove the recall of the cascade; more documents are \
                              to be encoded: run the stages again, from `embed` on";
                next = embed.ok_or_else(|| Error::missing(context.run.root(), reason))?;
            }
        }
        Ok(stages)
    }
}

/// Orders the stages: heads come first with a cascade, or if they need nothing of the corpus.
fn ordered(context: Context<'_>, stages: &[Stage], plan: Option<&Plan>) -> Result<Vec<Stage>> {
    if context.config.cascade.is_some() && stages.len() > 1 {
        plan.map_or(Ok(()), |plan| context.run.freeze_plan(plan))?;
        let mut ordered = stages_of(context.config);
        ordered.retain(|stage| stages.contains(stage));
        return Ok(ordered);
    }
    let is_run = |stage: &Stage| *stage != Stage::Cascade || stages.len() == 1;
    let mut stages: Vec<Stage> = stages.iter().copied().filter(is_run).collect();
    // Heads are trained before the corpus is embedded, so that their errors show early: if the
    // plan tells the languages and nothing is embedded yet. One of many tasks keeps the order
    // of the stages, since it would have to wait for other tasks first. A redo discards the
    // heads too; with changed settings, a mismatch of the embeddings should be reported first.
    if let (Some(plan), [Stage::Embed, Stage::Train, ..]) = (plan, &stages[..])
        && context.task.is_none()
        && context.redo != Some(Stage::Embed)
        && context.run.frozen_settings(Stage::Embed)?.is_none()
        && planned_languages(context.config, plan).is_some()
    {
        context.run.freeze_plan(plan)?; // the heads depend on its languages
        stages.swap(0, 1);
    }
    Ok(stages)
}

/// Runs `stage`; the plan is read from the run if it is not given.
fn run_stage(context: Context<'_>, plan: Option<&Plan>, stage: Stage) -> Result<()> {
    context.stop.check()?;
    let planned = |stage: fn(Context<'_>, &Plan) -> Result<()>| match plan {
        Some(plan) => stage(context, plan),
        None => stage(context, &context.run.plan()?),
    };
    match stage {
        Stage::Cascade => planned(cascade),
        Stage::Embed => planned(|context, plan| embed(context, plan, None)),
        Stage::Train => train(context),
        Stage::Score => score(context),
        Stage::Filter => filter(context),
        Stage::Deduplicate => deduplicate(context),
        Stage::Refine => refine(context),
        Stage::Threshold => threshold(context),
        Stage::Export => export(context),
    }
}

/// Plans a run and checks what all stages will read; returns the plan, and heads that `run` lacks.
pub fn checked_plan(
    config: &RunConfig,
    run: Option<&RunDir>,
    hub: &HubSettings,
    stop: &Stop,
) -> Result<(Plan, Vec<PlannedHead>)> {
    let plan = plan(config)?;
    check_ids(config, &plan)?;
    warn_of_settings(config, &plan);
    check_export(config, &plan.shards)?;
    let heads = check_inputs(config, &plan, run, hub, stop)?;
    Ok((plan, heads))
}

/// Returns [`Error::Missing`] if neither the settings nor an existing run name an input.
pub fn check_input(config: &RunConfig, root: &Path) -> Result<()> {
    if root.exists() || !config.input.files.is_empty() {
        return Ok(());
    }
    let path = root.display().to_string();
    let reason = format!(
        "no such run directory, and no input is given; to begin a run there, name its input (as in \
         `'data/{{lang}}/*.parquet' --run {path}`) or its settings (`-c run.toml`)"
    );
    Err(Error::Missing { path, reason })
}

/// Returns [`Error::Config`] unless the stage to redo, if any, is one of `stages`.
pub fn check_redo(redo: Option<Stage>, stages: &[Stage]) -> Result<()> {
    let Some(stage) = redo.filter(|stage| !stages.contains(stage)) else { return Ok(()) };
    let name = stage.name();
    let reason = format!("`{name}` is not a stage of this command; use `run` or `{name}`");
    Err(Error::config("--redo", reason))
}

/// Freezes `plan` and keeps the settings in the run directory. Returns [`Error::Mismatch`] if
/// another plan is frozen, unless everything is to be redone.
pub fn freeze(context: Context<'_>, plan: &Plan) -> Result<()> {
    context.discard_redone(Stage::Embed)?;
    context.run.freeze_plan(plan)?;
    context.run.share()?;
    context.keep_settings(None)
}
