//! Who holds what: few items at a time, of live processes only, and a word for those that wait.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polysift::progress::Stop;
use polysift::run::{RunDir, Worker};
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, text};

type Failure = Box<dyn std::error::Error>;

/// `polysift COMMAND` over the workspace, running, with its messages in a pipe.
fn spawn(work: &Workspace, command: &str, run: &str, args: &[&str]) -> Result<Child, Failure> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"));
    for name in ["POLYSIFT_TASK", "POLYSIFT_NUM_TASKS", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"] {
        child.env_remove(name);
    }
    child.current_dir(work.dir.path()).args([command, "-c", "run.toml", "--run", run]);
    child.args(["--device", "cpu", "--threads", "1"]).args(args);
    Ok(child
        .env("POLYSIFT_LEASE_SECS", "8")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?)
}

fn signal(child: &Child, name: &str) -> TestResult {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status()?;
    if status.success() { Ok(()) } else { Err("no such process".into()) }
}

/// Number of files and links below `folder`.
fn num_files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let count = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => num_files(&entry.path()),
        _ => 1,
    };
    entries.flatten().map(count).sum()
}

/// Waits until `is_so`, as long as `child` runs.
fn wait_until(child: &mut Child, is_so: impl Fn() -> bool) -> TestResult {
    while !is_so() {
        if let Some(status) = child.try_wait()? {
            return Err(format!("ended with {status} before its time").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn status(work: &Workspace, run: &str) -> Result<Value, Failure> {
    let output = polysift().args(["status", "--json"]).arg(work.path(run)).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The figures of `stage` in a status.
fn of_stage<'a>(status: &'a Value, stage: &str) -> Option<&'a Value> {
    status["stages"].as_array()?.iter().find(|found| found["stage"] == stage)
}

/// A lease on `key` of `stage` in the hands of the process `holder`.
fn lease(work: &Workspace, stage: &str, key: &str, holder: &str) -> TestResult {
    let path = work.path(&format!("out/state/{stage}/leases/{key}.0"));
    std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
    Ok(std::os::unix::fs::symlink(holder, path)?)
}

#[test]
fn a_process_holds_few_shards_and_does_the_first_first() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    for i in 0..28 {
        let rows = (0..40).map(|j| json!({"id": j, "text": text(j + i).repeat(4)}));
        work.write_lines(&format!("corpus/fra_Latn/{i:02}.jsonl"), rows)?;
    }
    // Batches so small that the first shards take some of them.
    let mut child = spawn(&work, "embed", "out", &["--batch-tokens", "512", "--quiet"])?;
    let (done, leases) = (work.path("out/state/embed/done"), work.path("out/state/embed/leases"));
    wait_until(&mut child, || num_files(&done) > 0)?;
    let held = num_files(&leases);
    assert!(held < 20, "{held} of 30 shards are held when the first is done");
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_stopped_process_is_named_then_taken_for_dead_and_notices_when_it_goes_on() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let long = "knowledge of rivers and empires ".repeat(100);
    let rows = (0..20).map(|i| json!({"id": i, "text": format!("{long} {i}")}));
    work.write_lines("corpus/fra_Latn/long.jsonl", rows)?;
    let mut stopped = spawn(&work, "embed", "out", &["--quiet"])?;
    // The largest shard is the first; once it has the next one too, it reads or encodes the first:
    // stopped before, it would find the shard done and have nothing to lose.
    let leases = work.path("out/state/embed/leases");
    wait_until(&mut stopped, || num_files(&leases) > 1)?;
    signal(&stopped, "-STOP")?;
    let mut second = spawn(&work, "embed", "out", &[])?;
    let mut told = String::new();
    second.stderr.take().ok_or("no stderr")?.read_to_string(&mut told)?;
    assert_eq!(second.wait()?.code(), Some(0), "{told}");
    let waiting: Vec<&str> = told.lines().filter(|line| line.contains("waiting for")).collect();
    let [line] = waiting[..] else { return Err(told.into()) };
    let holder = format!("process {} on ", stopped.id());
    assert!(line.contains(&holder) && line.contains("of other processes: "), "{line}");
    signal(&stopped, "-CONT")?;
    assert_eq!(stopped.wait()?.code(), Some(75));
    work.command("embed", "one").assert().success();
    assert_eq!(digests(&work.path("out/embeddings"))?, digests(&work.path("one/embeddings"))?);
    Ok(())
}

#[test]
fn status_counts_what_live_processes_hold_and_has_a_row_for_every_stage() -> TestResult {
    let work = Workspace::new()?;
    work.command("plan", "out").assert().success();
    let worker = Worker::join(&RunDir::open(&work.path("out"))?, &Stop::default())?;
    let holder = std::fs::read_dir(work.path("out/state/workers"))?.next().ok_or("no worker")??;
    lease(&work, "embed", "fra_Latn/a", &holder.file_name().to_string_lossy())?;
    lease(&work, "embed", "deu_Latn/a", "gone.1.0")?;
    let found = status(&work, "out")?;
    let embed = of_stage(&found, "embed").ok_or("no embed")?;
    assert_eq!((&embed["leased"], &embed["done"]), (&json!(1), &json!(0)));
    let train = of_stage(&found, "train").ok_or("no train")?;
    assert_eq!((&train["done"], &train["total"]), (&json!(0), &Value::Null));
    drop(worker);
    work.command("run", "out").assert().success();
    // As a process leaves it that is killed between the two.
    let failure = json!({"error": "bad data", "exit_code": 65}).to_string();
    work.write("out/state/embed/failed/fra_Latn/a.json", failure)?;
    let found = status(&work, "out")?;
    for (stage, items) in [("embed", 2), ("train", 2), ("score", 2), ("export", 2)] {
        let stage = of_stage(&found, stage).ok_or("no such stage")?;
        assert_eq!((&stage["done"], &stage["total"]), (&json!(items), &json!(items)), "{stage}");
        assert_eq!((&stage["leased"], &stage["failed"]), (&json!(0), &json!({})), "{stage}");
    }
    Ok(())
}

#[test]
fn progress_of_a_share_that_takes_others_over_counts_their_documents_too() -> TestResult {
    let work = Workspace::new()?;
    for stage in ["embed", "train"] {
        work.command(stage, "out").assert().success();
    }
    for key in ["quality/fra_Latn/a", "quality/deu_Latn/a"] {
        lease(&work, "score", key, "gone.1.0")?;
    }
    let mut task = spawn(&work, "score", "out", &["--task", "0", "--num-tasks", "2"])?;
    let lines = BufReader::new(task.stderr.take().ok_or("no stderr")?).lines();
    let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
    assert_eq!(task.wait()?.code(), Some(0), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("score: 65 of 65 documents")), "{lines:?}");
    Ok(())
}

#[test]
fn a_lease_time_that_is_none_is_refused_and_one_that_a_file_claims_is_not_believed() -> TestResult {
    let work = Workspace::new()?;
    for secs in ["0", "never", "99999999999999999999"] {
        let mut command = work.command("embed", "out");
        command.env("POLYSIFT_LEASE_SECS", secs).assert().code(2).stderr(contains(format!(
            "POLYSIFT_LEASE_SECS: `{secs}` is not a number of seconds from 1 to 86400"
        )));
    }
    work.command("plan", "out").assert().success();
    let worker = Worker::join(&RunDir::open(&work.path("out"))?, &Stop::default())?;
    let file = std::fs::read_dir(work.path("out/state/workers"))?.next().ok_or("no worker")??;
    let mut identity: Value = serde_json::from_slice(&std::fs::read(file.path())?)?;
    drop(worker);
    identity["pid_space"] = json!("another machine");
    identity["ttl_secs"] = json!(u64::MAX);
    work.write("out/state/workers/far.1.0", format!("{identity}\n"))?;
    assert_eq!(status(&work, "out")?["workers"][0]["is_alive"], false);
    work.command("embed", "out").assert().success();
    Ok(())
}

#[test]
fn a_process_that_wakes_up_after_others_began_anew_names_no_file() -> TestResult {
    let work = Workspace::new()?;
    let row = |i: u32| json!({"id": i, "text": text(i as usize).repeat(20), "s": f64::from(i)});
    work.write_lines("rows.jsonl", (0..20_000).map(row))?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['rows.jsonl']\nlanguage = 'deu_Latn'\n[encoder]\nmodel = 'none'\n\
         [heads.s]\nkind = 'column'\nscore = 's'\n[languages._default]\nretention = { s = 0.9 }\n",
    )?;
    for stage in ["embed", "score", "threshold"] {
        work.command(stage, "out").assert().success();
    }
    let mut stopped = spawn(&work, "export", "out", &["--quiet"])?;
    let export = work.path("out/export");
    wait_until(&mut stopped, || num_files(&export) > 0)?;
    signal(&stopped, "-STOP")?;
    std::thread::sleep(Duration::from_secs(9)); // until it counts as dead
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", settings.replace("s = 0.9", "s = 0.1"))?;
    for stage in ["threshold", "export"] {
        work.command(stage, "out").args(["--redo", stage]).assert().success();
    }
    let written = digests(&export)?;
    signal(&stopped, "-CONT")?;
    assert_eq!(stopped.wait()?.code(), Some(75));
    assert_eq!(digests(&export)?, written);
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}
