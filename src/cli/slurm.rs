//! `polysift slurm`: prints or submits the jobs of a planned run.

use std::path::Path;

use clap::{Args, Subcommand, value_parser};

use polysift::cluster::StageTasks;
use polysift::cluster::slurm::{
    SlurmOptions, SlurmSettings, Submission, driver_script, live_jobs, max_array_tasks, slurm_jobs,
    submissions, submit,
};
use polysift::config::RunConfig;
use polysift::corpus::Context;
use polysift::corpus::stage_order::{in_order, stages_of};
use polysift::io::create_folder;
use polysift::progress::{Silent, Stop};
use polysift::run::{Plan, RunDir, Stage, Worker};
use polysift::views::status::unfinished;
use polysift::{Error, Result};

use super::printer::{self, cells, or_dash};
use super::settings::{RunDirArgs, hub, settings_of, stage_names};

/// Maximum default number of tasks per stage; the default is one task per shard.
const MAX_DEFAULT_TASKS: u32 = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmCommand {
    /// Print the batch script of a stage, or a shell script that submits all stages
    Script(SlurmArgs),
    /// Submit all stages as chained jobs; job ids go to slurm/jobs.json in the run directory
    Submit {
        #[command(flatten)]
        args: SlurmArgs,
        /// Submit only tasks with unfinished shards, and all stages after them
        #[arg(long)]
        retry: bool,
        /// Submit even if jobs of this run are queued or running
        #[arg(long)]
        force: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(flatten)]
    run: RunDirArgs,
    /// Submit only these stages [default: all stages that the settings require]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    stage: Vec<Stage>,
    /// Tasks in a job array, at most one per shard and at most as many as the cluster takes
    /// [default: as in the last submission, else one per shard, at most 100]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    num_tasks: Option<u32>,
    #[command(flatten)]
    options: SlurmOptions,
}

struct Planned {
    run: RunDir,
    plan: Plan,
    config: RunConfig,
    stages: Vec<Stage>,
}

pub(crate) fn run(command: &SlurmCommand, quiet: bool) -> Result<()> {
    match command {
        SlurmCommand::Script(args) => print_script(args),
        SlurmCommand::Submit { args, retry, force, json } => {
            let planned = Planned::open(args)?;
            let live = if *force { String::new() } else { live_jobs(&planned.run)? };
            if !live.is_empty() {
                let reason = format!(
                    "jobs of this run are queued or running: {live}; wait for them, cancel them (scancel {live}), or give --force"
                );
                return Err(Error::config("slurm submit", reason));
            }
            let settings = planned.settings(args, max_array_tasks()?)?;
            let jobs = slurm_jobs(&settings, &planned.work(settings.num_tasks, *retry)?)?;
            // Joining keeps a job that begins now from cleaning up files that are being written.
            let _at_work = Worker::join(&planned.run, &Stop::default())?;
            let submission = submit(&planned.run, settings.num_tasks, &jobs)?;
            if *json {
                printer::json(&submission);
            } else if !quiet {
                print_submission(&submission, planned.run.root());
            }
            Ok(())
        }
    }
}

fn print_script(args: &SlurmArgs) -> Result<()> {
    let planned = Planned::open(args)?;
    // A script can also be made on a machine without Slurm.
    let settings = planned.settings(args, max_array_tasks().unwrap_or(u32::MAX))?;
    let work = planned.work(settings.num_tasks, false)?;
    let script = driver_script(&slurm_jobs(&settings, &work)?);
    // Slurm fails a job if the folder of its log does not exist.
    create_folder(&planned.run.path("logs"))?;
    printer::bytes(script.as_bytes());
    Ok(())
}

impl Planned {
    fn open(args: &SlurmArgs) -> Result<Self> {
        let root =
            std::path::absolute(args.run.path()).map_err(Error::io(args.run.path(), "resolve"))?;
        if !root.join("config.toml").is_file() {
            let reason = "is not a planned run; make it with `polysift plan --run DIR ...`";
            return Err(Error::missing(root, reason));
        }
        let run = RunDir::open(&root)?;
        let config = settings_of(&root)?;
        let stages = match &args.stage[..] {
            [] => stages_of(&config),
            named => in_order(&config, named.to_vec()),
        };
        Ok(Self { plan: run.plan()?, run, config, stages })
    }

    /// Returns the settings of the jobs, with at most as many tasks as shards or `max_array_tasks`.
    fn settings(&self, args: &SlurmArgs, max_array_tasks: u32) -> Result<SlurmSettings> {
        let last = submissions(&self.run)?.last().map(|submission| submission.num_tasks);
        let shards = u32::try_from(self.plan.shards.len().max(1)).unwrap_or(u32::MAX);
        let num_tasks = args.num_tasks.or(last).unwrap_or(MAX_DEFAULT_TASKS).min(shards);
        if num_tasks > max_array_tasks {
            tracing::warn!("the cluster takes no more than {max_array_tasks} tasks in an array");
        }
        let program = std::env::current_exe();
        Ok(SlurmSettings {
            program: program.map_err(Error::io(Path::new("polysift"), "find the program"))?,
            run: self.run.root().to_owned(),
            num_tasks: num_tasks.min(max_array_tasks),
            options: args.options.clone(),
        })
    }

    /// Returns the stages in `num_tasks` tasks; with `retry` the work that is left: the unfinished
    /// tasks of the first stage that is not done, and all stages after it.
    fn work(&self, num_tasks: u32, retry: bool) -> Result<Vec<StageTasks>> {
        let (hub, stop, worker) = (hub(false), Stop::default(), Worker::observer(&self.run));
        let context = Context::observing(&self.config, &self.run, &hub, &stop, &Silent, &worker);
        let mut work: Vec<StageTasks> = Vec::new();
        for &stage in &self.stages {
            let tasks = if retry && work.is_empty() {
                unfinished(context, Some(stage), Some(num_tasks))?.map(|left| left.tasks)
            } else {
                Some((0..num_tasks).collect())
            };
            work.extend(tasks.map(|tasks| StageTasks::of_tasks(&self.config, stage, tasks)));
        }
        Ok(work)
    }
}

fn print_submission(submission: &Submission, root: &Path) {
    if submission.jobs.is_empty() {
        printer::line("nothing is left to do");
        return;
    }
    let titles = ["job", "id", "tasks", "after"];
    let rows = submission.jobs.iter().map(|job| {
        let (array, after) = (or_dash(job.array.as_ref()), or_dash(job.dependency.as_ref()));
        cells([&job.name, &job.job_id, &array, &after])
    });
    printer::titled_table(titles, rows);
    let root = printer::quoted_path(root);
    printer::line(&format!("\nprogress: polysift status {root}"));
    printer::line(&format!(
        "to continue after a failure: polysift slurm submit --retry --run {root}"
    ));
}
