//! safetensors files to f32 arrays; the one place of the library that maps files into memory.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use crate::error::{Error, Result};

/// The contents of one model file.
#[derive(Debug)]
pub(super) struct Blob {
    /// Where it is from; for the bundled model a name that is no file.
    pub(super) path: PathBuf,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    Bundled(&'static [u8]),
    Read(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl Blob {
    pub(super) fn bundled(path: PathBuf, bytes: &'static [u8]) -> Self {
        Self { path, contents: Contents::Bundled(bytes) }
    }

    /// Reads a small file.
    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let bytes = fs_err::read(&path).map_err(Error::io(&path, "read"))?;
        Ok(Self { path, contents: Contents::Read(bytes) })
    }

    /// Maps a large file.
    pub(super) fn map(path: PathBuf) -> Result<Self> {
        let file = fs_err::File::open(&path).map_err(Error::io(&path, "open"))?;
        // SAFETY: a map is sound as long as nobody changes the file. Model files are written once
        // (the hub's cache renames whole files into place), we only read, and the map is gone
        // when the weights are copied out.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io(&path, "map"))?;
        Ok(Self { path, contents: Contents::Mapped(map) })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.contents {
            Contents::Bundled(bytes) => bytes,
            Contents::Read(bytes) => bytes,
            Contents::Mapped(map) => map,
        }
    }
}

/// Names that checkpoints put before those of the encoder.
const PREFIXES: [&str; 2] = ["", "roberta."];
/// Tensor that tells which of [`PREFIXES`] a checkpoint has.
const FIRST_TENSOR: &str = "embeddings.word_embeddings.weight";

/// The tensors of a checkpoint of one or several files.
pub(super) struct Weights<'a> {
    files: Vec<(&'a Path, SafeTensors<'a>)>,
    prefix: &'static str,
    num_parameters: u64,
}

impl<'a> Weights<'a> {
    /// Reads the headers of all files.
    pub(super) fn open(blobs: &'a [Blob]) -> Result<Self> {
        let mut files = Vec::new();
        for blob in blobs {
            let tensors = SafeTensors::deserialize(blob.bytes()).map_err(|e| {
                Error::model(&blob.path, format!("is not a whole safetensors file: {e}"))
            })?;
            files.push((blob.path.as_path(), tensors));
        }
        let mut this = Self { files, prefix: "", num_parameters: 0 };
        let known =
            PREFIXES.into_iter().find(|p| this.find(&format!("{p}{FIRST_TENSOR}")).is_some());
        this.prefix = known.ok_or_else(|| this.missing(FIRST_TENSOR))?;
        Ok(this)
    }

    /// The tensor `name` (without prefix) as f32, row-major; it must have exactly `shape`
    /// and finite values.
    pub(super) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let full_name = format!("{}{name}", self.prefix);
        let (path, view) = self.find(&full_name).ok_or_else(|| self.missing(&full_name))?;
        if view.shape() != shape {
            let reason = format!("tensor `{full_name}` is {:?}, not {shape:?}", view.shape());
            return Err(Error::model(path, reason));
        }
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => convert(view.data(), f32::from_le_bytes),
            Dtype::F16 => convert(view.data(), |b| f16::from_le_bytes(b).to_f32()),
            Dtype::BF16 => convert(view.data(), |b| bf16::from_le_bytes(b).to_f32()),
            other => {
                let reason = format!("tensor `{full_name}` is {other:?}; F32, F16 or BF16 is read");
                return Err(Error::model(path, reason));
            }
        };
        if values.iter().any(|value| !value.is_finite()) {
            let reason = format!("tensor `{full_name}` holds values that are not finite");
            return Err(Error::model(path, reason));
        }
        self.num_parameters += values.len() as u64;
        Ok(values)
    }

    /// Values handed out so far.
    pub(super) fn num_parameters(&self) -> u64 {
        self.num_parameters
    }

    fn find(&self, full_name: &str) -> Option<(&'a Path, safetensors::tensor::TensorView<'a>)> {
        self.files.iter().find_map(|(path, file)| Some((*path, file.tensor(full_name).ok()?)))
    }

    fn missing(&self, name: &str) -> Error {
        let path = self.files.first().map_or(Path::new("weights"), |(path, _)| path);
        Error::model(path, format!("there is no tensor `{name}`"))
    }
}

fn convert<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|&b| value(b)).collect()
}
