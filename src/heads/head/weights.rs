//! Converts the tensors of a head file to and from a [`Scorer`].
//!
//! Tensors have the names of the published quality head: `classifier.0.weight`,
//! `classifier.3.weight`... (the index counts layers, and a Dropout after each activation). A
//! cosine head writes `references` and, if it is centred, the `mean` `[D]` that is subtracted from
//! embeddings and was subtracted from the references. The reader accepts names
//! `<prefix><index>.weight` and `.bias` of one prefix, ordered by index, and the names of
//! transformers' classification models. A file of a whole model (encoder and head) may also hold
//! other tensors.

use std::collections::{BTreeMap, BTreeSet};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::card::ReferenceCounts;
use super::scorer::{HeadLayer, LinearLayer, References, Scorer};
use crate::vectors::normalised;
use polysift_config::{Activation, Centering};

const REFERENCES: &str = "references";
const MEAN: &str = "mean";

/// Every encoder has a tensor with one of these names; a file that has one holds a whole model.
const WORD_EMBEDDINGS: [&str; 2] =
    ["embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight"];
/// Layers of transformers' classes for sequence classification, and the activation after the first:
/// BERT and GTE; XLM-RoBERTa; `ModernBERT`.
const CLASSIFIERS: [(&[&str], Activation); 3] = [
    (&["pooler.dense", "classifier"], Activation::Tanh),
    (&["classifier.dense", "classifier.out_proj"], Activation::Tanh),
    (&["head.dense", "head.norm", "classifier"], Activation::Gelu),
];
const DEFAULT_EPS: f64 = 1e-5;

/// Properties of a file that its tensors do not tell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownLayers {
    /// True if polysift wrote the file.
    pub is_own: bool,
    /// Activation between linear layers; `None` means the one that the names imply, else ReLU.
    pub activation: Option<Activation>,
    /// Epsilon of layer norms; `None` means PyTorch's default.
    pub norm_eps: Option<f64>,
}

/// Returns name, shape and values of each tensor of `scorer`.
pub(super) fn named_tensors(scorer: &Scorer) -> Vec<(String, Vec<usize>, &[f32])> {
    match scorer {
        Scorer::Mlp(layers) => {
            let (mut tensors, mut index) = (Vec::new(), 0);
            for layer in layers {
                let (shape, weight, bias) = match layer {
                    HeadLayer::Linear(layer) => {
                        (vec![layer.outputs(), layer.inputs()], &layer.weight, &layer.bias)
                    }
                    HeadLayer::LayerNorm { gamma, beta, .. } => (vec![gamma.len()], gamma, beta),
                    HeadLayer::Activation(_) => {
                        index += 2;
                        continue;
                    }
                };
                let name = |part| format!("classifier.{index}.{part}");
                tensors.push((name("weight"), shape, weight.as_slice()));
                tensors.push((name("bias"), vec![bias.len()], bias.as_slice()));
                index += 1;
            }
            tensors
        }
        Scorer::Cosine(References { values, hidden_size: width, mean, .. }) => {
            let height = values.len() / (*width).max(1);
            let mut tensors =
                vec![(REFERENCES.to_owned(), vec![height, *width], values.as_slice())];
            tensors.extend(mean.as_deref().map(|mean| (MEAN.to_owned(), vec![*width], mean)));
            tensors
        }
    }
}

/// A scorer and, for a cosine head, the counts of its references.
pub(super) type HeadWeights = (Scorer, Option<ReferenceCounts>);

/// Returns the tensor of a name if there is one; the error text contains the name.
pub(super) type Read<'r, 'a> = &'r mut dyn FnMut(&str) -> Result<Option<Stored<'a>>, String>;

/// Makes the scorer that the tensors `names` describe. References of other software are normalised,
/// and references of zero norm are dropped and counted. The error text names the tensor.
pub(super) fn parse_tensors(
    names: &[String],
    read: Read<'_, '_>,
    known: KnownLayers,
) -> Result<HeadWeights, String> {
    if names.iter().any(|name| name == REFERENCES) {
        let is_known = |name: &String| [REFERENCES, MEAN].contains(&name.as_str());
        if !names.iter().all(is_known) {
            return Err(format!("holds other tensors besides `{REFERENCES}`"));
        }
        return read_references(read, known.is_own);
    }
    let (modules, activation) = find_layers(names)?;
    let activation = HeadLayer::Activation(known.activation.unwrap_or(activation));
    let mut layers = Vec::new();
    // Index and width of the previous layer; `is_due` if its linear layer needs an activation.
    let (mut before, mut width, mut is_due) = (None, None, false);
    for (name, place) in modules {
        let layer = read_layer(read, &name, (width, known.norm_eps))?;
        let is_linear = matches!(layer, HeadLayer::Linear(_));
        let has_room = place.zip(before).is_none_or(|(place, before)| place > before + 1);
        // The activation stands before a norm if the indices leave room there, else after it.
        if is_due && (is_linear || has_room) {
            layers.push(activation.clone());
            is_due = false;
        }
        is_due |= is_linear;
        (before, width) = (place, layer.widths().map(|(_, outputs)| outputs));
        layers.push(layer);
    }
    match layers.last() {
        Some(HeadLayer::Linear(_)) => Ok((Scorer::Mlp(layers), None)),
        _ => Err("its last layer is not linear".into()),
    }
}

