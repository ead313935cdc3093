//! A planned run, as the commands see it that hand its stages to a scheduler.

use std::path::PathBuf;

use clap::Args;

use polysift::cluster::StageTasks;
use polysift::config::RunConfig;
use polysift::progress::{Silent, Stop};
use polysift::run::{Plan, RunDir, Stage, Worker};
use polysift::stage::Context;
use polysift::stage::status::{stages_of, unfinished};
use polysift::{Error, Result};

use super::settings::{SettingsArgs, hub, resolve, stage_names};

/// Tasks of a stage unless they are given: one per shard, at most this many.
const MAX_DEFAULT_TASKS: u32 = 100;

/// Which run, and which of its stages.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    /// The run directory, planned (`polysift plan`) and on a file system that all nodes share
    #[arg(long, value_name = "DIR", env = "POLYSIFT_RUN")]
    pub(crate) run: PathBuf,
    /// Only these stages [default: all that the settings ask for]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    pub(crate) stage: Vec<Stage>,
}

/// A run that was planned.
pub(crate) struct Planned {
    /// Its directory.
    pub(crate) run: RunDir,
    /// The same, by its absolute path.
    pub(crate) root: PathBuf,
    /// What is to be done.
    pub(crate) stages: Vec<Stage>,
    plan: Plan,
    config: RunConfig,
}

impl Planned {
    /// Opens the run; [`Error::Missing`] where it is not planned.
    pub(crate) fn open(args: &StageArgs) -> Result<Self> {
        let root = std::path::absolute(&args.run).map_err(Error::io(&args.run, "resolve"))?;
        if !root.join("config.toml").is_file() {
            let reason = "is not a planned run; make it with `polysift plan --run DIR ...`".into();
            return Err(Error::Missing { path: root.display().to_string(), reason });
        }
        let run = RunDir::open(&root)?;
        let settings = SettingsArgs { run: Some(root.clone()), ..SettingsArgs::default() };
        let config = resolve(&settings)?.config;
        let mut stages =
            if args.stage.is_empty() { stages_of(&config) } else { args.stage.clone() };
        stages.sort_unstable();
        stages.dedup();
        Ok(Self { plan: run.plan()?, run, root, stages, config })
    }

    /// Number of tasks of a stage: `wanted`, and never more than there are shards.
    pub(crate) fn num_tasks(&self, wanted: Option<u32>) -> u32 {
        let most = u32::try_from(self.plan.shards.len().max(1)).unwrap_or(u32::MAX);
        wanted.unwrap_or(MAX_DEFAULT_TASKS).min(most)
    }

    /// All of the stages, in `num_tasks` tasks.
    pub(crate) fn all(&self, num_tasks: u32) -> Vec<StageTasks> {
        let whole = |stage: &Stage| StageTasks::whole(&self.config, *stage, num_tasks);
        self.stages.iter().map(whole).collect()
    }

    /// What is left of the stages, in `num_tasks` tasks: of the first that is not done the tasks that have
    /// something to do, and all of those after it.
    pub(crate) fn left(&self, num_tasks: u32) -> Result<Vec<StageTasks>> {
        let (hub, stop, worker) = (hub(false), Stop::default(), Worker::observer(&self.run));
        let context = Context::observing(&self.config, &self.run, &hub, &stop, &Silent, &worker);
        let mut work: Vec<StageTasks> = Vec::new();
        for &stage in &self.stages {
            if !work.is_empty() {
                work.push(StageTasks::whole(&self.config, stage, num_tasks));
            } else if let Some(left) = unfinished(context, Some(stage), Some(num_tasks))? {
                work.push(StageTasks::of_tasks(&self.config, stage, left.tasks));
            }
        }
        Ok(work)
    }
}
