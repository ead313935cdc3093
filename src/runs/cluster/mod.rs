//! Many processes on one run directory: their shares of the work, and their schedulers.
//!
//! This module does not know shards, leases or markers; [`crate::run`] does.

mod requeue;
pub mod slurm;
mod task;
mod work;

pub use requeue::Requeue;
pub use slurm::shell_quoted;
pub use task::Task;
pub use work::array_expression;
