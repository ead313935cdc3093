//! Claims: units of work, taken one by one by this process while others do the same.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::dir::{RunDir, Stage};
use super::identity::Liveness;
use super::lease::{Holder, Lease, SHARED};
use super::worker::{POLL, Worker};
use polysift_base::error::Result;
use polysift_base::io::{list, remove_temporaries_of};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;

/// A process that waits for longer logs a warning.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// The units of work of a stage, and the part of them that this process does.
#[derive(Debug, Clone)]
pub struct StageItems {
    /// The stage.
    pub stage: Stage,
    /// Keys of the units.
    pub keys: Vec<String>,
    /// Indices into `keys` of the unfinished units of this process, in order of work. Of other
    /// units, the process takes over those that another one had begun when it died.
    pub own: Vec<usize>,
    /// For each key, whether its index is in `own`.
    pub is_own: Vec<bool>,
    /// Whether all unfinished units are in `own`.
    pub takes_all: bool,
    /// Whether the process waits until units held by others are done too.
    pub waits: bool,
}

/// Hands out units of work to this process, one by one, while others do the same.
pub struct Claims<'a> {
    worker: &'a Worker,
    stop: &'a Stop,
    keys: &'a [String],
    is_done: Box<dyn Fn(usize) -> Result<bool> + Sync + 'a>,
    leases: PathBuf,
    /// The stage of the units and this process's part of them; `None` for [`Worker::share`].
    work: Option<&'a StageItems>,
    state: Mutex<ClaimState>,
}

#[derive(Debug, Default)]
struct ClaimState {
    todo: VecDeque<usize>,
    /// Units that others held at the last check.
    held: Vec<usize>,
    /// Whether abandoned units of others have been added.
    has_searched: bool,
    has_warned: bool,
    leases: HashMap<usize, Lease>,
}

impl Worker {
    /// Runs `work` for the index of each unfinished key, in up to `threads` threads and along with
    /// other processes, until all are done. Outputs must be atomic and the same from any process.
    pub fn share(
        &self,
        stop: &Stop,
        keys: &[String],
        threads: usize,
        is_done: impl Fn(usize) -> Result<bool> + Sync,
        work: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let left = |item| Ok((!is_done(item)?).then_some(item));
        let left = (0..keys.len()).into_par_iter().map(left).filter_map(Result::transpose);
        let state = ClaimState { todo: left.collect::<Result<_>>()?, ..ClaimState::default() };
        let (leases, is_done) = (self.run().path(SHARED), Box::new(is_done));
        Claims { worker: self, stop, keys, is_done, leases, work: None, state: state.into() }
            .for_all(threads, work)
    }
}

impl<'a> Claims<'a> {
    /// Creates the claims of `worker` on the units of `work`.
    pub fn new(worker: &'a Worker, work: &'a StageItems, stop: &'a Stop) -> Self {
        let (run, StageItems { stage, keys, own, .. }) = (worker.run(), work);
        let is_done = Box::new(|item: usize| run.is_done(*stage, &keys[item]));
        let state = ClaimState { todo: own.clone().into(), ..ClaimState::default() };
        let leases = run.leases_folder(*stage);
        Self { worker, stop, keys, is_done, leases, work: Some(work), state: state.into() }
    }

    /// Does `work` for the units that this process gets, `at_once` of them in parallel, and waits
    /// for others as [`Claims::settle`] does; the first error ends it.
    pub fn for_all(&self, at_once: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        let is_broken = AtomicBool::new(false);
        let one_after_another = || -> Result<()> {
            while !is_broken.load(Ordering::Relaxed)
                && let Some(item) = self.next()?
            {
                work(item)?;
                self.release(item)?;
            }
            Ok(())
        };
        let until_error =
            |_| one_after_another().inspect_err(|_| is_broken.store(true, Ordering::Relaxed));
        loop {
            match at_once {
                // This is outside the pool: a waiting thread there would keep others from work.
                1 => one_after_another()?,
                _ => (0..at_once).into_par_iter().try_for_each(until_error)?,
            }
            if !self.settle()? {
                return Ok(());
            }
        }
    }

