//! Integration tests, in one binary: each module is a way of using the library or the program.

mod util;

mod bad_input;
mod cli;
mod cluster;
mod cuda;
mod damage;
mod dataset;
mod device;
mod docs;
mod encoder;
mod evaluate;
mod export;
mod fasttext;
mod floors;
mod fuzz;
mod guards;
mod heads;
mod hub;
mod input;
mod inputs;
mod leases;
mod packages;
mod pipeline;
mod processes;
mod ranges;
mod refine;
mod remote;
mod resume;
mod rows;
mod run;
mod samples;
mod sampling;
mod selection;
mod tokenizer;
mod variants;
