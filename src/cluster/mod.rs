//! Many processes on one run directory: which part each takes first, and what schedulers start them with.
//!
//! Knows nothing of shards, leases or markers; those are [`crate::run`]'s.
//!
//! ```
//! use polysift::cluster::{array_expression, array_ids};
//!
//! assert_eq!(array_expression(&[0, 4, 5, 6, 9]), "0,4-6,9");
//! ```

mod array;
mod per_stage;
mod requeue;
pub mod slurm;
mod task;
mod work;

pub use array::{array_expression, array_ids};
pub use per_stage::PerStage;
pub use requeue::Requeue;
pub use slurm::shell_quoted;
pub use task::Task;
pub use work::{Needs, StageTasks};
