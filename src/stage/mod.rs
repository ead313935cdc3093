//! The stages of the job, each a function over a [`Context`] that may be killed and called again.
//!
//! A stage freezes what it depends on and does the items that have no marker yet and that no other
//! process holds. An item whose data is bad is reported and skipped; the others are done.

pub(crate) mod corpus;
mod discover;
pub mod embed;
pub mod estimate;
pub mod export;
pub mod inputs;
pub mod inspect;
pub mod plan;
pub mod refine;
pub mod score;
pub mod status;
mod texts;
pub mod threshold;
pub mod train;
pub mod verify;
mod work;

use serde_json::Value;

use crate::cluster::Task;
use crate::config::RunConfig;
use crate::encoder::{self, HubSettings, Model};
use crate::error::{Error, Result};
use crate::io::redacted;
use crate::io::write_atomic;
use crate::progress::{Progress, Stop};
use crate::run::{RunDir, Stage, Worker};

pub(crate) use crate::run::StageWork;
pub(crate) use discover::{Embedded, planned_languages};
pub use discover::{head_sources, input_files, languages_of};
pub(crate) use work::{Failures, score_keys};

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
    /// Told how far the stage is.
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
    fn keep_settings(&self) -> Result<()> {
        let path = self.run.path("config.toml");
        let text = toml::to_string(self.config)
            .map_err(|e| Error::config("config.toml", e.to_string()))?;
        if fs_err::read(&path).is_ok_and(|stored| stored == text.as_bytes()) {
            return Ok(());
        }
        write_atomic(&path, text.as_bytes()).map(drop)
    }
}

/// Loads the model for `stage`. Where the settings leave open in what it computes, it goes on as
/// the run was begun.
pub(crate) fn load_model(context: Context<'_>, stage: Stage) -> Result<Model> {
    let mut config = context.config.encoder.clone();
    let refine = context.config.selection.refine;
    if refine && stage == Stage::Train {
        return load_precise(context); // the selection is that of heads trained so
    }
    let discarded = |begun: Stage| {
        context.redo == Some(stage) && begun >= stage || refine && begun == Stage::Train
    };
    for begun in [Stage::Embed, Stage::Train].into_iter().filter(|begun| !discarded(*begun)) {
        let frozen = context.run.frozen_settings(begun)?.unwrap_or_default();
        if let Ok(precision) = serde_json::from_value(frozen["encoder"]["precision"].clone()) {
            config.go_on_in(precision);
        }
    }
    encoder::load(&config, context.hub)
}

/// Loads the model to compute in the type of [`refine::precise`].
pub(crate) fn load_precise(context: Context<'_>) -> Result<Model> {
    encoder::load(&refine::precise_settings(context)?, context.hub)
}

/// An error with its causes, in one line, and without the secrets of URLs.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    let chain = causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Some libraries repeat their cause in their own message.
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    });
    redacted(&chain)
}
