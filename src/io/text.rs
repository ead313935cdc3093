//! Files of text that people write: settings, templates, tables.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

/// The text in `path`.
///
/// # Errors
/// [`Error::Missing`] where there is none; [`Error::Config`] for one that is not UTF-8; [`Error::Io`].
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::missing(path, "no such file"),
        _ => Error::io(path, "read")(e),
    })?;
    String::from_utf8(bytes).map_err(|e| {
        let right = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = right.split(|&byte| byte == b'\n').count();
        let reason = format!("is not UTF-8 in line {line}; save it as UTF-8");
        Error::config(path.display().to_string(), reason)
    })
}
