//! The processes that work in a run directory, which of them are alive, and the leases they hold.
//!
//! Every process keeps a file `state/workers/<id>`, which it writes again at every heartbeat. It
//! removes the file when it ends; a killed process leaves it. Another process counts as dead
//! - immediately if its file is gone, if it ran on this machine and ended, or if it is this Slurm
//!   job before a requeue;
//! - otherwise if its file did not change for [`Identity::ttl_secs`] while this process watched,
//!   even if it is only stopped. Clocks of machines are compared only with a margin of
//!   [`CLOCK_SKEW`].
//!
//! A process that sleeps for longer can wake up after its work was taken over; it notices before it
//! gives any file its final name ([`Lease::check`]). Only an object that is being sent to a store
//! cannot be held back: its unit is then done again.
//!
//! A lease is a symbolic link `<base>.<n>` to the id of its holder: on every file system a link is
//! created in one step, which fails if it exists, and read in one step. The lease of a dead holder
//! is followed by one with the next `n`, which only one process gets, and the old holder sees it.
//! Leases only prevent duplicate work: a unit has one result, which appears atomically.
//!
//! A process that wants the directory for itself says so in `state/exclusive/<id>`, then waits for
//! the others to end. A process that joins first makes its own file, then looks into that folder,
//! so at least one of two such processes sees the other.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dir::{RunDir, Stage};
use polysift_base::error::{Error, Result};
use polysift_base::io::{
    create_folder, if_there, is_temporary, link, read, remove, remove_temporaries, rename, unlink,
    write_atomic, write_json,
};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;

/// Environment variable: seconds without a heartbeat after which others consider a process dead.
const LEASE_SECS: &str = "POLYSIFT_LEASE_SECS";
/// Default of [`LEASE_SECS`]: slow file systems show a new file to other machines late.
const DEFAULT_LEASE_SECS: u64 = 90;
const LEASE_SECS_RANGE: RangeInclusive<u64> = 1..=86_400;
/// Heartbeats per time to live.
const BEATS: u32 = 6;
/// A process is dead if its file is older than its time to live by this; clocks differ less.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Interval between two checks of other processes.
pub(super) const POLL: Duration = Duration::from_millis(200);
/// Time within which an arriving process sees that the directory is taken.
const ARRIVAL: Duration = Duration::from_secs(3);

const WORKERS: &str = "state/workers";
/// Folder with a file for each process that has the run directory for itself, or wants to.
const EXCLUSIVE: &str = "state/exclusive";
/// Folder of the leases of [`Worker::share`].
pub(super) const SHARED: &str = "state/shared";
/// Signal that a process reports when it stops because another one has the directory.
const SIGTERM: i32 = 15;
/// Holder of a released lease; no process has this id.
const NOBODY: &str = "nobody";

/// What a process tells others about itself at every heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize, Default)]
struct Identity {
    host: String,
    pid: u32,
    /// Seconds without a heartbeat after which the process counts as dead, by its own setting.
    ttl_secs: u64,
    /// Boot id and pid namespace; processes with equal values can look up each other's `pid`.
    pid_space: Option<String>,
    /// Start of the process in clock ticks of its machine, since process ids are reused.
    pid_began: Option<u64>,
    /// Slurm job id, and how often the job was requeued.
    slurm: Option<(String, u32)>,
    #[serde(default)]
    beats: u64,
    /// See [`LiveWorker::progress`].
    progress: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// Alive, or was within its time to live.
    Alive,
    Dead,
    /// Not known yet: the process has to be watched for longer.
    Unknown,
}

/// A process that works in the run directory.
#[derive(Debug, Clone, Serialize)]
pub struct LiveWorker {
    /// Name of the machine.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Whether the process is known to be alive, rather than only seen.
    pub is_alive: bool,
    /// Progress at the last heartbeat, as reported by the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

impl Identity {
    fn of_this_process() -> Self {
        let pid = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").ok();
        let restarts =
            std::env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse().ok());
        Self {
            host: host(),
            pid,
            ttl_secs: DEFAULT_LEASE_SECS,
            pid_space: pid_space(),
            pid_began: began(pid),
            slurm: job.map(|job| (job, restarts.unwrap_or(0))),
            ..Self::default()
        }
    }

