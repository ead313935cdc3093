//! The stages of a run. A stage is a function over a [`Context`](polysift_corpus::Context) that may
//! be killed and called again. It freezes the settings that it depends on, then does the units of
//! work that have no marker and that no other process holds. A unit with bad data is reported and
//! skipped. No stage uses another; `run` checks their inputs and runs them in order.

pub mod cascade;
pub mod deduplicate;
mod draw;
pub mod embed;
pub mod export;
pub mod filter;
mod filter_counts;
mod inputs;
pub mod refine;
pub mod run;
mod samples;
pub mod score;
pub mod threshold;
pub mod train;
