//! Frozen settings: the settings that a stage's outputs were made with; other settings are refused.
//!
//! Each stage has one file, which is written once. If several processes begin a stage at the same
//! time, one freezes its settings and the others are checked against them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::dir::PLAN;
use super::{Held, RunDir, Stage, Worker};
use polysift_base::error::{Error, Result};
use polysift_base::io::{remove_while, write_new};
use polysift_base::progress::{STOP_POLL, Stop};

impl RunDir {
    fn frozen_file(&self, stage: Stage) -> PathBuf {
        self.path("frozen").join(format!("{}.json", stage.name()))
    }

    /// Freezes `settings` for `stage`, or checks that they equal what was frozen before.
    /// [`Error::Mismatch`] if the stage has begun a unit of work, and for a new stage if later ones
    /// went on without it; else `settings` replace the old ([`Error::Busy`] while others work).
    pub fn freeze(
        &self,
        stage: Stage,
        settings: &Value,
        worker: &Worker,
        stop: &Stop,
    ) -> Result<()> {
        loop {
            let Some(before) = self.frozen_settings(stage)? else {
                self.check_order(stage)?;
                let text = format!("{settings:#}\n");
                if !write_new(&self.frozen_file(stage), text.as_bytes())? {
                    // Another process was first; its settings count once this machine sees them.
                    stop.check()?;
                    std::thread::sleep(STOP_POLL);
                }
                continue;
            };
            if before == *settings {
                return Ok(());
            }
            if self.is_begun(stage) {
                return Err(self.mismatch(stage, difference(stage.name(), &before, settings)));
            }
            // Settings of a stage that has not begun may be replaced.
            worker.exclusive(stop, |held| {
                if self.is_begun(stage) { Ok(()) } else { self.discard(stage, held) }
            })?;
        }
    }

