//! What a run directory from a stranger cannot do, and what a run leaves the rest of the machine alone with.

use std::error::Error;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, polysift};

/// Paths below a run directory of [`Workspace`], of every kind that a stranger can put a link at.
const LINKED: [&str; 14] = [
    "plan.jsonl.zst",
    "frozen",
    "frozen/embed.json",
    "state",
    "state/embed",
    "embeddings",
    "embeddings/fra_Latn",
    "embeddings/fra_Latn/a/part-00000.parquet",
    "heads/quality",
    "heads/quality/fra_Latn.safetensors",
    "scores/quality/fra_Latn/a",
    "selection/fra_Latn.json",
    "export/fra_Latn",
    "export/fra_Latn/a.parquet",
];

/// Makes `run` a copy of the run `whole`, in which `path` is a link to where it was moved below `outside`.
fn link_out(whole: &Path, run: &Path, outside: &Path, path: &str) -> TestResult {
    for old in [run, outside].into_iter().filter(|old| old.exists()) {
        std::fs::remove_dir_all(old)?;
    }
    let copied = Command::new("cp").arg("-r").args([whole, run]).status()?;
    assert!(copied.success(), "{path}");
    let moved = outside.join(path);
    std::fs::create_dir_all(moved.parent().ok_or("no parent")?)?;
    std::fs::rename(run.join(path), &moved)?;
    Ok(symlink(moved, run.join(path))?)
}

#[test]
fn a_link_in_a_run_directory_is_refused_and_nothing_behind_it_changes() -> TestResult {
    let work = Workspace::new()?;
    let (whole, run, outside) = (work.path("whole"), work.path("out"), work.path("outside"));
    work.command("run", "whole").assert().success();
    for path in LINKED {
        link_out(&whole, &run, &outside, path)?;
        let before = digests(&outside)?;
        polysift().arg("verify").arg(&run).assert().code(65);
        let redo = ["--redo", "embed", "--retention", "quality=0.2"];
        for arguments in [&[][..], &redo] {
            let done = work.command("run", "out").args(arguments).output()?;
            let told = String::from_utf8_lossy(&done.stderr).into_owned();
            let is_named = told.contains(path) && told.contains("symbolic link");
            match done.status.code() {
                // A file took its place, or what it lay in was made anew.
                Some(0) => assert!(!run.join(path).is_symlink(), "{path} {arguments:?}: {told}"),
                // Where other shards can be done, the code is 3.
                Some(3 | 65) => assert!(is_named, "{path} {arguments:?}: {told}"),
                code => return Err(format!("{path} {arguments:?}: {code:?}, {told}").into()),
            }
            assert_eq!(digests(&outside)?, before, "{path} {arguments:?}");
        }
    }
    Ok(())
}

/// Makes `path` a link to a folder `victim` with whatever a run keeps in its folders.
fn link_to_victim(victim: &Path, path: &Path) -> TestResult {
    for folder in [
        "leases", "done", "parts", "saved", "failed", "state", "counts", "shuffle", "fra_Latn",
        "quality",
    ] {
        for deeper in ["quality/fra_Latn", "fra_Latn/a", "train/leases/quality", ""] {
            let folder = victim.join(folder).join(deeper);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("a.json"), "{}")?;
            std::fs::write(folder.join(".a.json.1-0.tmp"), "x")?;
        }
    }
    std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
    if path.exists() {
        std::fs::rename(path, path.with_extension("moved"))?;
    }
    Ok(symlink(victim, path)?)
}

/// Takes the link away again.
fn unlink(path: &Path) -> TestResult {
    std::fs::remove_file(path)?;
    let moved = path.with_extension("moved");
    if moved.exists() {
        std::fs::rename(moved, path)?;
    }
    Ok(())
}

#[test]
fn a_link_at_a_folder_of_the_state_is_refused_and_nothing_behind_it_changes() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let (run, victim) = (work.path("out"), work.path("victim"));
    let stages = ["cascade", "embed", "train", "score", "filter", "refine", "threshold", "export"];
    let mut places: Vec<String> = stages.map(str::to_owned).into();
    for folder in ["leases", "done", "parts", "saved", "failed"] {
        places.extend(stages.map(|stage| format!("{stage}/{folder}")));
    }
    places.extend(["workers", "exclusive", "shared"].map(str::to_owned));
    // Every place in turn with one of the commands, and three with all.
    let of_settings = [&stages[..], &["run", "plan"]].concat();
    let of_run = ["verify", "status", "retry", "report", "card"];
    let commands = [&of_settings[..], &of_run].concat();
    let all = ["train", "score/leases", "export/done"].into_iter();
    let all = all.flat_map(|place| commands.iter().map(move |command| (place, *command)));
    let some = places.iter().zip(commands.iter().cycle());
    for (place, command) in some.map(|(place, command)| (place.as_str(), *command)).chain(all) {
        let path = run.join("state").join(place);
        link_to_victim(&victim, &path)?;
        let before = digests(&victim)?;
        let mut done = match command {
            _ if of_settings.contains(&command) => work.command(command, "out"),
            _ => polysift(),
        };
        if of_run.contains(&command) {
            done.arg(command).arg(&run);
        }
        done.assert().code(65).stderr(contains("symbolic link"));
        assert_eq!(digests(&victim)?, before, "{place} {command}");
        unlink(&path)?;
    }
    polysift().arg("verify").arg(&run).assert().success();
    Ok(())
}

