//! Claims: the units of work of a stage, taken one by one by this process while others do the same.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::dir::{RunDir, Stage};
use super::worker::{Holder, Lease, Liveness, POLL, WARN_AFTER, Worker};
use polysift_base::error::Result;
use polysift_base::io::{list, remove_temporaries, remove_temporaries_of};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;

/// The units of work of a stage, and the part of them that this process does.
#[derive(Debug, Clone)]
pub struct StageItems {
    /// The stage.
    pub stage: Stage,
    /// Keys of the units.
    pub keys: Vec<String>,
    /// Indices into `keys` of the unfinished units of this process, in order of work. The process
    /// takes over other units if their process died.
    pub own: Vec<usize>,
    /// For each key, whether its index is in `own`.
    pub is_own: Vec<bool>,
    /// Whether all unfinished units are in `own`.
    pub takes_all: bool,
    /// Whether the process waits until units held by others are done too.
    pub waits: bool,
}

/// Hands out the units of work of a stage to this process, one by one, while others do the same.
#[derive(Debug)]
pub struct Claims<'a> {
    worker: &'a Worker,
    work: &'a StageItems,
    stop: &'a Stop,
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

impl<'a> Claims<'a> {
    /// Creates the claims of `worker` on the units of `work`.
    pub fn new(worker: &'a Worker, work: &'a StageItems, stop: &'a Stop) -> Self {
        let state =
            ClaimState { todo: work.own.iter().copied().collect(), ..ClaimState::default() };
        Self { worker, work, stop, state: Mutex::new(state) }
    }

    /// Claims the next unfinished unit; returns `None` if none is free now ([`Claims::settle`]).
    pub fn next(&self) -> Result<Option<usize>> {
        loop {
            self.stop.check()?;
            let item = self.state().todo.pop_front();
            match item {
                Some(item) if self.claim(item)? => return Ok(Some(item)),
                Some(_) => {}
                None => {
                    self.look_again()?;
                    if self.state().todo.is_empty() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Waits for units that other processes hold. Returns true if a unit became free because its
    /// lease expired or was released. If this process does not wait for others, returns false as
    /// soon as all of them are known to be alive.
    pub fn settle(&self) -> Result<bool> {
        let began = Instant::now();
        loop {
            self.stop.check()?;
            let holders = self.look_again()?;
            if !self.state().todo.is_empty() {
                return Ok(true);
            }
            let are_alive = holders.iter().all(|(_, holder)| holder.liveness == Liveness::Alive);
            if holders.is_empty() || are_alive && !self.work.waits {
                return Ok(false);
            }
            if began.elapsed() > WARN_AFTER
                && !std::mem::replace(&mut self.state().has_warned, true)
            {
                self.warn(&holders);
            }
            std::thread::sleep(POLL);
        }
    }

    fn warn(&self, holders: &[(usize, Holder)]) {
        let Some((item, holder)) = holders.first() else { return };
        let identity = self.worker.identity_of(&holder.id);
        let (host, pid) = identity.map_or(("?".to_owned(), 0), |who| (who.host, who.pid));
        let (stage, key, items) = (self.work.stage.name(), &self.work.keys[*item], holders.len());
        tracing::warn!(
            "waiting for {items} item(s) that others hold: {key} ({stage}) is held by process {pid} on {host}"
        );
    }

    /// Queues held units whose holders are gone; returns the others with their holders.
    fn look_again(&self) -> Result<Vec<(usize, Holder)>> {
        let mut items = std::mem::take(&mut self.state().held);
        if !std::mem::replace(&mut self.state().has_searched, true) {
            items.extend(self.abandoned()?);
        }
        let (run, stage) = (self.worker.run(), self.work.stage);
        let mut holders = Vec::new();
        for item in items {
            let key = &self.work.keys[item];
            if run.is_done(stage, key)? {
                continue;
            }
            match self.worker.last_lease(&run.lease_base(stage, key))? {
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
        self.work.is_own[item]
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
        let (run, stage, key) = (self.worker.run(), self.work.stage, &self.work.keys[item]);
        let Some(lease) = self.worker.claim(&run.lease_base(stage, key))? else {
            self.state().held.push(item);
            return Ok(false);
        };
        // Another process may have finished it since the last check.
        if run.is_done(stage, key)? {
            return lease.release().map(|()| false);
        }
        if run.reopen(stage)? {
            let stage = stage.name();
            tracing::warn!(stage, key, "was done, and is gone or damaged: done again");
        }
        if lease.is_taken_over() {
            run.sweep(stage, key)?;
        }
        self.state().leases.insert(item, lease);
        Ok(true)
    }

    /// Returns the units of others that were begun: they have a lease.
    fn abandoned(&self) -> Result<Vec<usize>> {
        if self.work.takes_all {
            return Ok(Vec::new());
        }
        let leased = self.worker.run().leased(self.work.stage)?;
        let others = self.work.keys.iter().enumerate().filter(|(item, _)| !self.is_own(*item));
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
    /// Returns the keys of `stage` with leases, of live and of dead processes.
    fn leased(&self, stage: Stage) -> Result<BTreeSet<String>> {
        let names = self.tree(&format!("state/{}/leases", stage.name()))?;
        Ok(names.iter().filter_map(|name| Some(name.rsplit_once('.')?.0.to_owned())).collect())
    }

    /// Returns the number of units of `stage` held by processes that are not known to be dead.
    pub fn num_held(&self, stage: Stage, worker: &Worker) -> Result<usize> {
        let mut num_held = 0;
        for key in self.leased(stage)? {
            let (_, holder) = worker.last_lease(&self.lease_base(stage, &key))?;
            num_held += usize::from(holder.is_some());
        }
        Ok(num_held)
    }

    /// Returns the path of the leases of `key`, without their numbers.
    fn lease_base(&self, stage: Stage, key: &str) -> PathBuf {
        self.leases(stage).join(key)
    }

    pub(super) fn leases(&self, stage: Stage) -> PathBuf {
        self.path("state").join(stage.name()).join("leases")
    }

    /// Removes the temporary files that a killed process left for the unit `key` of `stage`.
    fn sweep(&self, stage: Stage, key: &str) -> Result<()> {
        let state = self.path("state").join(stage.name());
        // The files of a unit are in the folder itself or in one of its direct subfolders.
        for folder in stage.outputs().iter().map(|folder| self.path(folder)).chain([state]) {
            let within = list(&folder)?.into_iter().map(|entry| entry.path());
            for output in within.chain([folder]).map(|folder| folder.join(key)) {
                remove_temporaries_of(&output)?;
                remove_temporaries(&output)?;
            }
        }
        Ok(())
    }
}
