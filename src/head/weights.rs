//! Tensors of a head file to and from a [`Scorer`].
//!
//! Written names are those of the published quality head: `classifier.0.weight`,
//! `classifier.3.weight`... (Linear, ReLU and Dropout count), and `references` for a cosine head.
//! Read are all names `<prefix><index>.weight` and `.bias` of one prefix, in the order of index.

use std::collections::BTreeSet;

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::ReferenceCounts;
use super::scorer::{Linear, References, Scorer, normalised};

/// Prefix of the layers' names.
const PREFIX: &str = "classifier.";
/// A layer counts for three modules: Linear, ReLU, Dropout.
const INDEX_STEP: usize = 3;
/// Name of the matrix of a cosine head.
const REFERENCES: &str = "references";

/// A tensor to be written: name, shape, values.
pub(super) type Named<'a> = (String, Vec<usize>, &'a [f32]);

/// The tensors of `scorer` with their names.
pub(super) fn named(scorer: &Scorer) -> Vec<Named<'_>> {
    match scorer {
        Scorer::Mlp(layers) => {
            let tensors = layers.iter().enumerate().flat_map(|(i, layer)| {
                let name = format!("{PREFIX}{}", i * INDEX_STEP);
                [
                    (format!("{name}.bias"), vec![layer.outputs()], layer.bias.as_slice()),
                    (
                        format!("{name}.weight"),
                        vec![layer.outputs(), layer.inputs()],
                        layer.weight.as_slice(),
                    ),
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

/// The scorer that `tensors` describe. `ours` says that polysift wrote them, so that references
/// are taken as they are; others are normalised, and those of zero norm dropped and counted. The
/// error text names the tensor.
pub(super) fn parse(
    tensors: &SafeTensors<'_>,
    ours: bool,
) -> Result<(Scorer, Option<ReferenceCounts>), String> {
    if tensors.names().contains(&REFERENCES) {
        let (scorer, counts) = references(tensors, ours)?;
        Ok((scorer, Some(counts)))
    } else {
        Ok((layers(tensors)?, None))
    }
}

/// A cosine head.
fn references(tensors: &SafeTensors<'_>, ours: bool) -> Result<(Scorer, ReferenceCounts), String> {
    if tensors.len() != 1 {
        return Err(format!("holds other tensors besides `{REFERENCES}`"));
    }
    let view = tensors.tensor(REFERENCES).map_err(|e| e.to_string())?;
    let (requested, width) = matrix_shape(REFERENCES, &view)?;
    let mut values = values(REFERENCES, &view)?;
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

/// An MLP.
fn layers(tensors: &SafeTensors<'_>) -> Result<Scorer, String> {
    let mut prefix = None;
    let mut indices = BTreeSet::new();
    for name in tensors.names() {
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
    let prefix = prefix.ok_or("holds no tensors")?;
    let mut layers: Vec<Linear> = Vec::new();
    for index in indices {
        let width = layers.last().map(Linear::outputs);
        layers.push(layer(tensors, &format!("{prefix}{index}"), width)?);
    }
    Ok(Scorer::Mlp(layers))
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
fn layer(tensors: &SafeTensors<'_>, name: &str, width: Option<usize>) -> Result<Linear, String> {
    let find = |part: &str| {
        let name = format!("{name}.{part}");
        tensors
            .tensor(&name)
            .map(|view| (name.clone(), view))
            .map_err(|_| format!("tensor `{name}` is missing"))
    };
    let (weight_name, weight) = find("weight")?;
    let (bias_name, bias) = find("bias")?;
    let (outputs, inputs) = matrix_shape(&weight_name, &weight)?;
    if width.is_some_and(|width| width != inputs) {
        return Err(format!(
            "tensor `{weight_name}` takes {inputs} inputs, the layer before gives {}",
            width.unwrap_or_default()
        ));
    }
    if bias.shape() != [outputs] {
        return Err(format!(
            "tensor `{bias_name}` has the shape {:?}; expected [{outputs}]",
            bias.shape()
        ));
    }
    Ok(Linear::new(values(&weight_name, &weight)?, values(&bias_name, &bias)?))
}

/// Rows and columns of a tensor that must be a matrix with at least one value.
fn matrix_shape(name: &str, view: &TensorView<'_>) -> Result<(usize, usize), String> {
    match *view.shape() {
        [rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
        ref other => Err(format!("tensor `{name}` has the shape {other:?}; expected a matrix")),
    }
}

/// The values of a tensor as f32; they must be finite.
fn values(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, String> {
    let data = view.data();
    let values: Vec<f32> = match view.dtype() {
        Dtype::F32 => data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        Dtype::F64 => data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32).collect(),
        Dtype::F16 => data.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        Dtype::BF16 => {
            data.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect()
        }
        other => {
            return Err(format!("tensor `{name}` is of type {other}; expected a float"));
        }
    };
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("tensor `{name}`: value {at} is {}", values[at])),
        None => Ok(values),
    }
}
