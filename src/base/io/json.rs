//! Reads and writes JSON files.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::atomic::{FileStamp, write_atomic};
use super::confined::{if_there, read};
use crate::error::{Error, Result};

/// Reads the JSON file `path`, which messages call `format`; returns `None` if it does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path, format: &'static str) -> Result<Option<T>> {
    let Some(bytes) = if_there(read(path))? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::decode(path, format, e))
}

/// Writes `value` as indented JSON, whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<FileStamp> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| Error::write(path, e))?;
    bytes.push(b'\n');
    write_atomic(path, &bytes)
}
