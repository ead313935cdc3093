//! The jobs of a run and what each waits for.

use crate::error::{Error, Result};
use crate::run::Stage;

use super::super::{StageTasks, array_expression};
use super::SlurmSettings;
use super::script::batch_script;
use super::time::limit_secs;

/// Slurm sends the signal up to a minute early, and work has to begin before it.
const SIGNAL_SLACK_SECS: u64 = 120;

/// A job to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJob {
    /// `embed`, or `embed-1` for the second array of a stage.
    pub name: String,
    /// The stage.
    pub stage: Stage,
    /// Task ids as an array expression; `None` for a single job.
    pub array: Option<String>,
    /// Tasks of the job.
    pub num_tasks: usize,
    /// Jobs (by position) that have to succeed before.
    pub after_success_of: Vec<usize>,
    /// The job (by position) that has to have ended before.
    pub after_end_of: Option<usize>,
    /// The batch script.
    pub script: String,
}

impl SlurmJob {
    /// The value of `--dependency`, given the ids of the jobs by position.
    pub fn dependency(&self, ids: &[String]) -> Option<String> {
        let id = |position: &usize| ids.get(*position).cloned();
        let successes: Vec<String> = self.after_success_of.iter().filter_map(id).collect();
        let after_ok = (!successes.is_empty()).then(|| format!("afterok:{}", successes.join(":")));
        let after_any = self.after_end_of.as_ref().and_then(id).map(|id| format!("afterany:{id}"));
        let all: Vec<String> = after_ok.into_iter().chain(after_any).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

/// An array that Slurm takes: tasks from `offset` on, as ids counted from there.
struct Chunk {
    offset: u32,
    tasks: Vec<u32>,
}

/// Tasks in chunks of at most `max_tasks` neighbours: every id in an array is below it.
fn chunks(tasks: &[u32], max_tasks: u32) -> Vec<Chunk> {
    let mut sorted = tasks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let groups = sorted.chunk_by(|a, b| a / max_tasks == b / max_tasks);
    let chunk = |group: &[u32]| {
        let offset = group.first().map_or(0, |first| first / max_tasks * max_tasks);
        Chunk { offset, tasks: group.iter().map(|task| task - offset).collect() }
    };
    groups.map(chunk).collect()
}

/// The jobs for `work`, in the order in which they are submitted. With `chain`, a stage waits for the
/// success of all jobs of the one before.
///
/// A run directory that Slurm cannot name in a script and a time limit that leaves no time before the signal are
/// [`Error::Config`].
pub fn slurm_jobs(
    settings: &SlurmSettings,
    work: &[StageTasks],
    chain: bool,
) -> Result<Vec<SlurmJob>> {
    check(settings)?;
    let mut jobs: Vec<SlurmJob> = Vec::new();
    let mut before: Vec<usize> = Vec::new();
    for of_stage @ StageTasks { stage, tasks, .. } in work {
        let first = jobs.len();
        let after_success_of = if chain { before.clone() } else { Vec::new() };
        let mut push = |name: String, chunk: Option<&Chunk>, after_end_of| -> Result<()> {
            jobs.push(SlurmJob {
                script: batch_script(
                    settings,
                    of_stage,
                    chunk.map(|c| (c.offset, c.tasks.as_slice())),
                )?,
                name,
                stage: *stage,
                array: chunk.map(|chunk| array_expression(&chunk.tasks)),
                num_tasks: chunk.map_or(1, |chunk| chunk.tasks.len()),
                after_success_of: after_success_of.clone(),
                after_end_of,
            });
            Ok(())
        };
        match tasks {
            None => push(stage.name().to_owned(), None, None)?,
            Some(tasks) => {
                let chunks = chunks(tasks, settings.max_array_tasks.max(1));
                for (i, chunk) in chunks.iter().enumerate() {
                    let several = chunks.len() > 1;
                    let name = if several {
                        format!("{stage}-{i}", stage = stage.name())
                    } else {
                        stage.name().to_owned()
                    };
                    // Slurm limits the running tasks of an array, not of several: one after the other.
                    let limited = settings.max_running.is_some() && i > 0;
                    push(name, Some(chunk), limited.then(|| first + i - 1))?;
                }
            }
        }
        if jobs.len() > first {
            before = (first..jobs.len()).collect();
        }
    }
    Ok(jobs)
}

fn check(settings: &SlurmSettings) -> Result<()> {
    if settings.num_tasks == 0 {
        return Err(Error::config("--num-tasks", "is 0; there has to be at least one task"));
    }
    if settings.max_running == Some(0) {
        return Err(Error::config("--max-running", "is 0; no task could ever run"));
    }
    settings.time.values().try_for_each(|time| check_time(settings, time))
}

fn check_time(settings: &SlurmSettings, time: &str) -> Result<()> {
    let needed = u64::from(settings.signal_secs) + SIGNAL_SLACK_SECS;
    match limit_secs(time)? {
        Some(limit) if limit < needed => Err(Error::config(
            "--time",
            format!(
                "{time} is {limit} s, of which --signal-secs takes {} and Slurm's early signal up to \
                 {SIGNAL_SLACK_SECS}; a task would stop before it works",
                settings.signal_secs
            ),
        )),
        _ => Ok(()),
    }
}
