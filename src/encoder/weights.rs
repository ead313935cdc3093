//! Reads safetensors files as f32. This is the crate's only module that maps files into memory.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use half::{bf16, f16};
use polysift_kernels::dequantize;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::architecture::{Architecture, FeedForward, Positions, TensorsOfMap};
use polysift_base::error::{Error, Result};
use polysift_base::io;

/// The contents of one model file.
#[derive(Debug)]
pub(super) struct Blob {
    /// Path of the file; the bundled model has a name that is no file.
    pub path: PathBuf,
    contents: Bytes,
    /// Names of tensors that the index of a checkpoint places in other files.
    pub(super) elsewhere: HashSet<String>,
}

impl Blob {
    /// Makes a blob of `contents`; `path` names it in errors and need not exist.
    pub(super) fn new(path: PathBuf, contents: impl Into<Bytes>) -> Self {
        Self { path, contents: contents.into(), elsewhere: HashSet::new() }
    }

    /// Reads a whole file into memory.
    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let bytes = io::read(&path)?;
        Ok(Self::new(path, bytes))
    }

    /// Maps a file into memory; only the pages that are used take memory.
    pub(super) fn map(path: PathBuf) -> Result<Self> {
        let file = io::open(&path)?;
        // SAFETY: a map is sound as long as nobody changes the file. Model files are written once
        // (the hub's cache renames whole files into place), and we only read.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io(&path, "map"))?;
        Ok(Self::new(path, Bytes::from_owner(map)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.contents
    }
}

/// Weights of a layer norm, `[H]` each.
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

/// A matrix that stays in its file as stored: only the rows that are used take memory.
pub(super) struct Table {
    blobs: Arc<[Blob]>,
    width: usize,
    values: FileTensor,
    /// Present if the values are integers packed into 32-bit words.
    packing: Option<Packing>,
}

/// The place of a tensor: index of its blob, bytes there, and type.
struct FileTensor {
    blob: usize,
    bytes: Range<usize>,
    dtype: Dtype,
}

/// A row of packed integers (compressed-tensors `pack-quantized`, symmetric): each has `bits` bits
/// and half of their range added; the first is in a word's lowest bits. Each `group` has a scale.
struct Packing {
    bits: usize,
    group: usize,
    scales: FileTensor,
}

impl FileTensor {
    /// Returns the bytes of row `i`, which has `width` values of `bits` bits.
    fn row<'a>(&self, blobs: &'a [Blob], i: usize, width: usize, bits: usize) -> &'a [u8] {
        let row_bytes = width * bits / 8;
        &blobs[self.blob].bytes()[self.bytes.clone()][i * row_bytes..][..row_bytes]
    }
}

impl Table {
    /// Writes row `i` as f32 into `out`, which holds one row.
    pub(super) fn read_row(&self, i: usize, out: &mut [f32]) {
        let Self { blobs, width, values, packing } = self;
        let Some(Packing { bits, group, scales }) = packing else {
            let bits = 8 * bytes_of(values.dtype);
            return convert_to_f32(values.dtype, values.row(blobs, i, *width, bits), out);
        };
        // Words are little-endian, so the integers are in byte order.
        let codes = values.row(blobs, i, *width, *bits);
        let mut scales_of_row = vec![0.0; width / group];
        let stored = scales.row(blobs, i, width / group, 8 * bytes_of(scales.dtype));
        convert_to_f32(scales.dtype, stored, &mut scales_of_row);
        dequantize(codes, *bits, &scales_of_row, out);
    }

    /// Returns all rows as f32, row-major.
    pub(super) fn to_vec(&self) -> Vec<f32> {
        let bits = self.packing.as_ref().map_or(8 * bytes_of(self.values.dtype), |p| p.bits);
        let mut values = vec![0.0; self.values.bytes.len() * 8 / bits];
        for (i, row) in values.chunks_exact_mut(self.width).enumerate() {
            self.read_row(i, row);
        }
        values
    }
}

pub(super) struct EmbeddingWeights {
    /// `[vocab_size, H]`.
    pub(super) words: Table,
    /// `[rows of Positions, H]`, with the embedding of token type 0 added.
    pub(super) positions: Vec<f32>,
    pub(super) norm: NormWeights,
    /// The norm after the last layer of a pre-norm model.
    pub(super) final_norm: Option<NormWeights>,
}

