//! Writes files that appear whole or not at all: under a temporary name, synced, then renamed.
//!
//! Invariant: whatever happens, the final name has either the old content or all of the new one.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::confined::{check_confined, confined_depth, if_there, list, open, unlink};
use crate::error::{Error, Result};

/// Bytes buffered before they are hashed and written to the system.
const BUFFER_BYTES: usize = 1 << 20;
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Environment variable of the kill tests: the process aborts at the write boundary with this
/// number, counted from 1 over all files. The boundaries are: before and after a temporary file is
/// created, before each write to the system, and before and after the rename.
const KILL_AT: &str = "POLYSIFT_KILL_AT";

/// Size and digest of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 digest, 64 lower-case hexadecimal digits.
    pub blake3: String,
    /// ETag of the object, if its store gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl FileStamp {
    /// Returns the stamp of a file with this `content`.
    pub fn of(content: &[u8]) -> Self {
        Self::of_hasher(blake3::Hasher::new().update(content))
    }

    fn of_hasher(hasher: &blake3::Hasher) -> Self {
        Self { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string(), etag: None }
    }
}

/// A file or an object that becomes visible only when it is committed.
pub trait NewFile: Write + Debug + Send {
    /// Completes the content, gives it its name, and replaces what has the name.
    fn commit(self: Box<Self>) -> Result<FileStamp>;
}

impl NewFile for AtomicFile {
    fn commit(self: Box<Self>) -> Result<FileStamp> {
        Self::commit(*self)
    }
}

/// A file under construction. If dropped without [`AtomicFile::commit`], it leaves nothing behind.
/// Writes are buffered, so small ones are fine. A failed [`Write`] returns an error without a path.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    writer: BufWriter<HashedFile>,
    renamed: bool,
}

#[derive(Debug)]
struct HashedFile {
    file: File,
    hasher: blake3::Hasher,
}

impl Write for HashedFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        boundary();
        let written = self.file.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AtomicFile {
    /// Starts a file that will be named `path`, and creates its missing parent directories.
    pub fn create(path: &Path) -> Result<Self> {
        let wrong = |reason: &str| {
            Error::io(path, "create")(io::Error::new(ErrorKind::InvalidInput, reason))
        };
        let name = path.file_name().ok_or_else(|| wrong("no file name"))?;
        check_confined(parent_of(path))?;
        if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(wrong("a pipe or device is not replaced by a file"));
        }
        fs::create_dir_all(parent_of(path)).map_err(Error::io(path, "create the directory"))?;
        let name = name.to_string_lossy();
        if confined_depth(path).is_none() {
            // In a run directory, who takes over a unit of work does this. A failure does no harm.
            let _ = remove_chosen(parent_of(path), Sweep { below: false, is_sure: true }, &|of| {
                of == name
            });
        }
        boundary();
        let (file, temporary) = loop {
            let temporary = path.with_file_name(temporary_name(&name));
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    // While this process holds the lock, no other process removes the file as
                    // abandoned. If one was about to, it holds the lock, or the file is gone.
                    let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                    if !is_taken && temporary.exists() {
                        break (file, temporary);
                    }
                }
                // Process ids recur, in containers on every start: a killed run left this file.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path, "create")(error)),
            }
        };
        boundary();
        let hashed = HashedFile { file, hasher: blake3::Hasher::new() };
        Ok(Self {
            path: path.to_owned(),
            temporary,
            writer: BufWriter::with_capacity(BUFFER_BYTES, hashed),
            renamed: false,
        })
    }

    /// Returns the final path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file to disk and renames it to its final path, replacing a file there.
    pub fn commit(mut self) -> Result<FileStamp> {
        self.sync_content()?;
        self.rename()
    }

    /// Renames the synced file to its final path, and syncs the directory.
    fn rename(&mut self) -> Result<FileStamp> {
        fs::rename(&self.temporary, &self.path).map_err(Error::io(&self.path, "rename"))?;
        self.renamed = true;
        self.sync_directory()
    }

    /// Writes what is buffered and syncs the file, which keeps its temporary name.
    fn sync_content(&mut self) -> Result<()> {
        self.writer.flush().map_err(Error::io(&self.path, "write"))?;
        self.writer.get_ref().file.sync_all().map_err(Error::io(&self.path, "sync"))?;
        boundary();
        Ok(())
    }

    /// Syncs the directory, which now has the final name, and returns the stamp.
    fn sync_directory(&self) -> Result<FileStamp> {
        boundary();
        match File::open(parent_of(&self.path)).and_then(|directory| directory.sync_all()) {
            // Some network file systems cannot sync directories; nothing here can change that.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
            synced => synced.map_err(Error::io(&self.path, "sync"))?,
        }
        Ok(FileStamp::of_hasher(&self.writer.get_ref().hasher))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.writer.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.renamed {
            // An error cannot be returned here; a sweep removes a leftover file.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes `bytes` as the file `path`, whole or not at all.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<FileStamp> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(Error::io(path, "write"))?;
    file.commit()
}

/// Writes `bytes` as the file `path` unless it exists; returns true in the one process that did so.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<bool> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(Error::io(path, "write"))?;
    file.sync_content()?;
    match fs::hard_link(&file.temporary, path) {
        Ok(()) => file.sync_directory().map(|_| true),
        // On a file system without links, the check and the rename are two steps.
        Err(error) if error.kind() != ErrorKind::AlreadyExists && !path.exists() => {
            file.rename().map(|_| true)
        }
        Err(_) => Ok(false),
    }
}