    /// Claims the next unfinished unit; returns `None` if none is free now ([`Claims::settle`]).
    pub fn next(&self) -> Result<Option<usize>> {
        loop {
            self.stop.check()?;
            let item = self.state().todo.pop_front();
            if let Some(item) = item {
                if self.claim(item)? {
                    return Ok(Some(item));
                }
                continue;
            }
            self.look_again()?;
            if self.state().todo.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Waits for units that other processes hold; returns true if one became free. If this process
    /// does not wait for others, returns false as soon as all of them are known to be alive.
    pub fn settle(&self) -> Result<bool> {
        let began = Instant::now();
        loop {
            self.stop.check()?;
            let holders = self.look_again()?;
            if !self.state().todo.is_empty() {
                return Ok(true);
            }
            let are_alive = holders.iter().all(|(_, holder)| holder.liveness == Liveness::Alive);
            if holders.is_empty() || are_alive && self.work.is_some_and(|work| !work.waits) {
                return Ok(false);
            }
            if let [(item, holder), ..] = &holders[..]
                && began.elapsed() > WARN_AFTER
                && !std::mem::replace(&mut self.state().has_warned, true)
            {
                let stage = self.work.map(|work| work.stage.name());
                let (items, key, holder) = (holders.len(), &self.keys[*item], holder.name());
                tracing::warn!(
                    stage,
                    "waiting for {items} unit(s) of work of other processes: {key} is held by {holder}"
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// Queues held units whose holders are gone; returns the others with their holders.
    fn look_again(&self) -> Result<Vec<(usize, Holder)>> {
        let mut items = std::mem::take(&mut self.state().held);
        if !std::mem::replace(&mut self.state().has_searched, true) {
            items.extend(self.abandoned()?);
        }
        let mut holders = Vec::new();
        for item in items {
            if (self.is_done)(item)? {
                continue;
            }
            match self.worker.last_lease(&self.leases.join(&self.keys[item]))? {
                (_, None) => self.state().todo.push_back(item),
                (_, Some(holder)) => {
                    self.state().held.push(item);
                    holders.push((item, holder));
                }
            }
        }
        Ok(holders)
    }

    /// Returns true if `item` is in `own`, false if it was taken over.
    pub fn is_own(&self, item: usize) -> bool {
        self.work.is_none_or(|work| work.is_own[item])
    }

    /// Checks that this process still holds `item`, before an output gets its final name.
    pub fn check(&self, item: usize) -> Result<()> {
        self.state().leases.get(&item).map_or(Ok(()), Lease::check)
    }

    /// Releases `item`: it is done, or cannot be done.
    pub fn release(&self, item: usize) -> Result<()> {
        let lease = self.state().leases.remove(&item);
        lease.map_or(Ok(()), Lease::release)
    }

    fn state(&self) -> MutexGuard<'_, ClaimState> {
        lock(&self.state)
    }

    /// Claims `item`; returns true if this process now holds it and it is not done.
    fn claim(&self, item: usize) -> Result<bool> {
        let Some(lease) = self.worker.claim(&self.leases.join(&self.keys[item]))? else {
            self.state().held.push(item);
            return Ok(false);
        };
        // Another process may have finished it since the last check.
        if (self.is_done)(item)? {
            return lease.release().map(|()| false);
        }
        if let Some(StageItems { stage, keys, .. }) = self.work {
            let (run, key) = (self.worker.run(), &keys[item]);
            if run.reopen(*stage)? {
                let stage = stage.name();
                tracing::warn!(stage, key, "was done, and is gone or damaged: done again");
            }
            if lease.number > 0 {
                run.sweep(*stage, key)?;
            }
        }
        self.state().leases.insert(item, lease);
        Ok(true)
    }

    /// Returns the units of others that were begun: they have a lease.
    fn abandoned(&self) -> Result<Vec<usize>> {
        let Some(work) = self.work.filter(|work| !work.takes_all) else { return Ok(Vec::new()) };
        let leased = self.worker.run().leased(work.stage)?;
        let others = work.keys.iter().enumerate().filter(|(item, _)| !work.is_own[*item]);
        Ok(others.filter(|(_, key)| leased.contains(*key)).map(|(item, _)| item).collect())
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        for (_, lease) in self.state().leases.drain() {
            let _ = lease.release(); // a lease that stays expires with this process
        }
    }
}

impl RunDir {
    /// Removes the temporary files that a killed process left for the unit `key` of `stage`.
    fn sweep(&self, stage: Stage, key: &str) -> Result<()> {
        let state = self.path("state").join(stage.name());
        // The files of a unit are in the folder itself or in one of its direct subfolders.
        for folder in stage.outputs().iter().map(|folder| self.path(folder)).chain([state]) {
            // `embeddings` has a folder for each shard: the files of a unit are in its own.
            let listed = if folder.ends_with("embeddings") { Vec::new() } else { list(&folder)? };
            let within = listed.into_iter().map(|entry| entry.path()).filter(|p| p.is_dir());
            for output in within.chain([folder]).map(|folder| folder.join(key)) {
                remove_temporaries_of(&output)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_the_folders_of_outputs_are_passed_over()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let run = RunDir::create(dir.path())?;
        run.write_json(&run.path("selection/deu_Latn.json"), &1)?;
        let left = run.path("selection/.fra_Latn.json.17-0.tmp");
        std::fs::write(&left, "")?;
        run.sweep(Stage::Threshold, "fra_Latn")?;
        assert!(!left.exists() && run.path("selection/deu_Latn.json").exists());
        Ok(())
    }
}