/// Linear maps and norms of a transformer layer, in any form: as read, packed, or on a device.
pub(super) struct Layer<L, N> {
    /// Maps `H` to `3H`: queries, keys, values.
    pub(super) query_key_value: L,
    pub(super) attention_output: L,
    /// Follows attention and its sum, or precedes attention; `None` if its input is normalized.
    pub(super) attention_norm: Option<N>,
    /// Maps `H` to `F`, or to `2F` (activated, then the gate).
    pub(super) intermediate: L,
    pub(super) output: L,
    /// Follows the feed-forward block and its residual sum, or precedes the block.
    pub(super) output_norm: N,
}

/// The tensors of a checkpoint in one or several files.
pub(super) struct Weights<'a> {
    blobs: &'a Arc<[Blob]>,
    pub(super) architecture: &'a Architecture,
    /// One entry for each blob.
    files: Vec<SafeTensors<'a>>,
    /// Precedes every tensor name; includes the prefix of a wrapper such as `DataParallel`.
    prefix: String,
}

/// Prefixes that `DataParallel` and `torch.compile` add to every name.
const WRAPPERS: [&str; 5] = ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."];
/// Suffixes of the norms' tensors, and the ones of BERT's first checkpoints.
const OLD_NAMES: [(&str, &str); 2] =
    [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];

impl<'a> Weights<'a> {
    /// Parses the headers of `blobs` and finds the prefix of tensor names; fails if none fits.
    pub(crate) fn open(blobs: &'a Arc<[Blob]>, architecture: &'a Architecture) -> Result<Self> {
        let files = blobs.iter().map(parse_header).collect::<Result<_>>()?;
        let mut this = Self { blobs, architecture, files, prefix: String::new() };
        let first = format!("{}.weight", architecture.names.words);
        let prefixes = &architecture.names.prefixes;
        let mut prefixes = WRAPPERS
            .iter()
            .flat_map(|outer| prefixes.iter().map(move |own| [*outer, *own].concat()));
        let known = prefixes.find(|prefix| {
            let packed = this.find(&format!("{prefix}{first}_packed"));
            packed.or_else(|| this.find(&format!("{prefix}{first}"))).is_some()
        });
        this.prefix = known.ok_or_else(|| this.missing_tensor(&first))?;
        Ok(this)
    }

