//! Heartbeats: how a process writes its own, and tells from those of others whether they live.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::identity::{Identity, Liveness};
use super::worker::{Observation, ProgressNote, Worker};
use polysift_base::io::write_json;
use polysift_base::panics::lock;
use polysift_base::progress::Stop;

/// Heartbeats per time to live.
const BEATS: u32 = 6;
/// A process is dead if its file is older than its time to live by this; clocks differ less.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Signal that a process reports when it stops because another one has the directory.
const SIGTERM: i32 = 15;

/// Writes the `file` of the process `own` again and again, with the progress that is in `note`,
/// until the other end of `stopped` is dropped. If the file is gone, another process has the
/// directory: this one is asked to stop, since a transfer would replace what the other one wrote.
pub(super) fn keep_alive(
    file: &Path,
    mut own: Identity,
    note: &ProgressNote,
    stopped: &Receiver<()>,
    stop: &Stop,
) {
    while stopped.recv_timeout(own.ttl() / BEATS) == Err(RecvTimeoutError::Timeout) {
        if matches!(file.try_exists(), Ok(false)) {
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

impl Worker {
    /// Returns whether the process `id` is alive, as far as known, and remembers what it wrote.
    pub(super) fn liveness(&self, id: &str) -> Liveness {
        if id == self.id {
            return Liveness::Alive;
        }
        let Some(content) = self.read_worker(id) else { return Liveness::Dead };
        let (file, identity) = (self.worker_file(id), Identity::parse(&content));
        let (known, ttl) = (identity.known_to(&self.identity), identity.ttl());
        let modified = fs::metadata(&file).and_then(|found| found.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        let is_older = |limit| age.is_some_and(|age| age > limit);
        if known == Liveness::Dead || known == Liveness::Unknown && is_older(ttl + CLOCK_SKEW) {
            return Liveness::Dead;
        }
        // A process of this machine without a heartbeat may be stopped.
        let is_well = known == Liveness::Alive && !is_older(ttl);
        let mut observations = lock(&self.observations);
        let seen = Observation { content, since: Instant::now(), has_changed: false };
        let observed = observations.entry(file).or_insert_with(|| seen.clone());
        if observed.content != seen.content {
            *observed = Observation { has_changed: true, ..seen };
        }
        match (observed.since.elapsed() > ttl, observed.has_changed || is_well) {
            (true, _) => Liveness::Dead,
            (false, true) => Liveness::Alive,
            (false, false) => Liveness::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use serde_json::Value;

    use super::super::dir::RunDir;
    use super::super::worker::{POLL, WORKERS};
    use super::*;
    use polysift_base::error::{Error, Result};
    use polysift_base::io::read;

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
    fn a_process_of_this_machine_that_was_killed_is_dead_at_once() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let worker = Worker::join(&run, &Stop::default())?;
        let mut killed = worker.identity.clone();
        killed.pid_began = killed.pid_began.map(|ticks| ticks - 1); // its process id was reused
        write_json(&worker.worker_file("killed"), &killed)?;
        assert_eq!(worker.liveness("killed"), Liveness::Dead);
        assert!(worker.live()?.is_empty());
        Ok(())
    }

    /// Writes the file `path` of a process as its next heartbeat would, with `progress`.
    fn beat(path: &Path, progress: Option<Value>) -> Result<()> {
        let own = Identity::parse(&read(path)?);
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
        let path = worker.worker_file("stopped");
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
        let before = Identity::parse(&read(&path)?);
        write_json(&path, &Identity { slurm: Some(("17".into(), 0)), ..before })?;
        assert_eq!(worker.liveness("before"), Liveness::Unknown);
        worker.identity.slurm = Some(("17".into(), 1));
        assert_eq!(worker.liveness("before"), Liveness::Dead);
        worker.identity.slurm = Some(("18".into(), 1));
        assert_eq!(worker.liveness("before"), Liveness::Unknown);
        Ok(())
    }
}
