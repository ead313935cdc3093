//! Slurm jobs: one array job per sharded stage, one job for each other, chained by dependencies.
//!
//! ```text
//! embed 0-399%100 ─▶ train ─▶ score 0-399 ─▶ threshold ─▶ export 0-399        (─▶: afterok)
//! ```
//!
//! If a task fails, Slurm cancels later jobs (`--kill-on-invalid-dep`); a new script has the rest.

use std::ffi::OsStr;
use std::fmt::{Display, Write as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use super::work::{Needs, StageTasks, array_expression};
use crate::run::Stage;
use polysift_base::error::{Error, Result};
use polysift_config::RunConfig;

/// Environment variable that the batch scripts set to 1: the program may requeue its job.
pub const REQUEUE_VARIABLE: &str = "POLYSIFT_REQUEUE";
/// Slurm's default of `MaxArraySize`.
const DEFAULT_MAX_ARRAY_SIZE: u32 = 1001;

/// Default CPUs of a task that does not fill a node; most nodes can spare as many.
const DEFAULT_CPUS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// Resources that the jobs of a run request; the flags of `polysift slurm`.
#[derive(Debug, Clone, clap::Args)]
pub struct SlurmOptions {
    /// Maximum number of tasks of a stage that run at the same time, as in --array=0-399%100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_running: Option<u32>,
    /// Partition for all stages or for one: `--partition gpu --partition export=cpu`
    #[arg(short, long, value_name = "[STAGE=]NAME")]
    pub partition: Vec<StageValue<String>>,
    /// Account for all stages or for one
    #[arg(short = 'A', long, value_name = "[STAGE=]NAME")]
    pub account: Vec<StageValue<String>>,
    /// Time limit of a task, such as 12:00:00, for all stages or for one; a task that reaches it is
    /// requeued
    #[arg(short, long, value_name = "[STAGE=]TIME")]
    pub time: Vec<StageValue<String>>,
    /// GPUs per node, for stages that use GPUs; a task uses all of them
    #[arg(long, value_name = "N")]
    pub gpus_per_node: Option<u32>,
    /// CPUs per task, for all stages or for one [default: all of a whole node; 4 for a stage that
    /// does not fill a node]
    #[arg(long, value_name = "[STAGE=]N")]
    pub cpus_per_task: Vec<StageValue<NonZeroU32>>,
    /// Memory per task, for all stages or for one [default: all of a whole node; otherwise the
    /// cluster's default]
    #[arg(long, value_name = "[STAGE=]SIZE")]
    pub mem: Vec<StageValue<String>>,
    /// Let stages that encode share nodes too; set --cpus-per-task, --mem and --gpus-per-node to
    /// what a task needs
    #[arg(long)]
    pub partial_nodes: bool,
    /// Seconds before the time limit at which a task is told to save its work and requeue itself
    #[arg(long, value_name = "SECS", default_value_t = 180)]
    pub signal_secs: u32,
    /// Further arguments for sbatch, after `--`; they take precedence
    #[arg(last = true, value_name = "SBATCH_ARGS")]
    pub sbatch: Vec<String>,
}

/// Value of a flag, for all stages or (`STAGE=VALUE`) for one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageValue<T> {
    stage: Option<Stage>,
    value: T,
}

impl<T: FromStr<Err: Display>> FromStr for StageValue<T> {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (stage, value) = match text.split_once('=') {
            None => (None, text),
            Some((name, value)) => (Some(name.parse()?), value),
        };
        if value.is_empty() {
            return Err("has no value".into());
        }
        Ok(Self { stage, value: value.parse().map_err(|e: T::Err| e.to_string())? })
    }
}

/// Returns the last of `values` for `stage` alone, else the last one for all stages.
fn value_for<T>(values: &[StageValue<T>], stage: Stage) -> Option<&T> {
    let last = |of: Option<Stage>| values.iter().rev().find(move |value| value.stage == of);
    last(Some(stage)).or_else(|| last(None)).map(|found| &found.value)
}

/// The jobs of a run and the resources that they request.
#[derive(Debug, Clone)]
pub struct SlurmSettings {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Absolute path of the run directory.
    pub run: PathBuf,
    /// Number of tasks per stage.
    pub num_tasks: u32,
    /// Requested resources.
    pub options: SlurmOptions,
}

