//! The stages of a run, and the units of work of each, which several processes share.

use std::fmt::Display;
use std::sync::Mutex;

use rayon::prelude::*;

use crate::context::Context;
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_base::panics::{lock, unpoisoned};
use polysift_config::RunConfig;
use polysift_runs::run::{Claims, Failure, Plan, RunDir, ShardMarker, Stage, StageItems};

/// Returns the stages that a run of `config` has, in the order in which tasks run them.
pub fn stages_of(config: &RunConfig) -> Vec<Stage> {
    let is_trained = config.heads.values().any(|head| !head.train.is_empty());
    let is_wanted = |stage: &Stage| match stage {
        Stage::Embed | Stage::Score | Stage::Threshold | Stage::Export => true,
        Stage::Train => is_trained,
        Stage::Filter => config.row_filters().next().is_some(),
        Stage::Deduplicate => config.near().is_some(),
        Stage::Refine => config.selection.refine,
        Stage::Cascade => config.cascade.is_some(),
    };
    in_order(config, Stage::ALL.into_iter().filter(is_wanted).collect())
}

/// Sorts `stages`, each once. A cascade comes after training, because heads score its pilot.
pub fn in_order(config: &RunConfig, mut stages: Vec<Stage>) -> Vec<Stage> {
    stages.sort_by_key(|stage| (config.cascade.is_some() && *stage != Stage::Train, *stage));
    stages.dedup();
    stages
}

/// The units of work of a stage, and how this process does them.
#[derive(Debug, Clone)]
pub struct StageWork {
    /// Keys of all units, and the units of this process.
    pub items: StageItems,
    /// Number of units that are done in parallel: 1 if each uses all threads.
    pub at_once: usize,
}

impl StageWork {
    /// Makes the units `keys` of `stage`; this process does the indices `own`, in that order.
    pub fn new(
        context: Context<'_>,
        stage: Stage,
        keys: Vec<String>,
        own: &[usize],
    ) -> Result<Self> {
        let marked = context.run.done_keys(stage)?;
        let left = |&item: &usize| {
            let key = &keys[item];
            let is_done = marked.contains(key) && context.run.is_done(stage, key)?;
            Ok((!is_done).then_some(item))
        };
        let own = own.par_iter().filter_map(|item| left(item).transpose());
        let own: Vec<usize> = own.collect::<Result<_>>()?;
        let mut is_own = vec![false; keys.len()];
        for &item in &own {
            is_own[item] = true;
        }
        let takes_all = context.task.is_none();
        let items = StageItems { stage, keys, own, is_own, takes_all, waits: context.waits };
        Ok(Self { items, at_once: rayon::current_num_threads() })
    }

    /// Makes one unit per shard of `plan`, with the names of the shards as keys, in plan order.
    pub fn of_shards(context: Context<'_>, stage: Stage, plan: &Plan) -> Result<Self> {
        Self::new(context, stage, plan.names(), &own_shards(context, plan))
    }

    /// Makes units of equal size, dealt to the tasks in turn.
    pub fn dealt(context: Context<'_>, stage: Stage, keys: Vec<String>) -> Result<Self> {
        let (first, step) = context.task.map_or((0, 1), |task| (task.index, task.count));
        let own: Vec<usize> = (first as usize..keys.len()).step_by(step as usize).collect();
        Self::new(context, stage, keys, &own)
    }

    /// Returns true if this process has nothing to do.
    pub fn is_over(&self) -> bool {
        self.items.takes_all && self.items.own.is_empty()
    }

    /// Returns the claims of this process on the units.
    pub fn claims<'a>(&'a self, context: Context<'a>) -> Claims<'a> {
        Claims::new(context.worker, &self.items, context.stop)
    }

