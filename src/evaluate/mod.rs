//! How well heads separate labelled texts, and how far heads agree with each other.
//!
//! ```text
//!  labelled texts ──(tokenizer, encoder)──▶ embeddings ──each head──▶ scores ──▶ [`Report`]
//!  scores stored in a run ─────────────────sample──────────────────────────────▶ [`StoredReport`]
//! ```
//!
//! A label is true for the class whose score is high: knowledge-rich for a quality head, toxic for
//! a toxicity head. NaN scores are counted and left out. What is undefined (one class only, nothing
//! called positive) is `None`, `null` in JSON. Nothing is trained here, and nothing is written.

mod agreement;
mod decisions;
mod judged;
mod labelled;
mod report;
mod stored;

pub use agreement::{Agreement, MeanPair, Pair};
pub use decisions::DecisionRules;
pub use labelled::{Setup, evaluate};
pub use report::{
    Calibration, DataFile, Decision, EncoderUsed, Group, HeadReport, LanguageReport, LengthGroup,
    Means, Measures, Report,
};
pub use stored::{DEFAULT_SAMPLE, StoredHead, StoredLanguage, StoredReport, evaluate_run};

/// Edges of the length buckets, in characters (Unicode scalar values) of the text: a bucket runs
/// from its lower edge, included, to the next.
pub const LENGTH_EDGES: [usize; 6] = [0, 100, 300, 1000, 3000, 10_000];

/// Bins of the reliability table.
pub const DEFAULT_BINS: usize = 10;
