//! The forward pass of one batch: which kernels run, in which order, on which memory.

use half::bf16;
use polysift_kernels::cuda::{
    Buffer, Device, LeftOperand, Linear, MatmulEpilogue, MatrixInstructions, Norm, Operands,
    Output, PooledTokens, Result, Staged, Stream, add_norm, attention, choose_attention,
    embed_layer_norm, glu, has_matmul_norm, layer_norm, matmul, matmul_norm, max_sequences, pool,
    randomize, rotate, rows_to_compare,
};

use super::super::architecture::{Architecture, FeedForward, LayerKind};
use super::model::{DeviceLayer, DeviceModel, ModelShape};
use polysift_config::Pooling;

/// Memory for the states of `T` tokens.
pub(super) struct Arena {
    /// `[T, H]`: input and output of a layer; in pre-norm models, after the norm.
    hidden: Buffer<bf16>,
    /// `[T, H]`, in fp8: the same in e4m3, for the next product.
    hidden_fp8: Option<Buffer<u8>>,
    /// `[T, H]`, in pre-norm models: the states before the norm.
    states: Option<Buffer<f32>>,
    /// `[T, 3H]`.
    query_key_value: Buffer<bf16>,
    /// `[T, H]`: result of attention, before its output map.
    context: Rows,
    /// `[T, H]`: what a block adds to the states; except in pre-norm models, plus `hidden`.
    update: Buffer<bf16>,
    /// `[T, F]`; before a gate `[T, 2F]` in bf16.
    intermediate: Rows,
    /// `[T, F]`: the result of the gate on `intermediate`.
    gated: Option<Rows>,
    /// `[T / 4, H]`: the result.
    pub(super) embeddings: Buffer<f32>,
}

/// States that only a product reads, so that they are in its precision.
enum Rows {
    Bf16(Buffer<bf16>),
    Fp8(Buffer<u8>),
}

impl Rows {
    fn as_operand(&self) -> LeftOperand<'_> {
        match self {
            Self::Bf16(rows) => LeftOperand::Bf16(rows),
            Self::Fp8(rows) => LeftOperand::Fp8(rows),
        }
    }

    /// Returns the states as an output for `next`, the map that reads them.
    fn as_output(&mut self, next: &Linear) -> Output<'_> {
        match self {
            Self::Bf16(rows) => Output::Bf16(rows),
            Self::Fp8(rows) => Output::Fp8(rows, next.x_scale()),
        }
    }
}

/// Operands of a product that continues with a residual sum and a norm.
struct SumOperands<'a> {
    x: LeftOperand<'a>,
    hidden: &'a mut Buffer<bf16>,
    copy: Option<&'a mut Buffer<u8>>,
    update: &'a mut Buffer<bf16>,
}