/// Returns the script of a job for the tasks of `work`, with its `#SBATCH` lines.
fn batch_script(settings: &SlurmSettings, work: &StageTasks<'_>) -> Result<String> {
    let mut lines = vec!["#!/bin/bash".to_owned()];
    lines.extend(sbatch_options(settings, work)?.iter().map(|option| format!("#SBATCH {option}")));
    lines.push(format!("export {REQUEUE_VARIABLE}=1"));
    if work.tasks.is_some() {
        lines.push(format!("export POLYSIFT_NUM_TASKS={}", settings.num_tasks));
        lines.push("export POLYSIFT_TASK=$SLURM_ARRAY_TASK_ID".to_owned());
    } else {
        // Variables set in the submitting shell would otherwise be inherited.
        let unset = "unset POLYSIFT_TASK POLYSIFT_NUM_TASKS SLURM_ARRAY_TASK_ID SLURM_ARRAY_JOB_ID";
        lines.push(unset.to_owned());
    }
    if let Some(cpus) = cpus(settings, work) {
        // Not every cluster binds a task to its CPUs.
        let cpus = format!("${{SLURM_CPUS_PER_TASK:-{cpus}}}");
        lines.push(format!("export POLYSIFT_THREADS=${{POLYSIFT_THREADS:-{cpus}}}"));
    }
    // With exec, Slurm's signals reach the program, and its exit code is the job's.
    let [program, run] =
        [&settings.program, &settings.run].map(|path| path_text(path).map(shell_quoted));
    lines.push(format!("exec {} {} --run {}\n", program?, work.stage.name(), run?));
    Ok(lines.join("\n"))
}

/// Returns the CPUs that a task asks for; `None` to take what the node or the cluster gives.
fn cpus(settings: &SlurmSettings, work: &StageTasks<'_>) -> Option<NonZeroU32> {
    let cpus = value_for(&settings.options.cpus_per_task, work.stage).copied();
    cpus.or_else(|| (work.needs == Needs::Cores).then_some(DEFAULT_CPUS))
}

/// Returns the `#SBATCH` options with their values; later ones take precedence.
fn sbatch_options(settings: &SlurmSettings, work: &StageTasks<'_>) -> Result<Vec<String>> {
    let (stage, options) = (work.stage, &settings.options);
    let mut lines = vec![format!("--job-name=polysift-{}", stage.name())];
    if let Some(tasks) = work.tasks {
        let limit = options.max_running.map(|n| format!("%{n}")).unwrap_or_default();
        lines.push(format!("--array={}{limit}", array_expression(tasks)));
    }
    // The path is a pattern.
    let folder = path_text(&settings.run)?.replace('%', "%%");
    let name = if work.tasks.is_some() { "%x_%A_%a" } else { "%x_%j" };
    lines.push(sbatch_quoted(&format!("--output={folder}/logs/{name}.log"))?);
    let fixed =
        ["--open-mode=append", "--requeue", "--nodes=1", "--ntasks=1", "--kill-on-invalid-dep=yes"];
    lines.extend(fixed.map(str::to_owned));
    lines.push(format!("--signal=B:USR1@{}", options.signal_secs));
    let fills_a_node = !options.partial_nodes && work.needs != Needs::Cores;
    if fills_a_node {
        lines.push("--exclusive".to_owned());
    }
    let gpus = options.gpus_per_node.filter(|_| work.needs == Needs::Gpus);
    let mem = value_for(&options.mem, stage).cloned();
    for (name, value) in [
        ("time", value_for(&options.time, stage).cloned()),
        ("partition", value_for(&options.partition, stage).cloned()),
        ("account", value_for(&options.account, stage).cloned()),
        ("gpus-per-node", gpus.map(|n| n.to_string())),
        ("cpus-per-task", cpus(settings, work).map(|n| n.to_string())),
        ("mem", mem.or_else(|| fills_a_node.then(|| "0".to_owned()))),
    ] {
        if let Some(value) = value {
            lines.push(sbatch_quoted(&format!("--{name}={value}"))?);
        }
    }
    if !options.sbatch.is_empty() {
        let more =
            options.sbatch.iter().map(|arg| sbatch_quoted(arg)).collect::<Result<Vec<_>>>()?;
        lines.push(more.join(" "));
    }
    Ok(lines)
}