    /// Does the units with [`StageWork::claim_all`] and finishes the stage if all are done.
    pub fn for_all(
        &self,
        context: Context<'_>,
        unit: &'static str,
        units: impl Fn(usize) -> Option<u64> + Sync,
        work: impl Fn(Context<'_>, usize) -> Result<ShardMarker> + Sync,
    ) -> Result<()> {
        if !self.is_over() {
            self.claim_all(context, unit, units, work)?;
        }
        self.finish(context.run)
    }

    /// Does the units, `at_once` in parallel: `work` writes the outputs of one, after
    /// [`Context::check_held`], and returns its marker. Bad data is reported and skipped,
    /// except in training. Progress counts in `unit`, of which an item has `units`, if known.
    pub fn claim_all(
        &self,
        context: Context<'_>,
        unit: &'static str,
        units: impl Fn(usize) -> Option<u64> + Sync,
        work: impl Fn(Context<'_>, usize) -> Result<ShardMarker> + Sync,
    ) -> Result<()> {
        let total = self.items.own.iter().map(|&item| units(item)).sum();
        context.progress.begin(self.items.stage.name(), total, unit);
        let claims = self.claims(context);
        let failures = Mutex::new(Failures::new(context.run, self.items.stage));
        let outcome = claims.for_all(self.at_once, |item| {
            if !self.items.is_own[item] {
                context.progress.extend(units(item).unwrap_or(0));
            }
            let outcome = self.do_unit(context, &claims, item, &work);
            let mut failures = lock(&failures);
            failures.attempted += 1;
            outcome.or_else(|error| failures.record(&self.items.keys[item], error))
        });
        let failed = unpoisoned(failures.into_inner()).finish(); // names them after a stop too
        context.progress.end();
        outcome.and(failed)
    }

    /// Does `item` and marks it as done. If another process took the unit over, returns
    /// [`Error::Lost`] instead of the error of the work; the other process removes temporary files.
    fn do_unit(
        &self,
        context: Context<'_>,
        claims: &Claims<'_>,
        item: usize,
        work: impl Fn(Context<'_>, usize) -> Result<ShardMarker>,
    ) -> Result<()> {
        let (stage, key) = (self.items.stage, &self.items.keys[item]);
        let outcome = work(Context { held: Some((claims, item)), ..context }, item);
        if let Err(lost) = claims.check(item) {
            // An object that this process was sending may have replaced the other process's object.
            let marker = context.run.shard_marker(stage, key)?;
            if marker.is_some_and(|marker| marker.files.iter().any(|file| is_url(&file.path))) {
                context.run.undo(stage, key)?;
            }
            return Err(lost);
        }
        let marker = outcome?;
        context.run.mark_shard(stage, key, &marker)?;
        tracing::info!(stage = stage.name(), key, rows = marker.rows, "done");
        Ok(())
    }

    /// Finishes the stage if all of its units are done.
    pub fn finish(&self, run: &RunDir) -> Result<()> {
        run.try_finish(self.items.stage, &self.items.keys).map(drop)
    }
}

/// Returns the keys of the scores of all shards by `heads`, head by head.
pub fn score_keys<S: Display>(plan: &Plan, heads: impl IntoIterator<Item = S>) -> Vec<String> {
    let of_head = |head: S| plan.shards.iter().map(move |shard| format!("{head}/{}", shard.name));
    heads.into_iter().flat_map(of_head).collect()
}

/// Returns the plan indices of the shards of this process's task, largest first.
pub fn own_shards(context: Context<'_>, plan: &Plan) -> Vec<usize> {
    let Some(task) = context.task else { return plan.by_size() };
    let tasks = plan.task_of_shards(task.count);
    plan.by_size().into_iter().filter(|&place| tasks[place] == task.index).collect()
}

/// Units of a stage that failed because of their data.
pub struct Failures<'a> {
    run: &'a RunDir,
    stage: Stage,
    /// Number of units that were tried.
    pub attempted: usize,
    errors: Vec<(String, Error)>,
}

impl<'a> Failures<'a> {
    /// Starts without failures.
    pub fn new(run: &'a RunDir, stage: Stage) -> Self {
        Self { run, stage, attempted: 0, errors: Vec::new() }
    }

    /// Records the failure of `key` if its data is the cause; returns other errors and training's.
    pub fn record(&mut self, key: &str, error: Error) -> Result<()> {
        if self.stage == Stage::Train {
            return Err(error);
        }
        match error {
            Error::Decode { .. }
            | Error::Schema { .. }
            | Error::Row { .. }
            | Error::Missing { .. }
            | Error::Corrupt { .. }
            | Error::Model { .. } => {
                let failure = Failure { error: error.report(), exit_code: error.exit_code() };
                self.run.mark_failed(self.stage, key, &failure)?;
                self.errors.push((key.to_owned(), error));
                Ok(())
            }
            fatal => Err(fatal),
        }
    }

    /// Returns the first error if every unit failed, and [`Error::Shards`] if some did.
    pub fn finish(self) -> Result<()> {
        let (failed, total) = (self.errors.len(), self.attempted);
        if total > 1 {
            // The error of a single unit is returned, and so printed once.
            for (key, error) in &self.errors {
                tracing::error!(key, error = %error.report(), "a unit of work failed");
            }
        }
        match self.errors.into_iter().next() {
            None => Ok(()),
            Some((_, first)) if failed == total => Err(first),
            Some(_) => Err(Error::Shards { failed, total }),
        }
    }
}
