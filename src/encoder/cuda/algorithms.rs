//! What computes the matrix products, kept on disk: finding the fastest takes seconds per bucket.
//!
//! What a file holds is of use only for the same GPU, libraries and program, which its name and its
//! contents say; cublasLt checks its algorithms again before they are used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polysift_kernels::cuda::{Algorithm, Device, Matmul, MatmulKernel, MatmulShape};
use serde::{Deserialize, Serialize};

use crate::io::write_atomic;

/// See the module.
#[derive(Default)]
pub(super) struct AlgorithmCache {
    /// Where the files are; `None` if nothing is to be kept.
    directory: Option<PathBuf>,
    /// Of one GPU, once it is known.
    file: Option<AlgorithmFile>,
    changed: bool,
}

type Algorithms = BTreeMap<String, StoredKernel>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlgorithmFile {
    gpu: String,
    /// Version of cublasLt, where it is there.
    library: Option<usize>,
    driver: u32,
    /// Version of the program, and so of its kernels.
    program: String,
    /// By the name of the product.
    algorithms: Algorithms,
    /// BLAKE3 of the algorithms: nobody promises that cublasLt checks words that it did not write.
    digest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredKernel {
    Warp,
    Warpgroup,
    Cublaslt([u64; 8]),
}

impl From<MatmulKernel> for StoredKernel {
    fn from(kernel: MatmulKernel) -> Self {
        match kernel {
            MatmulKernel::Warp => Self::Warp,
            MatmulKernel::Warpgroup => Self::Warpgroup,
            MatmulKernel::Library(words) => Self::Cublaslt(words),
        }
    }
}

impl From<StoredKernel> for MatmulKernel {
    fn from(kernel: StoredKernel) -> Self {
        match kernel {
            StoredKernel::Warp => Self::Warp,
            StoredKernel::Warpgroup => Self::Warpgroup,
            StoredKernel::Cublaslt(words) => Self::Library(words),
        }
    }
}

/// What two products have to have in common to use each other's algorithms.
fn name(shape: MatmulShape) -> String {
    let MatmulShape { tokens, outputs, inputs, epilogue, precision } = shape;
    format!("{tokens} x {outputs} x {inputs} {epilogue:?} {precision:?}")
}

impl AlgorithmCache {
    /// `polysift/matmul` in `XDG_CACHE_HOME`, else in `~/.cache`.
    pub(super) fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = get("XDG_CACHE_HOME").or_else(|| Some(get("HOME")?.join(".cache")));
        Self { directory: cache.map(|cache| cache.join("polysift/matmul")), ..Self::default() }
    }

    /// Reads what is kept for the GPU `device`.
    pub(super) fn open(&mut self, device: &Device) {
        let mut file = AlgorithmFile {
            gpu: device.info().name.clone(),
            library: device.library_version(),
            driver: device.driver_version(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            algorithms: Algorithms::new(),
            digest: String::new(),
        };
        if let Some(path) = self.path(&file) {
            file.algorithms = kept(&path, &file);
        }
        self.file = Some(file);
    }

    /// The kernels that are kept for `shape`.
    pub(super) fn kept(&self, shape: MatmulShape) -> Option<MatmulKernel> {
        Some((*self.file.as_ref()?.algorithms.get(&name(shape))?).into())
    }

    /// Keeps `algorithm` for `matmul`.
    pub(super) fn keep(&mut self, matmul: &Matmul, algorithm: &Algorithm) {
        if let Some(file) = &mut self.file {
            file.algorithms.insert(name(matmul.shape()), algorithm.kernel().into());
            self.changed = true;
        }
    }

    /// Writes what was found. A failure costs the next run its time and nothing else.
    pub(super) fn save(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.changed) else { return };
        let Some(path) = self.path(file) else { return };
        // Another GPU of the same kind may have written meanwhile.
        let mut all = AlgorithmFile { algorithms: kept(&path, file), ..file.clone() };
        all.algorithms.extend(file.algorithms.clone());
        all.digest = digest(&all.algorithms);
        let written = serde_json::to_vec_pretty(&all).map_err(|error| error.to_string());
        let written = written.and_then(|json| {
            write_atomic(&path, &json).map(|_| ()).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => self.changed = false,
            Err(error) => tracing::debug!("the algorithms that were found are not kept: {error}"),
        }
    }

    fn path(&self, file: &AlgorithmFile) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let gpu: String = file.gpu.chars().map(plain).collect();
        let library = file.library.map_or_else(|| "none".to_owned(), |version| version.to_string());
        let name = format!("{gpu}-{library}-{}.json", file.driver);
        Some(self.directory.as_ref()?.join(name))
    }
}

