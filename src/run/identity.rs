//! Who a process is, and what that alone tells of whether it is alive.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Environment variable: seconds without a beat after which others take a process for dead.
const LEASE_SECS: &str = "POLYSIFT_LEASE_SECS";
/// Its default. Slow file systems show a file's growth to other machines only after some seconds.
pub(super) const DEFAULT_LEASE_SECS: u64 = 90;
/// What it may be.
const LEASE_SECS_RANGE: RangeInclusive<u64> = 1..=86_400;

/// Who a process is, as others may check it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Seconds without a beat after which it is dead, as it says itself.
    pub ttl_secs: u64,
    /// Boot of the machine and space of process ids; equal where `pid` can be looked up.
    pub(super) pid_space: Option<String>,
    /// When the process began, in the clock ticks of its machine; ids are given again.
    pub(super) pid_began: Option<u64>,
    /// Slurm job and how often it was requeued.
    pub(super) slurm: Option<(String, u32)>,
}

/// Whether a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does, or did within its time to live.
    Alive,
    /// It does not.
    Dead,
    /// It has to be watched.
    Unknown,
}

impl Identity {
    pub(super) fn of_this_process(ttl_secs: u64) -> Self {
        let pid = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").ok();
        let restarts = std::env::var("SLURM_RESTART_COUNT").ok();
        Self {
            host: host(),
            pid,
            ttl_secs,
            pid_space: pid_space(),
            pid_began: began(pid),
            slurm: job.map(|job| (job, restarts.and_then(|n| n.parse().ok()).unwrap_or(0))),
        }
    }

    /// Time without a beat after which it is dead; what its file says is not believed beyond the range.
    pub(super) fn ttl(&self) -> Duration {
        let (least, most) = (*LEASE_SECS_RANGE.start(), *LEASE_SECS_RANGE.end());
        Duration::from_secs(self.ttl_secs.clamp(least, most))
    }

    /// What can be told without waiting; that it lives does not say that its heart beats.
    pub(super) fn known_to(&self, other: &Self) -> Liveness {
        if self.pid_space.is_some() && self.pid_space == other.pid_space {
            let lives = self.pid_began.is_some() && began(self.pid) == self.pid_began;
            return if lives { Liveness::Alive } else { Liveness::Dead };
        }
        match (&self.slurm, &other.slurm) {
            (Some((job, before)), Some((own, now))) if job == own && before < now => Liveness::Dead,
            _ => Liveness::Unknown,
        }
    }

    /// Of one that was not written to its end yet, or by a process that was killed there.
    pub(super) fn unknown() -> Self {
        Self {
            host: String::new(),
            pid: 0,
            ttl_secs: DEFAULT_LEASE_SECS,
            pid_space: None,
            pid_began: None,
            slurm: None,
        }
    }
}

/// The time to live that the environment asks for.
pub(super) fn lease_secs() -> Result<u64> {
    let text = std::env::var_os(LEASE_SECS).map(|text| text.to_string_lossy().into_owned());
    text.map_or(Ok(DEFAULT_LEASE_SECS), |text| lease_secs_of(&text))
}

fn lease_secs_of(text: &str) -> Result<u64> {
    let secs = text.trim().parse().ok().filter(|secs| LEASE_SECS_RANGE.contains(secs));
    secs.ok_or_else(|| {
        let (least, most) = (LEASE_SECS_RANGE.start(), LEASE_SECS_RANGE.end());
        let reason = format!("`{text}` is not a number of seconds from {least} to {most}");
        Error::config(LEASE_SECS, reason)
    })
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.trim().chars().filter(is_plain).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

fn pid_space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// When the process `pid` of this machine began; `None` if there is none or it only waits to be reaped.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; after it come the state and, 19 fields on, the start.
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
            assert_eq!(lease_secs_of(text).ok(), Some(secs));
        }
        for text in ["", "0", "-1", "1.5", "ninety", "86401", "18446744073709551616"] {
            let refused =
                lease_secs_of(text).map_err(|error| (error.exit_code(), error.to_string()));
            assert!(refused.is_err_and(|(code, message)| {
                code == 2 && message.starts_with(LEASE_SECS) && message.contains("1 to 86400")
            }));
        }
    }
}
