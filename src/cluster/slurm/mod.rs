//! Slurm: an array job per stage that shards, one task per node, chained so that no job waits for ever.
//!
//! ```text
//! embed 0-399%100 ─afterok─▶ train ─afterok─▶ score 0-399 ─afterok─▶ threshold ─afterok─▶ export 0-399
//! ```
//!
//! A task that fails ends the chain in sight: the jobs after it are cancelled by Slurm
//! (`--kill-on-invalid-dep`), and a retry submits what is left.

mod jobs;
mod script;
mod submit;
#[cfg(test)]
mod tests;
mod time;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;

pub use jobs::{SlurmJob, slurm_jobs};
pub use script::driver_script;
pub use submit::{Submission, Submissions, SubmittedJob, live_jobs, max_array_tasks, submit};

use super::PerStage;
use crate::error::{Error, Result};

/// `MaxArraySize` of a cluster that does not set it.
pub const DEFAULT_MAX_ARRAY_SIZE: u32 = 1001;
/// [`SlurmSettings::signal_secs`].
pub const DEFAULT_SIGNAL_SECS: u32 = 180;

/// CPUs of a task that does not fill a node, unless they are given: what most nodes have to spare.
pub const DEFAULT_CPUS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// What the jobs of a run ask Slurm for.
#[derive(Debug, Clone)]
pub struct SlurmSettings {
    /// The program, by its absolute path.
    pub program: PathBuf,
    /// The run directory, by its absolute path.
    pub run: PathBuf,
    /// Tasks of a stage.
    pub num_tasks: u32,
    /// Most tasks of an array at once.
    pub max_running: Option<u32>,
    /// Most tasks in one array; task ids stay below it. More tasks become several arrays.
    pub max_array_tasks: u32,
    /// Seconds before the time limit at which Slurm sends USR1.
    pub signal_secs: u32,
    /// Time limit, in a form that sbatch takes.
    pub time: PerStage<String>,
    /// Partition.
    pub partition: PerStage<String>,
    /// Account.
    pub account: PerStage<String>,
    /// GPUs of a node, all of which one task uses, in the stages that compute on them.
    pub gpus_per_node: Option<u32>,
    /// CPUs of a task; see [`DEFAULT_CPUS`].
    pub cpus_per_task: PerStage<NonZeroU32>,
    /// Memory of a task, in a form that sbatch takes.
    pub mem: PerStage<String>,
    /// Whether a task that can use a whole node gets it alone, with all of its memory unless `mem` says
    /// otherwise.
    pub whole_nodes: bool,
    /// More arguments for sbatch; they win over the ones above.
    pub sbatch: Vec<String>,
}

/// Runs a command of Slurm and returns what it printed; [`Error::Scheduler`] with its message otherwise.
pub(super) fn call(command: &str, args: &[String]) -> Result<String> {
    let failed = |reason: String| Error::Scheduler { command: command.to_owned(), reason };
    let output = Command::new(command).args(args).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            failed("not found; this machine has no Slurm, or it is not in PATH".into())
        }
        _ => failed(format!("cannot be run: {e}")),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, message.trim())))
}
