//! The items of a stage, shared out among the processes that work in the run directory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::context::Context;
use polysift_base::error::{Error, Result};
use polysift_base::panics::{lock, unpoisoned};
use polysift_runs::run::{Claims, Failure, Plan, RunDir, ShardMarker, Stage, StageItems};

/// The items of a stage, and how they are worked on.
#[derive(Debug, Clone)]
pub(crate) struct StageWork {
    /// The keys of the items, and which of them this process works on.
    pub(crate) items: StageItems,
}

impl StageWork {
    /// The items `keys` of `stage`, of which those at `own`, in that order, are this process's.
    pub(crate) fn new(
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
        Ok(Self { items: StageItems { stage, keys, own, is_own, takes_all, waits: context.waits } })
    }

    /// As [`StageWork::new`], which waits until the items that others hold are done too.
    pub(crate) fn waiting(
        context: Context<'_>,
        stage: Stage,
        keys: Vec<String>,
        own: &[usize],
    ) -> Result<Self> {
        Self::new(Context { waits: true, ..context }, stage, keys, own)
    }

    /// The shards of `plan`; the keys are their names, in the plan's order.
    pub(crate) fn of_shards(context: Context<'_>, stage: Stage, plan: &Plan) -> Result<Self> {
        Self::new(context, stage, plan.names(), &own_shards(context, plan))
    }

    /// The shards of `plan` for each of `heads`; the keys are `<head>/<shard>`, head by head.
    pub(crate) fn of_scores(
        context: Context<'_>,
        stage: Stage,
        plan: &Plan,
        heads: &[&str],
    ) -> Result<Self> {
        let shards = own_shards(context, plan);
        let own = (0..heads.len()).flat_map(|h| shards.iter().map(move |s| (h, *s)));
        let own: Vec<usize> = own.map(|(head, shard)| head * plan.shards.len() + shard).collect();
        Self::new(context, stage, score_keys(plan, heads), &own)
    }

    /// Items of equal size, dealt out in turn.
    pub(crate) fn dealt(context: Context<'_>, stage: Stage, keys: Vec<String>) -> Result<Self> {
        let is_own = |item: &usize| {
            context.task.is_none_or(|task| item % task.count as usize == task.index as usize)
        };
        let own: Vec<usize> = (0..keys.len()).filter(is_own).collect();
        Self::new(context, stage, keys, &own)
    }

    /// Whether there is nothing to do for this process.
    pub(crate) fn is_over(&self) -> bool {
        self.items.takes_all && self.items.own.is_empty()
    }

    /// The claims of this process.
    pub(crate) fn claims<'a>(&'a self, context: Context<'a>) -> Claims<'a> {
        Claims::new(context.worker, &self.items, context.stop)
    }

    /// Does what there is to do, in parallel, and finishes the stage if that is all: `work` makes the outputs
    /// of an item and its marker. Items whose data is bad are reported and skipped. Progress is counted in
    /// `unit`, of which an item has `units` where that is known.
    pub(crate) fn for_all(
        &self,
        context: Context<'_>,
        unit: &'static str,
        units: impl Fn(usize) -> Option<u64> + Sync,
        work: impl Fn(usize) -> Result<ShardMarker> + Sync,
    ) -> Result<()> {
        self.for_all_on(rayon::current_num_threads(), context, unit, units, work)
    }

    /// The same, so many `at_once`: one where each uses all threads.
    pub(crate) fn for_all_on(
        &self,
        at_once: usize,
        context: Context<'_>,
        unit: &'static str,
        units: impl Fn(usize) -> Option<u64> + Sync,
        work: impl Fn(usize) -> Result<ShardMarker> + Sync,
    ) -> Result<()> {
        if !self.is_over() {
            let total = self.items.own.iter().map(|&item| units(item)).sum();
            context.progress.begin(self.items.stage.name(), total, unit);
            let outcome = self.claim_all(at_once, context, |item| {
                if !self.items.is_own[item] {
                    context.progress.extend(units(item).unwrap_or(0));
                }
                work(item)
            });
            context.progress.end();
            outcome?;
        }
        self.finish(context.run)
    }

