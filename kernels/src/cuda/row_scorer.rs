//! A head on a card: rows of embeddings to outputs.

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::score::{linear_f64, linear_relu, max_similarity, prepare_rows};
use super::stream::Stream;

/// Rows of one pass: 12 MB at a width of 768, enough for every multiprocessor to have some.
const BLOCK_ROWS: usize = 4_096;
/// Similarities of a row that there is room for, each to a part of the references.
const PARTS: usize = 8;

/// Computes a head for rows of embeddings, any number of them at a time.
///
/// A row's outputs depend on the row alone.
pub struct RowScorer {
    stream: Stream,
    width: usize,
    head: Head,
    rows: Buffer<f32>,
    prepared: Buffer<f32>,
    usable: Buffer<u8>,
}

enum Head {
    Mlp(Mlp),
    /// References `[K, D]`, and room for the similarities of a block to their parts.
    Cosine(Buffer<f32>, Buffer<f32>),
}

/// Weight `[outputs, inputs]` and bias `[outputs]`.
type Layer = (Buffer<f32>, Buffer<f32>);

struct Mlp {
    /// ReLU after each; with room for its results.
    hidden: Vec<(Layer, Buffer<f32>)>,
    last: Layer,
    outputs: Buffer<f64>,
}

impl std::fmt::Debug for RowScorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a head for rows of {} values on {:?}", self.width, self.stream.device())
    }
}

impl RowScorer {
    /// A head of linear layers (weight `[outputs, inputs]` row-major, bias `[outputs]`) with ReLU
    /// between them; there is at least one.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit together; as [`Device::alloc`].
    pub fn mlp(device: &Device, layers: &[(&[f32], &[f32])]) -> Result<Self> {
        let fail = |reason: String| Err(CudaError::shape("head", reason));
        let stream = device.stream()?;
        let mut width = None;
        let mut inputs = None;
        for (i, (weight, bias)) in layers.iter().enumerate() {
            let own = weight.len().checked_div(bias.len()).unwrap_or_default();
            if own == 0 || own * bias.len() != weight.len() || inputs.is_some_and(|n| n != own) {
                let (weights, outputs) = (weight.len(), bias.len());
                return fail(format!("layer {i} has {weights} weights, {outputs} outputs"));
            }
            width = width.or(Some(own));
            inputs = Some(bias.len());
        }
        let (Some(width), Some(((weight, bias), hidden))) = (width, layers.split_last()) else {
            return fail("no layers".into());
        };
        let layer = |weight: &[f32], bias: &[f32]| -> Result<Layer> {
            Ok((stream.to_device(weight, "a head")?, stream.to_device(bias, "a head")?))
        };
        let hidden = hidden.iter().map(|(weight, bias)| {
            let results = device.alloc(BLOCK_ROWS * bias.len(), "scoring")?;
            Ok((layer(weight, bias)?, results))
        });
        let head = Head::Mlp(Mlp {
            hidden: hidden.collect::<Result<_>>()?,
            last: layer(weight, bias)?,
            outputs: device.alloc(BLOCK_ROWS * bias.len(), "scoring")?,
        });
        Self::new(stream, width, head)
    }

    /// The largest cosine similarity to any of `references` `[K, width]`, whose rows have unit norm.
    ///
    /// # Errors
    /// [`CudaError::Shape`] without references or with half a row; as [`Device::alloc`].
    pub fn cosine(device: &Device, references: &[f32], width: usize) -> Result<Self> {
        if width == 0 || references.is_empty() || !references.len().is_multiple_of(width) {
            let reason = format!("references of {} values, rows of {width}", references.len());
            return Err(CudaError::shape("head", reason));
        }
        let stream = device.stream()?;
        let references = stream.to_device(references, "the references")?;
        let head = Head::Cosine(references, device.alloc(PARTS * BLOCK_ROWS, "scoring")?);
        Self::new(stream, width, head)
    }

    fn new(stream: Stream, width: usize, head: Head) -> Result<Self> {
        let device = stream.device().clone();
        Ok(Self {
            width,
            head,
            rows: device.alloc(BLOCK_ROWS * width, "scoring")?,
            prepared: device.alloc(BLOCK_ROWS * width, "scoring")?,
            usable: device.alloc(BLOCK_ROWS, "scoring")?,
            stream,
        })
    }

    /// Outputs of a row: those of the last layer, or one similarity.
    pub fn num_outputs(&self) -> usize {
        match &self.head {
            Head::Mlp(mlp) => mlp.last.1.len(),
            Head::Cosine(..) => 1,
        }
    }

    /// Outputs `[n, outputs]` of `rows` `[n, D]`; NaN for a row that is not finite, or for a cosine
    /// head has no direction.
    ///
    /// # Errors
    /// [`CudaError::Shape`] for half a row; [`CudaError::Driver`] if the card fails.
    pub fn outputs(&mut self, rows: &[f32]) -> Result<Vec<f64>> {
        if !rows.len().is_multiple_of(self.width) {
            let reason = format!("{} values, rows of {}", rows.len(), self.width);
            return Err(CudaError::shape("scoring", reason));
        }
        let mut outputs = Vec::with_capacity(rows.len() / self.width * self.num_outputs());
        for block in rows.chunks(BLOCK_ROWS * self.width) {
            self.block(block, &mut outputs)?;
        }
        Ok(outputs)
    }

    /// Appends the outputs of at most [`BLOCK_ROWS`] rows.
    fn block(&mut self, block: &[f32], outputs: &mut Vec<f64>) -> Result<()> {
        let per_row = self.num_outputs();
        let Self { stream, width, head, rows, prepared, usable } = self;
        let count = block.len() / *width;
        stream.upload(rows, 0, block)?;
        let unit = matches!(head, Head::Cosine(..));
        prepare_rows(stream, rows, prepared, usable, (count, *width), unit)?;
        let start = outputs.len();
        outputs.resize(start + count * per_row, f64::NAN);
        let found = &mut outputs[start..];
        match head {
            Head::Mlp(mlp) => mlp.run(stream, prepared, count, found)?,
            Head::Cosine(references, room) => {
                max_similarity(stream, prepared, references, room, (count, *width))?;
                let mut similarities = vec![0.0; count];
                stream.download(room, &mut similarities)?;
                for (to, similarity) in found.iter_mut().zip(similarities) {
                    *to = f64::from(similarity);
                }
            }
        }
        let mut good = vec![0; count];
        stream.download(usable, &mut good)?;
        for (row, _) in found.chunks_exact_mut(per_row).zip(good).filter(|(_, good)| *good == 0) {
            row.fill(f64::NAN);
        }
        Ok(())
    }
}

impl Mlp {
    /// Writes the outputs of the first `count` rows of `x` to `found`.
    fn run(
        &mut self,
        stream: &Stream,
        x: &Buffer<f32>,
        count: usize,
        found: &mut [f64],
    ) -> Result<()> {
        let mut x = x;
        for ((weight, bias), results) in &mut self.hidden {
            linear_relu(stream, x, (weight, bias), results, count)?;
            x = results;
        }
        let (weight, bias) = &self.last;
        linear_f64(stream, x, (weight, bias), &mut self.outputs, count)?;
        check_len("scoring", "the outputs", self.outputs.len(), Some(found.len()))?;
        stream.download(&self.outputs, found)
    }
}