    /// Reads the tensor `name` (without prefix) as f32, row-major; it must have exactly `shape`.
    fn read_tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        Ok(self.open_table(name, shape)?.to_vec())
    }

    /// Opens a tensor as a [`Table`] of floats, or of packed integers with their scales.
    fn open_table(&self, name: &str, shape: &[usize]) -> Result<Table> {
        let full_name = format!("{}{name}", self.prefix);
        let width = shape.last().copied().unwrap_or(1);
        let blobs = Arc::clone(self.blobs);
        let (&[rows, _], Some((blob, codes))) = (shape, self.find(&format!("{full_name}_packed")))
        else {
            let values = self.find_floats(&full_name, shape)?;
            return Ok(Table { blobs, width, values, packing: None });
        };
        let fail = |reason: String| {
            let path = &self.blobs[blob].path;
            Err(Error::model(path, format!("tensor `{full_name}` is packed, but {reason}")))
        };
        for suffix in ["zero_point", "g_idx"] {
            if self.find(&format!("{full_name}_{suffix}")).is_some() {
                return fail(format!("with `{suffix}`; integers around 0 in order are read"));
            }
        }
        let bits = match *codes.shape() {
            [r, words] if r == rows && codes.dtype() == Dtype::I32 => 32 * words / width.max(1),
            _ => 0,
        };
        if !(matches!(bits, 4 | 8) && codes.data().len() * 8 == rows * width * bits) {
            let (dtype, found) = (codes.dtype(), codes.shape());
            return fail(format!("{dtype:?} {found:?} are no 4 or 8 bits each for {shape:?}"));
        }
        let scale_name = format!("{full_name}_scale");
        let (_, scales) = self.find(&scale_name).ok_or_else(|| self.missing_tensor(&scale_name))?;
        let [groups] = scales.shape().strip_prefix(&[rows]).unwrap_or_default() else {
            return fail(format!("its scales are {:?}, not by rows and groups", scales.shape()));
        };
        if *groups == 0 || !width.is_multiple_of(*groups) {
            return fail(format!("a row of {width} has {groups} scales"));
        }
        let scales = self.find_floats(&scale_name, &[rows, *groups])?;
        let packing = Some(Packing { bits, group: width / groups, scales });
        Ok(Table { blobs, width, values: self.locate(blob, &codes), packing })
    }

    /// Finds a tensor of floats of exactly `shape` by its full name; see [`check_floats`].
    fn find_floats(&self, full_name: &str, shape: &[usize]) -> Result<FileTensor> {
        let (blob, view) = self.find(full_name).ok_or_else(|| self.missing_tensor(full_name))?;
        let path = &self.blobs[blob].path;
        check_floats(&view, shape)
            .map_err(|reason| Error::model(path, format!("tensor `{full_name}` {reason}")))?;
        Ok(self.locate(blob, &view))
    }

    /// Returns where in its blob the bytes of a tensor lie.
    fn locate(&self, blob: usize, view: &TensorView) -> FileTensor {
        let start = view.data().as_ptr().addr() - self.blobs[blob].bytes().as_ptr().addr();
        FileTensor { blob, bytes: start..start + view.data().len(), dtype: view.dtype() }
    }

    /// Opens the word embeddings, and reads the positions and the norms outside the layers.
    pub(super) fn read_embedding(&self) -> Result<EmbeddingWeights> {
        let Architecture { width, vocab_size, positions, num_token_types, names, .. } =
            self.architecture;
        let table = |name: &str, rows| self.open_table(&format!("{name}.weight"), &[rows, *width]);
        let words = table(names.words, *vocab_size)?;
        let mut rows = if *positions == Positions::None {
            vec![0.0; *width]
        } else {
            table("embeddings.position_embeddings", positions.rows())?.to_vec()
        };
        if *num_token_types > 0 {
            let types = table("embeddings.token_type_embeddings", *num_token_types)?.to_vec();
            for row in rows.chunks_exact_mut(*width) {
                for (value, type_value) in row.iter_mut().zip(&types) {
                    *value += type_value;
                }
            }
        }
        let norm = self.read_norm(names.embedding_norm)?;
        let final_norm = self.architecture.pre_norm.then(|| self.read_norm("final_norm"));
        Ok(EmbeddingWeights { words, positions: rows, norm, final_norm: final_norm.transpose()? })
    }

    /// Reads layer `i`; `linear` converts its linear maps, in the order of the fields.
    pub(super) fn read_layer<L>(
        &self,
        i: usize,
        mut linear: impl FnMut(LinearWeights) -> L,
    ) -> Result<Layer<L, NormWeights>> {
        let Architecture { width, inner, pre_norm, names, .. } = self.architecture;
        let (h, f) = (*width, *inner);
        let mut intermediate =
            self.read_linear(names.intermediate, i, self.architecture.intermediate_size(), h)?;
        if self.architecture.feed_forward == (FeedForward::Gated { activated_first: false }) {
            intermediate.weight.rotate_left(f * h);
            intermediate.bias.rotate_left(f);
        }
        // A pre-norm model's first layer has none, because the embedding ends with a norm.
        let has_norm = i > 0 || !pre_norm;
        let norm = |name| self.read_norm(&self.name_in_layer(name, i));
        Ok(Layer {
            query_key_value: linear(self.read_linear(names.query_key_value, i, 3 * h, h)?),
            attention_output: linear(self.read_linear(names.attention_output, i, h, h)?),
            attention_norm: has_norm.then(|| norm(names.attention_norm)).transpose()?,
            intermediate: linear(intermediate),
            output: linear(self.read_linear(names.output, i, h, f)?),
            output_norm: norm(names.output_norm)?,
        })
    }

    /// Reads a norm. Its bias is 0 if the model has none.
    fn read_norm(&self, name: &str) -> Result<NormWeights> {
        let Architecture { width, norm_eps, names, .. } = self.architecture;
        let beta = if names.norm_bias {
            self.read_tensor(&format!("{name}.bias"), &[*width])?
        } else {
            vec![0.0; *width]
        };
        let gamma = self.read_tensor(&format!("{name}.weight"), &[*width])?;
        Ok(NormWeights { gamma, beta, eps: *norm_eps })
    }

    /// Reads a linear map of layer `i` from one or several tensors; an absent bias is 0.
    fn read_linear(
        &self,
        (names, has_bias): TensorsOfMap,
        i: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<LinearWeights> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        let outputs = outputs / names.split(' ').count();
        for name in names.split(' ') {
            let name = self.name_in_layer(name, i);
            weight.extend(self.read_tensor(&format!("{name}.weight"), &[outputs, inputs])?);
            if has_bias {
                bias.extend(self.read_tensor(&format!("{name}.bias"), &[outputs])?);
            } else {
                bias.resize(bias.len() + outputs, 0.0);
            }
        }
        Ok(LinearWeights { weight, bias })
    }

    /// Returns the tensor name of `name` in layer `i`, without the prefix.
    fn name_in_layer(&self, name: &str, i: usize) -> String {
        self.architecture.names.layer.replace("{i}", &i.to_string()) + name
    }

    /// Finds a tensor, also under an older name, and the index of its blob. A file that the index
    /// of a sharded checkpoint does not name for the tensor is passed over.
    fn find(&self, full_name: &str) -> Option<(usize, TensorView<'a>)> {
        let find = |name: &str| {
            let is_here = |(at, _): &(usize, _)| !self.blobs[*at].elsewhere.contains(name);
            let mut files = self.files.iter().enumerate().filter(is_here);
            files.find_map(|(blob, file)| Some((blob, file.tensor(name).ok()?)))
        };
        find(full_name).or_else(|| {
            let old =
                |(now, old): &(&str, &str)| Some([full_name.strip_suffix(now)?, old].concat());
            find(&OLD_NAMES.iter().find_map(old)?)
        })
    }

    /// Returns the error for a tensor that no file has; it names the first file.
    fn missing_tensor(&self, name: &str) -> Error {
        let path = self.blobs.first().map_or(Path::new("weights"), |blob| &blob.path);
        Error::model(path, format!("there is no tensor `{name}`"))
    }
}

