//! The forward pass of one batch: which kernels run, in which order, on which memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use half::bf16;
use polysift_kernels::cuda::{
    Buffer, Device, LeftOperand, Linear, MatmulEpilogue, MatmulPrecision, MatmulResult,
    MatmulShape, MatrixInstructions, Norm, Operands, PooledTokens, Quantised, Result, Staged,
    Stream, add_norm, attention, choose_attention, embed_layer_norm, glu, has_matmul_norm,
    layer_norm, matmul, matmul_norm, max_sequences, pool, quantise_rows, randomize, rotate,
};

use super::super::architecture::{Architecture, FeedForward};
use super::model::{DeviceLayer, DeviceModel, ModelShape};
use polysift_config::Pooling;

/// Memory for the states of `T` tokens.
pub(super) struct Arena {
    /// `[T, H]`: input and output of a layer; in pre-norm models, after the norm.
    hidden: Buffer<bf16>,
    /// `[T, H]`, in pre-norm models: the states before the norm.
    states: Option<Buffer<f32>>,
    /// `[T, 3H]`.
    query_key_value: Buffer<bf16>,
    /// `[T, H]`: result of attention, before its output map.
    context: Buffer<bf16>,
    /// `[T, H]`: what a block adds to the states; except in pre-norm models, plus `hidden`.
    update: Buffer<bf16>,
    /// `[T, F]`, or `[T, 2F]` if gated.
    intermediate: Intermediate,
    /// `[T, F]`: the result of the gate on `intermediate`.
    gated: Option<Buffer<bf16>>,
    /// In fp8, the input of the next product, `[T, H]` or `[T, F]`, unless a product wrote it.
    quantised: Option<Quantised>,
    /// `[T / 4, H]`: the result.
    pub(super) embeddings: Buffer<f32>,
}

/// Inner states of the feed-forward part.
enum Intermediate {
    Bf16(Buffer<bf16>),
    /// An fp8 product writes them for the next one.
    Fp8(Quantised),
}

