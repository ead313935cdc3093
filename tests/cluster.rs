//! Schedulers: what is submitted and refused, against commands that only write down how they were
//! called. A real Slurm is in `tests/slurm`.

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
        cluster.command(
            "sbatch",
            "id=$((100 + $(grep -c ^sbatch calls))); cat > $id.sh; echo \"$id;a cluster\"",
        )?;
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

    /// `polysift slurm --run out ARGUMENTS`.
    fn slurm(&self, arguments: &[&str]) -> Command {
        let mut polysift = crate::util::polysift();
        polysift.current_dir(self.work.dir.path()).env("PATH", self.path());
        polysift.arg("slurm").args(arguments);
        if !arguments.contains(&"--run") {
            polysift.args(["--run", "out"]);
        }
        polysift
    }

    fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.work.path("bin").display())
    }

    /// Runs the script that `polysift slurm --run out ARGUMENTS` prints.
    fn submit(&self, arguments: &[&str]) -> Command {
        let script = self.slurm(arguments).assert().success().get_output().stdout.clone();
        let mut bash = Command::new("bash");
        bash.current_dir(self.work.dir.path()).env("PATH", self.path()).write_stdin(script);
        bash
    }

    /// The batch scripts of the `last` jobs, by their stages.
    fn batches(&self, last: usize) -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
        let num_jobs = self.calls("sbatch").len();
        let batch = |job: usize| {
            let text = std::fs::read_to_string(self.work.path(&format!("{}.sh", 101 + job)))?;
            let name =
                text.lines().find_map(|line| line.strip_prefix("#SBATCH --job-name=polysift-"));
            Ok((name.ok_or("has no name")?.to_owned(), text))
        };
        (num_jobs - last..num_jobs).map(batch).collect()
    }

    /// How the command `of` was called, first to last.
    fn calls(&self, of: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(self.work.path("calls")).unwrap_or_default();
        let prefix = format!("{of} ");
        calls.lines().filter_map(|line| line.strip_prefix(&prefix)).map(Into::into).collect()
    }
}

#[test]
fn each_job_waits_for_the_one_before() -> TestResult {
    let cluster = Cluster::new()?;
    let submitted = cluster.submit(&["--num-tasks", "2"]).assert().success();
    submitted.stdout(contains("embed 101;a cluster\ntrain 102;").and(contains("export 105;")));
    let expected = [
        "--parsable",
        "--parsable --dependency=afterok:101",
        "--parsable --dependency=afterok:102",
        "--parsable --dependency=afterok:103",
        "--parsable --dependency=afterok:104",
    ];
    assert_eq!(cluster.calls("sbatch"), expected);
    let batches = cluster.batches(5)?;
    let names: Vec<&str> = batches.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["embed", "train", "score", "threshold", "export"]);
    assert!(batches[0].1.contains("#SBATCH --array=0-1\n"), "{}", batches[0].1);
    assert!(cluster.work.path("out/logs").is_dir(), "Slurm makes no folder for its logs");
    Ok(())
}

#[test]
fn heads_are_trained_before_a_cascade_needs_them() -> TestResult {
    let cluster = Cluster::new()?;
    cluster.work.command("plan", "cascade").arg("--cascade").assert().success();
    let stages = |arguments: &[&str]| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let before = cluster.calls("sbatch").len();
        cluster.submit(&[&["--run", "cascade"], arguments].concat()).assert().success();
        let batches = cluster.batches(cluster.calls("sbatch").len() - before)?;
        Ok(batches.into_iter().map(|(name, _)| name).collect())
    };
    let in_order = ["train", "cascade", "embed", "score", "threshold", "export"];
    assert_eq!(stages(&[])?, in_order);
    assert_eq!(stages(&["--stage", "score,embed,cascade,train"])?, in_order[..4]);
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
    let batches = cluster.batches(5)?;
    for (stage, uses_gpus) in [
        ("embed", true),
        ("train", true),
        ("score", false),
        ("threshold", false),
        ("export", false),
    ] {
        let (_, text) = batches.iter().find(|(name, _)| name == stage).ok_or(stage)?;
        assert_eq!(text.contains("--gpus-per-node=4"), uses_gpus, "{text}");
        assert_eq!(text.contains("--exclusive"), uses_gpus, "{text}");
        let partition = if stage == "export" { "cpu" } else { "gpu" };
        assert!(text.contains(&format!("--partition={partition}\n")), "{text}");
    }
    cluster.slurm(&["-p", "exprot=cpu"]).assert().code(2).stderr(contains("`exprot` is no stage"));
    Ok(())
}

#[test]
fn what_is_done_is_not_submitted() -> TestResult {
    let cluster = Cluster::new()?;
    cluster
        .work
        .command("embed", "out")
        .args(["--task", "0", "--num-tasks", "1"])
        .assert()
        .success();
    cluster.submit(&["--num-tasks", "2"]).assert().success();
    assert_eq!(cluster.calls("sbatch").len(), 4);
    assert_eq!(cluster.batches(4)?[0].0, "train");
    cluster.work.command("run", "out").assert().success();
    cluster.submit(&[]).assert().success().stdout(contains("nothing is left"));
    assert_eq!(cluster.calls("sbatch").len(), 4);
    Ok(())
}

#[test]
fn a_job_that_is_refused_takes_back_those_before_it() -> TestResult {
    let cluster = Cluster::new()?;
    let full = "cat > script; [ $(grep -c ^sbatch calls) -lt 3 ] && echo 5 || { echo 'queue is full' >&2; exit 1; }";
    cluster.command("sbatch", full)?;
    cluster.submit(&[]).assert().code(1).stderr(contains("queue is full"));
    assert_eq!(cluster.calls("scancel"), ["5 5"]);
    Ok(())
}

#[test]
fn an_array_has_no_more_tasks_than_the_cluster_takes() -> TestResult {
    let cluster = Cluster::new()?;
    cluster.command("scontrol", "echo 'MaxArraySize            = 1'")?;
    let few = contains("the cluster takes no more than 1 tasks in an array");
    cluster.slurm(&[]).assert().success().stdout(contains("--array=0\n")).stderr(few);
    Ok(())
}

#[test]
fn a_script_can_be_made_without_slurm() -> TestResult {
    let cluster = Cluster::new()?;
    let mut slurm = cluster.slurm(&["--stage", "embed"]);
    slurm.env("PATH", "/nowhere").assert().success().stdout(contains("#SBATCH --array=0-1\n"));
    Ok(())
}

#[test]
fn what_is_not_planned_is_not_submitted() -> TestResult {
    let cluster = Cluster::new()?;
    std::fs::remove_dir_all(cluster.work.path("out"))?;
    cluster.slurm(&[]).assert().code(66).stderr(contains("polysift plan"));
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
