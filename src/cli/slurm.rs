//! `polysift slurm`: the jobs of a planned run, printed or submitted.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use polysift::cluster::slurm::{
    DEFAULT_MAX_ARRAY_SIZE, DEFAULT_SIGNAL_SECS, SlurmSettings, Submission, driver_script,
    live_jobs, max_array_tasks, slurm_jobs, submissions, submit,
};
use polysift::cluster::{PerStage, shell_quoted};
use polysift::run::RunDir;
use polysift::{Error, Result};

use super::planned::{Planned, StageArgs};
use super::{printer, summary};

/// What is done with Slurm.
#[derive(Debug, Subcommand)]
pub(crate) enum SlurmCommand {
    /// Print the batch script of a stage, or a shell script that submits all stages
    Script(SlurmArgs),
    /// Submit all stages, chained; job ids go to slurm/jobs.json in the run directory
    Submit {
        #[command(flatten)]
        args: SlurmArgs,
        /// Submit only what is left: the tasks with unfinished shards, and the stages after them
        #[arg(long)]
        retry: bool,
        /// Submit also while jobs of this run are queued or running
        #[arg(long)]
        force: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What the jobs ask for.
#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(flatten)]
    stages: StageArgs,
    /// Tasks of an array, one a node, no more than there are shards [default: that of the last submission, else one
    /// per shard, at most 100]
    #[arg(long, value_name = "N")]
    num_tasks: Option<u32>,
    /// Most tasks of a stage at once, as in --array=0-399%100
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// Partition, of all stages or of one: `--partition gpu --partition export=cpu`
    #[arg(short, long, value_name = "[STAGE=]NAME")]
    partition: Vec<String>,
    /// Account, of all stages or of one
    #[arg(short = 'A', long, value_name = "[STAGE=]NAME")]
    account: Vec<String>,
    /// Time limit of a task, as in 12:00:00, of all stages or of one; a task that reaches it goes on in a new one
    #[arg(short, long, value_name = "[STAGE=]TIME")]
    time: Vec<String>,
    /// GPUs of a node, for the stages that compute on them; a task uses all of them
    #[arg(long, value_name = "N")]
    gpus_per_node: Option<u32>,
    /// CPUs of a task, of all stages or of one [default: all of a whole node; 4 where a stage does not fill one]
    #[arg(long, value_name = "[STAGE=]N")]
    cpus_per_task: Vec<String>,
    /// Memory of a task, of all stages or of one [default: all of a whole node; else what the cluster gives]
    #[arg(long, value_name = "[STAGE=]SIZE")]
    mem: Vec<String>,
    /// Let the stages that encode share nodes too; say with --cpus-per-task, --mem and --gpus-per-node what one needs
    #[arg(long)]
    partial_nodes: bool,
    /// Seconds before the time limit at which a task is told to save and to requeue itself
    #[arg(long, value_name = "SECS", default_value_t = DEFAULT_SIGNAL_SECS)]
    signal_secs: u32,
    /// Most tasks in one array [default: what the cluster says; where there is none, 1001]
    #[arg(long, value_name = "N")]
    max_array_size: Option<u32>,
    /// Submit the stages without dependencies
    #[arg(long)]
    no_chain: bool,
    /// More arguments of sbatch, after `--`; they win
    #[arg(last = true, value_name = "SBATCH_ARGS")]
    sbatch: Vec<String>,
}

/// Runs `command`.
pub(crate) fn run(command: &SlurmCommand, quiet: bool) -> Result<()> {
    match command {
        SlurmCommand::Script(args) => print_script(args),
        SlurmCommand::Submit { args, retry, force, json } => {
            let planned = Planned::open(&args.stages)?;
            if !*force {
                refuse_while_live(&planned.run)?;
            }
            let settings = args.settings(&planned, max_array_tasks)?;
            let work = if *retry {
                planned.left(settings.num_tasks)?
            } else {
                planned.all(settings.num_tasks)
            };
            let jobs = slurm_jobs(&settings, &work, !args.no_chain)?;
            let submission = submit(&planned.run, settings.num_tasks, &jobs)?;
            if *json {
                summary::print_json(&submission);
            } else if !quiet {
                print_submission(&submission, &planned.root);
            }
            Ok(())
        }
    }
}

fn print_script(args: &SlurmArgs) -> Result<()> {
    let planned = Planned::open(&args.stages)?;
    // A script may be made where there is no Slurm.
    let settings =
        args.settings(&planned, || Ok(max_array_tasks().unwrap_or(DEFAULT_MAX_ARRAY_SIZE)))?;
    let jobs = slurm_jobs(&settings, &planned.all(settings.num_tasks), !args.no_chain)?;
    let script = driver_script(&jobs);
    // Slurm fails a job whose log has no folder.
    let logs = planned.run.path("logs");
    std::fs::create_dir_all(&logs).map_err(Error::io(&logs, "create directory"))?;
    printer::bytes(script.as_bytes());
    Ok(())
}

fn refuse_while_live(run: &RunDir) -> Result<()> {
    let live = live_jobs(run)?;
    if live.is_empty() {
        return Ok(());
    }
    let ids = live.join(" ");
    let reason = format!(
        "jobs of this run are queued or running: {ids}; wait for them, cancel them (scancel {ids}), or give --force"
    );
    Err(Error::config("slurm submit", reason))
}

impl SlurmArgs {
    fn settings(
        &self,
        planned: &Planned,
        max_array_tasks: impl FnOnce() -> Result<u32>,
    ) -> Result<SlurmSettings> {
        let last = submissions(&planned.run)?.last().map(|submission| submission.num_tasks);
        let num_tasks = planned.num_tasks(self.num_tasks.or(last));
        Ok(SlurmSettings {
            program: program()?,
            run: planned.root.clone(),
            num_tasks,
            max_running: self.max_running,
            max_array_tasks: self.max_array_size.map_or_else(max_array_tasks, Ok)?,
            signal_secs: self.signal_secs,
            time: PerStage::parse("--time", &self.time)?,
            partition: PerStage::parse("--partition", &self.partition)?,
            account: PerStage::parse("--account", &self.account)?,
            gpus_per_node: self.gpus_per_node,
            cpus_per_task: PerStage::parse("--cpus-per-task", &self.cpus_per_task)?,
            mem: PerStage::parse("--mem", &self.mem)?,
            whole_nodes: !self.partial_nodes,
            sbatch: self.sbatch.clone(),
        })
    }
}

/// This program, as the nodes find it.
fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(Error::io(Path::new("polysift"), "find the program"))
}

fn print_submission(submission: &Submission, root: &Path) {
    if submission.jobs.is_empty() {
        printer::line("nothing is left to do");
        return;
    }
    let titles = ["job", "id", "tasks", "after"].map(str::to_owned).to_vec();
    let rows = submission.jobs.iter().map(|job| {
        let tasks = job.array.clone().unwrap_or_else(|| "-".to_owned());
        let after = job.dependency.clone().unwrap_or_else(|| "-".to_owned());
        vec![job.name.clone(), job.job_id.clone(), tasks, after]
    });
    printer::table(&[titles].into_iter().chain(rows).collect::<Vec<_>>());
    let root = shell_quoted(&root.display().to_string());
    printer::line(&format!("\nhow far it is: polysift status {root}"));
    printer::line(&format!(
        "if a task fails, what is left: polysift slurm submit --retry --run {root}"
    ));
}
