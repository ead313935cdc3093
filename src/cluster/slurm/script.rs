//! The text of batch scripts.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;

use crate::error::{Error, Result};

use super::super::{Needs, REQUEUE_VARIABLE, StageTasks, array_expression, shell_quoted};
use super::{DEFAULT_CPUS, SlurmJob, SlurmSettings};

/// The script of one job: `chunk` is the first task and the task ids of an array.
pub(super) fn batch_script(
    settings: &SlurmSettings,
    work: &StageTasks,
    chunk: Option<(u32, &[u32])>,
) -> Result<String> {
    let mut script = String::from("#!/bin/bash\n");
    for option in options(settings, work, chunk.map(|(_, tasks)| tasks))? {
        // Writing into a string cannot fail.
        let _ = writeln!(script, "#SBATCH {option}");
    }
    let _ = writeln!(script, "export {REQUEUE_VARIABLE}=1");
    match chunk {
        Some((offset, _)) => {
            let _ = writeln!(script, "export POLYSIFT_NUM_TASKS={}", settings.num_tasks);
            let _ = writeln!(script, "export POLYSIFT_TASK=$(({offset} + SLURM_ARRAY_TASK_ID))");
        }
        // What the shell that submits has set would come along.
        None => script.push_str(
            "unset POLYSIFT_TASK POLYSIFT_NUM_TASKS SLURM_ARRAY_TASK_ID SLURM_ARRAY_JOB_ID\n",
        ),
    }
    if let Some(cpus) = cpus(settings, work) {
        // Not every cluster binds a task to its CPUs.
        let cpus = format!("${{SLURM_CPUS_PER_TASK:-{cpus}}}");
        let _ = writeln!(script, "export POLYSIFT_THREADS=${{POLYSIFT_THREADS:-{cpus}}}");
    }
    // exec: Slurm's signals reach the program, and its exit code is the job's.
    let (program, run) = (text(&settings.program)?, text(&settings.run)?);
    let (program, run) = (shell_quoted(program), shell_quoted(run));
    let _ = writeln!(script, "exec {program} {} --run {run}", work.stage.name());
    Ok(script)
}

/// CPUs of a task, where it does not get all of a node.
fn cpus(settings: &SlurmSettings, work: &StageTasks) -> Option<NonZeroU32> {
    let given = settings.cpus_per_task.get(work.stage).copied();
    given.or_else(|| (work.needs == Needs::Cores).then_some(DEFAULT_CPUS))
}

/// The `#SBATCH` options, each with its value; later ones win.
fn options(
    settings: &SlurmSettings,
    work: &StageTasks,
    tasks: Option<&[u32]>,
) -> Result<Vec<String>> {
    let stage = work.stage;
    let mut options = vec![format!("--job-name=polysift-{}", stage.name())];
    if let Some(tasks) = tasks {
        let limit = settings.max_running.map(|n| format!("%{n}")).unwrap_or_default();
        options.push(format!("--array={}{limit}", array_expression(tasks)));
    }
    let log = log_pattern(&settings.run, tasks.is_some())?;
    options.push(sbatch_quoted(&format!("--output={log}"))?);
    for fixed in
        ["--open-mode=append", "--requeue", "--nodes=1", "--ntasks=1", "--kill-on-invalid-dep=yes"]
    {
        options.push(fixed.to_owned());
    }
    options.push(format!("--signal=B:USR1@{}", settings.signal_secs));
    let fills_a_node = settings.whole_nodes && work.needs != Needs::Cores;
    if fills_a_node {
        options.push("--exclusive".to_owned());
    }
    let gpus = settings.gpus_per_node.filter(|_| work.needs == Needs::Gpus);
    let mem = settings.mem.get(stage).cloned();
    for (name, value) in [
        ("time", settings.time.get(stage).cloned()),
        ("partition", settings.partition.get(stage).cloned()),
        ("account", settings.account.get(stage).cloned()),
        ("gpus-per-node", gpus.map(|n| n.to_string())),
        ("cpus-per-task", cpus(settings, work).map(|n| n.to_string())),
        ("mem", mem.or_else(|| fills_a_node.then(|| "0".to_owned()))),
    ] {
        if let Some(value) = value {
            options.push(sbatch_quoted(&format!("--{name}={value}"))?);
        }
    }
    if !settings.sbatch.is_empty() {
        let more =
            settings.sbatch.iter().map(|arg| sbatch_quoted(arg)).collect::<Result<Vec<_>>>()?;
        options.push(more.join(" "));
    }
    Ok(options)
}

/// Where Slurm writes what a job prints; `%` of the path itself is doubled.
fn log_pattern(run: &Path, array: bool) -> Result<String> {
    let folder = text(run)?.replace('%', "%%");
    Ok(format!("{folder}/logs/{}.log", if array { "%x_%A_%a" } else { "%x_%j" }))
}

/// A path as text that a script can hold.
fn text(path: &Path) -> Result<&str> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r', '\\']));
    text.ok_or_else(|| {
        let reason = format!(
            "{}: Slurm cannot name a path with a backslash, a line break or bytes that are not UTF-8",
            path.display()
        );
        Error::config("--run", reason)
    })
}

/// `argument` as sbatch reads it in a script, where a backslash escapes even inside of quotes.
fn sbatch_quoted(argument: &str) -> Result<String> {
    if argument.contains(['\n', '\r']) {
        return Err(Error::config(argument, "an argument of sbatch cannot hold a line break"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%,+-[]*".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return Ok(argument.to_owned());
    }
    Ok(format!("\"{}\"", argument.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A shell script that submits all of `jobs`, with the scripts inside; of a single job the batch script itself.
/// The folder `logs` of the run directory has to be there.
pub fn driver_script(jobs: &[SlurmJob]) -> String {
    if let [job] = jobs {
        return job.script.clone();
    }
    let mut driver = String::from("#!/bin/bash\n# Submits all jobs of a run.\nset -euo pipefail\n");
    let ids: Vec<String> = (0..jobs.len()).map(|i| format!("${{job{i}%%;*}}")).collect();
    for (i, job) in jobs.iter().enumerate() {
        let wait =
            job.dependency(&ids).map(|d| format!(" --dependency=\"{d}\"")).unwrap_or_default();
        let _ = write!(
            driver,
            "\njob{i}=$(sbatch --parsable{wait} <<'END_OF_SCRIPT'\n{}END_OF_SCRIPT\n)\necho \"{} ${{job{i}}}\"\n",
            job.script, job.name
        );
    }
    driver
}
