//! The processes that work in a run directory, which of them are alive, and the leases they hold.
//!
//! Every process keeps a file `state/workers/<id>` (one line that identifies it, then one byte per
//! heartbeat) and a file `state/progress/<id>`. It removes both when it ends; a killed process
//! leaves them. Another process counts as dead
//! - immediately if its file is gone, if it ran on this machine and ended, or if it is this Slurm
//!   job before a requeue;
//! - otherwise if its file did not grow for [`Identity::ttl_secs`] while this process watched, even
//!   if it is only stopped. Clocks of machines are compared only with a margin of [`CLOCK_SKEW`].
//!
//! A process that sleeps for longer can wake up after its work was taken over; it notices before it
//! gives any file its final name ([`Lease::check`]).
//!
//! A lease is a symbolic link `<base>.<n>` to the id of its holder: on every file system a link is
//! created in one step, which fails if it exists, and read in one step. The lease of a dead holder
//! is followed by one with the next `n`, which only one process gets, and the old holder sees it.
//! Leases only prevent duplicate work: a unit has one result, which appears atomically.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::dir::{RunDir, Stage};
use polysift_base::error::{Error, Result};
use polysift_base::io::{
    append, create_folder, is_temporary, link, read, remove, remove_temporaries, rename, unlink,
    write_atomic,
};
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::progress::Stop;

/// Environment variable: seconds without a heartbeat after which others consider a process dead.
const LEASE_SECS: &str = "POLYSIFT_LEASE_SECS";
/// Default of [`LEASE_SECS`]: slow file systems show a file's growth to other machines late.
const DEFAULT_LEASE_SECS: u64 = 90;
const LEASE_SECS_RANGE: RangeInclusive<u64> = 1..=86_400;
/// Heartbeats per time to live.
const BEATS: u32 = 6;
/// A process is dead if its file is older than its time to live by this; clocks differ less.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Interval between two checks of other processes.
pub(super) const POLL: Duration = Duration::from_millis(200);
/// A process that waits for longer logs a warning.
pub(super) const WARN_AFTER: Duration = Duration::from_secs(5);
/// Time within which an arriving process sees that the directory is taken.
const ARRIVAL: Duration = Duration::from_secs(3);

/// Folder of the leases of processes with exclusive access to the run directory.
const EXCLUSIVE: &str = "state/exclusive";
/// Folder of the leases of [`Worker::share`].
const SHARED: &str = "state/shared";
/// Holder of a released lease; no process has this id.
const NOBODY: &str = "nobody";

/// Identity of a process, which others can check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub(super) struct Identity {
    /// Name of the machine.
    pub host: String,
    pub pid: u32,
    /// Seconds without a heartbeat after which the process counts as dead, by its own setting.
    pub ttl_secs: u64,
    /// Boot id and pid namespace; processes with equal values can look up each other's `pid`.
    pid_space: Option<String>,
    /// Start of the process in clock ticks of its machine, since process ids are reused.
    pid_began: Option<u64>,
    /// Slurm job id, and how often the job was requeued.
    slurm: Option<(String, u32)>,
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
    pub progress: Option<serde_json::Value>,
}

impl Identity {
    fn of_this_process(ttl_secs: u64) -> Self {
        let pid = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").ok();
        let restarts =
            std::env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse().ok());
        let slurm = job.map(|job| (job, restarts.unwrap_or(0)));
        Self { host: host(), pid, ttl_secs, pid_space: pid_space(), pid_began: began(pid), slurm }
    }

    /// Returns `ttl_secs` as a duration, limited to the allowed range.
    fn ttl(&self) -> Duration {
        let (least, most) = (*LEASE_SECS_RANGE.start(), *LEASE_SECS_RANGE.end());
        Duration::from_secs(self.ttl_secs.clamp(least, most))
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

/// A thread that appends to the file of this process until `stop` is dropped.
#[derive(Debug)]
struct Heartbeat {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Heartbeat {
    /// Starts the heartbeat on `file`, which also writes `note` to `note_file`.
    fn start(file: PathBuf, ttl: Duration, note_file: PathBuf, note: ProgressNote) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(ttl / BEATS) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = beat(&file).and_then(|()| keep_note(&note_file, &note)) {
                    tracing::warn!(error = %error.report(), "the heartbeat cannot be written");
                }
            }
        });
        Self { stop, thread }
    }
}

