//! Detects files saved in place of another: Git LFS pointers and web pages sent by a server.

use std::fs::File;
use std::io::Read;
use std::path::Path;

const IMPOSTOR_BYTES: usize = 512;
const POINTER: &str =
    "is a Git LFS pointer in place of the file; `git lfs pull` or `hf download` gets the file";
const PAGE: &str = "is a web page that was saved in place of the file; download it again, logged in \
                    where that is needed";

/// Returns what is wrong and what to do if `path` is a Git LFS pointer or a saved web page.
pub(super) fn impostor(path: &Path) -> Option<&'static str> {
    if !path.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(IMPOSTOR_BYTES as u64).read_to_end(&mut head).ok()?;
    let head = head.trim_ascii_start();
    let is_page =
        |tag: &[u8]| head.get(..tag.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(tag));
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        return Some(POINTER);
    }
    (is_page(b"<!doctype html") || is_page(b"<html")).then_some(PAGE)
}
