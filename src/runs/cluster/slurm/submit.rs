//! Submission of jobs to Slurm: all of them or none, recorded in the run directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::run::RunDir;
use polysift_base::error::{Error, Result};
use polysift_base::io::{create_folder, write_atomic};

use super::{DEFAULT_MAX_ARRAY_SIZE, SlurmJob};

/// Record of all submissions in order, relative to the run directory.
const RECORD: &str = "slurm/jobs.json";

/// Jobs that were submitted together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submission {
    /// Time of submission in seconds since 1970.
    pub unix_secs: u64,
    /// Number of tasks of the array stages.
    pub num_tasks: u32,
    /// The jobs, in the order of the stages.
    pub jobs: Vec<SubmittedJob>,
}

/// A job that Slurm accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmittedJob {
    /// Slurm's job id; for an array the id of the whole array.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tasks of an array, as an array expression.
    pub array: Option<String>,
    /// Value of `--dependency`, if the job waits for another.
    pub dependency: Option<String>,
    /// Path of the batch script, relative to the run directory.
    pub script: String,
}

/// Returns all submissions for `run`, in order.
pub fn submissions(run: &RunDir) -> Result<Vec<Submission>> {
    Ok(run.read_json(&run.path(RECORD))?.unwrap_or_default())
}

/// Returns the ids of the jobs of `run` that are queued or running, separated by spaces.
pub fn live_jobs(run: &RunDir) -> Result<String> {
    let record = submissions(run)?;
    let jobs = record.iter().flat_map(|submission| &submission.jobs);
    let ours: BTreeSet<&str> = jobs.map(|job| job.job_id.as_str()).collect();
    if ours.is_empty() {
        return Ok(String::new());
    }
    let queue = call("squeue", ["--me", "--noheader", "--format=%F"])?;
    let queued: BTreeSet<&str> = queue.lines().map(str::trim).collect();
    Ok(queued.intersection(&ours).copied().collect::<Vec<_>>().join(" "))
}

/// Returns the array size limit from `scontrol show config`; task ids are below it.
pub fn max_array_tasks() -> Result<u32> {
    call("scontrol", ["show", "config"]).map(|config| max_array_tasks_of(&config))
}

fn max_array_tasks_of(config: &str) -> u32 {
    let value = |key: &str| {
        let line = config.lines().find_map(|line| line.trim_start().strip_prefix(key));
        line.and_then(|rest| rest.trim_start().strip_prefix('=')).map(str::trim)
    };
    let size = value("MaxArraySize").and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_MAX_ARRAY_SIZE);
    let parameters = value("SchedulerParameters").unwrap_or_default().split(',');
    let tasks = parameters.filter_map(|p| p.trim().strip_prefix("max_array_tasks="));
    // The largest task id is one less than MaxArraySize, and ids begin at 0.
    tasks.filter_map(|n| n.parse().ok()).fold(size, u32::min)
}

/// Submits `jobs` of `run` in order and records them; a refusal cancels those before it.
///
/// [`Error::Service`] if there is no `sbatch` or it refuses a job.
pub fn submit(run: &RunDir, num_tasks: u32, jobs: &[SlurmJob]) -> Result<Submission> {
    create_folder(&run.path("logs"))?;
    let mut record = submissions(run)?;
    let number = record.len();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut submission = Submission { unix_secs: now, num_tasks, jobs: Vec::new() };
    for job in jobs {
        let outcome = submit_one(run, number, job, &submission.jobs).and_then(|submitted| {
            submission.jobs.push(submitted);
            record.truncate(number);
            record.push(submission.clone());
            // The record is written after each job, so that a kill leaves no unrecorded job.
            run.write_json(&run.path(RECORD), &record).map(drop)
        });
        if let Err(error) = outcome {
            take_back(&submission);
            return Err(error);
        }
    }
    Ok(submission)
}

fn submit_one(
    run: &RunDir,
    number: usize,
    job: &SlurmJob,
    before: &[SubmittedJob],
) -> Result<SubmittedJob> {
    let script = run.path("slurm").join(format!("{number:03}-{}.sh", job.name));
    write_atomic(&script, job.script.as_bytes())?;
    let dependency = job.dependency(before.last().map(|job| job.job_id.as_str()));
    let wait = dependency.as_ref().map(|d| format!("--dependency={d}"));
    let path = script.display().to_string();
    let arguments = ["--parsable"].into_iter().chain(wait.as_deref()).chain([path.as_str()]);
    let printed = call("sbatch", arguments)?;
    // With several clusters the id is followed by the name of the cluster.
    let job_id = printed.trim().split(';').next().unwrap_or_default().to_owned();
    if job_id.is_empty() || !job_id.bytes().all(|b| b.is_ascii_digit()) {
        let reason = format!("printed `{}` in place of a job id", printed.trim());
        return Err(Error::Service { name: "sbatch".into(), reason });
    }
    Ok(SubmittedJob {
        job_id,
        name: job.name.clone(),
        array: job.array.clone(),
        dependency,
        script: run.relative(&script),
    })
}

/// Cancels the jobs that were submitted before one was refused.
fn take_back(submission: &Submission) {
    let ids: Vec<&str> = submission.jobs.iter().map(|job| job.job_id.as_str()).collect();
    let jobs = ids.join(" ");
    if !ids.is_empty()
        && let Err(error) = call("scancel", ids)
    {
        tracing::warn!(jobs, %error, "jobs that were submitted before stay in the queue");
    }
}

/// Runs a Slurm command and returns its output; [`Error::Service`] with its message if it fails.
pub(crate) fn call(command: &str, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Result<String> {
    let failed = |reason: String| Error::Service { name: command.to_owned(), reason };
    // A job counts the cores of its own node, not those of this machine.
    let mut program = Command::new(command);
    let output = program.args(args).env_remove("RAYON_NUM_THREADS").output();
    let output = output.map_err(|e| match e.kind() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_array_is_what_the_cluster_says() {
        // Two lines of `scontrol show config`, Slurm 22.05.
        let config = "MaxArraySize            = 10001\nSchedulerParameters     = sched_interval=2,max_array_tasks=500,x\n";
        assert_eq!(max_array_tasks_of(config), 500);
        assert_eq!(max_array_tasks_of("MaxArraySize            = 10001\n"), 10_001);
        assert_eq!(
            max_array_tasks_of("SchedulerParameters     = (null)\n"),
            DEFAULT_MAX_ARRAY_SIZE
        );
    }
}