fn beat(path: &Path) -> Result<()> {
    append(path, b".")
}

/// Progress of a process as JSON, for `status` of other processes; empty if there is none.
pub type ProgressNote = Arc<Mutex<String>>;

/// Writes `note` to the file `path`, or removes the file if the note is empty.
fn keep_note(path: &Path, note: &ProgressNote) -> Result<()> {
    let note = lock(note).clone();
    if note.is_empty() { unlink(path) } else { write_atomic(path, note.as_bytes()).map(drop) }
}

#[derive(Debug)]
struct Observation {
    /// Length of the file, and since when it has this length.
    length: u64,
    since: Instant,
    has_grown: bool,
}

/// This process as one of those that work in a run directory.
#[derive(Debug)]
pub struct Worker {
    run: RunDir,
    /// Unique among all processes that ever worked in the directory.
    id: String,
    identity: Identity,
    observations: Mutex<HashMap<String, Observation>>,
    /// `None` for an observer.
    heartbeat: Option<Heartbeat>,
    note: ProgressNote,
}

impl Worker {
    /// Registers this process in `run`; waits while another one has exclusive access.
    pub fn join(run: &RunDir, stop: &Stop) -> Result<Self> {
        let ttl_secs = match std::env::var_os(LEASE_SECS) {
            Some(text) => lease_secs(&text.to_string_lossy())?,
            None => DEFAULT_LEASE_SECS,
        };
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut worker = Self::observer(run);
        worker.identity.ttl_secs = ttl_secs;
        worker.id = format!("{}.{}.{nanos:x}", worker.identity.host, worker.identity.pid);
        let mut has_warned = false;
        loop {
            worker.register()?;
            let (_, Some(holder)) = worker.last_lease(&worker.exclusive_base())? else { break };
            worker.deregister();
            if !std::mem::replace(&mut has_warned, true) {
                tracing::warn!(process = %holder.id, "waiting: it has the run directory for itself");
            }
            stop.check()?;
            std::thread::sleep(POLL);
        }
        let (file, note_file) = (worker.file(&worker.id), worker.note_file(&worker.id));
        let (ttl, note) = (worker.identity.ttl(), worker.note());
        worker.heartbeat = Some(Heartbeat::start(file, ttl, note_file, note));
        Ok(worker)
    }

    /// Creates a worker that only looks: others do not see it, and it cannot hold leases.
    pub fn observer(run: &RunDir) -> Self {
        let identity = Identity::of_this_process(DEFAULT_LEASE_SECS);
        let (id, observations) = (String::new(), Mutex::default());
        Self { run: run.clone(), id, identity, observations, heartbeat: None, note: Arc::default() }
    }

    /// Returns the progress note that heartbeats write, for the caller to update.
    pub fn note(&self) -> ProgressNote {
        Arc::clone(&self.note)
    }

    /// Returns the run directory.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Runs `work` while no other process works in the directory or can join.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process is alive; errors of `work`.
    pub fn exclusive<T>(&self, stop: &Stop, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(lease) = self.claim(&self.exclusive_base())? else {
            return Err(self.busy());
        };
        let outcome = self.wait_for_others(stop).and_then(|()| work());
        lease.release()?;
        outcome
    }

