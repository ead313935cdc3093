//! The stages of a run, its filters, and evaluation.

pub mod evaluate;
pub mod filter;
pub mod stage;
