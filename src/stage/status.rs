//! How far a run is, from its markers alone.

use std::collections::BTreeMap;

use serde::Serialize;

use super::refine::Refinement;
use crate::error::Result;
use crate::run::{RunDir, Stage};

/// Progress of a stage.
#[derive(Debug, Clone, Serialize)]
pub struct StageStatus {
    /// The stage.
    pub stage: Stage,
    /// Pieces of work that are done (shards; heads; shards times heads).
    pub done: usize,
    /// Pieces of work in all, where that is known.
    pub total: Option<usize>,
    /// Rows accounted for by what is done.
    pub rows: u64,
    /// Rows by what became of them.
    pub counts: BTreeMap<String, u64>,
}

/// Status of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunStatus {
    /// Shards of the plan.
    pub shards: usize,
    /// Bytes of input.
    pub input_bytes: u64,
    /// Rows with text so far.
    pub documents: u64,
    /// Encoded tokens so far.
    pub tokens: u64,
    /// Malformed rows set aside so far.
    pub rejects: u64,
    /// Stage by stage; the refine stage only where it was begun.
    pub stages: Vec<StageStatus>,
    /// What the refine stage did, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinement: Option<Refinement>,
}

impl RunStatus {
    /// Whether everything that was begun is complete up to and including the export.
    pub fn finished(&self) -> bool {
        self.stages.iter().all(|s| s.total.is_none_or(|total| s.done == total))
    }
}

/// Reads the status of `run`; `heads` are the names of its heads.
pub fn status(run: &RunDir, heads: &[&str]) -> Result<RunStatus> {
    let plan = run.plan()?;
    let mut result = RunStatus {
        shards: plan.shards.len(),
        input_bytes: plan.bytes(),
        documents: 0,
        tokens: 0,
        rejects: 0,
        stages: Vec::new(),
        refinement: Refinement::read(run)?,
    };
    for shard in &plan.shards {
        for part in run.part_markers(shard)? {
            result.documents += part.documents;
            result.tokens += part.tokens;
            result.rejects += part.rejects;
        }
    }
    let names: Vec<String> = plan.shards.iter().map(|s| s.name.clone()).collect();
    let scores: Vec<String> =
        heads.iter().flat_map(|h| names.iter().map(move |n| format!("{h}/{n}"))).collect();
    let is_refined = run.frozen_settings(Stage::Refine)?.is_some();
    for (stage, keys) in [
        (Stage::Embed, names.as_slice()),
        (Stage::Score, &scores),
        (Stage::Refine, &scores),
        (Stage::Threshold, &[super::ALL_LANGUAGES.to_owned()]),
        (Stage::Export, &names),
    ] {
        if stage == Stage::Refine && !is_refined {
            continue;
        }
        result.stages.push(stage_status(run, stage, keys)?);
    }
    Ok(result)
}

fn stage_status(run: &RunDir, stage: Stage, keys: &[String]) -> Result<StageStatus> {
    let mut status =
        StageStatus { stage, done: 0, total: Some(keys.len()), rows: 0, counts: BTreeMap::new() };
    for key in keys {
        if let Some(marker) = run.shard_marker(stage, key)? {
            status.done += 1;
            status.rows += marker.rows;
            for (name, count) in marker.counts {
                *status.counts.entry(name).or_default() += count;
            }
        }
    }
    Ok(status)
}
