//! Measures how well heads separate labelled texts and how far heads agree with each other.
//!
//! ```text
//!  labelled texts ──(tokenizer, encoder)──▶ embeddings ──each head──▶ scores ──▶ [`Report`]
//!  scores stored in a run ─────────────────sample──────────────────────────────▶ [`Pair`]s
//!                 └──────selections, weights of the texts──▶ [`SelectionShares`]
//!  documents ─────────(all steps above, thresholds, filters)───────────────────▶ [`Annotation`]s
//! ```
//!
//! A report is a few tables: lists of rows with fields that are the columns in print and the keys
//! in JSON. A label is true for the class with high scores: knowledge-rich for a quality head,
//! toxic for a toxicity head. NaN scores are counted and left out, but selections are estimated
//! with the texts that have no score, which no selection keeps. Undefined values (one class only,
//! nothing called positive) are `None`, `null` in JSON. This module trains nothing and writes
//! nothing.
//!
//! ```
//! use polysift_base::progress::{Silent, Stop};
//! use polysift_config::RunConfig;
//! use polysift_data::input::{InputFile, SampleColumns};
//! use polysift_encoder::HubSettings;
//! use polysift_views::evaluate::{Setup, evaluate};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("held.jsonl");
//! let line = |text, label| format!(r#"{{"text": "{text}", "label": "{label}"}}"#) + "\n";
//! std::fs::write(&file, line("every human right", "positive") + &line("buy cheap", "negative"))?;
//!
//! let head = "heads.ft = { kind = 'fasttext', path = '../../tests/golden/fasttext/words.bin' }";
//! let config = RunConfig::from_toml(head, "run.toml")?;
//! let report = evaluate(&Setup {
//!     config: &config,
//!     heads: &config.heads,
//!     run: None,
//!     files: &[InputFile::at(&file, "held".into(), Some("eng_Latn".into()))?],
//!     columns: SampleColumns { labels: vec!["label"], ..SampleColumns::default() },
//!     cuts: &[],
//!     chunks_of_heads: true,
//!     rules: &[],
//!     rates: &[],
//!     top: "0.1".parse()?,
//!     hub: &HubSettings::from_env(|_| None),
//!     stop: &Stop::default(),
//!     progress: &Silent,
//! })?;
//! assert_eq!(report.heads.len(), 1); // ROC-AUC and decisions of the head
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod annotate;
mod labelled;
mod report;
mod rules;
mod selections;
mod texts;

pub use agreement::{DEFAULT_SAMPLE, Pair, evaluate_run};
pub use annotate::{Annotation, Annotator, heads_of};
pub use labelled::{SOURCE, Setup, evaluate};
pub use report::{
    DataFile, EVERYTHING, EncoderUsed, GradeMeasures, HeadUsed, Measures, Report, RuleOutcome,
};
pub use rules::DecisionRule;
pub use selections::{SelectionShares, TextGroup};
pub use texts::TextScorer;