    /// Waits until all others are dead and removes their files; [`Error::Busy`] if one is alive.
    fn wait_for_others(&self, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let mut has_warned = false;
        loop {
            let others = self.others()?;
            let liveness: Vec<Liveness> = others.iter().map(|id| self.liveness(id)).collect();
            if liveness.iter().all(|liveness| *liveness == Liveness::Dead) {
                for id in others {
                    self.forget(&id)?;
                }
                return Ok(());
            }
            // A process that is just arriving leaves again; one of unknown state is watched.
            if liveness.contains(&Liveness::Alive) && began.elapsed() > ARRIVAL {
                return Err(self.busy());
            }
            stop.check()?;
            if began.elapsed() > ARRIVAL && !std::mem::replace(&mut has_warned, true) {
                tracing::warn!(processes = ?others, "waiting to see whether they are alive");
            }
            std::thread::sleep(POLL);
        }
    }

    fn busy(&self) -> Error {
        Error::Busy { path: self.run.root().to_owned() }
    }

    /// Removes leftovers of killed processes in the run and below `folder`, unless others work.
    pub fn clean_up(&self, stop: &Stop, folder: &Path) -> Result<()> {
        if !self.others()?.iter().all(|id| self.liveness(id) == Liveness::Dead) {
            return Ok(());
        }
        let outcome = self.exclusive(stop, || {
            for stage in Stage::ALL {
                remove(&self.run.leases(stage))?;
            }
            remove(&self.run.path(SHARED))?;
            remove_temporaries(folder)?;
            self.reset_exclusive()
        });
        match outcome {
            Err(Error::Busy { .. }) => Ok(()), // another process joined meanwhile
            other => other,
        }
    }

    /// Runs `work` for the index of each unfinished key, in up to `threads` threads and along with
    /// other processes, until all are done. Outputs must be atomic and the same from any process.
    ///
    /// # Errors
    /// The first error of `is_done` or `work`; [`Error::Stopped`].
    pub fn share(
        &self,
        stop: &Stop,
        keys: &[String],
        threads: usize,
        is_done: impl Fn(usize) -> Result<bool> + Sync,
        work: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let folder = self.run.path(SHARED);
        let mut left: VecDeque<usize> = (0..keys.len()).collect();
        let mut waited = Duration::ZERO;
        loop {
            let (queue, held) = (Mutex::new(left), Mutex::new(VecDeque::new()));
            let do_all = || -> Result<()> {
                loop {
                    let Some(item) = lock(&queue).pop_front() else { return Ok(()) };
                    stop.check()?;
                    if is_done(item)? {
                        continue;
                    }
                    let Some(lease) = self.claim(&folder.join(&keys[item]))? else {
                        lock(&held).push_back(item);
                        continue;
                    };
                    // Another process may have finished it meanwhile.
                    if !is_done(item)? {
                        work(item)?;
                    }
                    lease.release()?;
                }
            };
            let until_error = |_| do_all().inspect_err(|_| lock(&queue).clear());
            (0..threads).into_par_iter().try_for_each(until_error)?;
            left = unpoisoned(held.into_inner());
            if left.is_empty() {
                return Ok(());
            }
            std::thread::sleep(POLL);
            waited += POLL;
            if waited == WARN_AFTER {
                tracing::warn!("waiting for {} item(s) that other processes hold", left.len());
            }
        }
    }

    /// Restarts the numbers of the exclusive leases at 0, which also releases the lease of this
    /// process. The folder is renamed, so that others see either all leases or none.
    fn reset_exclusive(&self) -> Result<()> {
        let former = self.run.path("state/exclusive.former");
        remove(&former)?;
        rename(&self.run.path(EXCLUSIVE), &former)?;
        remove(&former)
    }

    /// Returns the other registered processes that are not dead.
    pub fn live(&self) -> Result<Vec<LiveWorker>> {
        let known = self.others()?.into_iter().filter_map(|id| {
            let liveness = self.liveness(&id);
            let Identity { host, pid, .. } = self.identity_of(&id)?;
            let is_alive = liveness == Liveness::Alive;
            let note = read(&self.note_file(&id)).ok();
            let progress = note.and_then(|note| serde_json::from_slice(&note).ok());
            (liveness != Liveness::Dead).then_some(LiveWorker { host, pid, is_alive, progress })
        });
        Ok(known.collect())
    }

