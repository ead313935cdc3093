//! Schedulers: what is submitted, recorded and refused, against commands that only write down how they
//! were called. A real Slurm is in `tests/slurm`.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::util::{TestResult, Workspace};

/// A workspace with a planned run and commands of Slurm that write their arguments to `calls`.
struct Cluster {
    work: Workspace,
}

impl Cluster {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let cluster = Self { work: Workspace::new()? };
        cluster.work.command("plan", "out").assert().success();
        cluster.command("sbatch", "echo $((100 + $(grep -c ^sbatch calls)))")?;
        cluster.command("squeue", "cat queue 2>/dev/null || true")?;
        cluster.command("scontrol", "echo 'MaxArraySize            = 1001'")?;
        cluster.command("scancel", "true")?;
        Ok(cluster)
    }

    /// Puts a command into the folder that the program finds first.
    fn command(&self, name: &str, does: &str) -> TestResult {
        let path = format!("bin/{name}");
        self.work.write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> calls\n{does}\n"))?;
        Ok(std::fs::set_permissions(self.work.path(&path), std::fs::Permissions::from_mode(0o755))?)
    }

    /// `polysift slurm submit --run out ARGUMENTS`.
    fn submit(&self, arguments: &[&str]) -> Command {
        let mut polysift = crate::util::polysift();
        let path = format!("{}:/usr/bin:/bin", self.work.path("bin").display());
        polysift.current_dir(self.work.dir.path()).env("PATH", path);
        polysift.args(["slurm", "submit"]).args(arguments);
        if !arguments.contains(&"--run") {
            polysift.args(["--run", "out"]);
        }
        polysift
    }

    /// How the command `of` was called, first to last.
    fn calls(&self, of: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(self.work.path("calls")).unwrap_or_default();
        let prefix = format!("{of} ");
        calls.lines().filter_map(|line| line.strip_prefix(&prefix)).map(Into::into).collect()
    }
}

#[test]
fn a_chain_is_submitted_and_recorded_in_the_run_directory() -> TestResult {
    let cluster = Cluster::new()?;
    let id = "ls out/state/workers | wc -l >> seen; echo $((100 + $(grep -c ^sbatch calls)))";
    cluster.command("sbatch", id)?;
    cluster.submit(&["--num-tasks", "2"]).assert().success().stdout(contains("afterok:101"));
    // A job that is alone in the directory would sweep up the scripts that are still being written.
    assert_eq!(std::fs::read_to_string(cluster.work.path("seen"))?, "1\n".repeat(5));
    let root = std::fs::canonicalize(cluster.work.dir.path())?;
    let script = |name: &str| format!("{}/out/slurm/000-{name}.sh", root.display());
    let expected = [
        format!("--parsable {}", script("embed")),
        format!("--parsable --dependency=afterok:101 {}", script("train")),
        format!("--parsable --dependency=afterok:102 {}", script("score")),
        format!("--parsable --dependency=afterok:103 {}", script("threshold")),
        format!("--parsable --dependency=afterok:104 {}", script("export")),
    ];
    assert_eq!(cluster.calls("sbatch"), expected);
    let record = cluster.work.json("out/slurm/jobs.json")?;
    let jobs = &record[0]["jobs"];
    assert_eq!(jobs[0]["array"], "0-1");
    assert_eq!(jobs[4]["job_id"], "105");
    assert!(cluster.work.path("out/logs").is_dir(), "Slurm makes no folder for its logs");
    Ok(())
}

#[test]
fn heads_are_trained_before_a_cascade_needs_them() -> TestResult {
    let cluster = Cluster::new()?;
    cluster.work.command("plan", "cascade").arg("--cascade").assert().success();
    let stages = |arguments: &[&str]| -> Vec<String> {
        let arguments = [&["--run", "cascade", "--force"], arguments].concat();
        let before = cluster.calls("sbatch").len();
        cluster.submit(&arguments).assert().success();
        let calls = cluster.calls("sbatch").into_iter().skip(before);
        let name = |call: String| Some(call.rsplit_once('-')?.1.strip_suffix(".sh")?.to_owned());
        calls.filter_map(name).collect()
    };
    let in_order = ["train", "cascade", "embed", "score", "threshold", "export"];
    assert_eq!(stages(&[]), in_order);
    assert_eq!(stages(&["--stage", "score,embed,cascade,train"]), in_order[..4]);
    assert_eq!(stages(&["--retry"]), in_order);
    Ok(())
}

