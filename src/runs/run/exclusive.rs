//! How a process joins a run directory, and how one of them has it for itself.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::dir::{RunDir, Stage};
use super::heartbeat::keep_alive;
use super::identity::{Identity, LEASE_SECS, Liveness, parse_lease_secs};
use super::lease::SHARED;
use super::worker::{EXCLUSIVE, POLL, WORKERS, Worker};
use polysift_base::error::{Error, Result};
use polysift_base::io::{remove_temporaries, remove_while, unlink, write_atomic};
use polysift_base::progress::Stop;

/// Returns [`Error::Lost`] if others took this process for dead; it is called before each removal.
pub type Held<'a> = &'a dyn Fn() -> Result<()>;

/// Time within which an arriving process sees that the directory is taken.
const ARRIVAL: Duration = Duration::from_secs(3);

impl Worker {
    /// Registers this process in `run`; waits while another one has exclusive access.
    pub fn join(run: &RunDir, stop: &Stop) -> Result<Self> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut worker = Self::observer(run);
        if let Some(text) = std::env::var_os(LEASE_SECS) {
            worker.identity.ttl_secs = parse_lease_secs(&text.to_string_lossy())?;
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
        // This thread writes the worker's file again and again.
        let (file, own, note) =
            (worker.worker_file(&worker.id), worker.identity.clone(), worker.note());
        let (sender, stopped) = channel();
        let stop = stop.clone();
        let thread = std::thread::spawn(move || keep_alive(&file, own, &note, &stopped, &stop));
        worker.heartbeat = Some((sender, thread));
        Ok(worker)
    }

    /// Runs `work` while no other process is in the directory or joins it; else [`Error::Busy`].
    pub fn exclusive<T>(&self, stop: &Stop, work: impl FnOnce(Held<'_>) -> Result<T>) -> Result<T> {
        let claim = self.run().path(EXCLUSIVE).join(&self.id);
        write_atomic(&claim, b"")?;
        let own = self.worker_file(&self.id);
        let held = || {
            if own.exists() { Ok(()) } else { Err(Error::Lost(self.run().root().into())) }
        };
        let outcome = self.wait_for_others(stop).and_then(|()| work(&held));
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
                return Err(Error::Busy(self.run().root().to_owned()));
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
            let known = self
                .read_worker(id)
                .map(|content| Identity::parse(&content).known_to(&self.identity));
            known == Some(Liveness::Alive) || self.liveness(id) != Liveness::Dead
        });
        Ok(ids)
    }

    /// Removes what killed processes left in the run and among `outputs`, unless others work.
    pub fn clean_up(&self, stop: &Stop, outputs: Option<&Path>) -> Result<()> {
        if !self.ids_in(WORKERS)?.iter().all(|id| self.liveness(id) == Liveness::Dead) {
            return Ok(());
        }
        let outcome = self.exclusive(stop, |held| {
            for stage in Stage::ALL {
                remove_while(&self.run().leases_folder(stage), held)?;
            }
            remove_while(&self.run().path(SHARED), held)?;
            remove_temporaries(self.run().root(), true)?;
            if let Some(folder) = outputs {
                remove_temporaries(folder, false)?;
            }
            Ok(())
        });
        match outcome {
            Err(Error::Busy(_)) => Ok(()), // another process joined meanwhile
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_base::io::write_json;

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
        first.clean_up(&Stop::default(), None)?;
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
                    removed += remove_temporaries(run.root(), true)?;
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
    fn one_process_only_has_the_directory_for_itself() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let stop = Stop::default();
        let first = Worker::join(&run, &stop)?;
        let second = Worker::join(&run, &stop)?;
        let refused = first.exclusive(&stop, |_| Ok(()));
        assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
        drop(second);
        first.exclusive(&stop, |_| {
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
        write_json(&worker.worker_file("killed"), &killed)?;
        write_atomic(&run.path(EXCLUSIVE).join("killed"), b"")?;
        drop(Worker::join(&run, &stop)?); // it does not wait for the dead
        worker.clean_up(&stop, None)?;
        assert_eq!(run.list_tree("state")?, [format!("workers/{}", worker.id)]);
        worker.exclusive(&stop, |_| Ok(()))
    }

    #[test]
    fn a_process_that_was_taken_for_dead_removes_nothing_more() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        let outputs = ["a", "b"].map(|name| run.path("scores").join(name));
        outputs.iter().try_for_each(|path| write_atomic(path, b"").map(drop))?;
        let lost = worker.exclusive(&Stop::default(), |held| {
            remove_while(&outputs[0], held)?;
            worker.forget(&worker.id)?; // as another process does
            run.discard_from(Stage::Score, held)
        });
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
        assert_eq!(outputs.map(|path| path.exists()), [false, true]);
        Ok(())
    }

    #[test]
    fn of_processes_that_want_the_directory_at_once_the_first_gets_it() -> Result<()> {
        let (_dir, workers) = Worker::several::<4>()?;
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            // One that is refused ends.
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || worker.exclusive(&Stop::default(), |_| Ok(()))))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err(Error::Stopped))).collect()
        });
        let refused = outcomes.iter().filter(|it| matches!(it, Err(Error::Busy(_))));
        assert_eq!((refused.count(), outcomes.iter().filter(|it| it.is_ok()).count()), (3, 1));
        Ok(())
    }
}