/// Reads a cosine head; if it is not `ours`, references are normalised, and those of norm 0
/// dropped.
fn read_references(read: Read<'_, '_>, ours: bool) -> Result<HeadWeights, String> {
    let stored = read_required(read, REFERENCES)?;
    let (requested, width) = matrix_shape(REFERENCES, &stored)?;
    let mut values = stored.values(REFERENCES)?;
    if !ours {
        values = values.chunks_exact(width).filter_map(normalised).flatten().collect();
    }
    if values.is_empty() {
        return Err(format!("tensor `{REFERENCES}`: all references are zero"));
    }
    let mean = read_vector(read, MEAN, width)?;
    let center = mean.as_ref().map(|_| Centering::Mean);
    let references = References::from_normalised(values, width, mean);
    let available = references.len();
    let zero_norm = requested - available;
    let counts = ReferenceCounts { requested, available, zero_norm, center, center_rows: None };
    Ok((Scorer::Cosine(references), Some(counts)))
}

/// Name of a layer, and its index if it is in a `Sequential`.
type LayerName = (String, Option<usize>);

/// Returns the layers of a file in their order, and the activation between linear ones. The file
/// may also hold an encoder, whose tensor names do not end in an index; other tensors are refused.
fn find_layers(names: &[String]) -> Result<(Vec<LayerName>, Activation), String> {
    let has_encoder =
        names.iter().any(|name| WORD_EMBEDDINGS.iter().any(|words| name.ends_with(words)));
    for (known, activation) in CLASSIFIERS {
        let found: Option<Vec<&str>> = known.iter().map(|known| find_layer(names, known)).collect();
        let Some(found) = found else { continue };
        let of_head = |name: &String| {
            let layer = name.rsplit_once('.').map_or("", |(layer, _)| layer);
            found.contains(&layer)
        };
        if has_encoder || names.iter().all(of_head) {
            let modules = found.into_iter().map(|name| (name.to_owned(), None));
            return Ok((modules.collect(), activation));
        }
    }
    let layer = |name: &String| name.rsplit_once('.').map(|(layer, _)| layer.to_owned());
    let layers: BTreeSet<Option<String>> = names.iter().map(layer).collect();
    if let ([Some(only)], false) = (layers.iter().collect::<Vec<_>>().as_slice(), has_encoder)
        && split_layer_name(&format!("{only}.weight")).is_none()
    {
        return Ok((vec![(only.clone(), None)], Activation::Relu)); // one linear layer
    }
    let mut by_prefix: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for name in names {
        match split_layer_name(name) {
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
        (Some((prefix, indices)), 1) => {
            let modules =
                indices.into_iter().map(|index| (format!("{prefix}{index}"), Some(index)));
            Ok((modules.collect(), Activation::Relu))
        }
        (None, _) if has_encoder => Err("holds an encoder, but no head beside it".to_owned()),
        (None, _) => Err("holds no tensors".to_owned()),
        _ => Err(format!("holds layers of different prefixes: {}", prefixes.join(", "))),
    }
}

/// Returns the layer of `names` that is called `known` after any prefix; `None` for several.
fn find_layer<'a>(names: &'a [String], known: &str) -> Option<&'a str> {
    let is_known = |name: &str| {
        name.strip_suffix(known).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    };
    let layers = names.iter().filter_map(|name| name.strip_suffix(".weight"));
    let mut found = layers.filter(|name| is_known(name));
    found.next().filter(|_| found.next().is_none())
}

/// Splits `<prefix><index>.weight` (or `.bias`) into prefix and index; `None` for other names.
fn split_layer_name(name: &str) -> Option<(&str, usize)> {
    let layer = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"))?;
    let digits = layer.len() - layer.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, index) = layer.split_at(layer.len() - digits);
    // A second spelling of an index (`00`) would name another tensor.
    let index: usize = index.parse().ok().filter(|i: &usize| i.to_string() == index)?;
    Some((prefix, index))
}