#[test]
fn a_link_deep_in_a_run_that_is_not_done_leads_no_command_out() -> TestResult {
    let work = Workspace::new()?;
    work.command("plan", "planned").assert().success();
    // All stages have their settings, and have done nothing.
    work.command("run", "frozen").assert().success();
    std::fs::remove_dir_all(work.path("frozen/state"))?;
    let refined = ["--refine", "--redo", "embed"];
    for (from, place, arguments) in [
        ("frozen", "state/train/leases/quality", &[][..]),
        ("frozen", "state/embed/leases/fra_Latn", &[]),
        ("frozen", "state/embed/parts/fra_Latn", &[]),
        ("frozen", "state/export/done/fra_Latn", &[]),
        ("planned", "rounds/00", &refined),
        ("planned", "audit/pii", &["--set", "pii.audit='spans'"]),
    ] {
        let (run, victim) = (work.path("out"), work.path("victim"));
        let copied = Command::new("cp").arg("-r").args([&work.path(from), &run]).status()?;
        assert!(copied.success());
        link_to_victim(&victim, &run.join(place))?;
        let before = digests(&victim)?;
        let done = work.command("run", "out").args(arguments).output()?;
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        match done.status.code() {
            Some(0) => assert!(!run.join(place).is_symlink(), "{place}: {told}"),
            Some(3 | 65) => assert!(told.contains("symbolic link"), "{place}: {told}"),
            code => return Err(format!("{place}: {code:?}, {told}").into()),
        }
        assert_eq!(digests(&victim)?, before, "{place}");
        std::fs::remove_dir_all(&run)?;
    }
    Ok(())
}

#[test]
fn a_link_in_the_folder_of_a_mixture_leads_no_file_out() -> TestResult {
    let work = Workspace::new()?;
    let settings = "count = 'bytes'\n[[source]]\nfiles = ['corpus/*/*.jsonl']\nepochs = 1.5\n";
    work.write("mix.toml", settings)?;
    let mix = |arguments: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(["mix", "-c", "mix.toml", "--out", "out"]);
        command.args(arguments).assert()
    };
    mix(&[]).success();
    for place in
        ["_state", "_state/state", "_state/counts", "_state/state/workers", "_state/shuffle"]
    {
        let (path, victim) = (work.path("out").join(place), work.path("victim"));
        link_to_victim(&victim, &path)?;
        let before = digests(&victim)?;
        for arguments in [&[][..], &["--redo"]] {
            mix(arguments).code(65).stderr(contains("symbolic link"));
            assert_eq!(digests(&victim)?, before, "{place} {arguments:?}");
        }
        unlink(&path)?;
    }
    mix(&[]).success();
    Ok(())
}

#[test]
fn a_pipe_among_the_processes_of_a_run_is_not_waited_for() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let pipe = work.path("out/state/workers/elsewhere.1.0");
    std::fs::create_dir_all(pipe.parent().ok_or("no parent")?)?;
    assert!(Command::new("mkfifo").arg(&pipe).status()?.success());
    let mut status = polysift();
    status.arg("status").arg(work.path("out"));
    for mut command in [status, work.command("export", "out"), work.command("run", "out")] {
        command
            .timeout(Duration::from_secs(30))
            .assert()
            .code(65)
            .stderr(contains("neither a file"));
    }
    Ok(())
}

#[test]
fn a_pipe_in_a_run_directory_is_not_waited_for() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let marker = work.path("out/frozen/embed.json");
    std::fs::remove_file(&marker)?;
    assert!(Command::new("mkfifo").arg(&marker).status()?.success());
    work.command("run", "out").assert().code(65).stderr(contains("neither a file nor a directory"));
    Ok(())
}

#[test]
fn files_of_a_run_are_for_their_owner_to_write_and_for_nobody_to_execute() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    polysift().arg("report").arg(work.path("out")).assert().success();
    let files = digests(&work.path("out"))?;
    let modes = files.into_keys().map(|name| {
        let mode = work.path("out").join(&name).metadata()?.permissions().mode();
        Ok((name, mode & 0o133))
    });
    let odd = modes.filter(|found| !found.as_ref().is_ok_and(|(_, bits)| *bits == 0));
    assert_eq!(odd.collect::<Result<Vec<_>, Box<dyn Error>>>()?, []);
    Ok(())
}

/// A network namespace has no routes, and here not even a loopback that is up.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_run_on_local_files_needs_no_network() -> TestResult {
    if !Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: a network namespace cannot be made");
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    for command in ["run", "verify", "report"] {
        let mut alone = Command::new("unshare");
        alone.current_dir(work.dir.path()).arg("-rn").arg(env!("CARGO_BIN_EXE_polysift"));
        alone.arg(command);
        match command {
            "run" => alone.args(["-c", "run.toml", "--run", "out"]),
            _ => alone.arg("out"),
        };
        let done = alone.output()?;
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{command}: {told}");
    }
    Ok(())
}
