//! The processes that work in a run directory, which of them are alive, and the leases they hold.
//!
//! Every process keeps a file `state/workers/<id>`, which it writes again at every heartbeat. It
//! removes the file when it ends; a killed process leaves it. Another process counts as dead
//! - immediately if its file is gone, if it ran on this machine and ended, or if it is this Slurm
//!   job before a requeue;
//! - otherwise if its file did not change for [`Identity::ttl_secs`] while this process watched,
//!   even if it is only stopped. Clocks of machines are compared only with a margin of
//!   `CLOCK_SKEW` of heartbeat.rs.
//!
//! A process that sleeps for longer can wake up after its work was taken over; it notices before it
//! gives any file its final name (`Lease::check`). Only an object that is being sent to a store
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
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::dir::RunDir;
use super::identity::{Identity, Liveness};
use polysift_base::error::Result;
use polysift_base::io::{final_name, if_there, read, unlink, write_json};

/// Interval between two checks of other processes.
pub(super) const POLL: Duration = Duration::from_millis(200);

/// Folder with the file of each process that works in the run directory.
pub(super) const WORKERS: &str = "state/workers";
/// Folder with a file for each process that has the run directory for itself, or wants to.
pub(super) const EXCLUSIVE: &str = "state/exclusive";

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

/// This process as one of those that work in a run directory.
#[derive(Debug)]
pub struct Worker {
    run: RunDir,
    /// Unique among all processes that ever worked in the directory.
    pub(super) id: String,
    pub(super) identity: Identity,
    /// Observations of the files of other processes, by path.
    pub(super) observations: Mutex<HashMap<PathBuf, Observation>>,
    /// Keeps the thread of heartbeats going, and the thread; `None` for an observer.
    pub(super) heartbeat: Option<(Sender<()>, JoinHandle<()>)>,
    note: ProgressNote,
}

/// Progress of a process as JSON, for `status` of other processes.
pub type ProgressNote = Arc<Mutex<Option<Value>>>;

/// What this process saw of the file of another one.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    /// Content of the file, and since when it has this content.
    pub(super) content: Vec<u8>,
    pub(super) since: Instant,
    pub(super) has_changed: bool,
}

impl Worker {
    /// Creates a worker that only looks: others do not see it, and it cannot hold leases.
    pub fn observer(run: &RunDir) -> Self {
        let (run, id, identity) = (run.clone(), String::new(), Identity::of_this_process());
        let (observations, note) = (Mutex::default(), Arc::default());
        Self { run, id, identity, observations, heartbeat: None, note }
    }

    /// Returns the progress note that heartbeats write, for the caller to update.
    pub fn note(&self) -> ProgressNote {
        Arc::clone(&self.note)
    }

    /// Returns the run directory.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Returns the other registered processes that are not dead.
    pub fn live(&self) -> Result<Vec<LiveWorker>> {
        let known = self.ids_in(WORKERS)?.into_iter().filter_map(|id| {
            let liveness = self.liveness(&id);
            let Identity { host, pid, progress, .. } = Identity::parse(&self.read_worker(&id)?);
            let is_alive = liveness == Liveness::Alive;
            (liveness != Liveness::Dead).then_some(LiveWorker { host, pid, is_alive, progress })
        });
        Ok(known.collect())
    }

    /// Returns the path of the file in which the process `id` writes its heartbeats.
    pub(super) fn worker_file(&self, id: &str) -> PathBuf {
        self.run.path(WORKERS).join(id)
    }

    /// Writes the file of this process.
    pub(super) fn register(&self) -> Result<()> {
        // A process that cleans up may take the file for a leftover of a killed process.
        while if_there(write_json(&self.worker_file(&self.id), &self.identity))?.is_none() {}
        Ok(())
    }

    /// Removes the files of the process `id`, which is dead or leaves.
    pub(super) fn forget(&self, id: &str) -> Result<()> {
        // In this order, a later process finds what a kill in between leaves.
        unlink(&self.run.path(EXCLUSIVE).join(id))?;
        unlink(&self.worker_file(id))
    }

    /// Returns the ids of other processes with a file in `folder`.
    pub(super) fn ids_in(&self, folder: &str) -> Result<Vec<String>> {
        let mut ids = self.run.list_tree(folder)?;
        ids.retain(|id| *id != self.id && final_name(id).is_none());
        Ok(ids)
    }

    /// Reads the file of the process `id`: `None` if it is gone, empty if unreadable now. It is
    /// opened each time, since network file systems show other machines' writes only then.
    pub(super) fn read_worker(&self, id: &str) -> Option<Vec<u8>> {
        // A lease from elsewhere may name anything.
        let is_name = !id.contains('/') && !id.starts_with('.');
        let path = is_name.then(|| self.worker_file(id))?;
        // A file that cannot be read now, perhaps because it was just replaced, is not gone.
        if_there(read(&path)).unwrap_or_else(|_| Some(Vec::new()))
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

#[cfg(test)]
impl Worker {
    /// Makes `N` workers of a new run directory.
    pub(super) fn several<const N: usize>() -> Result<(tempfile::TempDir, [Self; N])> {
        let (dir, run) = RunDir::temporary()?;
        let join = |_| Self::join(&run, &polysift_base::progress::Stop::default());
        let workers: Vec<Self> = (0..N).map(join).collect::<Result<_>>()?;
        let workers = workers.try_into().map_err(|_| polysift_base::error::Error::Stopped)?;
        Ok((dir, workers))
    }
}