impl Arena {
    pub(super) fn new(device: &Device, shape: &ModelShape, tokens: usize) -> Result<Self> {
        const PURPOSE: &str = "the states of a batch";
        let states = |width: usize| device.alloc(tokens * width, PURPOSE);
        let bytes = |width: usize| device.alloc(tokens * width, PURPOSE);
        let &ModelShape { ref architecture, is_fp8, .. } = shape;
        let &Architecture { width, inner, .. } = architecture;
        let is_gated = architecture.feed_forward != FeedForward::Plain;
        let sums = architecture.pre_norm.then(|| device.alloc(tokens * width, PURPOSE));
        let rows = |width: usize| -> Result<Rows> {
            Ok(if is_fp8 { Rows::Fp8(bytes(width)?) } else { Rows::Bf16(states(width)?) })
        };
        Ok(Self {
            hidden: states(width)?,
            hidden_fp8: is_fp8.then(|| bytes(width)).transpose()?,
            states: sums.transpose()?,
            query_key_value: states(3 * width)?,
            context: rows(width)?,
            update: states(width)?,
            intermediate: if is_gated { Rows::Bf16(states(2 * inner)?) } else { rows(inner)? },
            gated: is_gated.then(|| rows(inner)).transpose()?,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
    }

    /// Returns the operands of a product of `layer` with `rows` rows.
    fn operands(&mut self, which: Product, layer: &DeviceLayer, rows: usize) -> Operands<'_> {
        let Self {
            hidden, hidden_fp8, query_key_value, context, update, gated, intermediate, ..
        } = self;
        // In pre-norm models, `add_norm` computes the sums.
        let is_pre_norm = self.states.is_some();
        let sum = if is_pre_norm { MatmulEpilogue::Bias } else { MatmulEpilogue::Residual(hidden) };
        let activation = if gated.is_some() { MatmulEpilogue::Bias } else { MatmulEpilogue::Gelu };
        let normalised = hidden_fp8.as_ref().map_or(LeftOperand::Bf16(hidden), LeftOperand::Fp8);
        let (x, epilogue, y) = match which {
            Product::QueryKeyValue => {
                (normalised, MatmulEpilogue::Bias, Output::Bf16(query_key_value))
            }
            Product::AttentionOutput => (context.as_operand(), sum, Output::Bf16(update)),
            Product::Intermediate => {
                (normalised, activation, intermediate.as_output(&layer.output))
            }
            Product::Output => {
                (gated.as_ref().unwrap_or(intermediate).as_operand(), sum, Output::Bf16(update))
            }
        };
        Operands { rows, x, epilogue, y }
    }

    /// Returns the input of a product if it is bf16.
    fn input(&mut self, which: Product) -> Option<&mut Buffer<bf16>> {
        let rows = match which {
            Product::QueryKeyValue | Product::Intermediate => return Some(&mut self.hidden),
            Product::AttentionOutput => &mut self.context,
            Product::Output => self.gated.as_mut().unwrap_or(&mut self.intermediate),
        };
        match rows {
            Rows::Bf16(rows) => Some(rows),
            Rows::Fp8(_) => None,
        }
    }

    /// Returns the operands of a product whose result is added to `hidden`.
    fn sum_operands(&mut self, which: Product) -> SumOperands<'_> {
        let Self { hidden, hidden_fp8, context, update, gated, intermediate, .. } = self;
        let x = match which {
            Product::AttentionOutput => &*context,
            _ => gated.as_ref().unwrap_or(intermediate),
        };
        SumOperands { x: x.as_operand(), hidden, copy: hidden_fp8.as_mut(), update }
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
        let is_fused = !architecture.pre_norm && has_matmul_norm(stream, architecture.width);
        if !model.shape.is_fp8 && products[0] == MatrixInstructions::Warpgroup {
            for which in Product::ALL {
                let layer = &model.layers[0];
                let rows = rows_to_compare(stream, tokens, which.weights(layer).outputs());
                products[which as usize] = match which.norm(layer).filter(|_| is_fused) {
                    Some(norm) => compare_fused(which, norm, rows, stream, layer, arena)?,
                    None => compare(which, rows, stream, layer, arena)?,
                };
            }
        }
        let heads = (architecture.num_heads, architecture.head_size());
        let limits = (model.shape.limits(), architecture.max_tokens.min(tokens));
        // `update` is as large as the context, and always bf16.
        let Arena { query_key_value: qkv, update, .. } = arena;
        let mut attention = Vec::with_capacity(architecture.layers.len());
        for LayerKind { window, .. } in &*architecture.layers {
            let same =
                architecture.layers.iter().zip(&attention).find(|(k, _)| k.window == *window);
            let chosen = match same {
                Some((_, &chosen)) => chosen,
                None => choose_attention(stream, qkv, update, heads, *window, limits)?,
            };
            attention.push(chosen);
        }
        Ok(Self { products, attention, is_fused })
    }
}

/// Compares the kernels for a product with the weights of `layer`. Overwrites `arena`.
fn compare(
    which: Product,
    rows: usize,
    stream: &Stream,
    layer: &DeviceLayer,
    arena: &mut Arena,
) -> Result<MatrixInstructions> {
    let linear = which.weights(layer);
    // The residual is `hidden`, whatever the input is.
    let width = layer.query_key_value.inputs();
    randomize(stream, &mut arena.hidden, rows * width)?;
    if let Some(input) = arena.input(which) {
        randomize(stream, input, rows * linear.inputs())?;
    }
    let Operands { x, epilogue, y, .. } = arena.operands(which, layer, rows);
    let Output::Bf16(y) = y else { return Ok(MatrixInstructions::Warpgroup) };
    let values = rows * linear.outputs();
    MatrixInstructions::agreeing(stream, &format!("{which:?}"), y, values, |instructions, y| {
        let operands = Operands { rows, x, epilogue, y: Output::Bf16(y) };
        matmul(stream, linear, &operands, instructions)
    })
}

