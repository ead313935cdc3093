//! Many processes on one run directory: which part each takes first, and what schedulers start them with.
//!
//! Knows nothing of shards, leases or markers; those are [`crate::run`]'s.

mod requeue;
pub mod slurm;
mod task;
mod work;

pub use requeue::Requeue;
pub use slurm::shell_quoted;
pub use task::Task;
pub use work::{Needs, StageTasks, array_expression};