    /// Checks `settings` against the frozen settings of `stage`, if it has any; freezes nothing.
    pub fn check_frozen(&self, stage: Stage, settings: &Value) -> Result<()> {
        match self.frozen_settings(stage)? {
            Some(before) if before != *settings => {
                Err(self.mismatch(stage, difference(stage.name(), &before, settings)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no stage from [`Stage::Deduplicate`] on was begun without `stage`, which has
    /// never run and which it depends on; [`Error::Mismatch`] if one was.
    fn check_order(&self, stage: Stage) -> Result<()> {
        let depends = |later: &Stage| later.depends_on(stage) && *later >= Stage::Deduplicate;
        for later in Stage::ALL.into_iter().filter(depends) {
            if self.frozen_settings(later)?.is_some() && self.is_begun(later) {
                let difference = format!("  {} was done without {}", later.name(), stage.name());
                return Err(self.mismatch(stage, difference));
            }
        }
        Ok(())
    }

    /// Returns [`Error::Corrupt`] if a stage with outputs that no `redo` discards has no settings.
    pub fn check_settings(&self, redo: Option<Stage>) -> Result<()> {
        let done: Vec<Stage> = Stage::ALL.into_iter().filter(|it| self.has_outputs(*it)).collect();
        // Settings come first, so they are there now; a list has what other machines just wrote.
        let frozen = self.list_tree("frozen")?;
        let is_lost = |stage: &Stage| {
            !frozen.contains(&format!("{}.json", stage.name()))
                && !redo.into_iter().flat_map(stages_to_discard).any(|it| it == *stage)
        };
        done.into_iter().find(is_lost).map_or(Ok(()), |stage| {
            let reason = format!("is gone; put it back from a copy, or {}", redo_hint(stage));
            Err(Error::corrupt(&self.frozen_file(stage), reason))
        })
    }

    /// Returns true if `stage` has records of units of work that are done or in progress.
    fn is_begun(&self, stage: Stage) -> bool {
        self.has_outputs(stage) || self.path("state").join(stage.name()).join("leases").exists()
    }

    /// Returns true if `stage` has records of units of work that are done or half done.
    fn has_outputs(&self, stage: Stage) -> bool {
        let state = self.path("state").join(stage.name());
        ["done", "parts", "saved"].iter().any(|kind| state.join(kind).exists())
    }

    /// Makes the [`Error::Mismatch`] of `stage`, with a hint at the stage to redo.
    fn mismatch(&self, stage: Stage, difference: String) -> Error {
        // Embeddings follow from the cascade, so they are redone together.
        let is_cascaded = stage == Stage::Embed && self.frozen_file(Stage::Cascade).exists();
        let redo = redo_hint(if is_cascaded { Stage::Cascade } else { stage });
        let hint = format!("restore the settings, choose another run directory, or {redo}");
        Error::Mismatch { path: self.root().to_owned(), difference, hint }
    }

    /// Reads the frozen settings of `stage`; `None` before it froze any.
    pub fn frozen_settings(&self, stage: Stage) -> Result<Option<Value>> {
        self.read_json(&self.frozen_file(stage))
    }

    /// Discards markers, outputs and settings of `first` and of the stages that depend on it; for
    /// the embed stage the cascade and the plan too. `held` is from [`Worker::exclusive`].
    pub fn discard_from(&self, first: Stage, held: Held<'_>) -> Result<()> {
        stages_to_discard(first).try_for_each(|stage| self.discard(stage, held))?;
        if first == Stage::Embed { remove_while(&self.path(PLAN), held) } else { Ok(()) }
    }

    /// Discards markers, outputs and settings of `stage` alone.
    fn discard(&self, stage: Stage, held: Held<'_>) -> Result<()> {
        if stage == Stage::Export {
            self.remove_exported_elsewhere(held)?;
        }
        // Markers go first: after a crash in between, outputs without markers do not count.
        remove_while(&self.path("state").join(stage.name()), held)?;
        for directory in stage.outputs() {
            remove_while(&self.path(directory), held)?;
        }
        remove_while(&self.frozen_file(stage), held)
    }

    /// Removes the exported files outside the run directory that are still as the run wrote them.
    fn remove_exported_elsewhere(&self, held: Held<'_>) -> Result<()> {
        for key in self.done_keys(Stage::Export)? {
            let marker = self.shard_marker(Stage::Export, &key)?.unwrap_or_default();
            for file in marker.files.iter().filter(|file| Path::new(&file.path).is_absolute()) {
                if self.check_file(file).is_ok() {
                    remove_while(Path::new(&file.path), held)?;
                }
            }
        }
        Ok(())
    }
}

/// Says how to redo `stage`; the commands of other stages refuse its `--redo`.
fn redo_hint(stage: Stage) -> String {
    format!(
        "give `--redo {0}` to `polysift run` or `polysift {0}` to discard the outputs of this stage \
         and of those after it",
        stage.name()
    )
}

/// Returns the stages that are discarded with `first`, which comes last: after a crash in between,
/// its settings still refuse others, and no later stage counts as done without it.
fn stages_to_discard(first: Stage) -> impl Iterator<Item = Stage> {
    // The plan is discarded with the embeddings, and the cascade was made for the plan.
    let is_of_plan = move |stage: Stage| first == Stage::Embed && stage == Stage::Cascade;
    let goes = move |stage: &Stage| stage.depends_on(first) || is_of_plan(*stage);
    Stage::ALL.into_iter().rev().filter(goes).chain([first])
}

/// Returns one line for each differing leaf: dotted key, frozen value, new value.
pub fn difference(prefix: &str, before: &Value, after: &Value) -> String {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(prefix, before, &mut old);
    flatten(prefix, after, &mut new);
    let mut lines = String::new();
    for key in old.keys().chain(new.keys().filter(|k| !old.contains_key(*k))) {
        let [was, is] = [&old, &new].map(|all| all.get(key).map_or("(absent)", String::as_str));
        if was != is {
            let _ = writeln!(lines, "  {key}: was {was}, now {is}");
        }
    }
    lines.trim_end().to_owned()
}

/// Adds the leaves of `value` to `out`, as JSON by dotted key. An empty object is a leaf.
fn flatten(key: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(k, v)| flatten(&format!("{key}.{k}"), v, out));
        }
        leaf => {
            out.insert(key.to_owned(), leaf.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn freeze(run: &RunDir, stage: Stage, settings: &Value) -> Result<()> {
        let stop = Stop::default();
        run.freeze(stage, settings, &Worker::join(run, &stop)?, &stop)
    }

    #[test]
    fn the_same_settings_are_accepted_again_and_others_are_refused_with_the_key() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        freeze(&run, Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "first"}}))?;
        freeze(&run, Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "first"}}))?;
        run.mark_shard(Stage::Embed, "a", &crate::run::ShardMarker::default())?;
        let refused =
            freeze(&run, Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "all"}}));
        let message = refused.map_err(|e| (e.exit_code(), e.to_string()));
        assert!(message.is_err_and(|(code, text)| {
            code == 78 && text.contains("embed.encoder.chunks: was \"first\", now \"all\"")
        }));
        Ok(())
    }

    #[test]
    fn settings_that_bound_nobody_are_replaced_unless_others_are_at_work() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        freeze(&run, Stage::Embed, &json!({"x": 1}))?;
        freeze(&run, Stage::Embed, &json!({"x": 2}))?;
        assert_eq!(run.frozen_settings(Stage::Embed)?, Some(json!({"x": 2})));
        let _other = Worker::join(&run, &Stop::default())?;
        let refused = freeze(&run, Stage::Embed, &json!({"x": 3}));
        assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
        Ok(())
    }

    #[test]
    fn of_processes_that_freeze_at_once_all_agree_in_the_end() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let run = &run;
                    scope.spawn(move || {
                        let settings = json!({"x": i});
                        write_new(&run.frozen_file(Stage::Embed), settings.to_string().as_bytes())
                    })
                })
                .collect();
            threads.into_iter().map(|t| matches!(t.join(), Ok(Ok(true)))).collect()
        });
        assert_eq!(outcomes.iter().filter(|first| **first).count(), 1);
        let winner = outcomes.iter().position(|first| *first);
        assert_eq!(run.frozen_settings(Stage::Embed)?, Some(json!({"x": winner})));
        Ok(())
    }

    #[test]
    fn a_stage_that_has_begun_has_settings_or_is_redone() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        for stage in [Stage::Embed, Stage::Score] {
            freeze(&run, stage, &json!({"x": 1}))?;
            run.mark_shard(stage, "a", &crate::run::ShardMarker::default())?;
        }
        run.check_settings(None)?;
        polysift_base::io::remove(&run.frozen_file(Stage::Score))?;
        for redo in [None, Some(Stage::Threshold), Some(Stage::Filter)] {
            let refused = run.check_settings(redo).map_err(|e| (e.exit_code(), e.to_string()));
            assert!(refused.is_err_and(|(code, text)| {
                code == 65 && text.contains("score.json") && text.contains("`--redo score`")
            }));
        }
        for redo in [Stage::Embed, Stage::Train, Stage::Score] {
            run.check_settings(Some(redo))?;
        }
        Ok(())
    }

    #[test]
    fn redoing_a_stage_forgets_it_and_what_follows_only() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        for stage in Stage::ALL {
            freeze(&run, stage, &json!({"x": 1}))?;
        }
        run.discard_from(Stage::Score, &|| Ok(()))?;
        assert!(run.frozen_settings(Stage::Train)?.is_some());
        assert!(run.frozen_settings(Stage::Score)?.is_none());
        assert!(run.frozen_settings(Stage::Export)?.is_none());
        Ok(())
    }

    #[test]
    fn a_stage_is_discarded_after_the_stages_that_depend_on_it() {
        for first in Stage::ALL {
            let mut stages: Vec<Stage> = stages_to_discard(first).collect();
            assert_eq!(stages.pop(), Some(first));
            for (at, stage) in stages.iter().enumerate() {
                let earlier = stages[..at].iter().find(|earlier| stage.depends_on(**earlier));
                assert_eq!(earlier, None, "{first:?}: {stages:?}");
            }
        }
    }
}
