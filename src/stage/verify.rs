//! Holds a run against itself: files present and unchanged, counts adding up, cuts recomputed.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::corpus::ScoreFiles;
use super::export::selections;
use super::score::Heads;
use super::threshold::select_language;
use super::{ALL_LANGUAGES, Context};
use crate::error::{Error, Result};
use crate::run::{PartFile, Plan, RunDir, Shard, ShardMarker, Stage};
use crate::store::stamp;

/// What was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// Files whose digest was recomputed.
    pub files: u64,
    /// Rows that add up over the stages.
    pub rows: u64,
    /// Languages whose cuts were recomputed.
    pub languages: u64,
    /// What is wrong, in words; empty when all is well.
    pub problems: Vec<String>,
}

/// Verifies every stage of the run that was begun.
pub fn verify(context: Context<'_>) -> Result<Verified> {
    let run = context.run;
    let plan = run.plan()?;
    let mut checks =
        Checks { context, begun: Vec::new(), verified: Verified::default(), files: Vec::new() };
    checks.frozen()?;
    for shard in &plan.shards {
        checks.shard(shard);
    }
    for (key, marker) in run.markers(Stage::Train)? {
        checks.take(marker, || format!("train: the marker of {key} cannot be read"));
    }
    if checks.begun.contains(&Stage::Refine) {
        checks.rounds(&plan)?;
    }
    if checks.begun.contains(&Stage::Threshold) {
        checks.marker(Stage::Threshold, ALL_LANGUAGES);
        checks.cuts(&plan)?;
    }
    let Checks { mut verified, files, .. } = checks;
    verified.files = files.len() as u64;
    verified.problems.extend(wrong_digests(context, &files)?);
    Ok(verified)
}

/// The checks of a run in progress.
struct Checks<'a> {
    context: Context<'a>,
    /// Stages with frozen settings; a stage that was begun has to be complete.
    begun: Vec<Stage>,
    verified: Verified,
    /// Files that markers stand for.
    files: Vec<PartFile>,
}

