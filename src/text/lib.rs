//! Rules on the text and the URL of a document, which need no model: consent of its site ([`robots`]), personal data
//! ([`pii`]), text of benchmarks ([`decontamination`]), licences, words and repetition ([`rules`]).

pub mod decontamination;
pub mod pii;
pub mod robots;
pub mod rules;
