//! `polysift slurm`: prints a script that submits the unfinished work of a planned run.

use std::path::{Path, PathBuf};

use clap::{Args, value_parser};

use polysift::cluster::slurm::{SlurmOptions, SlurmSettings, max_array_tasks, submit_script};
use polysift::corpus::Context;
use polysift::corpus::work::{in_order, stages_of};
use polysift::io::create_folder;
use polysift::run::Stage;
use polysift::views::status::find_unfinished;
use polysift::{Error, Result};

use super::printer;
use super::settings::{RunDirArgs, read_run_settings, stage_parser};

/// Maximum default number of tasks per stage; the default is one task per shard.
const MAX_DEFAULT_TASKS: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(flatten)]
    run: RunDirArgs,
    /// Submit only these stages [default: all stages that the settings require]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_parser())]
    stage: Vec<Stage>,
    /// Tasks in a job array, at most one per shard and at most as many as the cluster takes
    /// [default: one per shard, at most 100]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    num_tasks: Option<u32>,
    #[command(flatten)]
    options: SlurmOptions,
}

impl SlurmArgs {
    /// Returns the absolute path of the run directory; [`Error::Missing`] if it is not planned.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        read_run_settings(self.run.path())?;
        std::path::absolute(self.run.path()).map_err(Error::io(self.run.path(), "resolve"))
    }

    /// Prints the script for the run at [`SlurmArgs::root`], and creates the folder of its logs.
    pub(crate) fn print(&self, context: Context<'_>) -> Result<()> {
        let Context { run, config, .. } = context;
        let shards = u32::try_from(run.plan()?.shards.len().max(1)).unwrap_or(u32::MAX);
        let wanted = self.num_tasks.unwrap_or(MAX_DEFAULT_TASKS).min(shards);
        // A script can also be made on a machine without Slurm.
        let num_tasks = wanted.min(max_array_tasks().unwrap_or(u32::MAX));
        if num_tasks < wanted {
            tracing::warn!("the cluster takes no more than {num_tasks} tasks in an array");
        }
        let program = std::env::current_exe();
        let settings = SlurmSettings {
            program: program.map_err(Error::io(Path::new("polysift"), "find the program"))?,
            run: run.root().to_owned(),
            num_tasks,
            options: self.options.clone(),
        };
        let stages = match &self.stage[..] {
            [] => stages_of(config),
            named => in_order(config, named.to_vec()),
        };
        // The unfinished tasks of the first stage that is not done, and all stages after it.
        let mut work = Vec::new();
        if let Some(first) = find_unfinished(context, &stages, Some(num_tasks))? {
            let later = stages.iter().skip_while(|stage| **stage != first.stage).skip(1);
            work.push((first.stage, first.tasks));
            work.extend(later.map(|stage| (*stage, (0..num_tasks).collect())));
        }
        let script = submit_script(&settings, config, &work)?;
        // Slurm fails a job if the folder of its log does not exist.
        create_folder(&run.path("logs"))?;
        printer::print_bytes(script.as_bytes());
        Ok(())
    }
}
