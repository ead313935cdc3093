//! The algorithms of the matrix products, kept on disk: finding them takes seconds per bucket.
//!
//! What a file holds is of use only for the same card, library and driver, which its name and its
//! contents say; cublasLt checks each algorithm again before it is used.

use std::path::{Path, PathBuf};

use polysift_kernels::cuda::{Algorithm, Device, Matmul, MatmulEpilogue, Result};
use serde::{Deserialize, Serialize};

use crate::store::write_atomic;

/// See the module.
#[derive(Default)]
pub(super) struct AlgorithmCache {
    /// Where the files are; `None` if nothing is to be kept.
    directory: Option<PathBuf>,
    /// Of one card, once it is known.
    file: Option<File>,
    changed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    card: String,
    library: usize,
    driver: u32,
    algorithms: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    tokens: usize,
    outputs: usize,
    inputs: usize,
    gelu: bool,
    words: [u64; 8],
}

impl Entry {
    fn is_for(&self, matmul: &Matmul) -> bool {
        let gelu = matmul.epilogue() == MatmulEpilogue::BiasGeluTanh;
        ((self.tokens, self.outputs, self.inputs), self.gelu) == (matmul.sizes(), gelu)
    }

    fn is_like(&self, other: &Self) -> bool {
        Self { words: other.words, ..self.clone() } == *other
    }
}

impl AlgorithmCache {
    /// `polysift/cublaslt` in `XDG_CACHE_HOME`, else in `~/.cache`.
    pub(super) fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = get("XDG_CACHE_HOME").or_else(|| Some(get("HOME")?.join(".cache")));
        Self { directory: cache.map(|cache| cache.join("polysift/cublaslt")), ..Self::default() }
    }

    /// Reads what is kept for the card `device`.
    pub(super) fn open(&mut self, device: &Device) {
        let mut file = File {
            card: device.info().name.clone(),
            library: device.library_version(),
            driver: device.driver_version(),
            algorithms: Vec::new(),
        };
        if let Some(path) = self.path(&file) {
            file.algorithms = kept(&path, &file);
        }
        self.file = Some(file);
    }

    /// The algorithm for `matmul` that is kept, if there is one that cublasLt still takes.
    pub(super) fn kept(&self, matmul: &Matmul) -> Option<Algorithm> {
        let entries = self.file.iter().flat_map(|file| &file.algorithms);
        let mut entries = entries.filter(|entry| entry.is_for(matmul));
        entries.find_map(|entry| matmul.restore(entry.words))
    }

    /// The algorithm for `matmul`: the one that is kept, else the one that `search` finds.
    pub(super) fn algorithm(
        &mut self,
        matmul: &mut Matmul,
        search: impl FnOnce(&mut Matmul) -> Result<Algorithm>,
    ) -> Result<Algorithm> {
        if let Some(algorithm) = self.kept(matmul) {
            return Ok(algorithm);
        }
        let algorithm = search(matmul)?;
        if let Some(file) = &mut self.file {
            let (tokens, outputs, inputs) = matmul.sizes();
            let gelu = matmul.epilogue() == MatmulEpilogue::BiasGeluTanh;
            let entry = Entry { tokens, outputs, inputs, gelu, words: algorithm.words() };
            file.put(entry);
            self.changed = true;
        }
        Ok(algorithm)
    }

    /// Writes what was found. A failure costs the next run its time and nothing else.
    pub(super) fn save(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.changed) else { return };
        let Some(path) = self.path(file) else { return };
        // Another card of the same kind may have written meanwhile.
        let mut all = File { algorithms: kept(&path, file), ..file.clone() };
        for entry in &file.algorithms {
            all.put(entry.clone());
        }
        let written = serde_json::to_vec_pretty(&all).map_err(|error| error.to_string());
        let written = written.and_then(|json| {
            write_atomic(&path, &json).map(|_| ()).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => self.changed = false,
            Err(error) => tracing::debug!("the algorithms that were found are not kept: {error}"),
        }
    }

    fn path(&self, file: &File) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let card: String = file.card.chars().map(plain).collect();
        let name = format!("{card}-{}-{}.json", file.library, file.driver);
        Some(self.directory.as_ref()?.join(name))
    }
}

impl File {
    /// What the algorithms depend on.
    fn key(&self) -> (&str, usize, u32) {
        (&self.card, self.library, self.driver)
    }

    /// Adds `entry` in place of one for the same product.
    fn put(&mut self, entry: Entry) {
        self.algorithms.retain(|other| !other.is_like(&entry));
        self.algorithms.push(entry);
    }
}

/// What `path` holds for the card of `file`; nothing if it cannot be read or is another card's.
fn kept(path: &Path, file: &File) -> Vec<Entry> {
    let bytes = fs_err::read(path).unwrap_or_default();
    match serde_json::from_slice::<File>(&bytes) {
        Ok(found) if found.key() == file.key() => found.algorithms,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tokens: usize, word: u64) -> Entry {
        Entry { tokens, outputs: 8, inputs: 8, gelu: false, words: [word; 8] }
    }

    fn cache(directory: &Path, algorithms: Vec<Entry>) -> AlgorithmCache {
        let card = "NVIDIA H200 / x".into();
        let file = File { card, library: 130_001, driver: 13_000, algorithms };
        AlgorithmCache { directory: Some(directory.to_owned()), file: Some(file), changed: true }
    }

    #[test]
    fn the_directory_is_where_caches_are() {
        let directory = |set: &[(&str, &str)]| {
            let get = |name: &str| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            AlgorithmCache::from_env(get).directory
        };
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(directory(&[("HOME", "/h")]), path("/h/.cache/polysift/cublaslt"));
        let both = [("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(directory(&both), path("/c/polysift/cublaslt"));
        assert_eq!(directory(&[("XDG_CACHE_HOME", "")]), None);
    }

    #[test]
    fn what_is_written_is_found_again_beside_what_others_wrote() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        cache(dir.path(), vec![entry(528, 1), entry(1_056, 1)]).save();
        cache(dir.path(), vec![entry(528, 2)]).save();
        let path = dir.path().join("NVIDIA-H200---x-130001-13000.json");
        let asked = cache(dir.path(), Vec::new()).file;
        let found = asked.map(|file| kept(&path, &file));
        assert_eq!(found, Some(vec![entry(1_056, 1), entry(528, 2)]));
        Ok(())
    }

    #[test]
    fn a_file_that_is_broken_or_another_cards_counts_for_nothing() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.json");
        let Some(own) = cache(dir.path(), vec![entry(528, 1)]).file else { return Ok(()) };
        assert!(kept(&path, &own).is_empty());
        for contents in ["", "{", "[]", r#"{"card":"NVIDIA H200 / x"}"#] {
            std::fs::write(&path, contents)?;
            assert!(kept(&path, &own).is_empty(), "{contents}");
        }
        std::fs::write(&path, serde_json::to_vec(&own)?)?;
        assert_eq!(kept(&path, &own).len(), 1);
        assert!(kept(&path, &File { driver: 12_000, ..own.clone() }).is_empty());
        Ok(())
    }
}
