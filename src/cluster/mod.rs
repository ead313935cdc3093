//! Many processes on one run directory: which part each takes first, and what schedulers start them with.
//!
//! Knows nothing of shards, leases or markers; those are [`crate::run`]'s.

mod array;
pub mod kubernetes;
mod requeue;
mod share;
pub mod slurm;

pub use array::{array_expression, array_ids};
pub use requeue::{REQUEUE_VARIABLE, Requeue};
pub use share::Share;
