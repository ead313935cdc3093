//! Progress of a run, read from its markers, and which tasks have work left.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;
use std::mem::take;

use rayon::prelude::*;
use serde::Serialize;

use polysift_base::error::{Error, Result};
use polysift_corpus::frozen::trained_keys;
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::model::is_precise;
use polysift_corpus::refinement::Refinement;
use polysift_corpus::verdicts::{REPORTS, deduplicated, has_reports};
use polysift_corpus::work::{score_keys, stages_of};
use polysift_corpus::{Cascade, Context, Embedded};
use polysift_runs::run::{Encoded, Failure, LiveWorker, Plan, RunDir, Shard, Stage, Summary};

/// Progress of a stage.
#[derive(Debug, Clone, Serialize)]
pub struct StageStatus {
    /// The stage.
    pub stage: Stage,
    /// Number of units of work that are done (shards; heads; shards times heads; languages).
    pub done: usize,
    /// Total number of units of work, if known.
    pub total: Option<usize>,
    /// Number of units that processes hold, as far as these are known to be alive.
    pub leased: usize,
    /// Units that failed when they were last attempted.
    pub failed: BTreeMap<String, Failure>,
    /// Number of rows in the finished units.
    pub rows: u64,
    /// Rows by outcome.
    pub counts: BTreeMap<String, u64>,
}

/// Status of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunStatus {
    /// Number of shards in the plan.
    pub shards: usize,
    /// Bytes of input.
    pub input_bytes: u64,
    /// What is encoded so far, including unfinished shards.
    #[serde(flatten)]
    pub encoded: Encoded,
    /// Embedded share of the input's bytes, as far as it is known for unfinished shards.
    pub embedded_share: f64,
    /// Status of each stage that the settings ask for, and of the refine stage once it was begun.
    pub stages: Vec<StageStatus>,
    /// Other processes at work.
    pub workers: Vec<LiveWorker>,
    /// Result of the refine stage, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinement: Option<Refinement>,
}

impl RunStatus {
    /// Returns true if all units of work of the listed stages are done.
    pub fn is_done(&self) -> bool {
        self.stages.iter().all(|stage| stage.total == Some(stage.done))
    }
}

/// Reads the status of the run of `context`, as seen by its worker.
pub fn status(context: Context<'_>) -> Result<RunStatus> {
    let Context { config, run, worker, .. } = context;
    let plan = run.plan()?;
    let names = plan.names();
    let scores = score_keys(&plan, config.heads.keys());
    let mut embedded = run.marked(Stage::Embed, &names)?;
    let counts = embedded.iter().flatten().flat_map(|summary| summary.counts.keys().cloned());
    let languages: Vec<String> = counts.collect::<BTreeSet<_>>().into_iter().collect();
    let (encoded, rows, bytes) = count_encoded(run, &plan, &embedded)?;
    let trained = trained_keys(run)?;
    let is_refined = run.frozen_settings(Stage::Refine)?.is_some();
    let is_part = |stage| match stage {
        Stage::Refine => is_refined,
        _ => stages_of(config).contains(&stage),
    };
    let mut stages = Vec::new();
    for (stage, keys) in [
        (Stage::Cascade, Cascade::keys(config, &plan).as_slice()),
        (Stage::Embed, &names),
        (Stage::Train, trained.as_deref().unwrap_or_default()),
        (Stage::Score, &scores),
        (Stage::Filter, &names),
        (Stage::Deduplicate, &deduplicated(config, languages.clone())),
        (Stage::Refine, &scores),
        (Stage::Threshold, &languages),
        (Stage::Export, &names),
    ] {
        if !is_part(stage) {
            continue;
        }
        let is_embed = stage == Stage::Embed;
        let done = if is_embed { take(&mut embedded) } else { run.marked(stage, keys)? };
        // The number of heads to train is unknown until the stage begins.
        let is_known = stage != Stage::Train || trained.is_some();
        let mut status = StageStatus {
            stage,
            done: 0,
            total: is_known.then_some(keys.len()),
            leased: run.num_held(stage, worker)?,
            failed: run.failures(stage)?,
            rows: 0,
            counts: BTreeMap::new(),
        };
        for (key, summary) in keys.iter().zip(done) {
            let Some(summary) = summary else { continue };
            status.failed.remove(key); // left by an earlier attempt
            status.done += 1;
            status.rows += summary.rows;
            for (name, count) in summary.counts {
                *status.counts.entry(name).or_default() += count;
            }
        }
        if is_embed {
            status.rows = rows;
        }
        stages.push(status);
    }
    Ok(RunStatus {
        shards: plan.shards.len(),
        input_bytes: plan.bytes(),
        encoded,
        embedded_share: bytes / plan.bytes().max(1) as f64,
        stages,
        workers: worker.live()?,
        refinement: Refinement::read(run)?,
    })
}

