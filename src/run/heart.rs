//! The heart of a process: a thread that lets its file grow, so that others see it live.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::panics::{lock, unpoisoned};

/// Beats in the time to live.
const BEATS: u32 = 6;

/// The thread.
#[derive(Debug)]
pub(super) struct Heart {
    stopped: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// Lets `path` grow often enough in every `ttl`.
    pub(super) fn start(path: PathBuf, ttl: Duration) -> Self {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let (seen, every) = (Arc::clone(&stopped), ttl / BEATS);
        let thread = std::thread::spawn(move || {
            let (stopped, condition) = &*seen;
            let mut guard = lock(stopped);
            while !*guard {
                let waited = condition.wait_timeout(guard, every);
                guard = unpoisoned(waited).0;
                if !*guard && let Err(error) = beat(&path) {
                    tracing::warn!(path = %path.display(), %error, "the heartbeat cannot be written");
                }
            }
        });
        Self { stopped, thread: Some(thread) }
    }

    pub(super) fn stop(mut self) {
        *lock(&self.stopped.0) = true;
        self.stopped.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it only writes a byte
        }
    }
}

/// Lets the file grow.
pub(super) fn beat(path: &Path) -> std::io::Result<()> {
    File::options().append(true).open(path)?.write_all(b".")
}