/// Reads the layer called `name`. Its input must have the `width` of the previous output. A missing
/// bias is zeros. A weight that is a vector makes a norm.
fn read_layer(
    read: Read<'_, '_>,
    name: &str,
    (width, norm_eps): (Option<usize>, Option<f64>),
) -> Result<HeadLayer, String> {
    let weight_name = format!("{name}.weight");
    let weight = read_required(read, &weight_name)?;
    let is_norm = weight.shape.len() == 1;
    let (outputs, inputs) = match *weight.shape {
        [width] if width > 0 => (width, width),
        _ => matrix_shape(&weight_name, &weight)?,
    };
    if let Some(width) = width.filter(|width| *width != inputs) {
        return Err(format!(
            "tensor `{weight_name}` takes {inputs} inputs, the layer before gives {width}"
        ));
    }
    let weight = weight.values(&weight_name)?;
    let bias = read_vector(read, &format!("{name}.bias"), outputs)?;
    let bias = bias.unwrap_or_else(|| vec![0.0; outputs]);
    if is_norm {
        let eps = norm_eps.unwrap_or(DEFAULT_EPS);
        return Ok(HeadLayer::LayerNorm { gamma: weight, beta: bias, eps });
    }
    Ok(HeadLayer::Linear(LinearLayer::new(weight, bias)))
}

/// Returns the tensor called `name`; fails if there is none.
fn read_required<'a>(read: Read<'_, 'a>, name: &str) -> Result<Stored<'a>, String> {
    read(name)?.ok_or_else(|| format!("tensor `{name}` is missing"))
}

/// Reads the vector called `name`, if there is one; it must have `len` values.
fn read_vector(read: Read<'_, '_>, name: &str, len: usize) -> Result<Option<Vec<f32>>, String> {
    let Some(stored) = read(name)? else { return Ok(None) };
    if stored.shape != [len] {
        let found = &stored.shape;
        return Err(format!("tensor `{name}` has the shape {found:?}; expected [{len}]"));
    }
    stored.values(name).map(Some)
}

/// Returns the rows and columns of a tensor, which must be a matrix with at least one value.
fn matrix_shape(name: &str, stored: &Stored<'_>) -> Result<(usize, usize), String> {
    match *stored.shape {
        [rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
        ref other => Err(format!("tensor `{name}` has the shape {other:?}; expected a matrix")),
    }
}

/// Makes the scorer that the `tensors` of a safetensors file describe, see [`parse_tensors`].
pub(super) fn parse_safetensors(
    tensors: &[(String, TensorView<'_>)],
    known: KnownLayers,
) -> Result<HeadWeights, String> {
    let names: Vec<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
    let mut read = |name: &str| {
        let found = tensors.iter().find(|(own, _)| own == name);
        Ok(found.map(|(_, view)| {
            let shape = view.shape().to_vec();
            // Tensors are row-major, without gaps.
            let stride = |axis: usize| shape[axis..].iter().copied().fold(1, usize::saturating_mul);
            let strides = (1..=shape.len()).map(stride).collect();
            Stored { dtype: view.dtype(), shape, strides, offset: 0, data: view.data() }
        }))
    };
    parse_tensors(&names, &mut read, known)
}

/// A tensor that is not read yet. Only the length of `data` can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Distance in values between neighbouring indices of each axis.
    pub(super) strides: Vec<usize>,
    /// Number of values in `data` before the first.
    pub(super) offset: usize,
    /// Little-endian values, possibly more than the tensor has.
    pub(super) data: &'a [u8],
}

impl Stored<'_> {
    /// Returns the size of the values in the file; `None` if it overflows.
    pub(super) fn num_bytes(&self) -> Option<usize> {
        let count = self.shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n))?;
        count.checked_mul(self.dtype.bitsize() / 8)
    }

    /// Returns the values in the order of their indices, as f32. They must be finite, lie within
    /// the data and be no more than it holds, which bounds the memory that a false shape can take.
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
            (shape, strides) => {
                return Err(format!(
                    "tensor `{name}` has the shape {shape:?} and the strides {strides:?}; expected \
                     a vector or a matrix"
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
        // Rows and columns are fewer than the bytes of the data, so that nothing overflows.
        let steps = [(rows - 1, row_stride), (columns - 1, stride), (1, self.offset)];
        let last: u128 = steps.iter().map(|&(count, step)| count as u128 * step as u128).sum();
        if (last + 1) * size as u128 > self.data.len() as u128 {
            return Err(outside());
        }
        let value: fn(&[u8]) -> f32 = match self.dtype {
            Dtype::F32 => |bytes| f32::from_le_bytes(first_bytes(bytes)),
            Dtype::F64 => |bytes| f64::from_le_bytes(first_bytes(bytes)) as f32,
            Dtype::F16 => |bytes| f16::from_le_bytes(first_bytes(bytes)).to_f32(),
            Dtype::BF16 => |bytes| bf16::from_le_bytes(first_bytes(bytes)).to_f32(),
            other => return Err(wrong_type(name, other)),
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

/// Returns the error text for a tensor whose values are not floats.
pub(super) fn wrong_type(name: &str, dtype: impl std::fmt::Display) -> String {
    format!("tensor `{name}` is of type {dtype}; expected a float")
}

/// Returns the first `N` of `bytes`, or zeros if there are fewer.
fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
