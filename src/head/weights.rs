//! Tensors of a head file, of either kind, to and from a [`Scorer`].
//!
//! Written names are those of the published quality head: `classifier.0.weight`,
//! `classifier.3.weight`... (Linear, ReLU and Dropout count), and `references` for a cosine head.
//! Read are all names `<prefix><index>.weight` and `.bias` of one prefix, in the order of index; a
//! file of a whole model (encoder and head) may hold other tensors besides.

use std::collections::{BTreeMap, BTreeSet};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::card::ReferenceCounts;
use super::scorer::{LinearLayer, References, Scorer, normalised};

/// Prefix of the layers' names in our own files.
pub(super) const PREFIX: &str = "classifier.";
/// A layer counts for three modules: Linear, ReLU, Dropout.
const INDEX_STEP: usize = 3;
/// Name of the matrix of a cosine head.
const REFERENCES: &str = "references";

/// Tensor that every XLM-RoBERTa encoder has: a file that has it too is one of a whole model.
const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";

/// A tensor to be written: name, shape, values.
pub(super) type NamedTensor<'a> = (String, Vec<usize>, &'a [f32]);

/// The tensors of `scorer` with their names, of which those of layers begin with `prefix`.
pub(super) fn named<'a>(scorer: &'a Scorer, prefix: &str) -> Vec<NamedTensor<'a>> {
    match scorer {
        Scorer::Mlp(layers) => {
            let tensors = layers.iter().enumerate().flat_map(|(i, layer)| {
                let name = format!("{prefix}{}", i * INDEX_STEP);
                [
                    (
                        format!("{name}.weight"),
                        vec![layer.outputs(), layer.inputs()],
                        layer.weight.as_slice(),
                    ),
                    (format!("{name}.bias"), vec![layer.outputs()], layer.bias.as_slice()),
                ]
            });
            tensors.collect()
        }
        Scorer::Cosine(references) => vec![(
            REFERENCES.to_owned(),
            vec![references.len(), references.hidden_size],
            references.values.as_slice(),
        )],
    }
}

/// The scorer that the tensors of `file` describe. `ours` says that polysift wrote them, so that
/// references are taken as they are; others are normalised, and those of zero norm dropped and
/// counted. The error text names the tensor.
pub(super) fn parse<'a>(
    file: &mut impl TensorFile<'a>,
    ours: bool,
) -> Result<(Scorer, Option<ReferenceCounts>), String> {
    let names = file.names();
    if names.iter().any(|name| name == REFERENCES) {
        if names.len() != 1 {
            return Err(format!("holds other tensors besides `{REFERENCES}`"));
        }
        let (scorer, counts) = references(file, ours)?;
        return Ok((scorer, Some(counts)));
    }
    let (prefix, indices) = if names.iter().any(|name| name.ends_with(WORD_EMBEDDINGS)) {
        layers_beside_encoder(&names)?
    } else {
        layers_alone(&names)?
    };
    let mut layers: Vec<LinearLayer> = Vec::new();
    for index in indices {
        let width = layers.last().map(LinearLayer::outputs);
        layers.push(layer(file, &format!("{prefix}{index}"), width)?);
    }
    Ok((Scorer::Mlp(layers), None))
}

/// A cosine head.
fn references<'a>(
    file: &mut impl TensorFile<'a>,
    ours: bool,
) -> Result<(Scorer, ReferenceCounts), String> {
    let stored = find(file, REFERENCES)?;
    let (requested, width) = matrix_shape(REFERENCES, &stored)?;
    let mut values = stored.values(REFERENCES)?;
    if !ours {
        values = values.chunks_exact(width).filter_map(normalised).flatten().collect();
    }
    if values.is_empty() {
        return Err(format!("tensor `{REFERENCES}`: all references are zero"));
    }
    let references = References::from_normalised(values, width);
    let available = references.len();
    let counts = ReferenceCounts { requested, available, zero_norm: requested - available };
    Ok((Scorer::Cosine(references), counts))
}

