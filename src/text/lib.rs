//! What a document's own text and URL say of it, without a model: whether a site consents ([`robots`]), personal data
//! ([`pii`]), text of benchmarks ([`decontamination`]), licences, words and repetition ([`rules`]).

pub mod decontamination;
pub mod pii;
pub mod robots;
pub mod rules;