    /// Reads what a process wrote; one that wrote nothing readable is watched for the default time.
    fn of(content: &[u8]) -> Self {
        let first = serde_json::Deserializer::from_slice(content).into_iter().next();
        let unknown = || Self { ttl_secs: DEFAULT_LEASE_SECS, ..Self::default() };
        first.and_then(std::result::Result::ok).unwrap_or_else(unknown)
    }

    /// Returns `ttl_secs` as a duration, limited to the allowed range.
    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_secs.clamp(*LEASE_SECS_RANGE.start(), *LEASE_SECS_RANGE.end()))
    }

    /// Returns what `other` can tell without watching. An existing process may still be stopped.
    fn known_to(&self, other: &Self) -> Liveness {
        if self.pid_space.is_some() && self.pid_space == other.pid_space {
            let exists = self.pid_began.is_some() && began(self.pid) == self.pid_began;
            return if exists { Liveness::Alive } else { Liveness::Dead };
        }
        match (&self.slurm, &other.slurm) {
            (Some((job, before)), Some((own, now))) if job == own && before < now => Liveness::Dead,
            _ => Liveness::Unknown,
        }
    }
}

fn lease_secs(text: &str) -> Result<u64> {
    let secs = text.trim().parse().ok().filter(|secs| LEASE_SECS_RANGE.contains(secs));
    secs.ok_or_else(|| {
        let (least, most) = (LEASE_SECS_RANGE.start(), LEASE_SECS_RANGE.end());
        let reason = format!("`{text}` is not a number of seconds from {least} to {most}");
        Error::config(LEASE_SECS, reason)
    })
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.trim().chars().filter(is_plain).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

fn pid_space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// Returns when process `pid` of this machine began; `None` if it does not exist or is a zombie.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold spaces, come the state and, 19 fields later, the start.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Progress of a process as JSON, for `status` of other processes.
pub type ProgressNote = Arc<Mutex<Option<Value>>>;

/// Writes the `file` of the process `own` again and again, with the progress that is in `note`,
/// until the other end of `stopped` is dropped. If the file is gone, another process has the
/// directory: this one is asked to stop, since a transfer would replace what the other one wrote.
fn keep_alive(
    file: &Path,
    mut own: Identity,
    note: &ProgressNote,
    stopped: &Receiver<()>,
    stop: &Stop,
) {
    while stopped.recv_timeout(own.ttl() / BEATS) == Err(RecvTimeoutError::Timeout) {
        if !file.exists() {
            tracing::warn!("other processes took this one for dead: it had no heartbeat");
            stop.ask(SIGTERM);
            return;
        }
        own.beats += 1;
        own.progress.clone_from(&lock(note));
        if let Err(error) = write_json(file, &own) {
            tracing::warn!(error = %error.report(), "the heartbeat cannot be written");
        }
    }
}

#[derive(Debug)]
struct Observation {
    /// Content of the file, and since when it has this content.
    content: Vec<u8>,
    since: Instant,
    has_changed: bool,
}

/// This process as one of those that work in a run directory.
#[derive(Debug)]
pub struct Worker {
    run: RunDir,
    /// Unique among all processes that ever worked in the directory.
    id: String,
    identity: Identity,
    observations: Mutex<HashMap<String, Observation>>,
    /// Keeps the thread of heartbeats going, and the thread; `None` for an observer.
    heartbeat: Option<(Sender<()>, JoinHandle<()>)>,
    note: ProgressNote,
}

impl Worker {
    /// Registers this process in `run`; waits while another one has exclusive access.
    pub fn join(run: &RunDir, stop: &Stop) -> Result<Self> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut worker = Self::observer(run);
        if let Some(text) = std::env::var_os(LEASE_SECS) {
            worker.identity.ttl_secs = lease_secs(&text.to_string_lossy())?;
        }
        worker.id = format!("{}.{}.{nanos:x}", worker.identity.host, worker.identity.pid);
        worker.register()?;
        if let Some(process) = worker.claimants()?.pop() {
            tracing::warn!(process, "waiting: it has the run directory for itself");
        }
        while !worker.claimants()?.is_empty() {
            worker.forget(&worker.id)?;
            stop.check()?;
            std::thread::sleep(POLL);
            worker.register()?;
        }
        let (file, own, note) = (worker.file(&worker.id), worker.identity.clone(), worker.note());
        let (sender, stopped) = channel();
        let stop = stop.clone();
        let thread = std::thread::spawn(move || keep_alive(&file, own, &note, &stopped, &stop));
        worker.heartbeat = Some((sender, thread));
        Ok(worker)
    }

    /// Creates a worker that only looks: others do not see it, and it cannot hold leases.
    pub fn observer(run: &RunDir) -> Self {
        Self {
            run: run.clone(),
            id: String::new(),
            identity: Identity::of_this_process(),
            observations: Mutex::default(),
            heartbeat: None,
            note: Arc::default(),
        }
    }

    /// Returns the progress note that heartbeats write, for the caller to update.
    pub fn note(&self) -> ProgressNote {
        Arc::clone(&self.note)
    }

    /// Returns the run directory.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Runs `work` while no other process works in the directory or can join. Returns
    /// [`Error::Busy`] if another process is alive.
    pub fn exclusive<T>(&self, stop: &Stop, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let claim = self.run.path(EXCLUSIVE).join(&self.id);
        write_atomic(&claim, b"")?;
        let outcome = self.wait_for_others(stop).and_then(|()| work());
        unlink(&claim)?;
        outcome
    }

    /// Waits until all others are dead and removes their files; [`Error::Busy`] if one is alive.
    fn wait_for_others(&self, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let mut has_warned = false;
        loop {
            let others = self.ids_in(WORKERS)?;
            let liveness: Vec<Liveness> = others.iter().map(|id| self.liveness(id)).collect();
            if liveness.iter().all(|liveness| *liveness == Liveness::Dead) {
                return others.iter().try_for_each(|id| self.forget(id));
            }
            // A process that is just arriving leaves again; one of unknown state is watched.
            let has_arrived = began.elapsed() > ARRIVAL;
            // Of the processes that want the directory, the one with the smallest id gets it.
            let is_later = self.claimants()?.iter().any(|id| *id < self.id);
            if is_later || liveness.contains(&Liveness::Alive) && has_arrived {
                return Err(Error::Busy { path: self.run.root().to_owned() });
            }
            stop.check()?;
            if has_arrived && !std::mem::replace(&mut has_warned, true) {
                tracing::warn!(processes = ?others, "waiting to see whether they are alive");
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns the other processes that have the directory for themselves, or want to.
    fn claimants(&self) -> Result<Vec<String>> {
        let mut ids = self.ids_in(EXCLUSIVE)?;
        ids.retain(|id| {
            // A process of this machine that is only stopped would discard files when it continues.
            let known = self.read(id).map(|(holder, _)| holder.known_to(&self.identity));
            known == Some(Liveness::Alive) || self.liveness(id) != Liveness::Dead
        });
        Ok(ids)
    }

    /// Removes leftovers of killed processes in the run and below `folder`, unless others work.
    pub fn clean_up(&self, stop: &Stop, folder: &Path) -> Result<()> {
        if !self.ids_in(WORKERS)?.iter().all(|id| self.liveness(id) == Liveness::Dead) {
            return Ok(());
        }
        let outcome = self.exclusive(stop, || {
            for stage in Stage::ALL {
                remove(&self.run.leases(stage))?;
            }
            remove(&self.run.path(SHARED))?;
            remove_temporaries(folder).map(drop)
        });
        match outcome {
            Err(Error::Busy { .. }) => Ok(()), // another process joined meanwhile
            other => other,
        }
    }

    /// Returns the other registered processes that are not dead.
    pub fn live(&self) -> Result<Vec<LiveWorker>> {
        let known = self.ids_in(WORKERS)?.into_iter().filter_map(|id| {
            let liveness = self.liveness(&id);
            let (Identity { host, pid, progress, .. }, _) = self.read(&id)?;
            let is_alive = liveness == Liveness::Alive;
            (liveness != Liveness::Dead).then_some(LiveWorker { host, pid, is_alive, progress })
        });
        Ok(known.collect())
    }

    pub(super) fn liveness(&self, id: &str) -> Liveness {
        if id == self.id {
            return Liveness::Alive;
        }
        let Some((identity, content)) = self.read(id) else { return Liveness::Dead };
        let known = identity.known_to(&self.identity);
        let ttl = identity.ttl();
        let modified = fs::metadata(self.file(id)).and_then(|found| found.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        let is_older = |limit| age.is_some_and(|age| age > limit);
        if known == Liveness::Dead || known == Liveness::Unknown && is_older(ttl + CLOCK_SKEW) {
            return Liveness::Dead;
        }
        // A process of this machine without a heartbeat may be stopped.
        let is_well = known == Liveness::Alive && !is_older(ttl);
        let mut observations = lock(&self.observations);
        let new = |has_changed| {
            let content = content.clone();
            Observation { content, since: Instant::now(), has_changed }
        };
        let observed = observations.entry(id.to_owned()).or_insert_with(|| new(false));
        if observed.content != content {
            *observed = new(true);
        }
        match (observed.since.elapsed() > ttl, observed.has_changed || is_well) {
            (true, _) => Liveness::Dead,
            (false, true) => Liveness::Alive,
            (false, false) => Liveness::Unknown,
        }
    }

    /// Returns the next lease number on `base`, and the holder of the last lease unless it is dead.
    pub(super) fn last_lease(&self, base: &Path) -> Result<(u32, Option<Holder>)> {
        let mut number = 0;
        loop {
            let path = numbered(base, number);
            let id = match fs::read_link(&path) {
                Ok(holder) => holder.to_string_lossy().into_owned(),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok((number, None)),
                Err(error) => return Err(Error::io(&path, "read")(error)),
            };
            number += 1;
            let liveness = self.liveness(&id);
            // An expired lease may have a successor although its holder came back to life.
            if liveness != Liveness::Dead && fs::symlink_metadata(numbered(base, number)).is_err() {
                return Ok((number, Some(Holder { id, liveness })));
            }
        }
    }

    /// Claims the lease `base`; returns `None` if another process or this one holds it.
    pub(super) fn claim(&self, base: &Path) -> Result<Option<Lease>> {
        loop {
            let (number, None) = self.last_lease(base)? else { return Ok(None) };
            let lease = Lease { base: base.to_owned(), number, holder: self.id.clone() };
            let path = numbered(base, number);
            match link(&self.id, &path) {
                // A network file system may have created the link and then repeated the request.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
                    if lease.check().is_ok() {
                        return Ok(Some(lease));
                    }
                }
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    create_folder(base.parent().unwrap_or(base))?;
                }
                outcome => return outcome.map(|()| Some(lease)),
            }
        }
    }

    fn file(&self, id: &str) -> PathBuf {
        self.run.path(WORKERS).join(id)
    }

    fn register(&self) -> Result<()> {
        // A process that cleans up may take the file for a leftover of a killed process.
        while if_there(write_json(&self.file(&self.id), &self.identity))?.is_none() {}
        Ok(())
    }

    fn forget(&self, id: &str) -> Result<()> {
        // In this order, a later process finds what a kill in between leaves.
        unlink(&self.run.path(EXCLUSIVE).join(id))?;
        unlink(&self.file(id))
    }

    /// Returns the ids of other processes with a file in `folder`.
    fn ids_in(&self, folder: &str) -> Result<Vec<String>> {
        let mut ids = self.run.tree(folder)?;
        ids.retain(|id| *id != self.id && !is_temporary(id));
        Ok(ids)
    }

    /// Reads the file of the process `id`; returns `None` if it is gone. The file is opened each
    /// time, since network file systems guarantee to show other machines' writes only then.
    fn read(&self, id: &str) -> Option<(Identity, Vec<u8>)> {
        // A lease from elsewhere may name anything.
        let is_name = !id.contains('/') && !id.starts_with('.');
        let path = is_name.then(|| self.file(id))?;
        // A file that cannot be read now, perhaps because it was just replaced, is not gone.
        let content = if_there(read(&path)).unwrap_or_else(|_| Some(Vec::new()))?;
        Some((Identity::of(&content), content))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.heartbeat.take() {
            drop(sender);
            let _ = thread.join(); // it only writes a few bytes
            let _ = self.forget(&self.id); // a file that stays does not change
        }
    }
}

#[derive(Debug)]
pub(super) struct Holder {
    id: String,
    pub(super) liveness: Liveness,
}

impl Holder {
    /// Returns the process id and the host, which are parts of the id.
    pub(super) fn name(&self) -> String {
        let mut parts = self.id.split('.');
        let (host, pid) = (parts.next().unwrap_or_default(), parts.next().unwrap_or("?"));
        format!("process {pid} on {host}")
    }
}

/// A lease that this process holds.
#[derive(Debug)]
pub(super) struct Lease {
    /// Path of the lease without its number.
    base: PathBuf,
    number: u32,
    holder: String,
}

impl Lease {
    /// Returns true if another process held the lease before and may have left unfinished work.
    pub(super) fn is_taken_over(&self) -> bool {
        self.number > 0
    }

    /// Returns [`Error::Lost`] if another process took over, believing this one dead.
    pub(super) fn check(&self) -> Result<()> {
        let path = numbered(&self.base, self.number);
        let is_own = fs::read_link(&path).is_ok_and(|holder| holder == Path::new(&self.holder));
        if is_own && fs::symlink_metadata(numbered(&self.base, self.number + 1)).is_err() {
            return Ok(());
        }
        Err(Error::Lost { path: self.base.clone() })
    }

    pub(super) fn release(self) -> Result<()> {
        if self.check().is_err() {
            return Ok(()); // another process holds it now
        }
        let path = numbered(&self.base, self.number);
        if self.number == 0 {
            return unlink(&path);
        }
        // The numbers must not restart, so the lease stays, held by nobody.
        let free = path.with_file_name(format!(".{}.free", self.holder));
        link(NOBODY, &free)?;
        rename(&free, &path)
    }
}

fn numbered(base: &Path, number: u32) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers a process of another machine.
    fn stranger(run: &RunDir, id: &str, ttl_secs: u64) -> Result<PathBuf> {
        let identity = Identity {
            host: "elsewhere".into(),
            pid: 1,
            ttl_secs,
            pid_space: Some("another boot".into()),
            pid_began: Some(1),
            ..Identity::default()
        };
        let path = run.path(WORKERS).join(id);
        write_json(&path, &identity).map(|_| path)
    }

    #[test]
    fn a_time_to_live_that_is_none_is_refused_with_the_range() {
        for (text, secs) in [("1", 1), ("90", 90), (" 86400\n", 86_400)] {
            assert_eq!(lease_secs(text).ok(), Some(secs));
        }
        for text in ["", "0", "-1", "1.5", "ninety", "86401", "18446744073709551616"] {
            let refused = lease_secs(text).map_err(|error| (error.exit_code(), error.to_string()));
            assert!(refused.is_err_and(|(code, message)| {
                code == 2 && message.starts_with(LEASE_SECS) && message.contains("1 to 86400")
            }));
        }
    }

    #[test]
    fn a_process_is_known_while_it_works_and_gone_after() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let (first, second) =
            (Worker::join(&run, &Stop::default())?, Worker::join(&run, &Stop::default())?);
        assert_eq!(first.liveness(&second.id), Liveness::Alive);
        assert_eq!(first.live()?.len(), 1);
        let id = second.id.clone();
        drop(second);
        assert_eq!(first.liveness(&id), Liveness::Dead);
        first.clean_up(&Stop::default(), run.root())?;
        assert!(!run.path("state/workers").join(id).exists());
        Ok(())
    }

    #[test]
    fn a_process_can_join_while_others_tidy_up() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        std::thread::scope(|scope| {
            let sweeps = scope.spawn(|| -> Result<()> {
                let mut removed = 0;
                while removed < 5 {
                    removed += remove_temporaries(run.root())?;
                }
                Ok(())
            });
            while !sweeps.is_finished() {
                Worker::join(&run, &Stop::default())?;
            }
            sweeps.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    #[test]
    fn a_process_of_this_machine_that_was_killed_is_dead_at_once() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        let mut killed = worker.identity.clone();
        killed.pid_began = killed.pid_began.map(|ticks| ticks - 1); // its process id was reused
        write_json(&worker.file("killed"), &killed)?;
        assert_eq!(worker.liveness("killed"), Liveness::Dead);
        assert!(worker.live()?.is_empty());
        Ok(())
    }

    /// Writes the file `path` of a process as its next heartbeat would, with `progress`.
    fn beat(path: &Path, progress: Option<Value>) -> Result<()> {
        let own = Identity::of(&read(path)?);
        write_json(path, &Identity { beats: own.beats + 1, progress, ..own }).map(drop)
    }

    /// Waits until `id` is not known to be alive any more; returns what it is then.
    fn after_life(worker: &Worker, id: &str) -> Liveness {
        let began = Instant::now();
        while worker.liveness(id) == Liveness::Alive {
            assert!(began.elapsed() < Duration::from_mins(1), "it never dies");
            std::thread::sleep(POLL);
        }
        worker.liveness(id)
    }

    #[test]
    fn a_process_of_another_machine_lives_as_long_as_it_has_a_heartbeat() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let path = stranger(&run, "far", 600)?;
        let worker = Worker::join(&run, &Stop::default())?;
        assert_eq!(worker.liveness("far"), Liveness::Unknown);
        beat(&path, None)?;
        assert_eq!(worker.liveness("far"), Liveness::Alive);
        assert_eq!(worker.live()?[0].progress, None, "it says nothing yet");
        beat(&path, Some(serde_json::json!({"share": 0.5})))?;
        assert_eq!(worker.live()?[0].progress, Some(serde_json::json!({"share": 0.5})));
        let began = Instant::now();
        stranger(&run, "far", 1)?;
        assert_eq!(after_life(&worker, "far"), Liveness::Dead);
        assert!(began.elapsed() >= Duration::from_secs(1));
        Ok(())
    }

    #[test]
    fn a_stopped_process_of_this_machine_is_dead_when_its_time_is_over() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        // The process is alive but has no heartbeat.
        let stopped = |ttl_secs| Identity { ttl_secs, ..worker.identity.clone() };
        let path = worker.file("stopped");
        write_json(&path, &stopped(600))?;
        assert_eq!(worker.liveness("stopped"), Liveness::Alive);
        write_json(&path, &stopped(1))?;
        assert_eq!(after_life(&worker, "stopped"), Liveness::Dead);
        // A process that sees it for the first time cannot know and watches it.
        let late = Worker::join(&run, &Stop::default())?;
        assert_eq!(late.liveness("stopped"), Liveness::Unknown);
        beat(&path, None)?;
        assert_eq!(late.liveness("stopped"), Liveness::Alive);
        Ok(())
    }

    #[test]
    fn a_time_to_live_beyond_all_bounds_is_cut_to_the_longest() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let path = stranger(&run, "far", u64::MAX)?;
        let worker = Worker::join(&run, &Stop::default())?;
        assert_eq!(worker.liveness("far"), Liveness::Unknown);
        let long_ago = SystemTime::now() - Duration::from_hours(26);
        let file =
            fs::File::options().append(true).open(&path).map_err(Error::io(&path, "open"))?;
        file.set_modified(long_ago).map_err(Error::io(&path, "date"))?;
        assert_eq!(worker.liveness("far"), Liveness::Dead);
        Ok(())
    }

    #[test]
    fn a_requeued_job_does_not_wait_for_what_it_was() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let mut worker = Worker::join(&run, &Stop::default())?;
        let path = stranger(&run, "before", 90)?;
        let before = Identity::of(&read(&path)?);
        write_json(&path, &Identity { slurm: Some(("17".into(), 0)), ..before })?;
        assert_eq!(worker.liveness("before"), Liveness::Unknown);
        worker.identity.slurm = Some(("17".into(), 1));
        assert_eq!(worker.liveness("before"), Liveness::Dead);
        worker.identity.slurm = Some(("18".into(), 1));
        assert_eq!(worker.liveness("before"), Liveness::Unknown);
        Ok(())
    }

    #[test]
    fn one_process_only_has_the_directory_for_itself() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let stop = Stop::default();
        let first = Worker::join(&run, &stop)?;
        let second = Worker::join(&run, &stop)?;
        let refused = first.exclusive(&stop, || Ok(()));
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        drop(second);
        first.exclusive(&stop, || {
            let late = std::thread::spawn({
                let run = run.clone();
                move || Worker::join(&run, &Stop::default()).map(drop)
            });
            std::thread::sleep(2 * POLL);
            assert!(!late.is_finished(), "it joined while the directory was taken");
            Ok(())
        })
    }

    #[test]
    fn what_was_killed_while_it_had_the_directory_for_itself_leaves_nothing() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let stop = Stop::default();
        let killed = Identity { pid_began: Some(0), ..Worker::join(&run, &stop)?.identity.clone() };
        let worker = Worker::join(&run, &stop)?;
        write_json(&worker.file("killed"), &killed)?;
        write_atomic(&run.path(EXCLUSIVE).join("killed"), b"")?;
        drop(Worker::join(&run, &stop)?); // it does not wait for the dead
        worker.clean_up(&stop, run.root())?;
        assert_eq!(run.tree("state")?, [format!("workers/{}", worker.id)]);
        worker.exclusive(&stop, || Ok(()))
    }

    #[test]
    fn of_processes_that_want_the_directory_at_once_the_first_gets_it() -> Result<()> {
        let (_dir, workers) = workers::<4>()?;
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            // One that is refused ends.
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || worker.exclusive(&Stop::default(), || Ok(()))))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err(Error::Stopped))).collect()
        });
        let refused = outcomes.iter().filter(|it| matches!(it, Err(Error::Busy { .. })));
        assert_eq!((refused.count(), outcomes.iter().filter(|it| it.is_ok()).count()), (3, 1));
        Ok(())
    }

    fn workers<const N: usize>() -> Result<(tempfile::TempDir, [Worker; N])> {
        let (dir, run) = RunDir::temporary()?;
        let workers: Vec<Worker> =
            (0..N).map(|_| Worker::join(&run, &Stop::default())).collect::<Result<_>>()?;
        let workers = workers.try_into().map_err(|_| Error::Stopped)?;
        Ok((dir, workers))
    }

    fn claim(worker: &Worker, key: &str) -> Result<Option<Lease>> {
        worker.claim(&worker.run.path("state/embed/leases").join(key))
    }

    /// Lets all `workers` claim concurrently; returns the leases they got.
    fn race(workers: &[Worker], key: &str) -> Result<Vec<Lease>> {
        let all: Vec<Result<Option<Lease>>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                workers.iter().map(|worker| scope.spawn(move || claim(worker, key))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err(Error::Stopped))).collect()
        });
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    #[test]
    fn of_processes_that_claim_at_once_one_is_granted_the_lease() -> Result<()> {
        let (_dir, workers) = workers::<8>()?;
        for round in 0..20 {
            let key = format!("deu_Latn/{round}");
            let mut leases = race(&workers, &key)?;
            assert_eq!(leases.len(), 1);
            let lease = leases.pop().ok_or(Error::Stopped)?;
            lease.check()?;
            assert!(!lease.is_taken_over());
            lease.release()?;
            assert_eq!(race(&workers, &key)?.len(), 1);
        }
        Ok(())
    }

    #[test]
    fn of_processes_that_find_the_holder_dead_one_takes_over_and_the_dead_one_notices() -> Result<()>
    {
        let (_dir, mut workers) = workers::<9>()?;
        for round in 0..20 {
            let key = format!("deu_Latn/{round}");
            let lease = claim(&workers[8], &key)?.ok_or(Error::Stopped)?;
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            // Its file is gone, as if it had ended, which it does not know yet.
            let file = workers[8].run().path("state/workers").join(&workers[8].id);
            fs::remove_file(&file).map_err(Error::io(&file, "remove"))?;
            let mut taken = race(&workers[..8], &key)?;
            assert_eq!(taken.len(), 1);
            assert!(matches!(lease.check(), Err(Error::Lost { .. })));
            lease.release()?; // leaves the new holder's lease alone
            let new = taken.pop().ok_or(Error::Stopped)?;
            new.check()?;
            assert!(new.is_taken_over());
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            new.release()?;
            assert_eq!(race(&workers[..8], &key)?.len(), 1);
            workers[8] = Worker::join(&workers[0].run().clone(), &Stop::default())?;
        }
        let links = workers[0].run.tree("state/embed/leases")?;
        assert_eq!(links.len(), 60, "of each the dead process's, a free one and one that is held");
        Ok(())
    }
}
