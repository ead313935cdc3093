//! `--shard` and `--num-shards`, for every command that does its part of a run.

use clap::Args;

use polysift::Result;
use polysift::cluster::Share;

/// Which shards of the plan this process takes first.
#[derive(Debug, Clone, Copy, Args, Default)]
pub(crate) struct ShareArgs {
    /// Take this share of the shards first, counted from 0 [default: POLYSIFT_SHARD, or the index that
    /// Slurm, Kubernetes or AWS Batch gives to a task]
    #[arg(long, value_name = "I", help_heading = "Many machines")]
    pub(crate) shard: Option<u32>,
    /// Number of shares; it may differ from attempt to attempt [default: POLYSIFT_NUM_SHARDS, or the number
    /// of tasks that the scheduler gives]
    #[arg(long, value_name = "N", help_heading = "Many machines")]
    pub(crate) num_shards: Option<u32>,
}

impl ShareArgs {
    /// The share of this process, `None` where it takes everything.
    pub(crate) fn share(self) -> Result<Option<Share>> {
        Share::resolve(self.shard, self.num_shards, |name| std::env::var(name).ok())
    }
}
