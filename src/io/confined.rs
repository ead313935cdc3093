//! Run directories that may come from strangers: no symbolic link in one leads out of it.
//!
//! Owns the list of directories that this process works in. Does not watch them: whoever may write into
//! one while a process works in it is trusted (SECURITY.md), so a path is checked when it is used.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::panics::lock;

/// Directories that [`confine`] was called with.
static CONFINED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// From now on [`check_confined`] refuses links below `root`, which may be one itself.
///
/// # Errors
/// [`Error::Corrupt`] where an entry of `root` is a link, or neither file nor directory; [`Error::Io`].
pub(crate) fn confine(root: &Path) -> Result<()> {
    lock(&CONFINED).insert(root.to_owned());
    let entries = fs::read_dir(root).map_err(Error::io(root, "list"))?;
    for entry in entries {
        check_entry(&entry.map_err(Error::io(root, "list"))?.path())?;
    }
    Ok(())
}

/// Refuses `path` where it, or a directory on the way to it from one of [`confine`], is a symbolic link, or
/// neither file nor directory (a pipe would be waited for); what is not there is no link.
///
/// # Errors
/// [`Error::Corrupt`]; [`Error::Io`].
pub(crate) fn check_confined(path: &Path) -> Result<()> {
    let confined = lock(&CONFINED);
    let roots = path.ancestors().enumerate().filter(|(_, folder)| confined.contains(*folder));
    let depth = roots.map(|(depth, _)| depth).last().unwrap_or(0);
    drop(confined);
    let below: Vec<&Path> = path.ancestors().take(depth).collect();
    below.into_iter().rev().try_for_each(check_entry)
}

fn check_entry(path: &Path) -> Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(Error::io(path, "inspect")(error)),
    };
    let reason = if kind.is_symlink() {
        "is a symbolic link, which is not followed in a run directory"
    } else if kind.is_file() || kind.is_dir() {
        return Ok(());
    } else {
        "is neither a file nor a directory"
    };
    Err(Error::corrupt(path, reason))
}