    pub(super) fn liveness(&self, id: &str) -> Liveness {
        if id == self.id {
            return Liveness::Alive;
        }
        let Some((identity, length)) = self.read(id) else { return Liveness::Dead };
        let known = identity.known_to(&self.identity);
        let ttl = identity.ttl();
        let modified = fs::metadata(self.file(id)).and_then(|found| found.modified());
        let age = modified.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        let is_older = |limit| age.is_some_and(|age| age > limit);
        if known == Liveness::Dead || known == Liveness::Unknown && is_older(ttl + CLOCK_SKEW) {
            return Liveness::Dead;
        }
        // A process of this machine without a heartbeat may be stopped.
        let is_well = known == Liveness::Alive && !is_older(ttl);
        let mut observations = lock(&self.observations);
        let new = || Observation { length, since: Instant::now(), has_grown: false };
        let observed = observations.entry(id.to_owned()).or_insert_with(new);
        if observed.length != length {
            *observed = Observation { has_grown: true, ..new() };
        }
        match (observed.since.elapsed() > ttl, observed.has_grown || is_well) {
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
            // A stopped process with exclusive access would discard files when it continues.
            let is_stopped = || {
                let exists = |holder: Identity| holder.known_to(&self.identity) == Liveness::Alive;
                base == self.exclusive_base() && self.identity_of(&id).is_some_and(exists)
            };
            let has_expired = liveness == Liveness::Dead && !is_stopped();
            // An expired lease may have a successor although its holder came back to life.
            if !has_expired && fs::symlink_metadata(numbered(base, number)).is_err() {
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
                Ok(()) => return Ok(Some(lease)),
                // A network file system may have created the link and then repeated the request.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
                    if lease.check().is_ok() {
                        return Ok(Some(lease));
                    }
                }
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    create_folder(base.parent().unwrap_or(base))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn exclusive_base(&self) -> PathBuf {
        self.run.path(EXCLUSIVE).join("lease")
    }

    fn file(&self, id: &str) -> PathBuf {
        self.run.path("state/workers").join(id)
    }

    fn note_file(&self, id: &str) -> PathBuf {
        self.run.path("state/progress").join(id)
    }

    fn register(&self) -> Result<()> {
        let path = self.file(&self.id);
        let mut line =
            serde_json::to_vec(&self.identity).map_err(|e| Error::write(&path, Box::new(e)))?;
        line.push(b'\n');
        loop {
            match write_atomic(&path, &line) {
                // A process that cleans up took it for a leftover of a killed process.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                registered => return registered.map(drop),
            }
        }
    }

    fn deregister(&self) {
        let _ = self.forget(&self.id); // a file that stays does not grow
    }

    fn forget(&self, id: &str) -> Result<()> {
        unlink(&self.file(id))?;
        unlink(&self.note_file(id))
    }

    fn others(&self) -> Result<Vec<String>> {
        let names = self.run.tree("state/workers")?;
        Ok(names.into_iter().filter(|id| *id != self.id && !is_temporary(id)).collect())
    }

    pub(super) fn identity_of(&self, id: &str) -> Option<Identity> {
        self.read(id).map(|(identity, _)| identity)
    }

    /// Reads the identity and the file length of the process `id`. The file is opened each time,
    /// since network file systems guarantee to show other machines' writes only then.
    fn read(&self, id: &str) -> Option<(Identity, u64)> {
        // A lease from elsewhere may name anything.
        let content = if id.contains('/') { None } else { read(&self.file(id)).ok() }?;
        let length = content.len() as u64;
        let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        // A process with an unreadable identity is watched for the default time.
        let unknown = || Identity { ttl_secs: DEFAULT_LEASE_SECS, ..Identity::default() };
        Some((serde_json::from_slice(line).unwrap_or_else(|_| unknown()), length))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(Heartbeat { stop, thread }) = self.heartbeat.take() {
            drop(stop);
            let _ = thread.join(); // it only writes a few bytes
            self.deregister();
        }
    }
}

#[derive(Debug)]
pub(super) struct Holder {
    pub id: String,
    pub(super) liveness: Liveness,
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
            slurm: None,
        };
        let path = run.path("state/workers").join(id);
        write_atomic(&path, format!("{}\n", serde_json::json!(identity)).as_bytes())?;
        Ok(path)
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
        let path = run.path("state/workers/killed");
        fs::write(&path, serde_json::json!(killed).to_string())
            .map_err(Error::io(&path, "write"))?;
        assert_eq!(worker.liveness("killed"), Liveness::Dead);
        assert!(worker.live()?.is_empty());
        Ok(())
    }

