//! The work of a stage, handed out to this process item by item while others do the same.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::identity::Liveness;
use super::lease::{Asked, Holder, Lease};
use super::worker::Worker;
use super::{RunDir, Stage};
use crate::error::Result;
use crate::io::{remove_temporaries, remove_temporaries_of};
use crate::panics::lock;
use crate::progress::Stop;

/// Between two looks at what other processes hold.
const POLL: Duration = Duration::from_millis(200);
/// Who waits for longer says for whom.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// The items of a stage and what this process does of them.
#[derive(Debug, Clone)]
pub(crate) struct StageWork {
    pub(crate) stage: Stage,
    /// Keys of the items.
    pub(crate) keys: Vec<String>,
    /// Places in `keys` of those that are not done and this process's own, in the order in which it does
    /// them. Of the others it takes over those that another process began and died over.
    pub(crate) own: Vec<usize>,
    /// By item: whether it is among these.
    pub(crate) is_own: Vec<bool>,
    /// Whether all items are its own, those that are done aside.
    pub(crate) takes_all: bool,
    /// Whether it waits until the items that others hold are done too.
    pub(crate) waits: bool,
}

/// Hands out items of work.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    worker: &'a Worker,
    work: &'a StageWork,
    stop: &'a Stop,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Own items that were not looked at.
    own: VecDeque<usize>,
    /// Items that this process got hold of while it waited.
    ready: Vec<usize>,
    /// Items that others held when they were looked at.
    held: Vec<usize>,
    /// Whether what others left behind was looked for.
    searched: bool,
    /// Whether it was said for whom this process waits.
    told: bool,
    leases: HashMap<usize, Lease>,
}

/// What came of trying to get hold of an item.
enum Found {
    Mine,
    Done,
    Held(Holder),
}

impl<'a> Claims<'a> {
    pub(crate) fn new(worker: &'a Worker, work: &'a StageWork, stop: &'a Stop) -> Self {
        let state = State { own: work.own.iter().copied().collect(), ..State::default() };
        Self { worker, work, stop, state: Mutex::new(state) }
    }

    /// An item that is not done and that nobody holds, now held by this process; `None` where there is
    /// none at the moment ([`Claims::settle`]).
    pub(crate) fn next(&self) -> Result<Option<usize>> {
        loop {
            self.stop.check()?;
            let mut state = self.state();
            if let Some(item) = state.ready.pop() {
                return Ok(Some(item));
            }
            let Some(item) = state.own.pop_front() else { break };
            drop(state);
            match self.claim(item)? {
                Found::Mine => return Ok(Some(item)),
                Found::Done => {}
                Found::Held(_) => self.state().held.push(item),
            }
        }
        let is_new = !std::mem::replace(&mut self.state().searched, true);
        if is_new {
            let abandoned = self.abandoned()?;
            self.state().held.extend(abandoned);
        }
        self.look_again()?;
        Ok(self.state().ready.pop())
    }

