//! What computes the matrix products, kept on disk: finding the fastest takes seconds per bucket.
//!
//! What a file holds is of use only for the same GPU, libraries and program, which its name says;
//! cublasLt checks its algorithms again before they are used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polysift_kernels::cuda::{Algorithm, Device, Matmul, MatmulKernel, MatmulShape};
use serde::{Deserialize, Serialize};

use polysift_base::io::{self, write_atomic};

/// What is kept for one GPU.
#[derive(Default)]
pub(super) struct AlgorithmCache {
    /// Where; `None` if nothing is to be kept.
    path: Option<PathBuf>,
    algorithms: Algorithms,
    changed: bool,
}

/// By the name of the product.
type Algorithms = BTreeMap<String, StoredKernel>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlgorithmFile {
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
    /// What is kept for the GPU `device` in the user's cache.
    pub(super) fn open(device: &Device) -> Self {
        let (library, driver) = (device.library_version(), device.driver_version());
        let name = file_name(&device.info().name, library, driver, env!("CARGO_PKG_VERSION"));
        let directory = directory(|name| std::env::var(name).ok());
        let path = directory.map(|directory| directory.join(name));
        let algorithms = path.as_deref().map(read).unwrap_or_default();
        Self { path, algorithms, changed: false }
    }

    /// The kernels that are kept for `shape`.
    pub(super) fn kept(&self, shape: MatmulShape) -> Option<MatmulKernel> {
        self.algorithms.get(&name(shape)).map(|&kernel| kernel.into())
    }

    /// Keeps `algorithm` for `matmul`.
    pub(super) fn keep(&mut self, matmul: &Matmul, algorithm: &Algorithm) {
        self.algorithms.insert(name(matmul.shape()), algorithm.kernel().into());
        self.changed = true;
    }

    /// Writes what was found. A failure costs the next run its time and nothing else.
    pub(super) fn save(&mut self) {
        let Some(path) = self.path.as_deref().filter(|_| self.changed) else { return };
        // Another GPU of the same kind may have written meanwhile.
        let mut algorithms = read(path);
        algorithms.extend(self.algorithms.clone());
        let file = AlgorithmFile { digest: digest(&algorithms), algorithms };
        let written = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string());
        let written = written.and_then(|json| {
            write_atomic(path, &json).map(|_| ()).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => self.changed = false,
            Err(error) => tracing::debug!("the algorithms that were found are not kept: {error}"),
        }
    }
}

/// `polysift/matmul` in `XDG_CACHE_HOME`, else in `~/.cache`.
fn directory(get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = get("XDG_CACHE_HOME").or_else(|| Some(get("HOME")?.join(".cache")));
    Some(cache?.join("polysift/matmul"))
}

/// All that the algorithms depend on: the GPU, the versions of cublasLt (where it is there) and of the
/// driver, and that of the program and so of its kernels.
fn file_name(gpu: &str, library: Option<usize>, driver: u32, program: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let gpu: String = gpu.chars().map(plain).collect();
    let library = library.map_or_else(|| "none".to_owned(), |version| version.to_string());
    format!("{gpu}-{library}-{driver}-{program}.json")
}

/// What the file at `path` holds; nothing if it cannot be read or was changed.
fn read(path: &Path) -> Algorithms {
    let bytes = io::read(path).unwrap_or_default();
    match serde_json::from_slice::<AlgorithmFile>(&bytes) {
        Ok(file) if file.digest == digest(&file.algorithms) => file.algorithms,
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

    fn cache(path: &Path, algorithms: Algorithms) -> AlgorithmCache {
        AlgorithmCache { path: Some(path.to_owned()), algorithms, changed: true }
    }

    #[test]
    fn the_directory_is_where_caches_are() {
        let directory = |set: &[(&str, &str)]| {
            directory(|name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(directory(&[("HOME", "/h")]), path("/h/.cache/polysift/matmul"));
        let both = [("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(directory(&both), path("/c/polysift/matmul"));
        assert_eq!(directory(&[("XDG_CACHE_HOME", "")]), None);
    }

    #[test]
    fn a_file_is_for_one_gpu_library_driver_and_program() {
        let name = file_name("NVIDIA H200 / x", Some(130_001), 13_000, "1.2.3");
        assert_eq!(name, "NVIDIA-H200---x-130001-13000-1.2.3.json");
        assert_eq!(file_name("a", None, 12_000, "1.2.4"), "a-none-12000-1.2.4.json");
    }

    #[test]
    fn what_is_written_is_found_again_beside_what_others_wrote() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.json");
        cache(&path, algorithms([("a", 1), ("b", 1)])).save();
        cache(&path, algorithms([("a", 2)])).save();
        assert_eq!(read(&path), algorithms([("a", 2), ("b", 1)]));
        Ok(())
    }

    #[test]
    fn a_file_that_is_broken_or_changed_counts_for_nothing() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.json");
        assert!(read(&path).is_empty());
        for contents in ["", "{", "[]", r#"{"algorithms":{}}"#] {
            std::fs::write(&path, contents)?;
            assert!(read(&path).is_empty(), "{contents}");
        }
        cache(&path, algorithms([("a", 1)])).save();
        assert_eq!(read(&path).len(), 1);
        let written = std::fs::read_to_string(&path)?;
        std::fs::write(&path, written.replacen("1,", "9,", 1))?;
        assert!(read(&path).is_empty(), "{written}");
        Ok(())
    }
}