impl AlgorithmFile {
    /// What the algorithms depend on.
    fn key(&self) -> (&str, Option<usize>, u32, &str) {
        (&self.gpu, self.library, self.driver, &self.program)
    }
}

/// What `path` holds for the GPU of `file`; nothing if it cannot be read, was changed or is another
/// GPU's.
fn kept(path: &Path, file: &AlgorithmFile) -> Algorithms {
    let bytes = std::fs::read(path).unwrap_or_default();
    match serde_json::from_slice::<AlgorithmFile>(&bytes) {
        Ok(found) if found.key() == file.key() && found.digest == digest(&found.algorithms) => {
            found.algorithms
        }
        _ => Algorithms::new(),
    }
}

fn digest(algorithms: &Algorithms) -> String {
    let json = serde_json::to_vec(algorithms).unwrap_or_default();
    blake3::hash(&json).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algorithms<const N: usize>(of: [(&str, u64); N]) -> Algorithms {
        of.into_iter()
            .map(|(name, word)| (name.to_owned(), StoredKernel::Cublaslt([word; 8])))
            .collect()
    }

    fn cache(directory: &Path, algorithms: Algorithms) -> AlgorithmCache {
        let (gpu, program) = ("NVIDIA H200 / x".into(), "1.2.3".into());
        let digest = digest(&algorithms);
        let library = Some(130_001);
        let file = AlgorithmFile { gpu, library, driver: 13_000, program, algorithms, digest };
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
        assert_eq!(directory(&[("HOME", "/h")]), path("/h/.cache/polysift/matmul"));
        let both = [("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(directory(&both), path("/c/polysift/matmul"));
        assert_eq!(directory(&[("XDG_CACHE_HOME", "")]), None);
    }

    #[test]
    fn what_is_written_is_found_again_beside_what_others_wrote() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        cache(dir.path(), algorithms([("a", 1), ("b", 1)])).save();
        cache(dir.path(), algorithms([("a", 2)])).save();
        let path = dir.path().join("NVIDIA-H200---x-130001-13000.json");
        let asked = cache(dir.path(), Algorithms::new()).file;
        let found = asked.map(|file| kept(&path, &file));
        assert_eq!(found, Some(algorithms([("a", 2), ("b", 1)])));
        Ok(())
    }

    #[test]
    fn a_file_that_is_broken_or_another_gpu_counts_for_nothing() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.json");
        let Some(own) = cache(dir.path(), algorithms([("a", 1)])).file else { return Ok(()) };
        assert!(kept(&path, &own).is_empty());
        for contents in ["", "{", "[]", r#"{"gpu":"NVIDIA H200 / x"}"#] {
            std::fs::write(&path, contents)?;
            assert!(kept(&path, &own).is_empty(), "{contents}");
        }
        std::fs::write(&path, serde_json::to_vec(&own)?)?;
        assert_eq!(kept(&path, &own).len(), 1);
        assert!(kept(&path, &AlgorithmFile { driver: 12_000, ..own.clone() }).is_empty());
        assert!(kept(&path, &AlgorithmFile { library: None, ..own.clone() }).is_empty());
        assert!(kept(&path, &AlgorithmFile { program: "1.2.4".into(), ..own.clone() }).is_empty());
        let mut changed = own.clone();
        changed.algorithms = algorithms([("a", 9)]);
        std::fs::write(&path, serde_json::to_vec(&changed)?)?;
        assert!(kept(&path, &own).is_empty());
        Ok(())
    }
}