    /// Waits for what other processes hold. Whether there is something to be had again: an item whose
    /// holder died or let go. Where this process does not wait for others, it is over as soon as all of
    /// them are known to be alive.
    pub(crate) fn settle(&self) -> Result<bool> {
        let began = Instant::now();
        loop {
            self.stop.check()?;
            let holders = self.look_again()?;
            if !self.state().ready.is_empty() {
                return Ok(true);
            }
            let are_alive = holders.iter().all(|(_, holder)| holder.liveness == Liveness::Alive);
            if holders.is_empty() || are_alive && !self.work.waits {
                return Ok(false);
            }
            if began.elapsed() > TOLD_AFTER && !std::mem::replace(&mut self.state().told, true) {
                self.tell(&holders);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Says for which of `holders` this process waits: the one that has held an item for longest.
    fn tell(&self, holders: &[(usize, Holder)]) {
        let held_secs = |holder: &Holder| {
            holder.since.and_then(|since| since.elapsed().ok()).unwrap_or_default().as_secs()
        };
        let longest = holders.iter().max_by_key(|(_, holder)| held_secs(holder));
        let Some((item, holder)) = longest else { return };
        let identity = self.worker.identity_of(&holder.id);
        let (host, pid) = identity.map_or(("?".to_owned(), 0), |who| (who.host, who.pid));
        let (stage, key) = (self.work.stage.name(), &self.work.keys[*item]);
        let (held_secs, items) = (held_secs(holder), holders.len());
        tracing::warn!(
            "waiting for {items} item(s) that others hold: {key} ({stage}) has been in the hands of \
             process {pid} on {host} for {held_secs} s"
        );
    }

    /// Tries the items that others held once more; the rest, with their holders.
    fn look_again(&self) -> Result<Vec<(usize, Holder)>> {
        let held = std::mem::take(&mut self.state().held);
        let mut holders = Vec::new();
        for item in held {
            match self.claim(item)? {
                Found::Mine => self.state().ready.push(item),
                Found::Done => {}
                Found::Held(holder) => {
                    self.state().held.push(item);
                    holders.push((item, holder));
                }
            }
        }
        Ok(holders)
    }

    /// Whether `item` is one of those that this process began with, and not taken over.
    pub(crate) fn is_own(&self, item: usize) -> bool {
        self.work.is_own[item]
    }

    /// Checks that `item` is still this process's, before something of it gets its final name.
    pub(crate) fn check(&self, item: usize) -> Result<()> {
        self.state().leases.get(&item).map_or(Ok(()), Lease::check)
    }

    /// Lets go of `item`: it is done, or cannot be done.
    pub(crate) fn release(&self, item: usize) -> Result<()> {
        let lease = self.state().leases.remove(&item);
        lease.map_or(Ok(()), Lease::release)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tries to get hold of `item`.
    fn claim(&self, item: usize) -> Result<Found> {
        let (run, key) = (self.worker.run(), &self.work.keys[item]);
        if run.is_done(self.work.stage, key)? {
            return Ok(Found::Done);
        }
        let lease = match Lease::ask(self.worker, self.work.stage, key)? {
            Asked::Granted(lease) => lease,
            Asked::Held(holder) => return Ok(Found::Held(holder)),
        };
        // Between the two questions another process may have finished it.
        if run.is_done(self.work.stage, key)? {
            return lease.release().map(|()| Found::Done);
        }
        run.reopen(self.work.stage)?;
        if lease.is_taken_over() {
            run.sweep(self.work.stage, key)?;
        }
        self.state().leases.insert(item, lease);
        Ok(Found::Mine)
    }

    /// Items of others that were begun: they have a lease.
    fn abandoned(&self) -> Result<Vec<usize>> {
        if self.work.takes_all {
            return Ok(Vec::new());
        }
        let leased = self.worker.run().leased(self.work.stage)?;
        let others = self.work.keys.iter().enumerate().filter(|(item, _)| !self.is_own(*item));
        Ok(others.filter(|(_, key)| leased.contains_key(*key)).map(|(item, _)| item).collect())
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        for lease in self.state().leases.drain().map(|(_, lease)| lease).collect::<Vec<_>>() {
            let _ = lease.release(); // what stays is a dead process's soon
        }
    }
}

impl RunDir {
    /// Clears what a killed process left of the item `key` of `stage`.
    fn sweep(&self, stage: Stage, key: &str) -> Result<()> {
        let mut outputs: Vec<std::path::PathBuf> = Vec::new();
        for directory in stage.outputs() {
            outputs.push(self.path(directory).join(key));
            if *directory == "removed" {
                let reasons = self.names(directory)?;
                outputs.extend(reasons.iter().map(|r| self.path(directory).join(r).join(key)));
            }
        }
        outputs.push(self.path("state").join(stage.name()).join("parts").join(key));
        outputs.push(self.path("state").join(stage.name()).join("done").join(key));
        for output in outputs {
            remove_temporaries_of(&output)?;
            remove_temporaries(&output)?;
        }
        Ok(())
    }
}
