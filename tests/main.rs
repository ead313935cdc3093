//! The fast integration tests, in one binary: each module is a way of using the library or the program. The slow ones
//! are in `slow.rs`.

#[allow(dead_code, reason = "the slow tests use the rest")]
mod util;

mod annotate;
mod bad_input;
mod cli;
mod cluster;
mod decontamination;
mod encoder;
mod export;
mod filters;
mod floors;
mod formats;
mod guards;
mod input;
mod inputs;
mod near;
mod packages;
mod pii;
mod pipeline;
mod report;
mod robots;
mod run;
mod samples;
mod selection;
mod settings;
mod trust;
mod variants;