impl Arena {
    pub(super) fn new(device: &Device, shape: &ModelShape, tokens: usize) -> Result<Self> {
        const PURPOSE: &str = "the states of a batch";
        let states = |width: usize| device.alloc(tokens * width, PURPOSE);
        let &ModelShape { ref architecture, precision, .. } = shape;
        let &Architecture { width, inner, .. } = architecture;
        let is_gated = architecture.feed_forward != FeedForward::Plain;
        let sums = architecture.pre_norm.then(|| device.alloc(tokens * width, PURPOSE));
        let rows = |width: usize| Quantised::new(device, tokens, width, PURPOSE);
        let (intermediate, quantised) = match precision {
            MatmulPrecision::Fp8 if !is_gated => {
                (Intermediate::Fp8(rows(inner)?), Some(rows(width)?))
            }
            _ => {
                let is_fp8 = precision == MatmulPrecision::Fp8;
                let quantised = is_fp8.then(|| rows(inner.max(width))).transpose()?;
                (Intermediate::Bf16(states(architecture.intermediate())?), quantised)
            }
        };
        Ok(Self {
            hidden: states(width)?,
            states: sums.transpose()?,
            query_key_value: states(3 * width)?,
            context: states(width)?,
            update: states(width)?,
            intermediate,
            gated: is_gated.then(|| states(inner)).transpose()?,
            quantised,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
    }

    /// Returns the operands of a product; in fp8 its input must have been quantised.
    fn operands(&mut self, which: Product) -> Operands<'_> {
        let Self { hidden, query_key_value, context, update, gated, .. } = self;
        let sum = self.states.is_none().then_some(&*hidden);
        let quantised = self.quantised.as_ref();
        let left = |x| quantised.map_or(LeftOperand::Bf16(x), LeftOperand::Fp8);
        let (x, residual, y) = match (which, &mut self.intermediate) {
            (Product::QueryKeyValue, _) => {
                (left(hidden), None, MatmulResult::Bf16(query_key_value))
            }
            (Product::AttentionOutput, _) => (left(context), sum, MatmulResult::Bf16(update)),
            (Product::Intermediate, Intermediate::Bf16(y)) => {
                (left(hidden), None, MatmulResult::Bf16(y))
            }
            (Product::Intermediate, Intermediate::Fp8(y)) => {
                (left(hidden), None, MatmulResult::Fp8(y))
            }
            (Product::Output, Intermediate::Bf16(x)) => {
                (left(gated.as_ref().unwrap_or(x)), sum, MatmulResult::Bf16(update))
            }
            (Product::Output, Intermediate::Fp8(x)) => {
                (LeftOperand::Fp8(x), sum, MatmulResult::Bf16(update))
            }
        };
        Operands { x, residual, y }
    }

    /// Returns the bf16 input of a product whose result [`matmul_norm`] adds to `hidden`, `update`
    /// and `hidden`; `None` if there is no such input.
    fn sum_operands(
        &mut self,
        which: Product,
    ) -> Option<(&Buffer<bf16>, &mut Buffer<bf16>, &mut Buffer<bf16>)> {
        let x = match (which, &self.intermediate) {
            (Product::AttentionOutput, _) => &self.context,
            (Product::Output, Intermediate::Bf16(x)) => self.gated.as_ref().unwrap_or(x),
            _ => return None,
        };
        Some((x, &mut self.update, &mut self.hidden))
    }

    /// In fp8, quantises the first `rows` rows of a product's input, if only bf16 holds it.
    fn quantise(
        &mut self,
        which: Product,
        stream: &Stream,
        (rows, width): (usize, usize),
    ) -> Result<()> {
        let Some(mut quantised) = self.quantised.take() else { return Ok(()) };
        let done = match self.input(which) {
            Some(input) => quantise_rows(stream, input, &mut quantised, (rows, width)),
            None => Ok(()),
        };
        self.quantised = Some(quantised);
        done
    }

    /// Returns the bf16 input of a product, or `None` if the input exists only in e4m3.
    fn input(&mut self, which: Product) -> Option<&mut Buffer<bf16>> {
        match (which, &mut self.intermediate) {
            (Product::QueryKeyValue | Product::Intermediate, _) => Some(&mut self.hidden),
            (Product::AttentionOutput, _) => Some(&mut self.context),
            (Product::Output, Intermediate::Bf16(x)) => Some(self.gated.as_mut().unwrap_or(x)),
            (Product::Output, Intermediate::Fp8(_)) => None,
        }
    }

    /// Computes `hidden` = norm of the first `rows` rows of `update`. In pre-norm models, `update`
    /// is first added to the states, or to the embedding in `hidden` if `is_first`.
    fn normalise(
        &mut self,
        stream: &Stream,
        norm: &Norm,
        rows: usize,
        is_first: bool,
    ) -> Result<()> {
        let Self { hidden, states, update, quantised, .. } = self;
        let quantised = quantised.as_mut();
        match states {
            None => layer_norm(stream, update, norm, hidden, quantised, rows),
            Some(states) => {
                add_norm(stream, update, (states, is_first), norm, hidden, quantised, rows)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    QueryKeyValue,
    AttentionOutput,
    Intermediate,
    Output,
}

impl Product {
    const ALL: [Self; 4] =
        [Self::QueryKeyValue, Self::AttentionOutput, Self::Intermediate, Self::Output];

    /// Returns the norm that follows the product and its residual sum, if they follow.
    fn norm(self, layer: &DeviceLayer) -> Option<&Norm> {
        match self {
            Self::QueryKeyValue | Self::Intermediate => None,
            Self::AttentionOutput => layer.attention_norm.as_ref(),
            Self::Output => Some(&layer.output_norm),
        }
    }

    fn weights(self, layer: &DeviceLayer) -> &Linear {
        match self {
            Self::QueryKeyValue => &layer.query_key_value,
            Self::AttentionOutput => &layer.attention_output,
            Self::Intermediate => &layer.intermediate,
            Self::Output => &layer.output,
        }
    }

    fn shape(self, model: &ModelShape, tokens: usize) -> MatmulShape {
        let &ModelShape { ref architecture, precision, .. } = model;
        let &Architecture { width, inner, pre_norm, feed_forward, .. } = architecture;
        // In pre-norm models, `add_norm` computes the sums.
        let sum = if pre_norm { MatmulEpilogue::Bias } else { MatmulEpilogue::Residual };
        let activation = match feed_forward {
            FeedForward::Gated { .. } => MatmulEpilogue::Bias,
            FeedForward::Plain => MatmulEpilogue::Gelu,
        };
        let (outputs, inputs, epilogue) = match self {
            Self::QueryKeyValue => (3 * width, width, MatmulEpilogue::Bias),
            Self::AttentionOutput => (width, width, sum),
            Self::Intermediate => (architecture.intermediate(), width, activation),
            Self::Output => (width, inner, sum),
        };
        MatmulShape { tokens, outputs, inputs, epilogue, precision }
    }
}

/// Matrix instructions that a model uses on a GPU.
pub(super) struct ModelInstructions {
    /// One per [`Product`].
    products: [MatrixInstructions; 4],
    /// One per layer.
    attention: Vec<MatrixInstructions>,
    /// True if a product with [`MatrixInstructions::Warpgroup`] includes the norm that follows.
    is_fused: bool,
}

impl ModelInstructions {
    /// Chooses the fastest instructions that the GPU has and that give right results. Overwrites
    /// `arena`, the memory for batches of up to `tokens` rows.
    pub(super) fn choose(
        stream: &Stream,
        model: &DeviceModel,
        arena: &mut Arena,
        tokens: usize,
    ) -> Result<Self> {
        let mut products = [MatrixInstructions::fastest(stream.device()); 4];
        let architecture = &model.shape.architecture;
        let is_bf16 = model.shape.precision == MatmulPrecision::Bf16;
        let is_fused =
            is_bf16 && !architecture.pre_norm && has_matmul_norm(stream, architecture.width);
        if is_bf16 && products[0] == MatrixInstructions::Warpgroup {
            for which in Product::ALL {
                let shape = which.shape(&model.shape, tokens).for_comparison(stream);
                let norm = which.norm(&model.layers[0]).filter(|_| is_fused);
                products[which as usize] = match norm {
                    Some(norm) => compare_fused(which, norm, shape, stream, model, arena)?,
                    None => compare(which, shape, stream, model, arena)?,
                };
            }
        }
        let heads = (architecture.num_heads, architecture.head_size());
        let limits = (model.shape.limits(), architecture.max_tokens);
        let mut by_window = BTreeMap::new();
        let attention =
            architecture.layers.iter().map(|layer| match by_window.entry(layer.window) {
                Entry::Occupied(chosen) => Ok(*chosen.get()),
                Entry::Vacant(entry) => {
                    let Arena { query_key_value: qkv, context, .. } = &mut *arena;
                    let chosen =
                        choose_attention(stream, qkv, context, heads, layer.window, limits)?;
                    Ok(*entry.insert(chosen))
                }
            });
        Ok(Self { products, attention: attention.collect::<Result<_>>()?, is_fused })
    }

    /// Returns true if the product includes the norm that follows.
    fn fuses(&self, which: Product) -> bool {
        self.is_fused && self.products[which as usize] == MatrixInstructions::Warpgroup
    }
}

/// Compares the kernels for a product with the weights of the first layer. Overwrites `arena`.
fn compare(
    which: Product,
    shape: MatmulShape,
    stream: &Stream,
    model: &DeviceModel,
    arena: &mut Arena,
) -> Result<MatrixInstructions> {
    // The residual is `hidden`, whatever the input is.
    randomize(stream, &mut arena.hidden, shape.tokens * model.shape.architecture.width)?;
    if let Some(input) = arena.input(which) {
        randomize(stream, input, shape.tokens * shape.inputs)?;
    }
    let Operands { x, residual, y } = arena.operands(which);
    let MatmulResult::Bf16(y) = y else { return Ok(MatrixInstructions::Warpgroup) };
    let values = shape.tokens * shape.outputs;
    let linear = which.weights(&model.layers[0]);
    MatrixInstructions::agreeing(stream, &format!("{which:?}"), y, values, |instructions, y| {
        let operands = Operands { x, residual, y: MatmulResult::Bf16(y) };
        matmul(stream, shape, linear, &operands, instructions)
    })
}

/// As [`compare`], for a product that includes its residual sum and norm.
fn compare_fused(
    which: Product,
    norm: &Norm,
    shape: MatmulShape,
    stream: &Stream,
    model: &DeviceModel,
    arena: &mut Arena,
) -> Result<MatrixInstructions> {
    if let Some(input) = arena.input(which) {
        randomize(stream, input, shape.tokens * shape.inputs)?;
    }
    let Some((x, update, hidden)) = arena.sum_operands(which) else {
        return Ok(MatrixInstructions::Warpgroup);
    };
    let values = shape.tokens * shape.outputs;
    let (x, linear) = (LeftOperand::Bf16(x), which.weights(&model.layers[0]));
    MatrixInstructions::agreeing(stream, &format!("{which:?}"), hidden, values, |by, hidden| {
        // The residual, which the result replaces.
        randomize(stream, hidden, values)?;
        if by == MatrixInstructions::Warpgroup {
            return matmul_norm(stream, x, linear, norm, hidden, None, shape.tokens);
        }
        let (residual, y) = (Some(&*hidden), MatmulResult::Bf16(&mut *update));
        matmul(stream, shape, linear, &Operands { x, residual, y }, by)?;
        layer_norm(stream, update, norm, hidden, None, shape.tokens)
    })
}

/// Queues the forward pass of the batch in `staged`, which writes `arena.embeddings`.
pub(super) fn forward(
    stream: &Stream,
    model: &DeviceModel,
    instructions: &ModelInstructions,
    staged: &Staged,
    arena: &mut Arena,
) -> Result<()> {
    let &ModelShape { ref architecture, pooling, .. } = &model.shape;
    let &Architecture { width, inner, num_heads, .. } = architecture;
    let (rows, heads) = (staged.tokens(), (num_heads, architecture.head_size()));
    let Arena { hidden, quantised, .. } = &mut *arena;
    embed_layer_norm(stream, staged, &model.embedding, &model.norm, hidden, quantised.as_mut())?;
    let product = |which: Product, layer: &DeviceLayer, arena: &mut Arena| {
        let (shape, linear) = (which.shape(&model.shape, rows), which.weights(layer));
        let instructions = instructions.products[which as usize];
        matmul(stream, shape, linear, &arena.operands(which), instructions)
    };
    // A product, its sum with the states, and the norm that follows, if one does.
    let normed_product =
        |which: Product, layer: &DeviceLayer, arena: &mut Arena, is_first: bool| {
            let norm = which.norm(layer);
            if instructions.fuses(which)
                && let (Some(norm), Some((x, _, hidden))) = (norm, arena.sum_operands(which))
            {
                let (x, linear) = (LeftOperand::Bf16(x), which.weights(layer));
                return matmul_norm(stream, x, linear, norm, hidden, None, rows);
            }
            product(which, layer, arena)?;
            norm.map_or(Ok(()), |norm| arena.normalise(stream, norm, rows, is_first))
        };
    let kinds = architecture.layers.iter().zip(&instructions.attention);
    for (i, (layer, (kind, &attention_by))) in model.layers.iter().zip(kinds).enumerate() {
        product(Product::QueryKeyValue, layer, arena)?;
        let Arena { query_key_value, context, .. } = &mut *arena;
        if let Some(rope) = kind.rope {
            rotate(stream, staged, &model.angles[rope], query_key_value, heads)?;
        }
        attention(stream, staged, query_key_value, context, heads, kind.window, attention_by)?;
        arena.quantise(Product::AttentionOutput, stream, (rows, width))?;
        normed_product(Product::AttentionOutput, layer, arena, i == 0)?;

        product(Product::Intermediate, layer, arena)?;
        let Arena { intermediate, gated, .. } = &mut *arena;
        if let (Some(gated), Intermediate::Bf16(intermediate)) = (gated, intermediate) {
            glu(stream, intermediate, gated, (rows, inner))?;
        }
        arena.quantise(Product::Output, stream, (rows, inner))?;
        normed_product(Product::Output, layer, arena, false)?;
    }
    let tokens = match pooling {
        Pooling::Mean => PooledTokens::All,
        Pooling::Cls => PooledTokens::First,
        Pooling::Last => PooledTokens::Last,
    };
    pool(stream, staged, &arena.hidden, &mut arena.embeddings, width, tokens)
}