    fn note(text: &str) -> ProgressNote {
        Arc::new(Mutex::new(text.to_owned()))
    }

    #[test]
    fn a_process_of_another_machine_lives_as_long_as_it_has_a_heartbeat() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let path = stranger(&run, "far", 1)?;
        let worker = Worker::join(&run, &Stop::default())?;
        assert_eq!(worker.liveness("far"), Liveness::Unknown);
        beat(&path)?;
        assert_eq!(worker.liveness("far"), Liveness::Alive);
        keep_note(&worker.note_file("far"), &note(r#"{"share":0.5}"#))?;
        assert_eq!(worker.live()?[0].progress, Some(serde_json::json!({"share": 0.5})));
        keep_note(&worker.note_file("far"), &note(""))?;
        assert_eq!(worker.live()?[0].progress, None, "it says nothing any more");
        let began = Instant::now();
        while worker.liveness("far") == Liveness::Alive {
            assert!(began.elapsed() < Duration::from_mins(1), "it never dies");
            std::thread::sleep(POLL);
        }
        assert_eq!(worker.liveness("far"), Liveness::Dead);
        assert!(began.elapsed() >= Duration::from_secs(1));
        Ok(())
    }

    #[test]
    fn a_stopped_process_of_this_machine_is_dead_when_its_time_is_over() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        // The process is alive but has no heartbeat.
        let stopped = Identity { ttl_secs: 1, ..worker.identity.clone() };
        let path = run.path("state/workers/stopped");
        fs::write(&path, serde_json::json!(stopped).to_string())
            .map_err(Error::io(&path, "write"))?;
        assert_eq!(worker.liveness("stopped"), Liveness::Alive);
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(worker.liveness("stopped"), Liveness::Dead);
        // A process that sees it for the first time cannot know and watches it.
        let late = Worker::join(&run, &Stop::default())?;
        assert_eq!(late.liveness("stopped"), Liveness::Unknown);
        beat(&path)?;
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
        let mut before = worker.read("before").ok_or(Error::Stopped)?.0;
        before.slurm = Some(("17".into(), 0));
        fs::write(&path, serde_json::json!(before).to_string())
            .map_err(Error::io(&path, "write"))?;
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
        let mut killed = Worker::join(&run, &stop)?;
        std::mem::forget(killed.claim(&killed.exclusive_base())?);
        killed.heartbeat = None; // so that its end is not noticed
        let file = killed.file(&killed.id);
        fs::remove_file(&file).map_err(Error::io(&file, "remove"))?;
        let worker = Worker::join(&run, &stop)?;
        worker.exclusive(&stop, || Ok(()))?;
        assert_eq!(run.tree(EXCLUSIVE)?.len(), 2, "the dead process's lease and a free one");
        worker.clean_up(&stop, run.root())?;
        assert_eq!(run.tree("state")?, [format!("workers/{}", worker.id)]);
        worker.exclusive(&stop, || Ok(()))
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