/// Prefix and indices of the layers of a file that must hold nothing else.
fn layers_alone(names: &[String]) -> Result<(&str, BTreeSet<usize>), String> {
    let mut prefix = None;
    let mut indices = BTreeSet::new();
    for name in names {
        let (own_prefix, index) = layer_index(name).ok_or_else(|| {
            format!(
                "tensor `{name}` is not part of a head; expected `<prefix><index>.weight` and \
                 `.bias`, or `{REFERENCES}` alone"
            )
        })?;
        if *prefix.get_or_insert(own_prefix) != own_prefix {
            return Err(format!("tensor `{name}`: the layers have different prefixes"));
        }
        indices.insert(index);
    }
    Ok((prefix.ok_or("holds no tensors")?, indices))
}

/// Prefix and indices of the one sequence of layers beside an encoder, whose own names end in the
/// name of a module, not in an index.
fn layers_beside_encoder(names: &[String]) -> Result<(&str, BTreeSet<usize>), String> {
    let mut by_prefix: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (prefix, index) in names.iter().filter_map(|name| layer_index(name)) {
        by_prefix.entry(prefix).or_default().insert(index);
    }
    let mut found: Vec<_> = by_prefix.into_iter().collect();
    match found.len() {
        0 => Err("holds an encoder, but no head `<prefix><index>.weight` beside it".to_owned()),
        1 => Ok(found.remove(0)),
        _ => {
            let prefixes: Vec<String> = found.iter().map(|(p, _)| format!("`{p}`")).collect();
            Err(format!("holds several heads beside an encoder: {}", prefixes.join(", ")))
        }
    }
}

/// Splits `classifier.3.weight` into `classifier.` and 3.
fn layer_index(name: &str) -> Option<(&str, usize)> {
    let layer = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"))?;
    let digits = layer.len() - layer.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, index) = layer.split_at(layer.len() - digits);
    // A second spelling of an index (`00`) would name another tensor.
    let index: usize = index.parse().ok().filter(|i: &usize| i.to_string() == index)?;
    Some((prefix, index))
}

/// The layer called `name`, whose input must have the `width` of the output before it.
fn layer<'a>(
    file: &mut impl TensorFile<'a>,
    name: &str,
    width: Option<usize>,
) -> Result<LinearLayer, String> {
    let (weight_name, bias_name) = (format!("{name}.weight"), format!("{name}.bias"));
    let (weight, bias) = (find(file, &weight_name)?, find(file, &bias_name)?);
    let (outputs, inputs) = matrix_shape(&weight_name, &weight)?;
    if width.is_some_and(|width| width != inputs) {
        return Err(format!(
            "tensor `{weight_name}` takes {inputs} inputs, the layer before gives {}",
            width.unwrap_or_default()
        ));
    }
    if bias.shape != [outputs] {
        return Err(format!(
            "tensor `{bias_name}` has the shape {:?}; expected [{outputs}]",
            bias.shape
        ));
    }
    Ok(LinearLayer::new(weight.values(&weight_name)?, bias.values(&bias_name)?))
}

/// The tensor `name`, which must be there.
fn find<'a>(file: &mut impl TensorFile<'a>, name: &str) -> Result<Stored<'a>, String> {
    file.stored(name)?.ok_or_else(|| format!("tensor `{name}` is missing"))
}

/// Rows and columns of a tensor that must be a matrix with at least one value.
fn matrix_shape(name: &str, stored: &Stored<'_>) -> Result<(usize, usize), String> {
    match *stored.shape {
        [rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
        ref other => Err(format!("tensor `{name}` has the shape {other:?}; expected a matrix")),
    }
}

/// A file of named tensors.
pub(super) trait TensorFile<'a> {
    /// Names of all tensors.
    fn names(&self) -> Vec<String>;

    /// The tensor `name`, `None` if there is none; the error text names it.
    fn stored(&mut self, name: &str) -> Result<Option<Stored<'a>>, String>;
}

