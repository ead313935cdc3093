//! Who a process is, and what that alone tells of whether it is alive.

use std::fs;

use serde::{Deserialize, Serialize};

/// Environment variable: seconds without a beat after which others take a process for dead.
const LEASE_SECS: &str = "POLYSIFT_LEASE_SECS";
/// Its default. Slow file systems show a file's growth to other machines only after some seconds.
const DEFAULT_LEASE_SECS: u64 = 90;
/// Who a process is, as others may check it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Seconds without a beat after which it is dead.
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
    pub(super) fn of_this_process() -> Self {
        let ttl = std::env::var(LEASE_SECS).ok().and_then(|secs| secs.parse().ok());
        let pid = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").ok();
        let restarts = std::env::var("SLURM_RESTART_COUNT").ok();
        Self {
            host: host(),
            pid,
            ttl_secs: ttl.unwrap_or(DEFAULT_LEASE_SECS).max(1),
            pid_space: pid_space(),
            pid_began: began(pid),
            slurm: job.map(|job| (job, restarts.and_then(|n| n.parse().ok()).unwrap_or(0))),
        }
    }

    /// What can be told without waiting.
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
