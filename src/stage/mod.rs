//! The stages of the job, each a function over a [`Context`] that may be killed and called again.
//!
//! A stage freezes what it depends on and does the items that have no marker yet and that no other
//! process holds. An item whose data is bad is reported and skipped; the others are done.
//!
//! Stages (`embed`, `train`, `score`, `refine`, `threshold`, `export`) and commands (`plan`, `status`,
//! `estimate`, `inspect`, `verify`) stand on what they share: `context`, the `model`, the
//! `embedded` corpus, the `heads`, the scores of the `corpus`, the items of `work` and the
//! `texts` of the input. No stage uses another.

pub(crate) mod context;
pub(crate) mod corpus;
pub mod embed;
pub(crate) mod embedded;
pub mod estimate;
pub mod export;
pub(crate) mod heads;
pub mod inputs;
pub mod inspect;
pub(crate) mod model;
pub mod plan;
pub mod refine;
pub mod score;
pub mod status;
mod texts;
pub mod threshold;
pub mod train;
pub mod verify;
mod work;

pub use context::{ALL_LANGUAGES, Context};
pub use heads::{Heads, check_files};
