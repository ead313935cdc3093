//! Several processes on one run directory: they share the work, outlive each other, and leave the bytes
//! of a single one.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polysift::progress::Stop;
use polysift::run::{RunDir, Worker};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{Random, TestResult, Workspace, digests, polysift, text};

type Failure = Box<dyn std::error::Error>;

/// A workspace with more files, of different sizes, some of them in Parquet.
fn workspace() -> Result<Workspace, Failure> {
    let work = Workspace::new()?;
    for i in 0..8 {
        let rows =
            (0..5 + 9 * i).map(|j| json!({"id": format!("{i}-{j}"), "text": text(j + i), "n": j}));
        work.write_lines(&format!("corpus/fra_Latn/more-{i}.jsonl"), rows)?;
    }
    work.add_all_filters()?;
    Ok(work)
}

/// `polysift COMMAND` over the workspace, running.
fn spawn(work: &Workspace, command: &str, run: &str, args: &[&str]) -> Result<Child, Failure> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"));
    for name in ["POLYSIFT_TASK", "POLYSIFT_NUM_TASKS", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"] {
        child.env_remove(name);
    }
    Ok(child
        .current_dir(work.dir.path())
        .args([command, "-c", "run.toml", "--run", run, "--quiet", "--device", "cpu"])
        .args(["--threads", "1"])
        .args(args)
        .stdout(Stdio::null())
        .spawn()?)
}

/// The task `index` of `count`.
fn task(work: &Workspace, stage: &str, run: &str, index: u32, count: u32) -> assert_cmd::Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args([stage, "--run", run, "--quiet"]);
    command.args(["--task", &index.to_string(), "--num-tasks", &count.to_string()]);
    command
}

/// The stages after the plan, in tasks: `counts` of them by turns.
fn all_stages(work: &Workspace, run: &str, counts: &[u32]) {
    let stages = ["embed", "train", "score", "filter", "deduplicate", "threshold", "export"];
    for (stage, count) in stages.into_iter().zip(counts.iter().cycle()) {
        for index in 0..*count {
            task(work, stage, run, index, *count).assert().success();
        }
    }
}

#[test]
fn processes_that_do_the_same_run_at_once_leave_what_one_leaves() -> TestResult {
    let work = workspace()?;
    work.command("run", "one").assert().success();
    let mut children: Vec<Child> =
        (0..4).map(|_| spawn(&work, "run", "many", &[])).collect::<Result<_, _>>()?;
    for child in &mut children {
        assert_eq!(child.wait()?.code(), Some(0));
    }
    assert_eq!(digests(&work.path("many"))?, digests(&work.path("one"))?);
    polysift().arg("verify").arg(work.path("many")).assert().success();
    Ok(())
}

#[test]
fn tasks_of_any_number_leave_what_one_process_leaves() -> TestResult {
    let work = workspace()?;
    work.command("run", "one").assert().success();
    let expected = digests(&work.path("one"))?;
    for (run, counts) in [("alike", &[3][..]), ("different", &[5, 1, 2, 7, 4])] {
        work.command("plan", run).assert().success().stdout(contains("10 shards"));
        all_stages(&work, run, counts);
        assert_eq!(digests(&work.path(run))?, expected, "{run}");
    }
    Ok(())
}

#[test]
fn a_share_does_its_own_shards_and_retry_names_those_that_are_left() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    let retry = |args: &[&str]| -> Result<String, Failure> {
        let output = polysift().arg("retry").arg(work.path("out")).args(args).output()?;
        assert!(output.status.success());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    assert_eq!(retry(&["--num-tasks", "4"])?, "0-3");
    task(&work, "embed", "out", 1, 4).assert().success();
    assert_eq!(retry(&["--num-tasks", "4"])?, "0,2-3");
    let left: serde_json::Value = serde_json::from_str(&retry(&["--num-tasks", "4", "--json"])?)?;
    assert_eq!((&left["stage"], &left["tasks"]), (&json!("embed"), &json!([0, 2, 3])));
    // A later stage needs all of it, and says how much is missing.
    task(&work, "score", "out", 0, 4).assert().code(66).stderr(contains("not embedded yet"));
    let status = polysift().arg("status").arg(work.path("out")).arg("--json").output()?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    let (done, total) = (&status["stages"][0]["done"], &status["stages"][0]["total"]);
    assert!(done.as_u64() < total.as_u64() && total == 10, "{status}");
    // The number of tasks is free from attempt to attempt.
    work.command("embed", "out").assert().success();
    assert_eq!(retry(&["--stage", "embed"])?, "");
    work.command("run", "out").assert().success();
    assert_eq!(retry(&[])?, "");
    Ok(())
}