/// Parses the header of a safetensors file; fails if the file is shorter or longer than it says.
pub(super) fn parse_header(blob: &Blob) -> Result<SafeTensors<'_>> {
    let wrong = |e| Error::model(&blob.path, format!("is not a whole safetensors file: {e}"));
    SafeTensors::deserialize(blob.bytes()).map_err(wrong)
}

/// Reads a tensor of floats of exactly `shape` as f32; see [`check_floats`].
pub(super) fn read_floats(view: &TensorView<'_>, shape: &[usize]) -> Result<Vec<f32>, String> {
    check_floats(view, shape)?;
    let mut values = vec![0.0; shape.iter().product()];
    convert_to_f32(view.dtype(), view.data(), &mut values);
    Ok(values)
}

/// Checks that a tensor has exactly `shape`, a supported float type and finite values.
fn check_floats(view: &TensorView<'_>, shape: &[usize]) -> Result<(), String> {
    let (dtype, found) = (view.dtype(), view.shape());
    if found != shape {
        Err(format!("is {found:?}, not {shape:?}"))
    } else if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
        Err(format!("is {dtype:?}; F32, F16 or BF16 is read"))
    } else if !is_finite(dtype, view.data()) {
        Err("holds values that are not finite".to_owned())
    } else {
        Ok(())
    }
}

/// Returns the size in bytes of a value of a supported float type.
fn bytes_of(dtype: Dtype) -> usize {
    if dtype == Dtype::F32 { 4 } else { 2 }
}

/// Returns true if all values are finite: no exponent has only ones.
fn is_finite(dtype: Dtype, bytes: &[u8]) -> bool {
    let none =
        |exponent: u16| move |half: &[u8; 2]| u16::from_le_bytes(*half) & exponent != exponent;
    // The compiler vectorises the folds because they do not end early.
    bytes.chunks(1 << 12).all(|bytes| match dtype {
        Dtype::F16 => bytes.as_chunks().0.iter().fold(true, |all, b| all & none(0x7c00)(b)),
        Dtype::BF16 => bytes.as_chunks().0.iter().fold(true, |all, b| all & none(0x7f80)(b)),
        // The upper half of an f32 is a bf16.
        _ => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .fold(true, |all, &[_, _, a, b]| all & none(0x7f80)(&[a, b])),
    })
}

/// Converts little-endian values of `dtype` to f32.
fn convert_to_f32(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    fn convert<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
        for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *out = value(bytes);
        }
    }
    match dtype {
        Dtype::F16 => convert(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => convert(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        _ => convert(bytes, out, f32::from_le_bytes),
    }
}