    fn claim_all(
        &self,
        at_once: usize,
        context: Context<'_>,
        work: impl Fn(usize) -> Result<ShardMarker> + Sync,
    ) -> Result<()> {
        let claims = self.claims(context);
        let failures = Mutex::new(Failures::new(context.run, self.items.stage));
        let is_broken = AtomicBool::new(false);
        let one = |item: usize| -> Result<()> {
            let outcome = work(item).and_then(|marker| self.mark(context, &claims, item, &marker));
            let mut failures = lock(&failures);
            failures.attempted += 1;
            outcome.or_else(|error| failures.record(&self.items.keys[item], error))?;
            drop(failures);
            claims.release(item)
        };
        let all = || -> Result<()> {
            while !is_broken.load(Ordering::Relaxed)
                && let Some(item) = claims.next()?
            {
                one(item)?;
            }
            Ok(())
        };
        loop {
            (0..at_once).into_par_iter().try_for_each(|_| {
                all().inspect_err(|_| is_broken.store(true, Ordering::Relaxed))
            })?;
            if !claims.settle()? {
                break;
            }
        }
        drop(claims);
        unpoisoned(failures.into_inner()).finish()
    }

    /// Does what there is to do, one item after another; the first error ends it.
    pub(crate) fn for_all_in_turn(
        &self,
        context: Context<'_>,
        mut work: impl FnMut(usize) -> Result<ShardMarker>,
    ) -> Result<()> {
        let claims = self.claims(context);
        loop {
            while let Some(item) = claims.next()? {
                let marker = work(item)?;
                self.mark(context, &claims, item, &marker)?;
                claims.release(item)?;
            }
            if !claims.settle()? {
                return Ok(());
            }
        }
    }

    /// Marks `item` as done, if it is still this process's.
    fn mark(
        &self,
        context: Context<'_>,
        claims: &Claims<'_>,
        item: usize,
        marker: &ShardMarker,
    ) -> Result<()> {
        claims.check(item)?;
        context.run.mark_shard(self.items.stage, &self.items.keys[item], marker)
    }

    /// Finishes the stage if all of its items are done.
    pub(crate) fn finish(&self, run: &RunDir) -> Result<()> {
        run.try_finish(self.items.stage, &self.items.keys).map(drop)
    }
}

/// Keys of the scores of `plan`'s shards by `heads`, head by head.
pub(crate) fn score_keys(plan: &Plan, heads: &[&str]) -> Vec<String> {
    let of_head = |head: &&str| {
        let head = (*head).to_owned();
        plan.shards.iter().map(move |shard| format!("{head}/{}", shard.name))
    };
    heads.iter().flat_map(of_head).collect()
}

/// Places in `plan` of the shards of this process's task, largest first.
pub(super) fn own_shards(context: Context<'_>, plan: &Plan) -> Vec<usize> {
    let Some(task) = context.task else { return plan.by_size() };
    let tasks = plan.task_of_shards(task.count);
    plan.by_size().into_iter().filter(|&place| tasks[place] == task.index).collect()
}

/// Items that a stage could not do.
pub(crate) struct Failures<'a> {
    run: &'a RunDir,
    stage: Stage,
    /// Items that were tried.
    pub(crate) attempted: usize,
    errors: Vec<(String, Error)>,
}

impl<'a> Failures<'a> {
    pub(super) fn new(run: &'a RunDir, stage: Stage) -> Self {
        Self { run, stage, attempted: 0, errors: Vec::new() }
    }

    /// Records the failure of `key` when its data is to blame; anything else ends the stage.
    pub(crate) fn record(&mut self, key: &str, error: Error) -> Result<()> {
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

    /// Nothing failed: fine. All failed: the first error. Else [`Error::Shards`].
    pub(super) fn finish(self) -> Result<()> {
        let (failed, total) = (self.errors.len(), self.attempted);
        if total > 1 {
            // The only item's error is the stage's, and printed once.
            for (shard, error) in &self.errors {
                tracing::error!(shard, error = %error.report(), "shard failed");
            }
        }
        match self.errors.into_iter().next() {
            None => Ok(()),
            Some((_, first)) if failed == total => Err(first),
            Some(_) => Err(Error::Shards { failed, total }),
        }
    }
}