/// Returns what is encoded so far, the number of its rows, and the bytes of input that hold them,
/// which an unfinished shard has in proportion to its rows.
fn count_encoded(
    run: &RunDir,
    plan: &Plan,
    done: &[Option<Summary>],
) -> Result<(Encoded, u64, f64)> {
    let of_shard = |(shard, summary): (&Shard, &Option<Summary>)| -> Result<(Encoded, u64, f64)> {
        if let Some(Summary { encoded, rows, .. }) = *summary {
            return Ok((encoded.unwrap_or_default(), rows, shard.bytes as f64));
        }
        let (mut encoded, mut rows) = (Encoded::default(), 0);
        let parts = run.part_markers(shard)?;
        for part in &parts {
            encoded.add(&part.encoded);
            rows += part.languages.values().sum::<u64>() + part.encoded.rejects;
        }
        let saved = run.num_saved(shard, parts.len())?;
        encoded.documents += saved;
        rows += saved;
        let num_rows = shard.num_rows.filter(|rows| *rows > 0);
        let share = num_rows.map_or(0.0, |all| rows as f64 / all as f64);
        Ok((encoded, rows, shard.bytes as f64 * share.min(1.0)))
    };
    let all = plan.shards.par_iter().zip(done).map(of_shard);
    all.try_reduce(Default::default, |(mut encoded, rows, bytes), part| {
        encoded.add(&part.0);
        Ok((encoded, rows + part.1, bytes + part.2))
    })
}

/// Unfinished work of a stage that is split into `num_tasks` tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unfinished {
    /// The stage.
    pub stage: Stage,
    /// Number of units of work that are not done.
    items: usize,
    num_tasks: u32,
    /// Tasks with such units.
    pub tasks: Vec<u32>,
}

/// Returns the unfinished work of the first of `stages` that has some.
pub fn find_unfinished(
    context: Context<'_>,
    stages: &[Stage],
    num_tasks: Option<u32>,
) -> Result<Option<Unfinished>> {
    let run = context.run;
    let plan = run.plan()?;
    let num_tasks = num_tasks.unwrap_or(plan.shards.len().max(1) as u32);
    for &stage in stages {
        let is_left = |item: (String, u32)| Ok((!run.is_done(stage, &item.0)?).then_some(item));
        let items = list_items(context, &plan, stage, num_tasks)?.into_par_iter().map(is_left);
        let mut left: Vec<(String, u32)> =
            items.filter_map(Result::transpose).collect::<Result<_>>()?;
        // Any task writes the reports, but only once all else is done.
        if left.iter().any(|(key, _)| key != REPORTS) {
            left.retain(|(key, _)| key != REPORTS);
        }
        if !left.is_empty() {
            let items = left.len();
            let tasks: BTreeSet<u32> = left.into_iter().map(|(_, task)| task).collect();
            let tasks = tasks.into_iter().collect();
            return Ok(Some(Unfinished { stage, items, num_tasks, tasks }));
        }
    }
    Ok(None)
}

/// Lists the units of work of `stage`, each with its task out of `num_tasks`.
fn list_items(
    context: Context<'_>,
    plan: &Plan,
    stage: Stage,
    num_tasks: u32,
) -> Result<Vec<(String, u32)>> {
    let config = context.config;
    let of_shards = plan.task_of_shards(num_tasks);
    let shards = || plan.names().into_iter().zip(of_shards.iter().copied());
    let reports = || (REPORTS.to_owned(), 0);
    let dealt = |keys: Vec<String>| keys.into_iter().zip((0..num_tasks).cycle()).collect();
    let languages = || Ok::<_, Error>(Embedded::of(context.run)?.languages());
    Ok(match stage {
        Stage::Cascade | Stage::Filter | Stage::Deduplicate
            if !stages_of(config).contains(&stage) =>
        {
            Vec::new()
        }
        Stage::Cascade => {
            // Every task may take languages; the first task is responsible for unfinished ones.
            let keys = Cascade::keys(config, plan);
            let of_languages = repeat_n(0, keys.len() - of_shards.len());
            keys.into_iter().zip(of_languages.chain(of_shards)).collect()
        }
        // The first task is responsible for the reports.
        Stage::Filter => shards().chain([reports()]).collect(),
        Stage::Export if has_reports(config) => shards().chain([reports()]).collect(),
        Stage::Embed | Stage::Export => shards().collect(),
        Stage::Score => score_keys(plan, config.heads.keys())
            .into_iter()
            .zip(of_shards.into_iter().cycle())
            .collect(),
        Stage::Train => dealt(polysift_corpus::training::keys(context)?),
        Stage::Refine if !config.embeds_texts() || is_precise(context.run)? => Vec::new(),
        Stage::Refine => dealt(vec![ALL_LANGUAGES.to_owned()]),
        Stage::Deduplicate => {
            let languages = deduplicated(config, languages()?);
            dealt(languages.into_iter().chain([REPORTS.to_owned()]).collect())
        }
        Stage::Threshold => dealt(languages()?.into_iter().collect()),
    })
}
