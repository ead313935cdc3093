//! Identity of a process: the facts in its file, by which others see whether it is alive.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use polysift_base::error::{Error, Result};

/// Environment variable: seconds without a heartbeat after which others consider a process dead.
pub(super) const LEASE_SECS: &str = "POLYSIFT_LEASE_SECS";
/// Default of [`LEASE_SECS`]: slow file systems show a new file to other machines late.
const DEFAULT_LEASE_SECS: u64 = 90;
const LEASE_SECS_RANGE: RangeInclusive<u64> = 1..=86_400;

/// Facts about a process, which it writes to its file at every heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize, Default)]
pub(super) struct Identity {
    pub(super) host: String,
    pub(super) pid: u32,
    /// Seconds without a heartbeat after which the process counts as dead, by its own setting.
    pub(super) ttl_secs: u64,
    /// Boot id and pid namespace; processes with equal values can look up each other's `pid`.
    pub(super) pid_space: Option<String>,
    /// Start of the process in clock ticks of its machine, since process ids are reused.
    pub(super) pid_began: Option<u64>,
    /// Slurm job id, and how often the job was requeued.
    pub(super) slurm: Option<(String, u32)>,
    pub(super) beats: u64,
    /// See [`LiveWorker::progress`](super::worker::LiveWorker::progress).
    pub(super) progress: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// Alive, or was within its time to live.
    Alive,
    Dead,
    /// Not known yet: the process has to be watched for longer.
    Unknown,
}

impl Identity {
    pub(super) fn of_this_process() -> Self {
        let pid = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").ok();
        let restarts =
            std::env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse().ok());
        Self {
            host: host(),
            pid,
            ttl_secs: DEFAULT_LEASE_SECS,
            pid_space: pid_space(),
            pid_began: began(pid),
            slurm: job.map(|job| (job, restarts.unwrap_or(0))),
            ..Self::default()
        }
    }

    /// Reads what a process wrote; one that wrote nothing readable is watched for the default time.
    pub(super) fn parse(content: &[u8]) -> Self {
        let first = serde_json::Deserializer::from_slice(content).into_iter().next();
        let unknown = || Self { ttl_secs: DEFAULT_LEASE_SECS, ..Self::default() };
        first.and_then(std::result::Result::ok).unwrap_or_else(unknown)
    }

    /// Returns `ttl_secs` as a duration, limited to the allowed range.
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_secs.clamp(*LEASE_SECS_RANGE.start(), *LEASE_SECS_RANGE.end()))
    }

    /// Returns what `other` can tell without watching. An existing process may still be stopped.
    pub(super) fn known_to(&self, other: &Self) -> Liveness {
        if self.pid_space.is_some() && self.pid_space == other.pid_space {
            let exists = self.pid_began.is_some() && began(self.pid) == self.pid_began;
            return if exists { Liveness::Alive } else { Liveness::Dead };
        }
        match (&self.slurm, &other.slurm) {
            (Some((job, before)), Some((own, now))) if job == own && before < now => Liveness::Dead,
            _ => Liveness::Unknown,
        }
    }
}

/// Parses the value of [`LEASE_SECS`]; [`Error::Config`] outside of its range.
pub(super) fn parse_lease_secs(text: &str) -> Result<u64> {
    let secs = text.trim().parse().ok().filter(|secs| LEASE_SECS_RANGE.contains(secs));
    secs.ok_or_else(|| {
        let (least, most) = (LEASE_SECS_RANGE.start(), LEASE_SECS_RANGE.end());
        let reason = format!("`{text}` is not a number of seconds from {least} to {most}");
        Error::config(LEASE_SECS, reason)
    })
}

/// Returns the name of this machine without dots, which separate the parts of a worker's name.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.trim().chars().filter(is_plain).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// Returns boot id and pid namespace; `None` if the system does not tell them in `/proc`.
fn pid_space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// Returns when process `pid` began, in clock ticks since boot; `None` if it is gone or a zombie.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold spaces, come the state and, 19 fields later, the start.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_that_is_none_is_refused_with_the_range() {
        for (text, secs) in [("1", 1), ("90", 90), (" 86400\n", 86_400)] {
            assert_eq!(parse_lease_secs(text).ok(), Some(secs));
        }
        for text in ["", "0", "-1", "1.5", "ninety", "86401", "18446744073709551616"] {
            let refused =
                parse_lease_secs(text).map_err(|error| (error.exit_code(), error.to_string()));
            assert!(refused.is_err_and(|(code, message)| {
                code == 2 && message.starts_with(LEASE_SECS) && message.contains("1 to 86400")
            }));
        }
    }
}
