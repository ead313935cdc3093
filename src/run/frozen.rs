//! Frozen settings: what a stage's outputs were made with, and the refusal to mix them with others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use super::{RunDir, Stage};
use crate::error::{Error, Result};

type Frozen = BTreeMap<String, Value>;

impl RunDir {
    fn frozen_file(&self) -> PathBuf {
        self.path("run.json")
    }

    fn frozen(&self) -> Result<Frozen> {
        Ok(self.read_json(&self.frozen_file())?.unwrap_or_default())
    }

    /// Freezes `settings` for `stage`, or checks that they equal what was frozen before.
    /// A difference is [`Error::Mismatch`], listing each differing key, once a piece of the stage's work is done.
    pub fn freeze(&self, stage: Stage, settings: &Value) -> Result<()> {
        let mut frozen = self.frozen()?;
        match frozen.get(stage.name()) {
            Some(before) if before == settings => Ok(()),
            // A stage that did nothing yet binds nobody.
            Some(_) if !self.path("state").join(stage.name()).exists() => {
                self.discard_from(stage)?;
                self.freeze(stage, settings)
            }
            Some(before) => Err(Error::Mismatch {
                path: self.root().to_owned(),
                difference: difference(stage.name(), before, settings),
                hint: format!(
                    "restore the settings, choose another run directory, or give `--redo {}` to \
                     discard the outputs of this stage and of those after it",
                    stage.name()
                ),
            }),
            None => {
                frozen.insert(stage.name().to_owned(), settings.clone());
                self.write_json(&self.frozen_file(), &frozen).map(drop)
            }
        }
    }

    /// What `stage` was frozen with.
    pub fn frozen_settings(&self, stage: Stage) -> Result<Option<Value>> {
        Ok(self.frozen()?.remove(stage.name()))
    }

    /// Discards the markers, outputs and frozen settings of `first` and of every later stage.
    pub fn discard_from(&self, first: Stage) -> Result<()> {
        let mut frozen = self.frozen()?;
        for stage in Stage::ALL.into_iter().filter(|s| *s >= first) {
            // Markers first: after a crash in between, outputs without markers do not count.
            self.remove_tree(&format!("state/{}", stage.name()))?;
            for directory in stage.outputs() {
                self.remove_tree(directory)?;
            }
            frozen.remove(stage.name());
        }
        if first == Stage::Embed {
            self.remove_tree("plan.json")?;
        }
        self.write_json(&self.frozen_file(), &frozen).map(drop)
    }

    fn remove_tree(&self, relative: &str) -> Result<()> {
        let path = self.path(relative);
        let removed =
            if path.is_dir() { fs_err::remove_dir_all(&path) } else { fs_err::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(&path, "remove")(e))
            }
            _ => Ok(()),
        }
    }
}

/// One line per differing leaf: dotted key, frozen value, new value.
fn difference(prefix: &str, before: &Value, after: &Value) -> String {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(prefix, before, &mut old);
    flatten(prefix, after, &mut new);
    let mut lines = String::new();
    let absent = || "(absent)".to_owned();
    for key in old.keys().chain(new.keys().filter(|k| !old.contains_key(*k))) {
        if old.get(key) != new.get(key) {
            let was = old.get(key).cloned().unwrap_or_else(absent);
            let is = new.get(key).cloned().unwrap_or_else(absent);
            let _ = writeln!(lines, "  {key}: was {was}, now {is}");
        }
    }
    lines.trim_end().to_owned()
}

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

    fn run_dir() -> Result<(tempfile::TempDir, RunDir)> {
        let dir = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
        let run = RunDir::create(dir.path())?;
        Ok((dir, run))
    }

    #[test]
    fn the_same_settings_are_accepted_again_and_others_are_refused_with_the_key() -> Result<()> {
        let (_dir, run) = run_dir()?;
        run.freeze(Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "first"}}))?;
        run.freeze(Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "first"}}))?;
        run.mark_shard(Stage::Embed, "a", &crate::run::ShardMarker::default())?;
        let refused =
            run.freeze(Stage::Embed, &json!({"encoder": {"digest": "a", "chunks": "all"}}));
        let message = refused.map_err(|e| (e.exit_code(), e.to_string()));
        assert!(message.is_err_and(|(code, text)| {
            code == 78 && text.contains("embed.encoder.chunks: was \"first\", now \"all\"")
        }));
        Ok(())
    }

    #[test]
    fn redoing_a_stage_forgets_it_and_what_follows_only() -> Result<()> {
        let (_dir, run) = run_dir()?;
        for stage in Stage::ALL {
            run.freeze(stage, &json!({"x": 1}))?;
        }
        run.discard_from(Stage::Score)?;
        assert!(run.frozen_settings(Stage::Train)?.is_some());
        assert!(run.frozen_settings(Stage::Score)?.is_none());
        assert!(run.frozen_settings(Stage::Export)?.is_none());
        Ok(())
    }
}
