//! Faults of machines and file systems on one run directory, by a schedule that a seed makes: in the end there are
//! the bytes of an undisturbed run.
//!
//! A round is a run directory in which some processes work at once, each with a fault of `soak/faults.c` or none,
//! several times over; then one that nothing disturbs ends what they began. `make soak` lets rounds follow each
//! other for hours and goes on behind those that `SOAK_LOG` holds; the plain tests run some for 25 seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::util::{Random, TestResult, Workspace, digests, root, text};

type Failure = Box<dyn Error>;

/// Faults by how often they are chosen; a stop costs the time of a lease.
const FAULTS: [(&str, usize); 8] = [
    ("none", 20),
    ("kill", 100),
    ("torn", 40),
    ("unread", 20),
    ("full", 12),
    ("slow", 4),
    ("clock", 6),
    ("stop", 2),
];
/// Time without a sign of life after which a process loses what it works on.
const LEASE: Duration = Duration::from_secs(3);
/// A process that takes longer hangs.
const DEADLINE: Duration = Duration::from_mins(2);
/// Kills after which every kind of file has to have met one.
const KILLS_FOR_ALL: usize = 1_000;

/// A round in the log.
#[derive(Debug, Serialize, Deserialize)]
struct Round {
    round: u64,
    /// Fault, operation and kind of file of all that happened.
    faults: Vec<(String, String, String)>,
}

struct Soak {
    work: Workspace,
    library: PathBuf,
    /// Kinds of files, with the numbers of the operations on them in an undisturbed run.
    operations: BTreeMap<String, Vec<usize>>,
    expected: BTreeMap<String, String>,
}

