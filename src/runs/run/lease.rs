//! Leases: which process works on what; `worker.rs` says how they are taken over.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::identity::Liveness;
use super::{RunDir, Stage, Worker};
use polysift_base::error::{Error, Result};
use polysift_base::io::{create_folder, link, rename, unlink};

/// Folder of the leases of [`Worker::share`].
pub(super) const SHARED: &str = "state/shared";
/// Holder of a released lease; no process has this id.
const NOBODY: &str = "nobody";

/// The process with the last lease of a unit of work, which is not known to be dead.
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
    /// Number of earlier leases of the unit of work; their holders may have left it unfinished.
    pub(super) number: u32,
    holder: String,
}

impl Lease {
    /// Returns [`Error::Lost`] if another process took over, believing this one dead.
    pub(super) fn check(&self) -> Result<()> {
        let path = numbered_path(&self.base, self.number);
        let is_own = fs::read_link(&path).is_ok_and(|holder| holder == Path::new(&self.holder));
        if is_own && fs::symlink_metadata(numbered_path(&self.base, self.number + 1)).is_err() {
            return Ok(());
        }
        Err(Error::Lost(self.base.clone()))
    }

    /// Frees the unit of work, unless another process took it over.
    pub(super) fn release(self) -> Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        if self.check().is_err() {
            return Ok(()); // another process holds it now
        }
        let path = numbered_path(&self.base, self.number);
        if self.number == 0 {
            return unlink(&path);
        }
        // The numbers must not restart, so the lease stays, held by nobody.
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let free = path.with_file_name(format!(".{}.{count}.free", self.holder));
        link(NOBODY, &free)?;
        rename(&free, &path)
    }
}

impl Worker {
    /// Returns the next lease number on `base`, and the holder of the last lease unless it is dead.
    pub(super) fn last_lease(&self, base: &Path) -> Result<(u32, Option<Holder>)> {
        let mut number = 0;
        loop {
            let path = numbered_path(base, number);
            let id = match fs::read_link(&path) {
                Ok(holder) => holder.to_string_lossy().into_owned(),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok((number, None)),
                Err(error) => return Err(Error::io(&path, "read")(error)),
            };
            number += 1;
            let liveness = self.liveness(&id);
            // An expired lease may have a successor although its holder came back to life.
            if liveness != Liveness::Dead
                && fs::symlink_metadata(numbered_path(base, number)).is_err()
            {
                return Ok((number, Some(Holder { id, liveness })));
            }
        }
    }

    /// Claims the lease `base`; returns `None` if another process or this one holds it.
    pub(super) fn claim(&self, base: &Path) -> Result<Option<Lease>> {
        loop {
            let (number, None) = self.last_lease(base)? else { return Ok(None) };
            let lease = Lease { base: base.to_owned(), number, holder: self.id.clone() };
            let path = numbered_path(base, number);
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
}

impl RunDir {
    /// Returns the keys of `stage` with leases, of live and of dead processes.
    pub(super) fn leased(&self, stage: Stage) -> Result<BTreeSet<String>> {
        let names = self.list_tree(&format!("state/{}/leases", stage.name()))?;
        Ok(names.iter().filter_map(|name| Some(name.rsplit_once('.')?.0.to_owned())).collect())
    }

    /// Returns the number of units of `stage` held by processes that are not known to be dead.
    pub fn num_held(&self, stage: Stage, worker: &Worker) -> Result<usize> {
        let mut num_held = 0;
        for key in self.leased(stage)? {
            let (_, holder) = worker.last_lease(&self.leases_folder(stage).join(key))?;
            num_held += usize::from(holder.is_some());
        }
        Ok(num_held)
    }

    pub(super) fn leases_folder(&self, stage: Stage) -> PathBuf {
        self.path("state").join(stage.name()).join("leases")
    }
}

/// Returns the path of lease `number` of the unit of work with the path `base`.
fn numbered_path(base: &Path, number: u32) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_base::progress::Stop;

    fn claim(worker: &Worker, key: &str) -> Result<Option<Lease>> {
        worker.claim(&worker.run().path("state/embed/leases").join(key))
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
        let (_dir, workers) = Worker::several::<8>()?;
        for round in 0..20 {
            let key = format!("deu_Latn/{round}");
            let mut leases = race(&workers, &key)?;
            assert_eq!(leases.len(), 1);
            let lease = leases.pop().ok_or(Error::Stopped)?;
            lease.check()?;
            assert_eq!(lease.number, 0);
            lease.release()?;
            assert_eq!(race(&workers, &key)?.len(), 1);
        }
        Ok(())
    }

    #[test]
    fn of_processes_that_find_the_holder_dead_one_takes_over_and_the_dead_one_notices() -> Result<()>
    {
        let (_dir, mut workers) = Worker::several::<9>()?;
        for round in 0..20 {
            let key = format!("deu_Latn/{round}");
            let lease = claim(&workers[8], &key)?.ok_or(Error::Stopped)?;
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            // Its file is gone, as if it had ended, which it does not know yet.
            let file = workers[8].run().path("state/workers").join(&workers[8].id);
            fs::remove_file(&file).map_err(Error::io(&file, "remove"))?;
            let mut taken = race(&workers[..8], &key)?;
            assert_eq!(taken.len(), 1);
            assert!(matches!(lease.check(), Err(Error::Lost(_))));
            lease.release()?; // leaves the new holder's lease alone
            let new = taken.pop().ok_or(Error::Stopped)?;
            new.check()?;
            assert!(new.number > 0);
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            new.release()?;
            assert_eq!(race(&workers[..8], &key)?.len(), 1);
            workers[8] = Worker::join(&workers[0].run().clone(), &Stop::default())?;
        }
        let links = workers[0].run().list_tree("state/embed/leases")?;
        assert_eq!(links.len(), 60, "of each the dead process's, a free one and one that is held");
        Ok(())
    }
}
