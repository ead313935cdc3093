//! Documents on disk: readers of the input ([`input`]), the part files of a run ([`parts`]), and
//! the writer of exported shards ([`export`]).

pub mod export;
pub mod input;
pub mod parts;