impl<'a> TensorFile<'a> for SafeTensors<'a> {
    fn names(&self) -> Vec<String> {
        self.names().into_iter().map(str::to_owned).collect()
    }

    fn stored(&mut self, name: &str) -> Result<Option<Stored<'a>>, String> {
        let Ok(view) = self.tensor(name) else { return Ok(None) };
        let Some(dtype) = Float::of(view.dtype()) else {
            return Err(not_a_float(name, view.dtype()));
        };
        let strides = contiguous_strides(view.shape());
        let shape = view.shape().to_vec();
        Ok(Some(Stored { dtype, shape, strides, offset: 0, data: view.data() }))
    }
}

/// The message about a tensor of another type.
pub(super) fn not_a_float(name: &str, dtype: impl std::fmt::Display) -> String {
    format!("tensor `{name}` is of type {dtype}; expected a float")
}

/// A type that weights are stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Float {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
    /// IEEE half precision.
    F16,
    /// The upper half of 32 bits.
    Bf16,
}

impl Float {
    /// The type of that name in safetensors.
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F64 => Some(Self::F64),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Bytes of a value.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A tensor that is not read yet. Nothing of it can be trusted but the length of `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    /// Type of the values.
    pub(super) dtype: Float,
    /// Length of each axis.
    pub(super) shape: Vec<usize>,
    /// Values from one index to the next, by axis.
    pub(super) strides: Vec<usize>,
    /// Values of `data` before the first.
    pub(super) offset: usize,
    /// Little-endian values, which may be more than the tensor's.
    pub(super) data: &'a [u8],
}

impl Stored<'_> {
    /// Bytes of the values in the file; `None` if no file holds so many.
    pub(super) fn num_bytes(&self) -> Option<usize> {
        let count = self.shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n))?;
        count.checked_mul(self.dtype.bytes())
    }

    /// The values in the order of their indices, as f32. They must be finite, lie within the data
    /// and be no more than it holds, which bounds what a false shape can ask for.
    pub(super) fn values(&self, name: &str) -> Result<Vec<f32>, String> {
        let outside = || {
            format!(
                "tensor `{name}`: the shape {:?}, strides {:?} and offset {} do not fit its data",
                self.shape, self.strides, self.offset
            )
        };
        let (rows, columns, row_stride, stride) = match (&*self.shape, &*self.strides) {
            (&[columns], &[stride]) => (1, columns, 0, stride),
            (&[rows, columns], &[row_stride, stride]) => (rows, columns, row_stride, stride),
            _ => {
                return Err(format!(
                    "tensor `{name}` has the shape {:?} and the strides {:?}; expected a vector or \
                     a matrix",
                    self.shape, self.strides
                ));
            }
        };
        if self.num_bytes().is_none_or(|bytes| bytes > self.data.len()) {
            return Err(outside());
        }
        if rows == 0 || columns == 0 {
            return Ok(Vec::new());
        }
        let size = self.dtype.bytes();
        let end = (rows - 1)
            .checked_mul(row_stride)
            .zip((columns - 1).checked_mul(stride))
            .and_then(|(down, along)| down.checked_add(along)?.checked_add(self.offset))
            .and_then(|last| last.checked_add(1)?.checked_mul(size));
        if end.is_none_or(|end| end > self.data.len()) {
            return Err(outside());
        }
        let at = |index: usize| self.value(index * size);
        let values: Vec<f32> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| at(self.offset + row * row_stride + column * stride))
            .collect();
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("tensor `{name}`: value {at} is {}", values[at])),
            None => Ok(values),
        }
    }

    /// The value whose first byte is at `start`, which was checked.
    fn value(&self, start: usize) -> f32 {
        let bytes = &self.data[start..];
        match self.dtype {
            Float::F32 => f32::from_le_bytes(first(bytes)),
            Float::F64 => f64::from_le_bytes(first(bytes)) as f32,
            Float::F16 => f16::from_le_bytes(first(bytes)).to_f32(),
            Float::Bf16 => bf16::from_le_bytes(first(bytes)).to_f32(),
        }
    }
}

/// The first `N` bytes.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// Strides of values that lie one after the other, the last axis first.
pub(super) fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}
