//! The processes that write into a run directory, and which of them are alive.
//!
//! Every process keeps a file `state/workers/<id>`: one line that says who it is, then one byte per
//! beat of its heart. A process that ends removes it, one that is killed leaves it. Whether another
//! process is alive is told
//! - at once where its file is gone, where it ran on this machine and ended, or where this is the Slurm
//!   job that it was before it was requeued;
//! - else by its heart: it is dead once its file has not grown for [`Identity::ttl_secs`] while this
//!   process looked on, also if it is a stopped process of this machine. No two clocks are compared.
//!
//! A process that sleeps for longer than that can come back to life. What it held was taken over
//! meanwhile; it notices before it gives anything its final name (`Lease::check`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::heart::Heart;
use super::identity::{DEFAULT_LEASE_SECS, Identity, Liveness, lease_secs};
use super::{RunDir, Stage};
use crate::error::{Error, Result};
use crate::io::remove_temporaries;
use crate::panics::lock;
use crate::progress::Stop;

/// A file that did not change for so long after its time to live is a dead process's, whatever the
/// clocks of the machines say.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Between two looks at other processes.
const POLL: Duration = Duration::from_millis(200);
/// Time in which a process that just arrives sees that the directory is taken.
const ARRIVAL: Duration = Duration::from_secs(3);

/// This process, as a member of those that work in a run directory.
#[derive(Debug)]
pub struct Worker {
    run: RunDir,
    id: String,
    identity: Identity,
    /// By other process: the length of its file and since when it has that, and whether it grew.
    seen: Mutex<HashMap<String, (u64, Instant, bool)>>,
    /// `None` for one that only looks.
    heart: Option<Heart>,
}

impl Worker {
    /// Joins those that work in `run`; waits while one of them has the directory for itself.
    pub fn join(run: &RunDir, stop: &Stop) -> Result<Self> {
        let identity = Identity::of_this_process(lease_secs()?);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let id = format!("{}.{}.{nanos:x}", identity.host, identity.pid);
        let mut worker =
            Self { run: run.clone(), id, identity, seen: Mutex::default(), heart: None };
        let mut told = false;
        loop {
            worker.register()?;
            let Some(holder) = worker.exclusive_holder()? else { break };
            worker.deregister();
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(process = %holder, "waiting: it has the run directory for itself");
            }
            stop.check()?;
            std::thread::sleep(POLL);
        }
        worker.heart = Some(Heart::start(worker.file(&worker.id), worker.identity.ttl()));
        Ok(worker)
    }

    /// One that only looks: others do not see it, and it can hold nothing.
    pub fn observer(run: &RunDir) -> Self {
        let identity = Identity::of_this_process(DEFAULT_LEASE_SECS);
        Self { run: run.clone(), id: String::new(), identity, seen: Mutex::default(), heart: None }
    }

    /// The run directory.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Unique among all processes that ever worked in the directory.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Does `work` while no other process works in the directory and none begins.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one is alive; those of `work`.
    pub fn exclusive<T>(&self, stop: &Stop, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.exclusive_file();
        let busy = || Error::Busy { path: self.run.root().to_owned() };
        self.run.create_directory("state")?;
        while let Err(error) = std::os::unix::fs::symlink(&self.id, &path) {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(Error::io(&path, "create")(error));
            }
            if self.exclusive_holder()?.is_some() {
                return Err(busy());
            }
        }
        let began = Instant::now();
        let mut told = false;
        let outcome = loop {
            let others = self.others()?;
            let liveness: Vec<Liveness> = others.iter().map(|id| self.liveness(id)).collect();
            if liveness.iter().all(|liveness| *liveness == Liveness::Dead) {
                self.forget(&others);
                break work();
            }
            // One that arrives just now goes away again; one that is only known by its heart is watched.
            if liveness.contains(&Liveness::Alive) && began.elapsed() > ARRIVAL {
                break Err(busy());
            }
            if let Err(stopped) = stop.check() {
                break Err(stopped);
            }
            if began.elapsed() > ARRIVAL && !std::mem::replace(&mut told, true) {
                tracing::warn!(processes = ?others, "waiting to see whether they are alive");
            }
            std::thread::sleep(POLL);
        };
        let _ = fs::remove_file(&path); // one that stays is a dead process's
        outcome
    }

    /// Removes what killed processes left, unless others are at work.
    pub fn clean_up(&self, stop: &Stop) -> Result<()> {
        if !self.others()?.iter().all(|id| self.liveness(id) == Liveness::Dead) {
            return Ok(());
        }
        let outcome = self.exclusive(stop, || {
            for stage in Stage::ALL {
                self.run.remove_tree(&format!("state/{}/leases", stage.name()))?;
            }
            remove_temporaries(self.run.root()).map(drop)
        });
        match outcome {
            Err(Error::Busy { .. }) => Ok(()), // one that came meanwhile
            other => other,
        }
    }

    /// The processes that are registered and not dead, with what is known of each.
    pub fn live(&self) -> Result<Vec<(Identity, Liveness)>> {
        let known = self.others()?.into_iter().filter_map(|id| {
            let liveness = self.liveness(&id);
            let identity = self.identity_of(&id)?;
            (liveness != Liveness::Dead).then_some((identity, liveness))
        });
        Ok(known.collect())
    }

    /// Whether the process `id` lives.
    pub fn liveness(&self, id: &str) -> Liveness {
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
        // A process of this machine whose heart does not beat may be stopped.
        let is_well = known == Liveness::Alive && !is_older(ttl);
        let mut seen = lock(&self.seen);
        let (last, since, grew) =
            seen.entry(id.to_owned()).or_insert_with(|| (length, Instant::now(), false));
        if *last != length {
            (*last, *since, *grew) = (length, Instant::now(), true);
        }
        match (since.elapsed() > ttl, *grew || is_well) {
            (true, _) => Liveness::Dead,
            (false, true) => Liveness::Alive,
            (false, false) => Liveness::Unknown,
        }
    }

    fn file(&self, id: &str) -> PathBuf {
        self.run.path("state/workers").join(id)
    }

    fn exclusive_file(&self) -> PathBuf {
        self.run.path("state/exclusive")
    }

    /// The live process that has the directory for itself; removes what a dead one left.
    fn exclusive_holder(&self) -> Result<Option<String>> {
        let path = self.exclusive_file();
        let Ok(holder) = fs::read_link(&path) else { return Ok(None) };
        let holder = holder.to_string_lossy().into_owned();
        // A process that is stopped while it discards things would go on with that later.
        let exists = |identity: Identity| identity.known_to(&self.identity) == Liveness::Alive;
        match self.liveness(&holder) {
            _ if holder == self.id => Ok(None),
            Liveness::Dead if !self.identity_of(&holder).is_some_and(exists) => {
                fs::remove_file(&path).or_else(gone).map_err(Error::io(&path, "remove"))?;
                Ok(None)
            }
            _ => Ok(Some(holder)),
        }
    }

    fn register(&self) -> Result<()> {
        let path = self.file(&self.id);
        self.run.create_directory("state/workers")?;
        let mut line =
            serde_json::to_vec(&self.identity).map_err(|e| Error::write(&path, Box::new(e)))?;
        line.push(b'\n');
        fs::write(&path, line).map_err(Error::io(&path, "write"))
    }

    fn deregister(&self) {
        let _ = fs::remove_file(self.file(&self.id)); // one that stays does not grow
    }

    /// Ids of all other registered processes.
    fn others(&self) -> Result<Vec<String>> {
        let names = self.run.names("state/workers")?;
        Ok(names.into_iter().filter(|id| *id != self.id).collect())
    }

    /// Removes the files of processes that are dead.
    fn forget(&self, dead: &[String]) {
        for id in dead {
            let _ = fs::remove_file(self.file(id)); // another one may have done so
        }
    }

    /// Who the process `id` is.
    pub(super) fn identity_of(&self, id: &str) -> Option<Identity> {
        self.read(id).map(|(identity, _)| identity)
    }

    /// Identity and length of the file of the process `id`. Opened anew each time, since network file
    /// systems promise what others wrote only then.
    fn read(&self, id: &str) -> Option<(Identity, u64)> {
        let mut content = String::new();
        File::open(self.file(id)).ok()?.read_to_string(&mut content).ok()?;
        let length = content.len() as u64;
        let line = content.lines().next().unwrap_or_default();
        let identity = serde_json::from_str(line).unwrap_or_else(|_| Identity::unknown());
        Some((identity, length))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(heart) = self.heart.take() {
            heart.stop();
            self.deregister();
        }
    }
}

