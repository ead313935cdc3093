//! Rules for a document's text and URL that need no model: opt-outs ([`robots`]), personal data
//! ([`pii`]), decontamination ([`decontamination`]), licences, words and repetition ([`rules`]).

mod characters;
pub mod decontamination;
pub mod pii;
pub mod robots;
pub mod rules;