impl Checks<'_> {
    /// Finds the stages that were begun; all of them where `run.json` cannot be read.
    fn frozen(&mut self) -> Result<()> {
        for stage in Stage::ALL {
            match self.context.run.frozen_settings(stage) {
                Ok(None) => {}
                Ok(Some(_)) => self.begun.push(stage),
                Err(error @ Error::Decode { .. }) => {
                    self.begun = Stage::ALL.to_vec();
                    self.verified.problems.push(super::chain(&error));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !self.begun.contains(&Stage::Embed) {
            self.verified.problems.push("run.json does not know the embed stage".to_owned());
        }
        Ok(())
    }

    fn take(
        &mut self,
        marker: Result<Option<ShardMarker>>,
        missing: impl Fn() -> String,
    ) -> Option<ShardMarker> {
        match marker {
            Ok(Some(marker)) => {
                self.files.extend(marker.files.iter().cloned());
                Some(marker)
            }
            Ok(None) => {
                self.verified.problems.push(missing());
                None
            }
            Err(error) => {
                self.verified.problems.push(super::chain(&error));
                None
            }
        }
    }

    /// The marker of `key`; its absence is a problem.
    fn marker(&mut self, stage: Stage, key: &str) -> Option<ShardMarker> {
        let marker = self.context.run.shard_marker(stage, key);
        self.take(marker, || format!("{}: {key} is not done", stage.name()))
    }

    /// What the stages say of one shard, against each other and against the exported files.
    fn shard(&mut self, shard: &Shard) {
        let context = self.context;
        if shard.file.exists()
            && let Err(error) = shard.input()
        {
            self.verified.problems.push(super::chain(&error));
        }
        let Some(embedded) = self.marker(Stage::Embed, &shard.name) else { return };
        self.verified.rows += embedded.rows;
        let mut later = Vec::new();
        for stage in [Stage::Score, Stage::Refine] {
            if self.begun.contains(&stage) {
                let keys = context.config.heads.keys().map(|head| format!("{head}/{}", shard.name));
                later.extend(keys.map(|key| (stage, key)));
            }
        }
        if self.begun.contains(&Stage::Export) {
            later.push((Stage::Export, shard.name.clone()));
        }
        for (stage, key) in later {
            let Some(marker) = self.marker(stage, &key) else { continue };
            if marker.rows != embedded.rows {
                self.verified.problems.push(format!(
                    "{}: {key} accounts for {} rows, embed for {}",
                    stage.name(),
                    marker.rows,
                    embedded.rows
                ));
            }
            if stage == Stage::Export {
                exported_rows(context.run, &marker, &mut self.verified.problems);
            }
        }
    }

    /// The rounds of the refine stage, which end with one that found nothing, and its report.
    fn rounds(&mut self, plan: &Plan) -> Result<()> {
        let run = self.context.run;
        self.marker(Stage::Refine, ALL_LANGUAGES);
        for round in 0.. {
            let Some(whole) = self.marker(Stage::Refine, &RunDir::round_key(round)) else { break };
            let mut rows = 0;
            for shard in &plan.shards {
                let key = RunDir::round_shard_key(round, shard);
                if let Some(marker) = run.shard_marker(Stage::Refine, &key)? {
                    rows += marker.rows;
                    self.files.extend(marker.files);
                }
            }
            if rows != whole.rows {
                let problem = format!("refine: round {round} scored {rows} rows of {}", whole.rows);
                self.verified.problems.push(problem);
            }
            if whole.rows == 0 && round > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Recomputes the cuts of every language and compares them with the stored ones.
    fn cuts(&mut self, plan: &Plan) -> Result<()> {
        let (stored, heads) = match (selections(self.context.run), Heads::load(self.context)) {
            (Ok(stored), Ok(heads)) => (stored, heads),
            (Err(error), _) | (_, Err(error)) => {
                self.verified.problems.push(super::chain(&error));
                return Ok(());
            }
        };
        let run = self.context.run;
        let made_with = run.frozen_settings(Stage::Score).ok().flatten();
        if made_with.is_none() || made_with != heads.settings_of_scores(run).ok() {
            self.verified.problems.push("the heads are not those that made the scores".to_owned());
        }
        let files = match ScoreFiles::selected(self.context) {
            Ok(files) => files,
            Err(error) => {
                self.verified.problems.push(super::chain(&error));
                return Ok(());
            }
        };
        for (language, stored) in stored {
            match select_language(self.context, plan, &heads, &language, files) {
                Ok(recomputed) if recomputed == stored => {}
                Ok(_) => self
                    .verified
                    .problems
                    .push(format!("{language}: the stored cuts are not those of the scores")),
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => self.verified.problems.push(super::chain(&error)),
            }
            self.verified.languages += 1;
        }
        Ok(())
    }
}

/// Rows of the exported files against the counts of the marker.
fn exported_rows(run: &RunDir, marker: &ShardMarker, problems: &mut Vec<String>) {
    let mut by_folder: BTreeMap<&str, u64> = BTreeMap::new();
    for file in &marker.files {
        let reason = match file.path.strip_prefix("removed/") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None => "kept",
        };
        *by_folder.entry(reason).or_default() += file.rows;
        match crate::store::parquet_rows(&run.path(&file.path)) {
            Ok(rows) if rows == file.rows => {}
            Ok(rows) => {
                problems.push(format!("{}: holds {rows} rows, not {}", file.path, file.rows));
            }
            Err(error) => problems.push(super::chain(&error)),
        }
    }
    for (reason, rows) in by_folder {
        let counted = marker.counts.get(reason).copied().unwrap_or_default();
        if rows != counted {
            problems.push(format!("{reason}: {rows} rows exported, {counted} counted"));
        }
    }
}

fn wrong_digests(context: Context<'_>, files: &[PartFile]) -> Result<Vec<String>> {
    let wrong: Vec<Option<String>> = files
        .par_iter()
        .map(|file| {
            context.stop.check()?;
            Ok(match stamp(&context.run.path(&file.path)) {
                Ok(found) if found == file.stamp => None,
                Ok(_) => Some(format!("{}: changed since it was written", file.path)),
                Err(error) => Some(super::chain(&error)),
            })
        })
        .collect::<Result<_>>()?;
    Ok(wrong.into_iter().flatten().collect())
}
