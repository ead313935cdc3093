//! Files and folders by their paths. Run directories may come from strangers: no symbolic link in one leads out of
//! it, and what is no file is not opened.
//!
//! Owns the list of directories that this process works in. Does not watch them: whoever may write into
//! one while a process works in it is trusted (SECURITY.md), so a path is checked when it is used. Whatever is
//! opened, listed, made, renamed or removed in a run directory goes through here and `atomic`.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File, FileType};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::panics::lock;
use crate::progress::Stop;

/// Directories that [`confine`] was called with.
static CONFINED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Paths under which a shell hands over a pipe that has a writer (`<(...)`), and the empty device.
const HANDED_OVER: [&str; 4] = ["/dev/fd", "/proc/self/fd", "/dev/stdin", "/dev/null"];

/// From now on [`check_confined`] refuses links below `root`, which may be one itself.
pub fn confine(root: &Path) {
    lock(&CONFINED).insert(root.to_owned());
}

/// Whether `path` is in a directory of [`confine`].
pub(super) fn is_confined(path: &Path) -> bool {
    let confined = lock(&CONFINED);
    path.ancestors().any(|folder| confined.contains(folder))
}

/// Refuses links and pipes among the entries of `folder`, if it is there.
pub fn check_entries(folder: &Path) -> Result<()> {
    for entry in list(folder)? {
        match entry.file_type() {
            Ok(kind) => check_kind(&entry.path(), kind)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&entry.path(), "inspect")(error)),
        }
    }
    Ok(())
}

/// Refuses `path` where it, or a directory on the way to it from one of [`confine`], is a symbolic link, or
/// neither file nor directory (a pipe would be waited for); what is not there is no link.
///
/// # Errors
/// [`Error::Corrupt`]; [`Error::Io`].
pub fn check_confined(path: &Path) -> Result<()> {
    let confined = lock(&CONFINED);
    let roots = path.ancestors().enumerate().filter(|(_, folder)| confined.contains(*folder));
    let depth = roots.map(|(depth, _)| depth).last().unwrap_or(0);
    drop(confined);
    let below: Vec<&Path> = path.ancestors().take(depth).collect();
    below.into_iter().rev().try_for_each(check_entry)
}

fn check_entry(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) => check_kind(path, found.file_type()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(error) => Err(Error::io(path, "inspect")(error)),
    }
}

fn check_kind(path: &Path, kind: FileType) -> Result<()> {
    let reason = if kind.is_symlink() {
        "is a symbolic link, which is not followed in a run directory"
    } else if kind.is_file() || kind.is_dir() {
        return Ok(());
    } else {
        "is neither a file nor a directory"
    };
    Err(Error::corrupt(path, reason))
}

/// Opens the file `path`. A pipe or a device is refused, which might be waited for without end.
///
/// # Errors
/// [`Error::Missing`] for what is no file; [`Error::Corrupt`] as [`check_confined`]; [`Error::Io`].
pub fn open(path: &Path) -> Result<File> {
    check_confined(path)?;
    let kind = fs::metadata(path).map_err(Error::io(path, "open"))?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Error::missing(path, "is not a regular file"));
    }
    File::open(path).map_err(Error::io(path, "open"))
}

/// Reads all of the file `path`.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    Ok(bytes)
}

/// As [`read`], also of a pipe that a shell hands over, as in `-c <(...)`.
pub fn read_once(path: &Path) -> Result<Vec<u8>> {
    if !HANDED_OVER.iter().any(|from| path.starts_with(from)) {
        return read(path);
    }
    let from = path.to_owned();
    Stop::of_process().leaving(move || fs::read(from))?.map_err(Error::io(path, "read"))
}

/// The text that people wrote into `path`: settings, a template, a table.
///
/// # Errors
/// [`Error::Missing`] where there is none; [`Error::Config`] for one that is not UTF-8; those of [`read_once`].
pub fn read_text(path: &Path) -> Result<String> {
    let missing = || Error::missing(path, "no such file");
    let bytes = if_there(read_once(path))?.ok_or_else(missing)?;
    String::from_utf8(bytes).map_err(|e| {
        let right = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = right.split(|&byte| byte == b'\n').count();
        let reason = format!("is not UTF-8 in line {line}; save it as UTF-8");
        Error::config(path.display().to_string(), reason)
    })
}

/// `found`, or `None` where there is no such file.
pub fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// The entries of `folder`; none where it is not there.
pub fn list(folder: &Path) -> Result<Vec<DirEntry>> {
    check_confined(folder)?;
    let listed =
        fs::read_dir(folder).and_then(Iterator::collect).map_err(Error::io(folder, "list"));
    if_there(listed).map(Option::unwrap_or_default)
}

/// Appends `bytes` to the file `path`, which is there.
pub fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    check_confined(path)?;
    let file = File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(Error::io(path, "append"))
}

/// Makes the folder `path` and those that it lies in.
pub fn create_folder(path: &Path) -> Result<()> {
    check_confined(path)?;
    fs::create_dir_all(path).map_err(Error::io(path, "create the directory"))
}

/// Makes the link `path` to `target`.
pub fn link(target: &str, path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), check_confined)?;
    symlink(target, path).map_err(Error::io(path, "create"))
}

/// Renames `from` to `to`.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    [from, to].into_iter().filter_map(Path::parent).try_for_each(check_confined)?;
    fs::rename(from, to).map_err(Error::io(to, "rename"))
}

/// Removes the file or the link `path`, if it is there.
pub fn unlink(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), check_confined)?;
    if_there(fs::remove_file(path).map_err(Error::io(path, "remove"))).map(drop)
}

/// Removes the file or the folder `path`, if it is there; of links in a folder nothing but themselves.
pub fn remove(path: &Path) -> Result<()> {
    check_confined(path)?;
    if !path.is_dir() {
        return unlink(path);
    }
    if_there(fs::remove_dir_all(path).map_err(Error::io(path, "remove"))).map(drop)
}