/// Writes `value` as indented JSON, whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<FileStamp> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| Error::write(path, e))?;
    bytes.push(b'\n');
    write_atomic(path, &bytes)
}

/// Reads the whole file `path` and returns its size and digest.
pub fn stamp(path: &Path) -> Result<FileStamp> {
    let file = open(path)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(Error::io(path, "read"))?;
    Ok(FileStamp::of_hasher(&hasher))
}

/// Removes the temporary files that a killed process left for the output, or the folder of outputs,
/// `path`. Outputs are called like `path`, with an extension or a number behind `-`.
pub fn remove_temporaries_of(path: &Path) -> Result<()> {
    let prefix = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of = |name: &str| {
        name.strip_prefix(&*prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    remove_chosen(parent_of(path), Sweep { below: false, is_sure: false }, &is_of)?;
    remove_temporaries(path, true).map(drop)
}

/// Removes the temporary files that killed processes left in `dir`, or also `below` it, and returns
/// their number; a missing `dir` has none. Removes only names made by [`AtomicFile`].
pub fn remove_temporaries(dir: &Path, below: bool) -> Result<u64> {
    remove_chosen(dir, Sweep { below, is_sure: false }, &|_| true)
}

/// How [`remove_chosen`] looks for files.
#[derive(Clone, Copy)]
struct Sweep {
    /// Also in the folders below.
    below: bool,
    /// Files that cannot be locked, for any reason, stay; else only those that a process holds.
    is_sure: bool,
}

/// Removes temporary files in `dir` that `goes` chooses by their final names.
fn remove_chosen(dir: &Path, sweep: Sweep, goes: &dyn Fn(&str) -> bool) -> Result<u64> {
    let mut num_removed = 0;
    for entry in list(dir)? {
        let (path, name) = (entry.path(), entry.file_name());
        // Links are not followed, because their targets do not belong to the run.
        let kind = if_there(entry.file_type().map_err(Error::io(&path, "inspect")))?;
        if sweep.below && kind.is_some_and(|kind| kind.is_dir()) {
            num_removed += match remove_chosen(&path, sweep, goes) {
                // Nothing was written to a folder that cannot be read, such as `lost+found`.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => 0,
                removed => removed?,
            };
        } else if kind.is_some_and(|kind| kind.is_file())
            && final_name(&name.to_string_lossy()).is_some_and(goes)
        {
            // A process that lives holds the lock of the file that it writes; no other takes the
            // name while this one does. NFS locks files only for those that may write.
            let file = OpenOptions::new().write(true).open(&path).or_else(|_| File::open(&path));
            let lock = file.as_ref().map(File::try_lock);
            let is_free = if sweep.is_sure {
                matches!(lock, Ok(Ok(())))
            } else {
                !matches!(lock, Ok(Err(TryLockError::WouldBlock)))
            };
            if is_free {
                unlink(&path)?; // no error if it was renamed meanwhile
                num_removed += 1;
            }
        }
    }
    Ok(num_removed)
}

/// Returns `.<name>.<process id>-<counter>.tmp`, which is unique in this process.
fn temporary_name(name: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}-{counter}{TEMPORARY_SUFFIX}", std::process::id())
}

/// Returns the final name for a temporary name of [`AtomicFile`], or `None` if it is not one.
pub fn final_name(temporary: &str) -> Option<&str> {
    let (name, numbers) =
        temporary.strip_prefix('.')?.strip_suffix(TEMPORARY_SUFFIX)?.rsplit_once('.')?;
    let (process, counter) = numbers.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(process) && is_number(counter)).then_some(name)
}

