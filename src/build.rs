//! Puts a commit into `--version`: `POLYSIFT_COMMIT`, or in release builds the commit of the git
//! checkout. Other builds name no commit, so that a new commit does not compile them again.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    println!("cargo:rerun-if-env-changed=POLYSIFT_COMMIT");
    let given = std::env::var("POLYSIFT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(find_commit).flatten());
    println!("cargo:rustc-env=POLYSIFT_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Returns the checked-out commit, if there is one. Cargo watches the files that name it, and not
/// the index, which every `git add` writes.
fn find_commit() -> Option<String> {
    let branch = run_git(&["symbolic-ref", "-q", "HEAD"]);
    for name in [Some("HEAD"), branch.as_deref(), Some("packed-refs")].into_iter().flatten() {
        let path = run_git(&["rev-parse", "--git-path", name]);
        // Cargo treats a missing file as changed.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    run_git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns what `git` prints, trimmed; `None` if it is not there or fails.
fn run_git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
