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
//!
//! ```
//! use polysift::config::RunConfig;
//! use polysift::encoder::HubSettings;
//! use polysift::evaluate::{DecisionRules, Setup, evaluate};
//! use polysift::input::{InputFile, SampleColumns};
//! use polysift::progress::{Silent, Stop};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("held.jsonl");
//! let line = |text, label| format!(r#"{{"text": "{text}", "label": "{label}"}}"#) + "\n";
//! std::fs::write(&file, line("every human right", "positive") + &line("buy cheap", "negative"))?;
//!
//! let head = "heads.ft = { kind = 'fasttext', path = 'tests/golden/fasttext/words.bin' }";
//! let config = RunConfig::from_toml(head, "run.toml")?;
//! let report = evaluate(&Setup {
//!     config: &config,
//!     heads: &config.heads,
//!     run: None,
//!     files: &[InputFile::at(&file, "held".into(), Some("eng_Latn".into()))?],
//!     columns: SampleColumns { label: "label", source: None, language: None },
//!     chunks_of_heads: true,
//!     rules: &DecisionRules::default(),
//!     bins: 10,
//!     top: "0.1".parse()?,
//!     hub: &HubSettings::from_env(|_| None),
//!     stop: &Stop::default(),
//!     progress: &Silent,
//! })?;
//! assert_eq!(report.heads.len(), 1); // ROC-AUC, calibration and decisions of the head
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