/// As [`compare`], for a product that includes its residual sum and norm.
fn compare_fused(
    which: Product,
    norm: &Norm,
    rows: usize,
    stream: &Stream,
    layer: &DeviceLayer,
    arena: &mut Arena,
) -> Result<MatrixInstructions> {
    let linear = which.weights(layer);
    if let Some(input) = arena.input(which) {
        randomize(stream, input, rows * linear.inputs())?;
    }
    let SumOperands { x, hidden, update, .. } = arena.sum_operands(which);
    let values = rows * linear.outputs();
    MatrixInstructions::agreeing(stream, &format!("{which:?}"), hidden, values, |by, hidden| {
        // The residual, which the result replaces.
        randomize(stream, hidden, values)?;
        if by == MatrixInstructions::Warpgroup {
            return matmul_norm(stream, x, linear, norm, hidden, None, rows);
        }
        let (epilogue, y) = (MatmulEpilogue::Residual(hidden), Output::Bf16(&mut *update));
        matmul(stream, linear, &Operands { rows, x, epilogue, y }, by)?;
        layer_norm(stream, update, norm, hidden, None, rows)
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
    let Arena { hidden, hidden_fp8, .. } = &mut *arena;
    embed_layer_norm(stream, staged, &model.embedding, &model.norm, hidden, hidden_fp8.as_mut())?;
    let product = |which: Product, layer: &DeviceLayer, arena: &mut Arena| {
        let operands = arena.operands(which, layer, rows);
        matmul(stream, which.weights(layer), &operands, instructions.products[which as usize])
    };
    // A product, its sum with the states, and the norm that follows, if one does.
    let normed_product = |which: Product, layer: &DeviceLayer, arena: &mut Arena, is_first| {
        let norm = which.norm(layer);
        let by = instructions.products[which as usize];
        if let Some(norm) = norm
            && instructions.is_fused
            && by == MatrixInstructions::Warpgroup
        {
            let SumOperands { x, hidden, copy, .. } = arena.sum_operands(which);
            return matmul_norm(stream, x, which.weights(layer), norm, hidden, copy, rows);
        }
        product(which, layer, arena)?;
        let Some(norm) = norm else { return Ok(()) };
        let Arena { hidden, hidden_fp8, states, update, .. } = arena;
        let copy = hidden_fp8.as_mut();
        match states {
            None => layer_norm(stream, update, norm, hidden, copy, rows),
            // The states so far are the embedding in `hidden` if `is_first`.
            Some(states) => add_norm(stream, update, (states, is_first), norm, hidden, copy, rows),
        }
    };
    let kinds = architecture.layers.iter().zip(&instructions.attention);
    for (i, (layer, (kind, &attention_by))) in model.layers.iter().zip(kinds).enumerate() {
        product(Product::QueryKeyValue, layer, arena)?;
        let Arena { query_key_value, context, .. } = &mut *arena;
        if let Some(rope) = kind.rope {
            rotate(stream, staged, &model.angles[rope], query_key_value, heads)?;
        }
        let context = context.as_output(&layer.attention_output);
        attention(stream, staged, query_key_value, &context, heads, kind.window, attention_by)?;
        normed_product(Product::AttentionOutput, layer, arena, i == 0)?;

        product(Product::Intermediate, layer, arena)?;
        let Arena { intermediate, gated, .. } = &mut *arena;
        if let (Some(gated), Rows::Bf16(intermediate)) = (gated, intermediate) {
            glu(stream, intermediate, &gated.as_output(&layer.output), (rows, inner))?;
        }
        normed_product(Product::Output, layer, arena, false)?;
    }
    let tokens = match pooling {
        Pooling::Mean => PooledTokens::All,
        Pooling::Cls => PooledTokens::First,
        Pooling::Last => PooledTokens::Last,
    };
    pool(stream, staged, &arena.hidden, &mut arena.embeddings, width, tokens)
}