#[test]
fn retry_leads_through_all_stages_to_the_end() -> TestResult {
    let work = workspace()?;
    work.command("run", "one").assert().success();
    work.command("plan", "out").assert().success();
    for attempt in 0.. {
        let mut retry = polysift();
        retry.arg("retry").arg(work.path("out")).args(["--num-tasks", "3", "--json"]);
        let output = retry.output()?;
        let left: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let Some(stage) = left["stage"].as_str() else { break };
        assert!(attempt < 18, "{stage} never ends");
        let first = left["tasks"][0].as_u64().ok_or("no task")?;
        task(&work, stage, "out", u32::try_from(first)?, 3).assert().success();
    }
    assert_eq!(digests(&work.path("out"))?, digests(&work.path("one"))?);
    Ok(())
}

#[test]
fn the_environment_of_a_scheduler_names_the_task() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    for index in 0..3 {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(["embed", "--run", "out", "--quiet"]);
        command.env("JOB_COMPLETION_INDEX", index.to_string()).env("POLYSIFT_NUM_TASKS", "3");
        command.assert().success();
    }
    work.command("embed", "one").assert().success();
    assert_eq!(digests(&work.path("out/embeddings"))?, digests(&work.path("one/embeddings"))?);
    task(&work, "embed", "out", 3, 3).assert().code(2);
    // An array of somebody's own, each task of which has a run: it is done whole, unless it is asked for a share.
    let array = |run: &str, flags: &[&str]| {
        let mut command = work.command("embed", run);
        command.args(flags).env("SLURM_ARRAY_TASK_ID", "1").env("SLURM_ARRAY_TASK_COUNT", "4");
        command.env("SLURM_ARRAY_TASK_MIN", "0").env("SLURM_ARRAY_TASK_MAX", "3");
        command.assert().success()
    };
    for attempt in ["first", "again"] {
        array("own", &[]).stderr(contains("all shards are done here"));
        let (own, one) = (work.path("own/embeddings"), work.path("one/embeddings"));
        assert_eq!(digests(&own)?, digests(&one)?, "{attempt}");
    }
    array("part", &["--task", "auto"]).stderr(contains("task 1 of 4, by SLURM_ARRAY_TASK_ID"));
    array("out", &[]).stderr(contains("task 1 of 4, by SLURM_ARRAY_TASK_ID"));
    Ok(())
}

#[test]
fn what_a_dead_process_held_is_taken_over_and_what_a_live_one_holds_is_not() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    let run = RunDir::open(&work.path("out"))?;
    let leases = work.path("out/state/embed/leases/fra_Latn");
    std::fs::create_dir_all(&leases)?;
    let worker = Worker::join(&run, &Stop::default())?;
    let holder = std::fs::read_dir(work.path("out/state/workers"))?.next().ok_or("no worker")??;
    std::os::unix::fs::symlink(holder.file_name(), leases.join("more-7.0"))?;
    std::os::unix::fs::symlink("gone.1.0", leases.join("more-6.0"))?;
    for index in 0..2 {
        task(&work, "embed", "out", index, 2).assert().success();
    }
    assert!(work.path("out/state/embed/done/fra_Latn/more-6.json").exists());
    assert!(!work.path("out/state/embed/done/fra_Latn/more-7.json").exists());
    drop(worker);
    task(&work, "embed", "out", 0, 2).assert().success();
    assert!(work.path("out/state/embed/done/fra_Latn/more-7.json").exists());
    Ok(())
}

#[test]
fn a_shard_with_bad_data_fails_alone_and_is_named() -> TestResult {
    let work = workspace()?;
    work.write("corpus/fra_Latn/broken.jsonl", "{\"text\": \"fine\"}\nnot JSON\n")?;
    work.command("plan", "out").assert().success();
    let codes: Vec<Option<i32>> = (0..2)
        .map(|index| Ok(task(&work, "embed", "out", index, 2).output()?.status.code()))
        .collect::<Result<_, Failure>>()?;
    assert!(codes.contains(&Some(3)) && codes.contains(&Some(0)), "{codes:?}");
    let status = polysift().arg("status").arg(work.path("out")).output()?;
    let status = String::from_utf8(status.stdout)?;
    assert!(
        status.contains("embed failed: fra_Latn/broken: ") && status.contains("row 2"),
        "{status}"
    );
    work.command("embed", "out").assert().code(65).stderr(contains("row 2"));
    Ok(())
}

#[test]
fn other_settings_are_refused_while_a_run_goes_on() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    task(&work, "embed", "out", 0, 4).assert().success();
    task(&work, "embed", "out", 1, 4).args(["--max-tokens", "64"]).assert().code(78);
    Ok(())
}