/// Returns `path` as text; [`Error::Config`] if a script for Slurm cannot hold it.
fn path_text(path: &Path) -> Result<&str> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r', '\\']));
    text.ok_or_else(|| {
        let reason = format!(
            "{}: Slurm cannot name a path with a backslash, a line break or bytes that are not UTF-8",
            path.display()
        );
        Error::config("--run", reason)
    })
}

/// Quotes `argument` for sbatch, which reads a backslash as an escape even inside quotes.
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

/// Returns a shell script that submits one job for each stage of `work`, which has the tasks that
/// are left, in order. Each job waits for the previous one to succeed. If Slurm refuses a job, the
/// script cancels those before it. [`Error::Config`] if it cannot hold the path of the run.
pub fn submit_script(
    settings: &SlurmSettings,
    config: &RunConfig,
    work: &[(Stage, Vec<u32>)],
) -> Result<String> {
    let mut script = String::from(
        "#!/bin/bash\n# Submits the unfinished work of a run: all jobs or none.\nset -euo pipefail\n",
    );
    if work.is_empty() {
        script.push_str("echo 'nothing is left to do'\n");
        return Ok(script);
    }
    script.push_str("jobs=()\ntrap '[ ${#jobs[@]} = 0 ] || scancel \"${jobs[@]}\"' ERR\n");
    for (i, (stage, tasks)) in work.iter().enumerate() {
        let wait = if i == 0 { "" } else { " --dependency=\"afterok:${job%%;*}\"" };
        let batch = batch_script(settings, &StageTasks::of_tasks(config, *stage, tasks))?;
        let name = stage.name();
        // With several clusters the id is followed by the name of the cluster.
        let _ = write!(
            script,
            "\njob=$(sbatch --parsable{wait} <<'END_OF_SCRIPT'\n{batch}END_OF_SCRIPT\n)\n\
             jobs+=(\"${{job%%;*}}\")\necho \"{name} ${{job}}\"\n"
        );
    }
    Ok(script)
}

/// Returns the array size limit from `scontrol show config`; task ids are below it.
pub fn max_array_tasks() -> Result<u32> {
    run_slurm("scontrol", ["show", "config"]).map(|config| parse_max_array_tasks(&config))
}

