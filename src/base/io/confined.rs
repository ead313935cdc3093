//! Opens, lists and changes files and folders. A run directory may come from an untrusted source,
//! so symbolic links, pipes and devices in it are refused. A path is checked when it is used and
//! not watched: anyone who can write into a directory while a process works in it is trusted
//! (SECURITY.md). A run directory is read and written only through this module and `atomic`.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File, FileType};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::panics::lock;
use crate::progress::Stop;

static CONFINED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Paths at which a shell passes a pipe that has a writer (`<(...)`), and the null device.
const HANDED_OVER: [&str; 4] = ["/dev/fd", "/proc/self/fd", "/dev/stdin", "/dev/null"];

/// Makes [`check_confined`] refuse links below `root` from now on; `root` itself may be a link.
pub fn confine(root: &Path) {
    lock(&CONFINED).insert(root.to_owned());
}

/// Returns the depth of `path` below the outermost folder passed to [`confine`], if it is there.
pub(super) fn confined_depth(path: &Path) -> Option<usize> {
    let confined = lock(&CONFINED);
    let roots = path.ancestors().enumerate().filter(|(_, folder)| confined.contains(*folder));
    roots.map(|(depth, _)| depth).last()
}

/// Refuses links, pipes and devices among the entries of `folder`, if it exists.
pub fn check_entries(folder: &Path) -> Result<()> {
    for entry in list(folder)? {
        let kind = entry.file_type().map_err(Error::io(&entry.path(), "inspect"));
        if_there(kind)?.map_or(Ok(()), |kind| check_kind(&entry.path(), kind))?;
    }
    Ok(())
}

/// Returns [`Error::Corrupt`] if `path`, or a directory between it and one passed to [`confine`],
/// is a symbolic link or neither file nor directory (reading a pipe would block), if it exists.
pub fn check_confined(path: &Path) -> Result<()> {
    let depth = confined_depth(path).unwrap_or(0);
    let below: Vec<&Path> = path.ancestors().take(depth).collect();
    below.into_iter().rev().try_for_each(|path| match fs::symlink_metadata(path) {
        Ok(found) => check_kind(path, found.file_type()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(Error::io(path, "inspect")(e)),
    })
}

/// Returns [`Error::Corrupt`] for a link and for what is neither file nor directory.
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

/// Opens a file: [`Error::Missing`] for a pipe or device, as that may block, `Corrupt` for a link.
pub fn open(path: &Path) -> Result<File> {
    check_confined(path)?;
    let kind = fs::metadata(path).map_err(Error::io(path, "open"))?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Error::missing(path, "is not a regular file"));
    }
    File::open(path).map_err(Error::io(path, "open"))
}

/// Reads the whole file `path`.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    Ok(bytes)
}

/// Reads the JSON file `path`, which messages call `format`; returns `None` if it does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path, format: &'static str) -> Result<Option<T>> {
    let Some(bytes) = if_there(read(path))? else { return Ok(None) };
    let json = without_byte_order_mark(&bytes);
    serde_json::from_slice(json).map(Some).map_err(|e| Error::decode(path, format, e))
}

/// Reads the text file `path`, which people write: settings, a template, a table. Returns
/// [`Error::Missing`] for no file and [`Error::Config`] for bad UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let missing = || Error::missing(path, "no such file");
    let bytes = if HANDED_OVER.iter().any(|from| path.starts_with(from)) {
        let from = path.to_owned();
        Stop::of_process().run_abandonable(move || fs::read(from))?.map_err(Error::io(path, "read"))
    } else {
        read(path)
    };
    let bytes = if_there(bytes)?.ok_or_else(missing)?;
    String::from_utf8(bytes).map_err(|e| {
        let right = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = right.split(|&byte| byte == b'\n').count();
        let reason = format!("is not UTF-8 in line {line}; save it as UTF-8");
        Error::config(path.display().to_string(), reason)
    })
}

/// Returns `text` without the UTF-8 byte order mark that some programs put first.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// Turns the [`Error::Io`] of a file that does not exist into `None`; other errors stay.
pub fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the entries of `folder`, or none if it does not exist.
pub fn list(folder: &Path) -> Result<Vec<DirEntry>> {
    check_confined(folder)?;
    let listed =
        fs::read_dir(folder).and_then(Iterator::collect).map_err(Error::io(folder, "list"));
    if_there(listed).map(Option::unwrap_or_default)
}

/// Creates the folder `path` and its missing parents.
pub fn create_folder(path: &Path) -> Result<()> {
    check_confined(path)?;
    fs::create_dir_all(path).map_err(Error::io(path, "create the directory"))
}

/// Creates the symbolic link `path` to `target`, which need not exist.
pub fn link(target: &str, path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), check_confined)?;
    symlink(target, path).map_err(Error::io(path, "create"))
}

/// Renames `from` to `to`, replacing a file there; nothing is synced.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    [from, to].into_iter().filter_map(Path::parent).try_for_each(check_confined)?;
    fs::rename(from, to).map_err(Error::io(to, "rename"))
}

/// Removes the file or link `path`, if it exists.
pub fn unlink(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), check_confined)?;
    if_there(fs::remove_file(path).map_err(Error::io(path, "remove"))).map(drop)
}

/// Removes the file or folder `path`, if it exists. Links in a folder are not followed.
pub fn remove(path: &Path) -> Result<()> {
    remove_while(path, &|| Ok(()))
}

/// Like [`remove`], but calls `check` before each file or folder and ends with its error.
pub fn remove_while(path: &Path, check: &dyn Fn() -> Result<()>) -> Result<()> {
    check_confined(path)?;
    remove_tree(path, check)
}

/// Removes `path` and what is in it, with `check` before each; missing entries are fine.
fn remove_tree(path: &Path, check: &dyn Fn() -> Result<()>) -> Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        check()?;
        return unlink(path);
    }
    list(path)?.iter().try_for_each(|entry| remove_tree(&entry.path(), check))?;
    check()?;
    if_there(fs::remove_dir(path).map_err(Error::io(path, "remove"))).map(drop)
}