#[test]
fn a_plan_stays_as_it_is_whatever_becomes_of_the_files() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    work.command("plan", "shared").assert().success();
    let plan = std::fs::read(work.path("out/plan.jsonl.zst"))?;
    std::fs::remove_file(work.path("corpus/fra_Latn/more-1.jsonl"))?;
    work.write_lines("corpus/fra_Latn/more-2.jsonl", [json!({"text": "other"})].into_iter())?;
    work.write_lines("corpus/fra_Latn/new.jsonl", [json!({"text": "new"})].into_iter())?;
    // In the second attempt there is nothing but these two; the larger one comes first.
    for (name, code) in [("embed", 3), ("run", 65)] {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args([name, "--run", "out"]);
        let told =
            contains("1 file(s) are new since the run was planned").and(contains("new.jsonl"));
        let gone = contains("more-1.jsonl: the input file is gone");
        let changed = contains("more-2.jsonl: the file changed since the run was planned");
        command.assert().code(code).stderr(told.and(gone).and(changed));
    }
    task(&work, "embed", "shared", 0, 1).assert().code(3);
    let status = polysift().arg("status").arg(work.path("shared")).arg("--json").output()?;
    let failed =
        &serde_json::from_slice::<serde_json::Value>(&status.stdout)?["stages"][0]["failed"];
    let code = |key: &str| failed[key]["exit_code"].as_u64();
    assert_eq!((code("fra_Latn/more-1"), code("fra_Latn/more-2")), (Some(66), Some(65)));
    assert_eq!(std::fs::read(work.path("out/plan.jsonl.zst"))?, plan);
    assert!(work.path("out/state/embed/done/fra_Latn/more-3.json").exists());
    // Only `plan --redo` takes the files as they are now.
    work.command("plan", "out").assert().code(78).stderr(
        contains("shards.fra_Latn/new: was (absent)").and(contains("`polysift plan --redo`")),
    );
    work.command("plan", "out").arg("--redo").assert().success().stdout(contains("10 shards"));
    work.command("run", "out").assert().success();
    work.command("run", "fresh").assert().success();
    assert_eq!(digests(&work.path("out"))?, digests(&work.path("fresh"))?);
    Ok(())
}

#[test]
fn other_input_than_the_planned_one_is_refused_by_every_command() -> TestResult {
    let work = workspace()?;
    work.command("plan", "out").assert().success();
    let settings = std::fs::read(work.path("out/config.toml"))?;
    let with_input = |command: &str, input: &[&str]| {
        let mut polysift = polysift();
        polysift
            .current_dir(work.dir.path())
            .args([command, "--run", "out", "--quiet"])
            .args(input);
        polysift
    };
    let other = "corpus/{lang}/more-*.jsonl";
    for command in ["embed", "run", "plan", "train", "score", "threshold", "export"] {
        with_input(command, &[other])
            .assert()
            .code(78)
            .stderr(contains("input.files: was [").and(contains("shards.deu_Latn/a: was")));
    }
    with_input("embed", &[other, "--task", "0", "--num-tasks", "2"]).assert().code(78);
    assert_eq!(std::fs::read(work.path("out/config.toml"))?, settings);
    // The same files in other words are the same input.
    with_input("embed", &["corpus/fra_Latn/*.jsonl", "corpus/deu_Latn/a.jsonl"]).assert().code(78);
    with_input("embed", &["./corpus/{lang}/*"]).assert().success();
    Ok(())
}

/// Ends `child` if it has not ended by then; its exit code, none where it had to be killed.
fn code_within(child: &mut Child, limit: Duration) -> Result<Option<i32>, Failure> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if began.elapsed() > limit {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process `id` has a handler of SIGTERM: before, the signal ends it as it does any program.
fn catches_term(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> 14 & 1 == 1)
}

#[test]
fn a_run_ends_at_a_signal_at_whichever_moment_and_goes_on_to_the_same_bytes() -> TestResult {
    let work = workspace()?;
    let began = Instant::now();
    assert_eq!(spawn(&work, "run", "whole", &[])?.wait()?.code(), Some(0));
    let expected = digests(&work.path("whole"))?;
    let millis = usize::try_from(began.elapsed().as_millis())?;
    let mut random = Random(42);
    let mut stopped = 0;
    for i in 0..20 {
        let mut child = spawn(&work, "run", "stopped", &[])?;
        while !catches_term(child.id()) && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random.below(millis / 4) as u64));
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .stderr(Stdio::null())
            .status()?;
        let code = code_within(&mut child, Duration::from_secs(30))?;
        stopped += usize::from(code == Some(75));
        assert!(matches!(code, Some(0 | 75)), "signal {i}: {code:?}");
        if code == Some(0) {
            assert_eq!(digests(&work.path("stopped"))?, expected);
            std::fs::remove_dir_all(work.path("stopped"))?;
        }
    }
    assert!(stopped > 5, "{stopped} of 20 were stopped");
    work.command("run", "stopped").assert().success();
    assert_eq!(digests(&work.path("stopped"))?, expected);
    Ok(())
}
