//! Kills and signals: a rerun ends with the bytes of an undisturbed run.

use std::process::{Command, Stdio};
use std::time::Duration;

use polysift::progress::Stop;
use polysift::run::{RunDir, Worker};
use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, polysift};

/// Stops the program at its n-th write boundary (see `io::atomic`).
const KILL_AT: &str = "POLYSIFT_KILL_AT";

#[test]
fn a_kill_at_any_write_boundary_changes_nothing_in_the_end() -> TestResult {
    let work = Workspace::new()?;
    std::fs::remove_dir_all(work.path("corpus/deu_Latn"))?;
    work.add_all_filters()?;
    work.command("run", "undisturbed").assert().success();
    let expected = digests(&work.path("undisturbed"))?;
    for boundary in 1.. {
        let run = format!("killed-{boundary}");
        let killed = work.command("run", &run).env(KILL_AT, boundary.to_string()).output()?;
        if killed.status.success() {
            assert!(boundary > 40, "only {boundary} boundaries were found");
            break;
        }
        assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
        work.command("run", &run).assert().success();
        assert_eq!(digests(&work.path(&run))?, expected, "killed at boundary {boundary}");
        std::fs::remove_dir_all(work.path(&run))?;
    }
    Ok(())
}

#[test]
fn a_signal_saves_what_is_done_and_exits_with_75() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let long = "knowledge of rivers and empires ".repeat(100);
    work.write_lines(
        "corpus/fra_Latn/long.jsonl",
        (0..4000).map(|i| serde_json::json!({"id": i, "text": format!("{long} {i}")})),
    )?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"))
        .current_dir(work.dir.path())
        .args(["embed", "-c", "run.toml", "--run", "out", "--device", "cpu"])
        .stderr(Stdio::piped())
        .spawn()?;
    while !work.path("out/state/embed/parts").exists() {
        assert!(child.try_wait()?.is_none(), "ended before it could be stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
    assert_eq!(child.wait()?.code(), Some(75));
    let parts = digests(&work.path("out/embeddings"))?;
    assert!(!parts.is_empty());
    assert!(parts.keys().all(|name| name.ends_with(".parquet")), "{parts:?}");
    Ok(())
}

/// A corpus of one part that takes some seconds; `embed` of it.
fn one_long_part(work: &Workspace) -> Result<impl Fn(&str) -> Command, Box<dyn std::error::Error>> {
    std::fs::remove_dir_all(work.path("corpus"))?;
    let long = "knowledge of rivers and empires ".repeat(100);
    work.write_lines(
        "corpus/fra_Latn/long.jsonl",
        (0..80).map(|i| {
            let text = &long[..long.len() * (i % 7 + 1) / 7];
            serde_json::json!({"id": i, "text": format!("{i} {text}")})
        }),
    )?;
    let directory = work.dir.path().to_owned();
    Ok(move |run: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polysift"));
        command.current_dir(&directory).args(["embed", "-c", "run.toml", "--run", run]);
        command.args(["--device", "cpu", "--set", "parts.rows=20000"]).stderr(Stdio::piped());
        command
    })
}

#[test]
fn a_task_whose_time_is_shorter_than_a_part_gets_on() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let embed = one_long_part(&work)?;
    assert!(embed("undisturbed").status()?.success());
    // How long a task lives is a guess: on a machine that is busy now and idle then, all of the part may be
    // encoded between two stops.
    for attempt in 0..5 {
        let run = format!("out{attempt}");
        let stops = stopped_until_done(&work, &run, &embed)?;
        assert_eq!(digests(&work.path(&run))?, digests(&work.path("undisturbed"))?);
        if stops >= 2 {
            return Ok(());
        }
    }
    Err("no run was stopped twice with documents saved".into())
}

/// Starts `embed` on `run` and stops it, until nothing is left to do; how many stops saved documents.
fn stopped_until_done(
    work: &Workspace,
    run: &str,
    embed: &impl Fn(&str) -> Command,
) -> Result<u64, Box<dyn std::error::Error>> {
    let state = format!("{run}/state/embed");
    let (mut millis, mut stops, mut saved) = (300, 0, 0);
    loop {
        let child = embed(run).spawn()?;
        std::thread::sleep(Duration::from_millis(millis));
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        let output = child.wait_with_output()?;
        match output.status.code() {
            Some(0) => return Ok(stops),
            Some(75) | None => {} // none: it had not begun to listen
            code => {
                return Err(format!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
            }
        }
        let rows = |marker: &str, pointer: &str| {
            let marker = work.json(&format!("{state}/{marker}/fra_Latn/long/00000.json")).ok()?;
            marker.pointer(pointer)?.as_u64()
        };
        // A part that is done has its own marker; the stop came after it.
        let now = rows("saved", "/rows").or_else(|| rows("parts", "/file/rows")).unwrap_or(0);
        assert!(now >= saved, "{now} documents are saved after {saved}");
        if now > 0 {
            let status =
                polysift().current_dir(work.dir.path()).args(["status", run, "--json"]).output()?;
            let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
            assert_eq!(status["documents"], now, "{status}");
        }
        stops += u64::from(now > saved);
        // Where nothing was encoded, the machine is busy.
        millis += if now > saved { 0 } else { 250 };
        saved = now;
    }
}

#[test]
fn what_takes_the_directory_for_itself_waits_for_no_one_who_works_in_it() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let run = RunDir::open(&work.path("out"))?;
    let worker = Worker::join(&run, &Stop::default())?;
    work.command("run", "out")
        .args(["--redo", "score"])
        .assert()
        .code(75)
        .stderr(contains("in use"));
    work.command("run", "out").assert().success();
    drop(worker);
    work.command("run", "out").args(["--redo", "score"]).assert().success();
    Ok(())
}

#[test]
fn a_marker_that_is_damaged_counts_as_not_done_and_is_named_once() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let expected = digests(&work.path("out"))?;
    for (marker, content) in [
        ("out/state/embed/done/fra_Latn/a.json", ""),
        ("out/state/embed/parts/fra_Latn/a/00001.json", "{\"file\": {\"path\""),
        ("out/state/train/done/quality/fra_Latn.json", "\0\0\0"),
        ("out/state/score/done/quality/deu_Latn/a.json", "{}"),
        ("out/state/threshold/done/fra_Latn.json", "["),
        ("out/state/export/finished.jsonl.zst", "not zstd"),
        ("out/state/export/done/deu_Latn/a.json", ""),
    ] {
        work.write(marker, content)?;
        if marker.contains("/parts/") {
            // What is done needs no parts.
            std::fs::remove_file(work.path("out/state/embed/done/fra_Latn/a.json"))?;
        }
        let output = work.command("run", "out").output()?;
        let told = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(0), "{marker}: {told}");
        let name = marker.trim_start_matches("out/");
        assert_eq!(told.lines().filter(|line| line.contains(name)).count(), 1, "{marker}: {told}");
        assert_eq!(digests(&work.path("out"))?, expected, "{marker}");
    }
    Ok(())
}
