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

/// A scorer, and how the references of a cosine head were found.
pub(super) type HeadWeights = (Scorer, Option<ReferenceCounts>);

/// Gives a tensor of a file by name; the error text names it.
pub(super) type Read<'r, 'a> = &'r mut dyn FnMut(&str) -> Result<Stored<'a>, String>;

/// The scorer that the tensors `names` describe. `ours` says that polysift wrote them, so that
/// references are taken as they are; others are normalised, and those of zero norm dropped and
/// counted. The error text names the tensor.
pub(super) fn parse(
    names: &[String],
    read: Read<'_, '_>,
    ours: bool,
) -> Result<HeadWeights, String> {
    if names.iter().any(|name| name == REFERENCES) {
        if names.len() != 1 {
            return Err(format!("holds other tensors besides `{REFERENCES}`"));
        }
        let (scorer, counts) = references(read, ours)?;
        return Ok((scorer, Some(counts)));
    }
    let (prefix, indices) = layers(names)?;
    let mut layers: Vec<LinearLayer> = Vec::new();
    for index in indices {
        let width = layers.last().map(LinearLayer::outputs);
        layers.push(layer(read, &format!("{prefix}{index}"), width)?);
    }
    Ok((Scorer::Mlp(layers), None))
}

/// A cosine head.
fn references(read: Read<'_, '_>, ours: bool) -> Result<(Scorer, ReferenceCounts), String> {
    let stored = read(REFERENCES)?;
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

/// Prefix and indices of the one sequence of layers of a file, which may hold nothing besides but an
/// encoder, whose own names end in the name of a module, not in an index.
fn layers(names: &[String]) -> Result<(&str, BTreeSet<usize>), String> {
    let has_encoder = names.iter().any(|name| name.ends_with(WORD_EMBEDDINGS));
    let mut by_prefix: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for name in names {
        match layer_index(name) {
            Some((prefix, index)) => {
                by_prefix.entry(prefix).or_default().insert(index);
            }
            None if has_encoder => {}
            None => {
                return Err(format!(
                    "tensor `{name}` is not part of a head; expected `<prefix><index>.weight` and \
                     `.bias`, or `{REFERENCES}` alone"
                ));
            }
        }
    }
    let prefixes: Vec<String> = by_prefix.keys().map(|prefix| format!("`{prefix}`")).collect();
    match (by_prefix.pop_first(), prefixes.len()) {
        (Some(layers), 1) => Ok(layers),
        (None, _) if has_encoder => Err("holds an encoder, but no head beside it".to_owned()),
        (None, _) => Err("holds no tensors".to_owned()),
        _ => Err(format!("holds layers of different prefixes: {}", prefixes.join(", "))),
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
fn layer(read: Read<'_, '_>, name: &str, width: Option<usize>) -> Result<LinearLayer, String> {
    let (weight_name, bias_name) = (format!("{name}.weight"), format!("{name}.bias"));
    let (weight, bias) = (read(&weight_name)?, read(&bias_name)?);
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

/// Rows and columns of a tensor that must be a matrix with at least one value.
fn matrix_shape(name: &str, stored: &Stored<'_>) -> Result<(usize, usize), String> {
    match *stored.shape {
        [rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
        ref other => Err(format!("tensor `{name}` has the shape {other:?}; expected a matrix")),
    }
}

/// The tensors of a safetensors file; see [`parse`].
pub(super) fn parse_safetensors(file: &SafeTensors<'_>, ours: bool) -> Result<HeadWeights, String> {
    let names: Vec<String> = file.names().into_iter().map(str::to_owned).collect();
    let mut read = |name: &str| {
        let view = file.tensor(name).map_err(|_| missing(name));
        view.map(|view| {
            let (shape, strides) = (view.shape().to_vec(), contiguous_strides(view.shape()));
            Stored { dtype: view.dtype(), shape, strides, offset: 0, data: view.data() }
        })
    };
    parse(&names, &mut read, ours)
}

/// The message about a tensor that is not there.
pub(super) fn missing(name: &str) -> String {
    format!("tensor `{name}` is missing")
}

/// A tensor that is not read yet. Nothing of it can be trusted but the length of `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    /// Type of the values.
    pub(super) dtype: Dtype,
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
        count.checked_mul(self.dtype.bitsize() / 8)
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
        let size = self.dtype.bitsize() / 8;
        let end = (rows - 1)
            .checked_mul(row_stride)
            .zip((columns - 1).checked_mul(stride))
            .and_then(|(down, along)| down.checked_add(along)?.checked_add(self.offset))
            .and_then(|last| last.checked_add(1)?.checked_mul(size));
        if end.is_none_or(|end| end > self.data.len()) {
            return Err(outside());
        }
        let value: fn(&[u8]) -> f32 = match self.dtype {
            Dtype::F32 => |bytes| f32::from_le_bytes(first(bytes)),
            Dtype::F64 => |bytes| f64::from_le_bytes(first(bytes)) as f32,
            Dtype::F16 => |bytes| f16::from_le_bytes(first(bytes)).to_f32(),
            Dtype::BF16 => |bytes| bf16::from_le_bytes(first(bytes)).to_f32(),
            other => return Err(not_a_float(name, other)),
        };
        let at = |index: usize| value(&self.data[index * size..]);
        let values: Vec<f32> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| at(self.offset + row * row_stride + column * stride))
            .collect();
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("tensor `{name}`: value {at} is {}", values[at])),
            None => Ok(values),
        }
    }
}

/// The message about a tensor of another type.
pub(super) fn not_a_float(name: &str, dtype: impl std::fmt::Display) -> String {
    format!("tensor `{name}` is of type {dtype}; expected a float")
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
