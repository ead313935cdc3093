//! `polysift slurm`: prints a script that submits what is left of a planned run.

use std::path::Path;

use clap::{Args, value_parser};

use polysift::cluster::StageTasks;
use polysift::cluster::slurm::{SlurmOptions, SlurmSettings, max_array_tasks, submit_script};
use polysift::config::RunConfig;
use polysift::corpus::Context;
use polysift::corpus::stage_order::{in_order, stages_of};
use polysift::io::create_folder;
use polysift::progress::{Silent, Stop};
use polysift::run::{RunDir, Stage, Worker};
use polysift::views::status::unfinished;
use polysift::{Error, Result};

use super::printer;
use super::settings::{RunDirArgs, hub, settings_of, stage_names};

/// Maximum default number of tasks per stage; the default is one task per shard.
const MAX_DEFAULT_TASKS: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(flatten)]
    run: RunDirArgs,
    /// Submit only these stages [default: all stages that the settings require]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    stage: Vec<Stage>,
    /// Tasks in a job array, at most one per shard and at most as many as the cluster takes
    /// [default: one per shard, at most 100]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    num_tasks: Option<u32>,
    #[command(flatten)]
    options: SlurmOptions,
}

pub(crate) fn run(args: &SlurmArgs) -> Result<()> {
    let root =
        std::path::absolute(args.run.path()).map_err(Error::io(args.run.path(), "resolve"))?;
    if !root.join("config.toml").is_file() {
        let reason = "is not a planned run; make it with `polysift plan --run DIR ...`";
        return Err(Error::missing(root, reason));
    }
    let run = RunDir::open(&root)?;
    let config = settings_of(&root)?;
    let shards = u32::try_from(run.plan()?.shards.len().max(1)).unwrap_or(u32::MAX);
    let wanted = args.num_tasks.unwrap_or(MAX_DEFAULT_TASKS).min(shards);
    // A script can also be made on a machine without Slurm.
    let num_tasks = wanted.min(max_array_tasks().unwrap_or(u32::MAX));
    if num_tasks < wanted {
        tracing::warn!("the cluster takes no more than {num_tasks} tasks in an array");
    }
    let program = std::env::current_exe();
    let settings = SlurmSettings {
        program: program.map_err(Error::io(Path::new("polysift"), "find the program"))?,
        run: root,
        num_tasks,
        options: args.options.clone(),
    };
    let stages = match &args.stage[..] {
        [] => stages_of(&config),
        named => in_order(&config, named.to_vec()),
    };
    let script = submit_script(&settings, &work_left(&run, &config, &stages, num_tasks)?)?;
    // Slurm fails a job if the folder of its log does not exist.
    create_folder(&run.path("logs"))?;
    printer::bytes(script.as_bytes());
    Ok(())
}

/// Returns the unfinished tasks of the first of `stages` that is not done, and all stages after it.
fn work_left(
    run: &RunDir,
    config: &RunConfig,
    stages: &[Stage],
    num_tasks: u32,
) -> Result<Vec<StageTasks>> {
    let (hub, stop, worker) = (hub(false), Stop::default(), Worker::observer(run));
    let context = Context::observing(config, run, &hub, &stop, &Silent, &worker);
    let mut work: Vec<StageTasks> = Vec::new();
    for &stage in stages {
        let tasks = if work.is_empty() {
            unfinished(context, Some(stage), Some(num_tasks))?.map(|left| left.tasks)
        } else {
            Some((0..num_tasks).collect())
        };
        work.extend(tasks.map(|tasks| StageTasks::of_tasks(config, stage, tasks)));
    }
    Ok(work)
}
