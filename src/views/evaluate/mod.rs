//! Measures how well heads separate labelled texts and how far heads agree with each other.
//!
//! ```text
//!  labelled texts ──(tokenizer, encoder)──▶ embeddings ──each head──▶ scores ──▶ [`Report`]
//!  scores stored in a run ─────────────────sample──────────────────────────────▶ [`Pair`]s
//!                 └──────selections, weights of the texts──▶ shares of selections
//!  documents ─────────(all steps above, thresholds, filters)───────────────────▶ [`Annotation`]s
//! ```
//!
//! A report is a few tables: lists of rows with fields that are the columns in print and the keys
//! in JSON. A label is true for the class with high scores: knowledge-rich for a quality head,
//! toxic for a toxicity head. NaN scores are counted and left out, but selections are estimated
//! with the texts that have no score, which no selection keeps. Undefined values (one class only,
//! nothing called positive) are `null` in JSON. This module trains nothing and writes nothing.

mod agreement;
mod annotate;
mod labelled;
mod report;
mod rules;
mod selections;
mod texts;

pub use agreement::{DEFAULT_SAMPLE, Pair, evaluate_run};
pub use annotate::{Annotation, Annotator, find_heads};
pub use labelled::{SOURCE, Setup, evaluate};
pub use report::{EVERYTHING, Report};
pub use rules::DecisionRule;
pub use texts::TextScorer;