#[test]
fn hints_can_be_pasted_into_a_shell_whatever_the_path() -> TestResult {
    let cluster = Cluster::new()?;
    cluster.work.command("plan", "it's a run").assert().success();
    let mut submit = cluster.submit(&["--run", "it's a run"]);
    let printed = submit.assert().success().get_output().stdout.clone();
    let printed = String::from_utf8(printed)?;
    let hints: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.split_once(": polysift "))
        .map(|(_, hint)| hint)
        .collect();
    assert_eq!(hints.len(), 2, "{printed}");
    for hint in hints {
        let script = format!("for word in {hint}; do echo \"$word\"; done");
        let words = Process::new("sh").args(["-c", &script]).output()?.stdout;
        let root = std::fs::canonicalize(cluster.work.path("it's a run"))?;
        assert!(
            String::from_utf8(words)?.lines().any(|word| root == std::path::Path::new(word)),
            "{hint}"
        );
    }
    Ok(())
}

#[test]
fn a_stage_gets_a_partition_and_nodes_of_its_own() -> TestResult {
    let cluster = Cluster::new()?;
    cluster
        .work
        .command("plan", "gpus")
        .env("POLYSIFT_DEVICE", "auto")
        .arg("--quiet")
        .assert()
        .success();
    cluster
        .submit(&["--run", "gpus", "--gpus-per-node", "4", "-p", "gpu", "-p", "export=cpu"])
        .assert()
        .success();
    let script = |stage: &str| {
        std::fs::read_to_string(cluster.work.path(&format!("gpus/slurm/000-{stage}.sh")))
    };
    for (stage, uses_gpus) in [
        ("embed", true),
        ("train", true),
        ("score", false),
        ("threshold", false),
        ("export", false),
    ] {
        let text = script(stage)?;
        assert_eq!(text.contains("--gpus-per-node=4"), uses_gpus, "{text}");
        assert_eq!(text.contains("--exclusive"), uses_gpus, "{text}");
        let partition = if stage == "export" { "cpu" } else { "gpu" };
        assert!(text.contains(&format!("--partition={partition}\n")), "{text}");
    }
    cluster.submit(&["-p", "exprot=cpu"]).assert().code(2).stderr(contains("`exprot` is no stage"));
    Ok(())
}

#[test]
fn jobs_that_are_still_there_keep_a_second_submit_away() -> TestResult {
    let cluster = Cluster::new()?;
    cluster.submit(&["--stage", "embed"]).assert().success();
    cluster.work.write("queue", "7\n101\n")?;
    let refusal = contains("queued or running: 101;").and(contains("--force"));
    cluster.submit(&[]).assert().code(2).stderr(refusal);
    cluster.submit(&["--force"]).assert().success();
    cluster.work.write("queue", "7\n")?; // somebody else's
    cluster.submit(&[]).assert().success();
    Ok(())
}

#[test]
fn a_retry_submits_what_is_left_and_nothing_when_all_is_done() -> TestResult {
    let cluster = Cluster::new()?;
    cluster
        .work
        .command("embed", "out")
        .args(["--task", "0", "--num-tasks", "1"])
        .assert()
        .success();
    cluster.submit(&["--retry", "--num-tasks", "2"]).assert().success();
    let calls = cluster.calls("sbatch");
    assert_eq!(calls.len(), 4, "{calls:?}");
    assert!(calls[0].ends_with("000-train.sh"), "{calls:?}");
    cluster.work.command("run", "out").assert().success();
    cluster.submit(&["--retry"]).assert().success().stdout(contains("nothing is left"));
    assert_eq!(cluster.calls("sbatch").len(), 4);
    Ok(())
}

#[test]
fn a_job_that_is_refused_takes_back_those_before_it() -> TestResult {
    let cluster = Cluster::new()?;
    let full =
        "[ $(grep -c ^sbatch calls) -lt 3 ] && echo 5 || { echo 'queue is full' >&2; exit 1; }";
    cluster.command("sbatch", full)?;
    cluster.submit(&[]).assert().code(69).stderr(contains("sbatch: exit status: 1: queue is full"));
    assert_eq!(cluster.calls("scancel"), ["5 5"]);
    Ok(())
}

#[test]
fn a_machine_without_slurm_is_told_so() -> TestResult {
    let cluster = Cluster::new()?;
    let mut submit = cluster.submit(&[]);
    submit.env("PATH", "/nowhere");
    submit.assert().code(69).stderr(contains("scontrol: not found; this machine has no Slurm"));
    let mut script = crate::util::polysift();
    script.current_dir(cluster.work.dir.path()).env("PATH", "/nowhere");
    script.args(["slurm", "script", "--run", "out", "--stage", "embed"]);
    script.assert().success().stdout(contains("#SBATCH --array=0-1\n"));
    Ok(())
}

#[test]
fn what_is_not_planned_is_not_submitted() -> TestResult {
    let cluster = Cluster::new()?;
    std::fs::remove_dir_all(cluster.work.path("out"))?;
    cluster.submit(&[]).assert().code(66).stderr(contains("polysift plan"));
    assert!(!cluster.work.path("out").exists());
    Ok(())
}

