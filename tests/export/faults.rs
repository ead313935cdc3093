//! Kills, full disks and limits: what is under a final name is whole, and nothing else stays.
//!
//! A fault hits a whole process, so these tests run this binary again with one test,
//! [`the_child_writes`], and look at what it left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use arrow::datatypes::DataType;
use polysift::config::{EmbeddingDtype, Layout};
use polysift::export::{ExportColumns, ExportSpec};
use polysift::input::DocumentInfo;
use polysift::io::{remove_temporaries, stamp};
use polysift::parts::{DocumentScore, EmbeddingRows, EmbeddingWriter, ScoreRows};
use polysift::parts::{embeddings_array, write_scores};

use super::{
    StdError, TestResult, WriterOptions, dense_rows, documents, names, options, spec, write,
};

/// Where the child writes; without it [`the_child_writes`] has nothing to do.
const CHILD_DIR: &str = "POLYSIFT_TEST_CHILD_DIR";
/// See `io::atomic`.
const KILL_AT: &str = "POLYSIFT_KILL_AT";
/// What `std::process::abort` raises.
const SIGABRT: i32 = 6;
/// What the child prints when a write failed as it should.
const REPORTED: &str = "the error names ";

/// An embedding part, a score part and an export of some files.
fn write_all(dir: &Path) -> TestResult {
    let ids: Vec<String> = (0..500).map(|row| row.to_string()).collect();
    let infos = (0..).zip(&ids).map(|(row, id)| DocumentInfo {
        row,
        id,
        language: "und",
        num_bytes: 1,
        num_tokens: Some(1),
    });
    let embeddings = EmbeddingRows {
        documents: infos.collect(),
        chunk_offsets: (0..=500).collect(),
        values: (0..500 * 64u16).map(|i| f32::from(i).sqrt()).collect(),
        hidden_size: 64,
    };
    let part = dir.join("embeddings/part");
    let mut writer = EmbeddingWriter::create(&part, EmbeddingDtype::F32, 1)?;
    for (i, document) in embeddings.documents.iter().enumerate() {
        writer.push(&document, embeddings.chunks(i), embeddings.hidden_size)?;
    }
    writer.finish()?;
    let score = Some(DocumentScore { logit: 1.5, score: 0.5 });
    let scores = ScoreRows { documents: embeddings.documents, scores: vec![score; 500] };
    write_scores(&dir.join("scores/part"), &scores, None, 1)?;
    for (name, layout, dtype) in [
        ("flat", Layout::Flat, EmbeddingDtype::F32),
        ("nested", Layout::Nested, EmbeddingDtype::F16),
    ] {
        let spec = ExportSpec {
            layout,
            embeddings: Some(dtype),
            new_columns: ["quality_score", "quality_retention"]
                .map(|name| (name.to_owned(), DataType::Float64))
                .to_vec(),
            ..spec()
        };
        // Every tenth document has no text.
        let chunk_offsets: Vec<usize> = (0..=500).map(|i| i - i / 10).collect();
        let column = |value| -> ArrayRef { Arc::new(Float64Array::from(vec![value; 500])) };
        let vectors = embeddings_array(&chunk_offsets, &embeddings.values, 64, dtype)?;
        let new = [vectors, column(0.5), column(0.1)];
        let input = documents(500)?;
        let columns = ExportColumns::new(&input.schema(), &spec, Path::new("input"))?;
        let rows = columns.assemble(&dense_rows(&input)?, &new, None)?;
        let options = WriterOptions { max_file_bytes: Some(300_000), ..options() };
        write(&dir.join("export").join(name), &rows, &[], &options)?;
    }
    Ok(())
}

/// Not a test of its own: what the others run in a process that can be killed.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_child_writes() -> TestResult {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else {
        return Ok(());
    };
    match write_all(&dir) {
        Ok(()) => Ok(()),
        Err(error) => {
            let Some(polysift::Error::Io { path, .. }) = error.downcast_ref::<polysift::Error>()
            else {
                return Err(error);
            };
            Err(format!("{REPORTED}{}", path.display()).into())
        }
    }
}

/// A directory in memory where there is one: these tests sync a thousand times.
fn fast_dir() -> std::io::Result<tempfile::TempDir> {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() }
}

