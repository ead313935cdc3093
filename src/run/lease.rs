//! Leases: which process has an item of work in its hands.
//!
//! A lease is a symbolic link `state/<stage>/leases/<key>.<n>` to the id of its holder: made in one
//! step that fails where there is one, on every file system, and read in one. A lease whose holder is
//! dead is not removed but followed by one with the next `n`, so that of several processes that find
//! it dead, one takes it over.
//!
//! Leases keep two processes from doing the same work; what they write would be right without them,
//! since an item of work has one result, and appears whole.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::identity::Liveness;
use super::worker::{Worker, gone};
use super::{RunDir, Stage};
use crate::error::{Error, Result};

/// Holder of a lease that was let go; no process has this id.
const NOBODY: &str = "nobody";

/// An item of work that this process holds.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Without the number.
    base: PathBuf,
    number: u32,
    holder: String,
}

/// What came of asking for a lease.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is this process's.
    Granted(Lease),
    /// Another process has it, or this one has it already.
    Held(Holder),
}

/// The process that has an item of work.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) id: String,
    pub(crate) liveness: Liveness,
    /// When it got hold of it, by the clock of the file system.
    pub(crate) since: Option<SystemTime>,
}

impl Lease {
    /// Asks for the item of work `key` of `stage`.
    pub(crate) fn ask(worker: &Worker, stage: Stage, key: &str) -> Result<Asked> {
        let base = worker.run().lease_base(stage, key);
        let directory = base.parent().unwrap_or(&base);
        let mut number = 0;
        loop {
            let path = numbered(&base, number);
            match fs::read_link(&path) {
                Ok(holder) => {
                    let id = holder.to_string_lossy().into_owned();
                    let liveness = worker.liveness(&id);
                    // A dead holder's lease may have been taken over since.
                    if liveness == Liveness::Dead || exists(&numbered(&base, number + 1)) {
                        number += 1;
                        continue;
                    }
                    let since = fs::symlink_metadata(&path).and_then(|link| link.modified()).ok();
                    return Ok(Asked::Held(Holder { id, liveness, since }));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    match std::os::unix::fs::symlink(worker.id(), &path) {
                        Ok(()) => {
                            let holder = worker.id().to_owned();
                            return Ok(Asked::Granted(Self { base, number, holder }));
                        }
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                        Err(error) if error.kind() == ErrorKind::NotFound => {
                            fs::create_dir_all(directory)
                                .map_err(Error::io(directory, "create directory"))?;
                        }
                        Err(error) => return Err(Error::io(&path, "create")(error)),
                    }
                }
                Err(error) => return Err(Error::io(&path, "read")(error)),
            }
        }
    }

    /// Whether it was another process's before, which left things half done.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.number > 0
    }

    /// [`Error::Lost`] if another process took it over, having taken this one for dead.
    pub(crate) fn check(&self) -> Result<()> {
        let path = numbered(&self.base, self.number);
        let own = fs::read_link(&path).is_ok_and(|holder| holder == Path::new(&self.holder));
        if own && !exists(&numbered(&self.base, self.number + 1)) {
            return Ok(());
        }
        Err(Error::Lost { path: self.base.clone() })
    }

    /// Lets go.
    pub(crate) fn release(self) -> Result<()> {
        if self.check().is_err() {
            return Ok(()); // another process's now
        }
        let path = numbered(&self.base, self.number);
        if self.number == 0 {
            return fs::remove_file(&path).or_else(gone).map_err(Error::io(&path, "remove"));
        }
        // Numbers have to go on: it stays, in nobody's hands.
        let free = path.with_file_name(format!(".{}.free", self.holder));
        std::os::unix::fs::symlink(NOBODY, &free).map_err(Error::io(&path, "release"))?;
        fs::rename(&free, &path).map_err(Error::io(&path, "release"))
    }
}