/// Returns the directory of `path`; `.` for a bare name.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Counts a write boundary, and aborts the process at the one of `KILL_AT`; one load without it.
pub fn boundary() {
    static AT: OnceLock<Option<u64>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let at = AT.get_or_init(|| std::env::var(KILL_AT).ok().and_then(|at| at.parse().ok()));
    if at.is_some_and(|at| PASSED.fetch_add(1, Ordering::SeqCst) + 1 == at) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    #[test]
    fn nothing_has_the_final_name_before_the_commit() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a/b/part.bin");
        let mut file = AtomicFile::create(&path)?;
        file.write_all(&vec![7; 3 << 20])?;
        file.flush()?;
        assert!(!path.exists());
        let stamped = file.commit()?;
        assert_eq!(names(&dir.path().join("a/b"))?, ["part.bin"]);
        assert_eq!(stamped, stamp(&path)?);
        assert_eq!(stamped.bytes, 3 << 20);
        Ok(())
    }

    #[test]
    fn the_digest_is_that_of_blake3() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        // BLAKE3 of the empty input, from the paper's test vectors.
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        let stamped = write_atomic(&dir.path().join("empty"), b"")?;
        assert_eq!(stamped, FileStamp { bytes: 0, blake3: empty.into(), etag: None });
        Ok(())
    }

    #[test]
    fn a_dropped_file_leaves_the_old_one() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x");
        write_atomic(&path, b"old")?;
        let mut file = AtomicFile::create(&path)?;
        file.write_all(b"new")?;
        drop(file);
        assert_eq!(fs::read(&path)?, b"old");
        write_atomic(&path, b"new")?;
        assert_eq!(fs::read(&path)?, b"new");
        assert_eq!(names(dir.path())?, ["x"]);
        Ok(())
    }

    #[test]
    fn an_error_names_the_final_path() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("file");
        write_atomic(&file, b"")?;
        let below = file.join("part");
        let error = AtomicFile::create(&below).err().ok_or("created below a file")?;
        assert!(matches!(&error, Error::Io { path, .. } if *path == below), "{error}");
        assert!(matches!(AtomicFile::create(Path::new("/")), Err(Error::Io { .. })));
        Ok(())
    }

    #[test]
    fn the_sweep_takes_temporaries_only() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep)?;
        let kept = [".cache.tmp", ".x.1-.tmp", "x.1-2.tmp", "part.parquet", ".x.1-2.tmp.bak"];
        for name in kept.iter().chain(&[".part.parquet.17-0.tmp", ".x.1-2.tmp"]) {
            fs::write(deep.join(name), b"")?;
        }
        assert_eq!(remove_temporaries(dir.path(), true)?, 2);
        let mut kept = kept.map(String::from);
        kept.sort();
        assert_eq!(names(&deep)?, kept);
        assert_eq!(remove_temporaries(&dir.path().join("none"), true)?, 0);
        Ok(())
    }

    #[test]
    fn files_of_other_outputs_and_of_live_processes_stay() -> Result<(), Box<dyn std::error::Error>>
    {
        let dir = tempfile::tempdir()?;
        for name in [".p1.parquet.17-0.tmp", ".p1-00001.parquet.17-1.tmp", ".p10.parquet.17-2.tmp"]
        {
            fs::write(dir.path().join(name), b"")?;
        }
        let live = AtomicFile::create(&dir.path().join("p1.json"))?;
        remove_temporaries_of(&dir.path().join("p1"))?;
        assert_eq!(names(dir.path())?.len(), 2, "{:?}", names(dir.path())?);
        live.commit()?;
        assert_eq!(names(dir.path())?, [".p10.parquet.17-2.tmp", "p1.json"]);
        Ok(())
    }

    #[test]
    fn a_leftover_of_the_same_process_id_is_stepped_over() -> Result<(), Box<dyn std::error::Error>>
    {
        let dir = tempfile::tempdir()?;
        // All tests of this process share the counter, so take names some way ahead.
        let next: u64 = temporary_name("x")
            .rsplit_once('-')
            .and_then(|(_, end)| end.strip_suffix(TEMPORARY_SUFFIX))
            .ok_or("no counter")?
            .parse()?;
        for counter in next..next + 50 {
            let name = format!(".x.{}-{counter}{TEMPORARY_SUFFIX}", std::process::id());
            fs::write(dir.path().join(name), b"stale")?;
        }
        write_atomic(&dir.path().join("x"), b"fresh")?;
        assert_eq!(fs::read(dir.path().join("x"))?, b"fresh");
        Ok(())
    }
}
