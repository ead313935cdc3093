//! The run directory and the processes on it ([`run`]), and the schedulers that start them ([`cluster`]).

pub mod cluster;
pub mod run;