/// Reads the limit from the output of `scontrol show config`; Slurm's default if it has none.
fn parse_max_array_tasks(config: &str) -> u32 {
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

/// Quotes `word` for a shell, in single quotes if it has special characters.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%,+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a Slurm command and returns its output; [`Error::Service`] with its message if it fails.
pub(crate) fn run_slurm(
    command: &str,
    args: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Result<String> {
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
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        options: SlurmOptions,
    }

    fn with_flags(arguments: &[&str]) -> Result<SlurmSettings> {
        let arguments = std::iter::once("slurm").chain(arguments.iter().copied());
        let flags = Flags::try_parse_from(arguments);
        let Flags { options } = flags.map_err(|e| Error::config("flags", e.to_string()))?;
        Ok(SlurmSettings { options, ..settings() })
    }

    fn settings() -> SlurmSettings {
        SlurmSettings {
            program: "/opt/polysift".into(),
            run: "/scratch/run".into(),
            num_tasks: 8,
            options: Flags::parse_from(["slurm"]).options,
        }
    }

    fn array(stage: Stage) -> StageTasks<'static> {
        StageTasks::of_tasks(&RunConfig::default(), stage, &[0, 1, 2, 3, 4, 5, 6, 7])
    }

    fn single(stage: Stage) -> StageTasks<'static> {
        StageTasks::of_tasks(&RunConfig::default(), stage, &[])
    }

    #[test]
    fn the_script_of_an_array_is_what_was_tested_on_a_cluster() -> Result<()> {
        let text = batch_script(&settings(), &array(Stage::Embed))?;
        let expected = "#!/bin/bash
#SBATCH --job-name=polysift-embed
#SBATCH --array=0-7
#SBATCH --output=/scratch/run/logs/%x_%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --signal=B:USR1@180
#SBATCH --exclusive
#SBATCH --mem=0
export POLYSIFT_REQUEUE=1
export POLYSIFT_NUM_TASKS=8
export POLYSIFT_TASK=$SLURM_ARRAY_TASK_ID
exec /opt/polysift embed --run /scratch/run
";
        assert_eq!(text, expected);
        Ok(())
    }

    #[test]
    fn a_single_job_takes_no_task_from_the_shell_that_submits_it() -> Result<()> {
        let text = batch_script(&settings(), &single(Stage::Train))?;
        assert!(!text.contains("--array"));
        assert!(text.contains("--output=/scratch/run/logs/%x_%j.log\n"));
        assert!(text.contains("unset POLYSIFT_TASK POLYSIFT_NUM_TASKS SLURM_ARRAY_TASK_ID"));
        assert!(text.ends_with("exec /opt/polysift train --run /scratch/run\n"));
        Ok(())
    }

    #[test]
    fn what_is_asked_for_reaches_sbatch_and_the_users_own_arguments_come_last() -> Result<()> {
        let flags = "--max-running 4 --time 12:00:00 -p gpu -A a-1 --gpus-per-node 4 --cpus-per-task 72 \
                     --mem 200G --partial-nodes -- --constraint=a_b --nice=5";
        let mut settings = with_flags(&flags.split_whitespace().collect::<Vec<_>>())?;
        settings.options.sbatch[0] = "--constraint=a b".into();
        let text = batch_script(&settings, &array(Stage::Embed))?;
        for line in [
            "--array=0-7%4",
            "--time=12:00:00",
            "--partition=gpu",
            "--account=a-1",
            "--gpus-per-node=4",
            "--cpus-per-task=72",
            "--mem=200G",
            "\"--constraint=a b\" --nice=5\nexport POLYSIFT_REQUEUE=1",
        ] {
            assert!(text.contains(&format!("#SBATCH {line}\n")), "{line}\n{text}");
        }
        let threads =
            "export POLYSIFT_THREADS=${POLYSIFT_THREADS:-${SLURM_CPUS_PER_TASK:-72}}\nexec ";
        assert!(text.contains(threads), "{text}");
        assert!(!text.contains("--exclusive"));
        Ok(())
    }

    fn resources(settings: &SlurmSettings, needs: Needs) -> Result<Vec<String>> {
        let text = batch_script(settings, &StageTasks { needs, ..single(Stage::Threshold) })?;
        let is_resource = |option: &&str| {
            ["--exclusive", "--gpus", "--cpus", "--mem"].iter().any(|name| option.starts_with(name))
        };
        let options = text.lines().filter_map(|line| line.strip_prefix("#SBATCH "));
        Ok(options.filter(is_resource).map(str::to_owned).collect())
    }

    #[test]
    fn only_what_computes_on_gpus_gets_them_and_only_what_fills_a_node_gets_it_alone() -> Result<()>
    {
        let gpus = with_flags(&["--gpus-per-node=4"])?;
        assert_eq!(resources(&gpus, Needs::Gpus)?, ["--exclusive", "--gpus-per-node=4", "--mem=0"]);
        assert_eq!(resources(&gpus, Needs::Node)?, ["--exclusive", "--mem=0"]);
        assert_eq!(resources(&gpus, Needs::Cores)?, ["--cpus-per-task=4"]);
        let partial = with_flags(&["--gpus-per-node=4", "--partial-nodes"])?;
        assert_eq!(resources(&partial, Needs::Gpus)?, ["--gpus-per-node=4"]);
        assert_eq!(resources(&partial, Needs::Cores)?, ["--cpus-per-task=4"]);
        Ok(())
    }

    #[test]
    fn a_stage_is_asked_for_with_its_own_values() -> Result<()> {
        let flags = "-p gpu -p export=cpu,long -A export=a2 -A a1 -t 24:00:00 -t export=60 --mem 200G \
                     --mem export=8G --cpus-per-task 72 --cpus-per-task export=2";
        let settings = with_flags(&flags.split_whitespace().collect::<Vec<_>>())?;
        let (embed, export) = (
            batch_script(&settings, &array(Stage::Embed))?,
            batch_script(&settings, &array(Stage::Export))?,
        );
        for (of_embed, of_export) in [
            ("--partition=gpu", "--partition=cpu,long"),
            ("--account=a1", "--account=a2"),
            ("--time=24:00:00", "--time=60"),
            ("--mem=200G", "--mem=8G"),
            ("--cpus-per-task=72", "--cpus-per-task=2"),
        ] {
            assert!(embed.contains(&format!("#SBATCH {of_embed}\n")), "{embed}");
            assert!(export.contains(&format!("#SBATCH {of_export}\n")), "{export}");
        }
        Ok(())
    }

    #[test]
    fn strange_paths_are_quoted_for_the_shell_and_for_sbatch() -> Result<()> {
        let strange = SlurmSettings { run: "/data/it's 100% \"a\" $b #c".into(), ..settings() };
        let text = batch_script(&strange, &single(Stage::Threshold))?;
        let log = r#"#SBATCH "--output=/data/it's 100%% \"a\" $b #c/logs/%x_%j.log""#;
        assert!(text.contains(log), "{text}");
        assert!(text.ends_with("--run '/data/it'\\''s 100% \"a\" $b #c'\n"), "{text}");
        for path in ["/a\nb", "/a\\b"] {
            let refused = SlurmSettings { run: path.into(), ..settings() };
            assert!(
                batch_script(&refused, &single(Stage::Train)).is_err_and(|e| e.exit_code() == 2)
            );
        }
        let broken = with_flags(&["--", "--comment=a\nrm -rf b"])?;
        assert!(batch_script(&broken, &single(Stage::Train)).is_err_and(|e| e.exit_code() == 2));
        Ok(())
    }

    #[test]
    fn a_value_of_a_stage_wins_over_that_of_all_in_either_order() -> Result<()> {
        for flags in [["-pgpu", "-pscore=cpu,big"], ["-pscore=cpu,big", "-pgpu"]] {
            let partition = with_flags(&flags)?.options.partition;
            assert_eq!(value_for(&partition, Stage::Score).map(String::as_str), Some("cpu,big"));
            assert_eq!(value_for(&partition, Stage::Embed).map(String::as_str), Some("gpu"));
        }
        let only = with_flags(&["--mem=train=4"])?.options.mem;
        assert_eq!(value_for(&only, Stage::Embed), None);
        assert!(with_flags(&["--max-running=0"]).is_err());
        Ok(())
    }

    #[test]
    fn what_names_no_stage_or_has_no_value_is_refused() {
        for (text, wrong) in [
            ("scor=4", "`scor` is no stage; the stages are cascade, embed"),
            ("score=", "has no value"),
            ("", "has no value"),
            ("score=4G", "invalid digit"),
        ] {
            let refused = text.parse::<StageValue<u32>>();
            assert!(refused.is_err_and(|reason| reason.contains(wrong)), "{text}");
        }
    }

    #[test]
    fn a_shell_reads_back_every_word() -> std::io::Result<()> {
        for word in
            ["/scratch/run", "/a b", "", "it's", "$HOME", "a\\b", "~", "*", "ü", "\"", "a\nb"]
        {
            let script = format!("printf %s {}", shell_quoted(word));
            let printed = std::process::Command::new("sh").args(["-c", &script]).output()?.stdout;
            assert_eq!(String::from_utf8_lossy(&printed), word);
        }
        assert_eq!(shell_quoted("/scratch/run-1"), "/scratch/run-1");
        Ok(())
    }

    #[test]
    fn the_largest_array_is_what_the_cluster_says() {
        // Two lines of `scontrol show config`, Slurm 22.05.
        let config = "MaxArraySize            = 10001\nSchedulerParameters     = sched_interval=2,max_array_tasks=500,x\n";
        assert_eq!(parse_max_array_tasks(config), 500);
        assert_eq!(parse_max_array_tasks("MaxArraySize            = 10001\n"), 10_001);
        assert_eq!(
            parse_max_array_tasks("SchedulerParameters     = (null)\n"),
            DEFAULT_MAX_ARRAY_SIZE
        );
    }
}
