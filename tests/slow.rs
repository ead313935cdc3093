//! The slow integration tests (`make test-all`): processes that are killed at every write, faults of files and lines,
//! trainings, the commands of the guide, GPUs.

#[allow(dead_code, reason = "the fast tests use the rest")]
mod util;

mod card;
mod cascade;
mod cuda;
mod damage;
mod dataset;
mod device;
mod docs;
mod evaluate;
mod fasttext;
mod fuzz;
mod heads;
mod hub;
mod leases;
mod mix;
mod processes;
mod ranges;
mod recipes;
mod refine;
mod remote;
mod resume;
mod rows;
mod sampling;
mod soak;
mod story;
mod tokenizer;