/// What is gone already needs no removing.
pub(super) fn gone(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::super::heart::beat;
    use super::*;

    /// A process of another machine.
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
        run.create_directory("state/workers")?;
        let line = format!("{}\n", serde_json::json!(identity));
        fs::write(&path, line).map_err(Error::io(&path, "write"))?;
        Ok(path)
    }

    #[test]
    fn a_process_is_known_while_it_works_and_gone_after() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let (first, second) =
            (Worker::join(&run, &Stop::default())?, Worker::join(&run, &Stop::default())?);
        assert_eq!(first.liveness(second.id()), Liveness::Alive);
        assert_eq!(first.live()?.len(), 1);
        let id = second.id().to_owned();
        drop(second);
        assert_eq!(first.liveness(&id), Liveness::Dead);
        first.clean_up(&Stop::default())?;
        assert!(!run.path("state/workers").join(id).exists());
        Ok(())
    }

    #[test]
    fn a_process_of_this_machine_that_was_killed_is_dead_at_once() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        let mut killed = worker.identity.clone();
        killed.pid_began = killed.pid_began.map(|ticks| ticks - 1); // its number was given again
        let path = run.path("state/workers/killed");
        fs::write(&path, serde_json::json!(killed).to_string())
            .map_err(Error::io(&path, "write"))?;
        assert_eq!(worker.liveness("killed"), Liveness::Dead);
        assert!(worker.live()?.is_empty());
        Ok(())
    }

    #[test]
    fn a_process_of_another_machine_lives_as_long_as_its_heart_beats() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let path = stranger(&run, "far", 1)?;
        let worker = Worker::join(&run, &Stop::default())?;
        assert_eq!(worker.liveness("far"), Liveness::Unknown);
        beat(&path).map_err(Error::io(&path, "write"))?;
        assert_eq!(worker.liveness("far"), Liveness::Alive);
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
        // The process lives, and its heart does not beat.
        let stopped = Identity { ttl_secs: 1, ..worker.identity.clone() };
        let path = run.path("state/workers/stopped");
        fs::write(&path, serde_json::json!(stopped).to_string())
            .map_err(Error::io(&path, "write"))?;
        assert_eq!(worker.liveness("stopped"), Liveness::Alive);
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(worker.liveness("stopped"), Liveness::Dead);
        // One who sees it for the first time cannot know, and watches it.
        let late = Worker::join(&run, &Stop::default())?;
        assert_eq!(late.liveness("stopped"), Liveness::Unknown);
        beat(&path).map_err(Error::io(&path, "write"))?;
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
        let file = File::options().append(true).open(&path).map_err(Error::io(&path, "open"))?;
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
    fn the_directory_is_had_alone_by_one_process_only() -> Result<()> {
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
}
