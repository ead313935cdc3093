//! Documents on disk: readers of the input ([`input`]), the files that a run keeps of documents ([`parts`]), and the
//! writer of exported shards ([`export`]).

pub mod export;
pub mod input;
pub mod parts;