impl RunDir {
    /// Keys of `stage` that have leases, of live and of dead processes, with the number of the last one.
    pub(crate) fn leased(&self, stage: Stage) -> Result<BTreeMap<String, u32>> {
        let mut keys: BTreeMap<String, u32> = BTreeMap::new();
        for name in self.tree(&format!("state/{}/leases", stage.name()))? {
            let Some((key, number)) = name.rsplit_once('.') else { continue };
            let Ok(number) = number.parse() else { continue };
            let last = keys.entry(key.to_owned()).or_insert(number);
            *last = number.max(*last);
        }
        Ok(keys)
    }

    /// Items of `stage` that processes hold which are not dead, as far as `worker` knows.
    pub(crate) fn num_held(&self, stage: Stage, worker: &Worker) -> Result<usize> {
        let mut are_dead: HashMap<PathBuf, bool> = HashMap::new();
        let mut is_held = |(key, number): &(String, u32)| {
            let lease = numbered(&self.lease_base(stage, key), *number);
            let Ok(holder) = fs::read_link(lease) else { return false };
            let is_dead = |id: &PathBuf| worker.liveness(&id.to_string_lossy()) == Liveness::Dead;
            !*are_dead.entry(holder).or_insert_with_key(is_dead)
        };
        Ok(self.leased(stage)?.into_iter().filter(|lease| is_held(lease)).count())
    }

    /// The leases of `key` without their numbers.
    fn lease_base(&self, stage: Stage, key: &str) -> PathBuf {
        self.path("state").join(stage.name()).join("leases").join(key)
    }
}

fn numbered(base: &Path, number: u32) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

fn exists(link: &Path) -> bool {
    fs::symlink_metadata(link).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Stop;

    fn workers<const N: usize>() -> Result<(tempfile::TempDir, [Worker; N])> {
        let (dir, run) = RunDir::temporary()?;
        let workers: Vec<Worker> =
            (0..N).map(|_| Worker::join(&run, &Stop::default())).collect::<Result<_>>()?;
        let workers = workers.try_into().map_err(|_| Error::Stopped)?;
        Ok((dir, workers))
    }

    fn granted(asked: Asked) -> Option<Lease> {
        match asked {
            Asked::Granted(lease) => Some(lease),
            Asked::Held(_) => None,
        }
    }

    /// Lets all of `workers` ask at once, again and again; who got it.
    fn race(workers: &[Worker], key: &str) -> Result<Vec<Lease>> {
        let all: Vec<Result<Asked>> = std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter()
                .map(|worker| scope.spawn(move || Lease::ask(worker, Stage::Embed, key)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err(Error::Stopped))).collect()
        });
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.into_iter().filter_map(granted).collect())
    }

    #[test]
    fn of_processes_that_ask_at_once_one_is_granted_the_lease() -> Result<()> {
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
            let asked = granted(Lease::ask(&workers[8], Stage::Embed, &key)?);
            let lease = asked.ok_or(Error::Stopped)?;
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            // Its file is gone, as if it had ended; it does not know that yet.
            let file = workers[8].run().path("state/workers").join(workers[8].id());
            fs::remove_file(&file).map_err(Error::io(&file, "remove"))?;
            let mut taken = race(&workers[..8], &key)?;
            assert_eq!(taken.len(), 1);
            assert!(matches!(lease.check(), Err(Error::Lost { .. })));
            lease.release()?; // touches nothing of the new holder's
            let new = taken.pop().ok_or(Error::Stopped)?;
            new.check()?;
            assert!(new.is_taken_over());
            assert_eq!(race(&workers[..8], &key)?.len(), 0);
            new.release()?;
            assert_eq!(race(&workers[..8], &key)?.len(), 1);
            workers[8] = Worker::join(&workers[0].run().clone(), &Stop::default())?;
        }
        assert_eq!(workers[0].run().leased(Stage::Embed)?.len(), 20);
        Ok(())
    }
}
