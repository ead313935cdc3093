//! Run directories and the processes that work on them ([`run`]), and job schedulers ([`cluster`]).

pub mod cluster;
pub mod run;