impl Soak {
    fn new() -> Result<Self, Failure> {
        let work = Workspace::new()?;
        for i in 0..3 {
            let rows =
                (0..5 + 20 * i).map(|j| json!({"id": format!("{i}-{j}"), "text": text(j + i)}));
            work.write_lines(&format!("corpus/fra_Latn/more-{i}.jsonl"), rows)?;
        }
        work.add_all_filters()?;
        let library = work.path("faults.so");
        let source = root().join("tests/soak/faults.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
        assert!(compiler.status()?.success(), "{} does not compile", source.display());
        let mut soak =
            Self { work, library, operations: BTreeMap::new(), expected: BTreeMap::new() };
        let listed = soak.run("undisturbed", Some(("list", 0)))?.wait_with_output()?;
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        soak.expected = digests(&soak.work.path("undisturbed"))?;
        for (number, (_, _, kind)) in (1..).zip(soak.happened("undisturbed")?) {
            soak.operations.entry(kind).or_default().push(number);
        }
        assert!(soak.operations.len() > 20, "{:?}", soak.operations.keys());
        Ok(soak)
    }

    /// `polysift run` on the directory `run`, with the fault of that number.
    fn run(&self, run: &str, fault: Option<(&str, usize)>) -> Result<Child, Failure> {
        let run = self.work.path(run);
        let mut command = Command::new(env!("CARGO_BIN_EXE_polysift"));
        command
            .current_dir(self.work.dir.path())
            .args(["run", "-c", "run.toml", "--quiet", "--run"]);
        command.arg(&run).args(["--device", "cpu", "--threads", "1"]);
        command.env("POLYSIFT_LEASE_SECS", LEASE.as_secs().to_string());
        if let Some((fault, at)) = fault {
            command.env("LD_PRELOAD", &self.library).env("FAULT", fault).env("FAULT_ROOT", &run);
            command.env("FAULT_AT", at.to_string()).env("FAULT_LOG", log_of(&run));
        }
        Ok(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
    }

    /// What the log of the faults of `run` says.
    fn happened(&self, run: &str) -> Result<Vec<(String, String, String)>, Failure> {
        let run = self.work.path(run);
        let log = fs::read_to_string(log_of(&run)).unwrap_or_default();
        let parse = |line: &str| {
            let (fault, rest) = line.split_once(' ').ok_or("no operation")?;
            let (operation, path) = rest.split_once(' ').ok_or("no path")?;
            let kind = kind(operation, Path::new(path).strip_prefix(&run)?);
            Ok((fault.to_owned(), operation.to_owned(), kind))
        };
        log.lines().map(parse).collect()
    }

    /// A fault and the number of its operation: every kind of file is as likely as another.
    fn draw(&self, random: &mut Random) -> (&'static str, usize) {
        let mut ticket = random.below(FAULTS.iter().map(|(_, weight)| weight).sum());
        let fault = FAULTS.iter().find(|(_, weight)| {
            let is_it = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            is_it
        });
        let kinds: Vec<&Vec<usize>> = self.operations.values().collect();
        let of_kind = kinds[random.below(kinds.len())];
        (fault.map_or("none", |(fault, _)| fault), of_kind[random.below(of_kind.len())])
    }

    fn round(&self, round: u64) -> Result<Round, Failure> {
        let mut random = Random(round);
        let run = format!("round-{round}");
        let mut schedule = Vec::new();
        for _ in 0..=random.below(4) {
            let faults: Vec<_> = (0..=random.below(3)).map(|_| self.draw(&mut random)).collect();
            schedule.push(faults.clone());
            let mut children = Vec::new();
            for &fault in &faults {
                children.push(self.run(&run, Some(fault))?);
                // Some come while others are at work.
                std::thread::sleep(Duration::from_millis(random.below(200) as u64));
            }
            let told = |text: &str| format!("round {round}, {schedule:?}: {text}");
            for ((fault, _), child) in faults.iter().zip(children) {
                let (code, text) = ended(child).map_err(|e| told(&e.to_string()))?;
                let is_killed = code.is_none() && matches!(*fault, "kill" | "torn");
                let is_allowed = matches!(code, Some(0 | 3 | 65 | 66 | 74 | 75));
                assert!(is_killed || is_allowed, "{}", told(&format!("{code:?} {text}")));
                assert!(!text.contains("panicked"), "{}", told(&text));
            }
        }
        let last = self.run(&run, None)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&last.stderr);
        assert!(last.status.success(), "round {round}, {schedule:?}: {text}");
        let found = digests(&self.work.path(&run))?;
        let differing: BTreeSet<_> = (found.iter().chain(&self.expected))
            .filter(|(name, digest)| {
                self.expected.get(*name) != Some(*digest) || found.get(*name) != Some(*digest)
            })
            .map(|(name, _)| name)
            .collect();
        assert!(differing.is_empty(), "round {round}, {schedule:?}: {differing:?}");
        let faults = self.happened(&run)?;
        fs::remove_dir_all(self.work.path(&run))?;
        let _ = fs::remove_file(log_of(&self.work.path(&run))); // there is none where nothing happened
        Ok(Round { round, faults })
    }
}

/// Exit code of `child` and what it said; one that stopped itself goes on after the time of its lease.
fn ended(mut child: Child) -> Result<(Option<i32>, String), Failure> {
    let (started, mut stopped) = (Instant::now(), None);
    let stat = format!("/proc/{}/stat", child.id());
    let signal = |name: &str, id: u32| Command::new("kill").args([name, &id.to_string()]).status();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let is_stopped =
            fs::read_to_string(&stat)?.rsplit_once(") ").is_some_and(|(_, s)| s.starts_with('T'));
        let since = *stopped.get_or_insert_with(Instant::now);
        if !is_stopped {
            stopped = None;
        } else if since.elapsed() > 2 * LEASE {
            signal("-CONT", child.id())?;
        }
        if started.elapsed() > DEADLINE {
            child.kill()?;
            return Err("hangs".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut told = String::new();
    child.stderr.take().ok_or("no stderr")?.read_to_string(&mut told)?;
    Ok((status.code(), told))
}

fn log_of(run: &Path) -> PathBuf {
    run.with_extension("faults")
}

/// Kind of the file `path` of a run directory: its folder without languages and shards, and its extension.
fn kind(operation: &str, path: &Path) -> String {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let Some((name, folders)) = parts.split_last() else { return "the directory".to_owned() };
    if operation == "mkdir" {
        return "directories".to_owned();
    }
    let folders =
        &folders[..folders.len().min(if folders.first() == Some(&"state") { 3 } else { 1 })];
    // A temporary file is called `.NAME.PROCESS-NUMBER.tmp`.
    let name = name
        .strip_prefix('.')
        .and_then(|n| Some(n.strip_suffix(".tmp")?.rsplit_once('.')?.0))
        .unwrap_or(name);
    let name = match name.split_once('.') {
        _ if folders.is_empty() => name.to_owned(),
        // What is called after a process or a unit of work.
        _ if folders.iter().any(|it| ["leases", "workers", "exclusive"].contains(it)) => "*".into(),
        Some((_, extension)) => format!("*.{extension}"),
        None => "*".to_owned(),
    };
    folders.iter().copied().chain([name.as_str()]).collect::<Vec<_>>().join("/")
}

#[test]
#[expect(clippy::print_stdout, reason = "make soak shows it")]
fn whatever_happens_to_its_processes_a_run_ends_with_the_same_bytes() -> TestResult {
    let secs = std::env::var("SOAK_SECS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(25);
    let log = std::env::var_os("SOAK_LOG").map(PathBuf::from);
    let soak = Soak::new()?;
    let before = log.as_ref().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
    let mut rounds: Vec<Round> =
        before.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(secs) {
        let round = soak.round(rounds.last().map_or(0, |last| last.round + 1))?;
        if let Some(log) = &log {
            let mut file = fs::File::options().create(true).append(true).open(log)?;
            writeln!(file, "{}", serde_json::to_string(&round)?)?;
        }
        rounds.push(round);
    }
    let faults = || rounds.iter().flat_map(|round| &round.faults);
    let mut counts = BTreeMap::<_, usize>::new();
    for (fault, _, kind) in faults() {
        *counts.entry((fault.as_str(), kind.as_str())).or_default() += 1;
    }
    println!("{} rounds", rounds.len());
    for ((fault, kind), count) in &counts {
        println!("{fault:7} {count:6} {kind}");
    }
    let is_kill = |fault: &str| matches!(fault, "kill" | "torn");
    let kills: Vec<&str> =
        faults().filter(|(fault, ..)| is_kill(fault)).map(|(_, _, kind)| kind.as_str()).collect();
    println!("{} kills, no difference", kills.len());
    if kills.len() >= KILLS_FOR_ALL {
        let missed = soak.operations.keys().filter(|kind| !kills.contains(&kind.as_str()));
        assert_eq!(missed.collect::<Vec<_>>(), [] as [&String; 0]);
    }
    assert!(kills.len() as u64 * 10 >= secs, "{} kills in {secs} s", kills.len());
    Ok(())
}
