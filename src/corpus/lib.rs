//! A run as data: everything that is known of its documents, read in one way.
//!
//! ```text
//!  plan, markers ──▶ embedded ─┐
//!  scores ──▶ scan ────────────┼──▶ select: thresholds of a language, with the audit of a cascade
//!  cascade ──▶ cascaded ───────┤
//!  verdicts of filters ────────┴──▶ rows: what became of each document
//! ```
//!
//! Stages (`polysift_stages`) write a run, views (`polysift_views`) read it, both with a
//! [`Context`] and with the readers of this crate.

pub mod audit;
pub mod cascaded;
pub mod context;
pub mod embedded;
pub mod filter;
pub mod frozen;
pub mod heads;
pub mod language_groups;
pub mod languages;
pub mod left_out;
pub mod mixed;
pub mod model;
pub mod plan;
pub mod refinement;
pub mod rows;
pub mod scan;
pub mod score_files;
pub mod select;
pub mod texts;
pub mod training;
pub mod verdicts;
pub mod work;

pub use cascaded::Cascade;
pub use context::Context;
pub use embedded::Embedded;
pub use frozen::{FrozenEmbeddings, FrozenEncoder};
pub use heads::Heads;
pub use rows::RunRows;
pub use score_files::ScoreFiles;
pub use texts::Texts;
pub use work::StageWork;
