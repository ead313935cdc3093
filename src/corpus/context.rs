//! The arguments that every stage takes.

use serde_json::Value;

use polysift_base::error::Result;
use polysift_base::io::{read, write_atomic};
use polysift_base::progress::{Progress, Stop};
use polysift_config::RunConfig;
use polysift_encoder::HubSettings;
use polysift_runs::cluster::Task;
use polysift_runs::run::{Claims, RunDir, Stage, Worker};

/// The arguments that every stage takes.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Settings, with relative patterns made absolute.
    pub config: &'a RunConfig,
    /// The run directory, for all outputs.
    pub run: &'a RunDir,
    /// How models are downloaded.
    pub hub: &'a HubSettings,
    /// Tells whether the stage is asked to stop.
    pub stop: &'a Stop,
    /// Receives the progress of the stage.
    pub progress: &'a dyn Progress,
    /// First stage to redo; its outputs and those of the stages that depend on it are discarded.
    pub redo: Option<Stage>,
    /// This process, as a worker on the run directory.
    pub worker: &'a Worker,
    /// The share of every stage that this process does; `None`: all that no other process does.
    pub task: Option<Task>,
    /// True if a stage waits for the units of work that other processes hold.
    pub waits: bool,
    /// The unit of work that is being done; `None` between units.
    pub held: Option<(&'a Claims<'a>, usize)>,
}

impl<'a> Context<'a> {
    /// Makes a context for commands that write nothing; see [`Worker::observer`].
    pub fn observing(
        config: &'a RunConfig,
        run: &'a RunDir,
        hub: &'a HubSettings,
        stop: &'a Stop,
        progress: &'a dyn Progress,
        worker: &'a Worker,
    ) -> Self {
        Self {
            config,
            run,
            hub,
            stop,
            progress,
            redo: None,
            worker,
            task: None,
            waits: false,
            held: None,
        }
    }

    /// Checks that this process still holds the unit of work that it does. Stages ask before an
    /// output gets its final name: another process may have taken over, and even begun anew.
    pub fn check_held(&self) -> Result<()> {
        self.held.map_or(Ok(()), |(claims, item)| claims.check(item))
    }

    /// Discards the outputs of a `redo`, freezes what `stage` depends on ([`RunDir::freeze`]) and
    /// keeps the settings, unless a later stage may still refuse them. It is called when everything
    /// that the stage needs was found.
    pub fn freeze(&self, stage: Stage, settings: &Value) -> Result<()> {
        self.discard_redone(stage)?;
        self.run.freeze(stage, settings, self.worker, self.stop)?;
        self.keep_settings(Some(stage))
    }

    /// Discards the outputs of `stage` and of the stages that depend on it, if it is to be redone.
    pub fn discard_redone(&self, stage: Stage) -> Result<()> {
        if self.redo != Some(stage) {
            return Ok(());
        }
        self.worker.exclusive(self.stop, |held| self.run.discard_from(stage, held))
    }

    /// Writes the settings to the run directory, for commands that take only the directory, unless
    /// the settings of a stage after `stage` are frozen: it may refuse these.
    pub fn keep_settings(&self, stage: Option<Stage>) -> Result<()> {
        for later in Stage::ALL.into_iter().filter(|later| Some(*later) > stage) {
            if self.run.frozen_settings(later)?.is_some() {
                return Ok(());
            }
        }
        let path = self.run.path("config.toml");
        let text = self.config.to_toml("config.toml")?;
        if read(&path).is_ok_and(|stored| stored == text.as_bytes()) {
            return Ok(());
        }
        write_atomic(&path, text.as_bytes()).map(drop)
    }
}
