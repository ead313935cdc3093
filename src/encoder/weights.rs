//! safetensors files to f32 arrays; the one place of the library that maps files into memory.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::architecture::Architecture;
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

/// Layer norm's weights, `[H]` each.
pub(super) struct NormWeights {
    pub(super) gamma: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) eps: f64,
}

/// A linear map: weight `[outputs, inputs]`, bias `[outputs]`.
pub(super) struct LinearWeights {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

/// The embedding tables.
pub(super) struct EmbeddingWeights {
    /// `[vocab_size, H]`.
    pub(super) words: Vec<f32>,
    /// `[max_position_embeddings, H]`, the embedding of token type 0 added.
    pub(super) positions: Vec<f32>,
    pub(super) norm: NormWeights,
}

/// One transformer layer.
pub(super) struct LayerWeights {
    /// `H` to `3H`: queries, keys, values.
    pub(super) query_key_value: LinearWeights,
    pub(super) attention_output: LinearWeights,
    pub(super) attention_norm: NormWeights,
    pub(super) intermediate: LinearWeights,
    pub(super) output: LinearWeights,
    pub(super) output_norm: NormWeights,
}

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
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
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

    /// The embedding tables.
    pub(super) fn embedding(&mut self, config: &Architecture) -> Result<EmbeddingWeights> {
        let width = config.hidden_size;
        let words = self.tensor(FIRST_TENSOR, &[config.vocab_size, width])?;
        let shape = [config.max_position_embeddings, width];
        let mut positions = self.tensor("embeddings.position_embeddings.weight", &shape)?;
        let shape = [config.type_vocab_size, width];
        let types = self.tensor("embeddings.token_type_embeddings.weight", &shape)?;
        for row in positions.chunks_exact_mut(width) {
            for (value, type_value) in row.iter_mut().zip(&types) {
                *value += type_value;
            }
        }
        let norm = self.norm("embeddings.LayerNorm", config)?;
        Ok(EmbeddingWeights { words, positions, norm })
    }

    /// Layer `i`.
    pub(super) fn layer(&mut self, i: usize, config: &Architecture) -> Result<LayerWeights> {
        let (h, f) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        let heads = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(LayerWeights {
            query_key_value: self.linear(&heads, h, h)?,
            attention_output: self.linear(&[name("attention.output.dense")], h, h)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), config)?,
            intermediate: self.linear(&[name("intermediate.dense")], f, h)?,
            output: self.linear(&[name("output.dense")], h, f)?,
            output_norm: self.norm(&name("output.LayerNorm"), config)?,
        })
    }

    fn norm(&mut self, name: &str, config: &Architecture) -> Result<NormWeights> {
        let shape = [config.hidden_size];
        Ok(NormWeights {
            gamma: self.tensor(&format!("{name}.weight"), &shape)?,
            beta: self.tensor(&format!("{name}.bias"), &shape)?,
            eps: config.layer_norm_eps,
        })
    }

    /// `names`, which all have the same input, as one map with their outputs side by side.
    fn linear(&mut self, names: &[String], outputs: usize, inputs: usize) -> Result<LinearWeights> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weight.extend(self.tensor(&format!("{name}.weight"), &[outputs, inputs])?);
            bias.extend(self.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        Ok(LinearWeights { weight, bias })
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
