//! The forward pass of one batch: which kernels run, in which order, on which memory.

use half::bf16;
use polysift_kernels::cuda::{
    Buffer, Device, LeftOperand, Linear, MatmulEpilogue, MatrixInstructions, Norm, NormInput,
    Operands, Output, PooledTokens, Result, Staged, Stream, attention, choose_attention, ends, glu,
    has_matmul_norm, layer_norm, matmul, matmul_norm, max_sequences, pool, randomize, rotate,
    rows_to_compare,
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
    /// `[T, 2F]`: what a gate reads, if there is one.
    ungated: Option<Buffer<bf16>>,
    /// `[T, F]`: what the last product of a layer reads.
    inner: Rows,
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

impl Arena {
    /// Allocates memory on `device` for batches of up to `tokens` rows.
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
            ungated: is_gated.then(|| states(2 * inner)).transpose()?,
            inner: rows(inner)?,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
    }

    /// Returns the operands of a product of `layer` with `rows` rows.
    fn operands(&mut self, which: Product, layer: &DeviceLayer, rows: usize) -> Operands<'_> {
        let Self { hidden, hidden_fp8, query_key_value, context, update, ungated, inner, .. } =
            self;
        // In pre-norm models, the layer norm computes the sums.
        let is_pre_norm = self.states.is_some();
        let sum = if is_pre_norm { MatmulEpilogue::Bias } else { MatmulEpilogue::Residual(hidden) };
        let normalised = hidden_fp8.as_ref().map_or(LeftOperand::Bf16(hidden), LeftOperand::Fp8);
        let (x, epilogue, y) = match which {
            Product::QueryKeyValue => {
                (normalised, MatmulEpilogue::Bias, Output::Bf16(query_key_value))
            }
            Product::AttentionOutput => (context.as_operand(), sum, Output::Bf16(update)),
            Product::Intermediate => match ungated {
                Some(ungated) => (normalised, MatmulEpilogue::Bias, Output::Bf16(ungated)),
                None => (normalised, MatmulEpilogue::Gelu, inner.as_output(&layer.output)),
            },
            Product::Output => (inner.as_operand(), sum, Output::Bf16(update)),
        };
        Operands { rows, x, epilogue, y }
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

    /// Returns the norm that follows the product and its residual sum, if one does.
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
        let fastest = MatrixInstructions::fastest(stream.device());
        let architecture = &model.shape.architecture;
        let is_fused = !architecture.pre_norm && has_matmul_norm(stream, architecture.width);
        let mut this = Self { products: [fastest; 4], attention: Vec::new(), is_fused };
        if !model.shape.is_fp8 && fastest == MatrixInstructions::Warpgroup {
            for which in Product::ALL {
                let by = this.compare(stream, which, &model.layers[0], arena, tokens)?;
                this.products[which as usize] = by;
            }
        }
        let heads = (architecture.num_heads, architecture.head_size());
        let limits = (model.shape.limits(), architecture.max_tokens.min(tokens));
        // `update` is as large as the context, and always bf16.
        let Arena { query_key_value: qkv, update, .. } = arena;
        for LayerKind { window, .. } in &*architecture.layers {
            let same =
                architecture.layers.iter().zip(&this.attention).find(|(k, _)| k.window == *window);
            let chosen = match same {
                Some((_, &chosen)) => chosen,
                None => choose_attention(stream, qkv, update, heads, *window, limits)?,
            };
            this.attention.push(chosen);
        }
        Ok(this)
    }

    /// Compares the kernels for a product with the weights of `layer`, on up to `tokens` rows; with
    /// the norm that follows, if a kernel includes it. Overwrites `arena`.
    fn compare(
        &mut self,
        stream: &Stream,
        which: Product,
        layer: &DeviceLayer,
        arena: &mut Arena,
        tokens: usize,
    ) -> Result<MatrixInstructions> {
        let linear = which.weights(layer);
        let rows = rows_to_compare(stream, tokens, linear.outputs());
        let values = rows * linear.outputs();
        MatrixInstructions::agreeing(&format!("{which:?}"), |by| {
            self.products[which as usize] = by;
            // The input or the residual; the result of a norm replaces it.
            randomize(stream, &mut arena.hidden, rows * layer.query_key_value.inputs())?;
            let input = match which {
                Product::QueryKeyValue | Product::Intermediate => None,
                Product::AttentionOutput => Some(&mut arena.context),
                Product::Output => Some(&mut arena.inner),
            };
            if let Some(Rows::Bf16(input)) = input {
                randomize(stream, input, rows * linear.inputs())?;
            }
            if self.is_fused && which.norm(layer).is_some() {
                self.normed_product(stream, which, layer, arena, (rows, false))?;
                return ends(stream, &arena.hidden, values);
            }
            let operands = self.product(stream, which, layer, arena, rows)?;
            let Output::Bf16(y) = operands.y else { return Ok(Vec::new()) };
            ends(stream, y, values)
        })
    }

    /// Queues a product with `rows` rows and returns its operands.
    fn product<'a>(
        &self,
        stream: &Stream,
        which: Product,
        layer: &DeviceLayer,
        arena: &'a mut Arena,
        rows: usize,
    ) -> Result<Operands<'a>> {
        let operands = arena.operands(which, layer, rows);
        matmul(stream, which.weights(layer), &operands, self.products[which as usize])?;
        Ok(operands)
    }

    /// Queues a product with `rows` rows, its sum with the states, and the norm that follows, if
    /// one does. The states so far are the embedding in `hidden` if `is_first`.
    fn normed_product(
        &self,
        stream: &Stream,
        which: Product,
        layer: &DeviceLayer,
        arena: &mut Arena,
        (rows, is_first): (usize, bool),
    ) -> Result<()> {
        let norm = which.norm(layer);
        if let Some(norm) = norm
            && self.is_fused
            && self.products[which as usize] == MatrixInstructions::Warpgroup
        {
            let Arena { hidden, hidden_fp8, context, inner, .. } = arena;
            let x = if which == Product::AttentionOutput { context } else { inner };
            let (x, copy) = (x.as_operand(), hidden_fp8.as_mut());
            return matmul_norm(stream, x, which.weights(layer), norm, hidden, copy, rows);
        }
        self.product(stream, which, layer, arena, rows)?;
        let Some(norm) = norm else { return Ok(()) };
        let Arena { hidden, hidden_fp8, states, update, .. } = arena;
        let copy = hidden_fp8.as_mut();
        let input = match states {
            None => NormInput::Rows(update),
            Some(states) => NormInput::Sums { update, states, is_first },
        };
        layer_norm(stream, input, norm, hidden, copy, rows)
    }
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
    let tokens = NormInput::Tokens(staged, &model.embedding);
    layer_norm(stream, tokens, &model.norm, hidden, hidden_fp8.as_mut(), rows)?;
    let kinds = architecture.layers.iter().zip(&instructions.attention);
    for (i, (layer, (kind, &attention_by))) in model.layers.iter().zip(kinds).enumerate() {
        instructions.product(stream, Product::QueryKeyValue, layer, arena, rows)?;
        let Arena { query_key_value, context, .. } = &mut *arena;
        if let Some(rope) = kind.rope {
            rotate(stream, staged, &model.angles[rope], query_key_value, heads)?;
        }
        let context = context.as_output(&layer.attention_output);
        attention(stream, staged, query_key_value, &context, heads, kind.window, attention_by)?;
        let which = Product::AttentionOutput;
        instructions.normed_product(stream, which, layer, arena, (rows, i == 0))?;

        instructions.product(stream, Product::Intermediate, layer, arena, rows)?;
        let Arena { ungated, inner: gated, .. } = &mut *arena;
        if let Some(ungated) = ungated {
            glu(stream, ungated, &gated.as_output(&layer.output), (rows, inner))?;
        }
        instructions.normed_product(stream, Product::Output, layer, arena, (rows, false))?;
    }
    let tokens = match pooling {
        Pooling::Mean => PooledTokens::All,
        Pooling::Cls => PooledTokens::First,
        Pooling::Last => PooledTokens::Last,
    };
    pool(stream, staged, &arena.hidden, &mut arena.embeddings, width, tokens)
}