/// This binary running [`the_child_writes`], as words for a shell.
fn child() -> Result<String, Box<dyn StdError>> {
    let binary = std::env::current_exe()?;
    Ok(format!("exec '{}' --exact export::faults::the_child_writes --ignored", binary.display()))
}

fn shell(script: &str, dir: &Path, kill_at: Option<u64>) -> Result<Output, Box<dyn StdError>> {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(CHILD_DIR, dir).env_remove(KILL_AT);
    command.envs(kill_at.map(|at| (KILL_AT, at.to_string())));
    Ok(command.output()?)
}

/// Digests of all files in the directories below `dir`, by directory and name.
fn digests(dir: &Path) -> Result<BTreeMap<PathBuf, String>, Box<dyn StdError>> {
    let mut digests = BTreeMap::new();
    for inner in names(dir)? {
        for name in names(&dir.join(&inner))? {
            let path = Path::new(&inner).join(name);
            digests.insert(path.clone(), stamp(&dir.join(path))?.blake3);
        }
    }
    Ok(digests)
}

fn is_temporary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}

#[test]
fn a_kill_at_any_boundary_leaves_whole_files_and_a_second_run_completes_them() -> TestResult {
    let expected = fast_dir()?;
    write_all(expected.path())?;
    let expected = digests(expected.path())?;
    assert!(expected.len() > 4, "{expected:?}");
    let mut num_kills = 0;
    loop {
        let dir = fast_dir()?;
        let output = shell(&format!("ulimit -c 0; {}", child()?), dir.path(), Some(num_kills + 1))?;
        if output.status.success() {
            break;
        }
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(SIGABRT), "{output:?}");
        num_kills += 1;
        for (path, digest) in digests(dir.path())? {
            assert!(is_temporary(&path) || expected[&path] == digest, "{path:?}, kill {num_kills}");
        }
        remove_temporaries(dir.path(), true)?;
        assert!(!digests(dir.path())?.keys().any(|path| is_temporary(path)));
        write_all(dir.path())?;
        assert_eq!(digests(dir.path())?, expected, "kill {num_kills}");
    }
    // Five boundaries a file: around its creation, at its data, around its rename.
    assert_eq!(num_kills, 5 * expected.len() as u64);
    Ok(())
}

/// Checks that a child that could not write in `dir` said which file, and left none half written
/// in what was `dir` and is now `left`.
fn check_failed(output: &Output, dir: &Path, left: &Path) -> TestResult {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(REPORTED), "{text}");
    let whole = fast_dir()?;
    write_all(whole.path())?;
    let whole = digests(whole.path())?;
    let left = digests(left)?;
    assert!(left.len() < whole.len());
    for (path, digest) in left {
        assert_eq!(whole.get(&path), Some(&digest), "{}", path.display());
        assert!(!text.contains(&format!("{REPORTED}{}\"", dir.join(&path).display())), "{text}");
    }
    Ok(())
}

#[test]
fn a_file_over_the_size_limit_of_the_process_is_an_error() -> TestResult {
    let dir = fast_dir()?;
    let script = format!("trap '' XFSZ; ulimit -f 16; {}", child()?);
    let output = shell(&script, dir.path(), None)?;
    check_failed(&output, dir.path(), dir.path())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_full_disk_is_an_error() -> TestResult {
    let (dir, left) = (fast_dir()?, fast_dir()?);
    // A disk of our own, small enough to fill; it goes with the shell, so its files are copied.
    let script = format!(
        "mount -t tmpfs -o size=200k none '{0}' || exit 99\n\
         ({1})\n\
         status=$?; cp -r '{0}/.' '{2}'; exit $status",
        dir.path().display(),
        child()?,
        left.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).env(CHILD_DIR, dir.path()).env_remove(KILL_AT);
    let output = command.output()?;
    if matches!(output.status.code(), Some(1 | 99 | 127)) && output.stdout.is_empty() {
        eprintln!("skipped: a disk cannot be mounted: {}", String::from_utf8_lossy(&output.stderr));
        return Ok(());
    }
    check_failed(&output, dir.path(), left.path())
}