#[test]
fn a_hub_that_is_away_puts_the_task_back_into_the_queue_a_wrong_setting_does_not() -> TestResult {
    let cluster = Cluster::new()?;
    let embed = |setting: &str, requeue: &str| {
        let mut embed = cluster.work.command("embed", "elsewhere");
        let path = format!("{}:/usr/bin:/bin", cluster.work.path("bin").display());
        embed.env("PATH", path).env("POLYSIFT_REQUEUE", requeue).args(["--set", setting]);
        embed.env("HF_ENDPOINT", "http://127.0.0.1:1").env("HF_HOME", cluster.work.path("hub"));
        embed.env("SLURM_JOB_ID", "9").env("SLURM_ARRAY_JOB_ID", "7");
        embed.env("SLURM_ARRAY_TASK_ID", "1").env("POLYSIFT_NUM_TASKS", "2");
        embed
    };
    let (unreachable, wrong) = ("encoder.model=nobody/nothing", "encoder.max_tokens=none");
    embed(unreachable, "0").assert().code(69);
    embed(wrong, "1").assert().code(2);
    assert!(cluster.calls("scontrol").is_empty());
    embed(unreachable, "1").assert().code(69);
    assert_eq!(cluster.calls("scontrol"), ["requeue 7_1"]);
    cluster.command("scontrol", "echo 'no such job' >&2; exit 1")?;
    embed(unreachable, "1").assert().code(69).stderr(contains("not back in the queue"));
    Ok(())
}

/// Sends `signals` to a process that embeds for long; its exit code and what it called of Slurm.
fn embed_with_signals(
    signals: &[&str],
) -> Result<(Option<i32>, Vec<String>), Box<dyn std::error::Error>> {
    let cluster = Cluster::new()?;
    let long = "knowledge of rivers and empires ".repeat(300);
    cluster.work.write_lines(
        "corpus/fra_Latn/long.jsonl",
        (0..4000).map(|i| serde_json::json!({"id": i, "text": format!("{long} {i}")})),
    )?;
    let mut child = Process::new(env!("CARGO_BIN_EXE_polysift"))
        .current_dir(cluster.work.dir.path())
        .args(["embed", "-c", "run.toml", "--run", "long", "--device", "cpu"])
        .env("PATH", format!("{}:/usr/bin:/bin", cluster.work.path("bin").display()))
        .envs([("POLYSIFT_REQUEUE", "1"), ("SLURM_JOB_ID", "9")])
        .stderr(Stdio::null())
        .spawn()?;
    while !cluster.work.path("long/state/embed").exists() {
        assert!(child.try_wait()?.is_none(), "ended before it could be stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
    for signal in signals {
        Process::new("kill").args([signal, child.id().to_string().as_str()]).status()?;
    }
    Ok((child.wait()?.code(), cluster.calls("scontrol")))
}

#[test]
fn a_pre_empted_or_cancelled_task_saves_and_leaves_the_rest_to_the_scheduler() -> TestResult {
    let nothing = Vec::<String>::new();
    assert_eq!(embed_with_signals(&["-TERM"])?, (Some(75), nothing.clone()));
    // Told at once that its time is up: such a limit leaves no time to work, however often.
    assert_eq!(embed_with_signals(&["-USR1"])?, (Some(75), nothing));
    Ok(())
}

#[test]
fn signals_that_come_together_are_one_and_save() -> TestResult {
    // What `timeout` and Slurm do: one to the process, one to its group.
    let (code, _) = embed_with_signals(&["-TERM", "-TERM"])?;
    assert_eq!(code, Some(75));
    // Two at once, in whichever order they come.
    let (code, _) = embed_with_signals(&["-STOP", "-USR1", "-TERM", "-CONT"])?;
    assert_eq!(code, Some(75));
    Ok(())
}

#[test]
fn a_signal_two_seconds_after_the_first_stops_at_once() -> TestResult {
    // It writes 150 KB into a pipe that nobody empties, and hangs in that.
    let mut child = Process::new(env!("CARGO_BIN_EXE_polysift"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()?;
    let pid = child.id().to_string();
    let terminate = || Process::new("kill").args(["-TERM", &pid]).status();
    let mut stdout = child.stdout.take().ok_or("no output")?;
    stdout.read_exact(&mut [0])?; // waits for the writer
    terminate()?;
    std::thread::sleep(Duration::from_millis(100));
    terminate()?;
    std::thread::sleep(Duration::from_millis(2500));
    assert!(child.try_wait()?.is_none(), "ended by the first two");
    terminate()?;
    assert_eq!(child.wait()?.code(), Some(128 + 15));
    Ok(())
}
