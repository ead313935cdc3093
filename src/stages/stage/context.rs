//! What every stage is given.

use serde_json::Value;

use polysift_base::error::Result;
use polysift_base::io::{read, write_atomic};
use polysift_base::progress::{Progress, Stop};
use polysift_config::RunConfig;
use polysift_encoder::HubSettings;
use polysift_runs::cluster::Task;
use polysift_runs::run::{RunDir, Stage, Worker};

/// Name of a head that serves every language, in place of a language code.
pub const ALL_LANGUAGES: &str = "_all";

/// What every stage is given.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Settings; relative patterns were made absolute.
    pub config: &'a RunConfig,
    /// Where everything is written.
    pub run: &'a RunDir,
    /// How models are fetched.
    pub hub: &'a HubSettings,
    /// Asks for a stop.
    pub stop: &'a Stop,
    /// Receives how far the stage is.
    pub progress: &'a dyn Progress,
    /// Stage whose outputs are to be made again, with those of all later stages.
    pub redo: Option<Stage>,
    /// This process among those that work in the run directory.
    pub worker: &'a Worker,
    /// What this process does of every stage; `None`: everything that nobody else does.
    pub task: Option<Task>,
    /// Whether a stage ends only when the items that other processes hold are done too.
    pub waits: bool,
}

impl<'a> Context<'a> {
    /// For commands that write nothing into the run directory; see [`Worker::observer`].
    pub fn observing(
        config: &'a RunConfig,
        run: &'a RunDir,
        hub: &'a HubSettings,
        stop: &'a Stop,
        progress: &'a dyn Progress,
        worker: &'a Worker,
    ) -> Self {
        Self { config, run, hub, stop, progress, redo: None, worker, task: None, waits: false }
    }

    /// Freezes what `stage` depends on (see [`RunDir::freeze`]) and keeps the accepted settings in
    /// the run directory. What is to be made again is discarded here, after all that the stage
    /// needs was found.
    pub(crate) fn freeze(&self, stage: Stage, settings: &Value) -> Result<()> {
        if self.redo == Some(stage) {
            self.worker.exclusive(self.stop, || self.run.discard_from(stage))?;
        }
        self.run.freeze(stage, settings, self.worker, self.stop)?;
        self.keep_settings()
    }

    /// Keeps the settings in the run directory, for commands that are given only that.
    pub(crate) fn keep_settings(&self) -> Result<()> {
        let path = self.run.path("config.toml");
        let text = self.config.to_toml("config.toml")?;
        if read(&path).is_ok_and(|stored| stored == text.as_bytes()) {
            return Ok(());
        }
        write_atomic(&path, text.as_bytes()).map(drop)
    }
}
