//! The forward pass of one batch: which kernels run, in which order, on which memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use half::bf16;
use polysift_kernels::cuda::{
    Algorithm, AttentionKernel, Buffer, Device, LeftOperand, Linear, Matmul, MatmulEpilogue,
    MatmulPrecision, MatmulResult, MatmulShape, Norm, Operands, PooledTokens, Quantised, Result,
    Staged, Stream, Trial, WORKSPACE_BYTES, add_norm, attention, embed_layer_norm, glu, layer_norm,
    max_sequences, pool, quantise_rows, randomize, rotate,
};

use super::super::architecture::{Architecture, FeedForward};
use super::model::{DeviceLayer, DeviceModel, ModelShape};
use polysift_config::{Gelu, Pooling};

/// Candidates of a search that the log names.
const LOGGED: usize = 5;

/// Memory for the states of `T` tokens.
pub(super) struct Arena {
    /// `[T, H]`: what goes into a layer and what comes out; where norms stand before, after the norm.
    hidden: Buffer<bf16>,
    /// `[T, H]`, where norms stand before: the states without them.
    states: Option<Buffer<f32>>,
    /// `[T, 3H]`.
    query_key_value: Buffer<bf16>,
    /// `[T, H]`: result of attention, before its output map.
    context: Buffer<bf16>,
    /// `[T, H]`: `hidden` and what a block adds to it, before its norm.
    update: Buffer<bf16>,
    /// `[T, F]`, or `[T, 2F]`.
    intermediate: Intermediate,
    /// `[T, F]`: what is left of a gated `intermediate`.
    gated: Option<Buffer<bf16>>,
    /// In fp8: the input of the next product, `[T, H]` or `[T, F]`, where no product wrote it.
    quantised: Option<Quantised>,
    workspace: Buffer<u8>,
    /// `[T / 4, H]`: the result.
    pub(super) embeddings: Buffer<f32>,
}

/// What the feed-forward part has inside.
enum Intermediate {
    Bf16(Buffer<bf16>),
    /// Written by a product in fp8 for the next one.
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
            workspace: device.alloc(WORKSPACE_BYTES, "matrix products")?,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
    }

    /// What a product reads and writes; in fp8 its input must have been quantised.
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
        Operands { x, residual, y, workspace: &mut self.workspace }
    }

    /// In fp8, quantises the first `rows` rows of the input of a product that is in bf16 only.
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

    /// What a product reads, before it is quantised; `None` where that is written in e4m3 alone.
    fn input(&mut self, which: Product) -> Option<&mut Buffer<bf16>> {
        match (which, &mut self.intermediate) {
            (Product::QueryKeyValue | Product::Intermediate, _) => Some(&mut self.hidden),
            (Product::AttentionOutput, _) => Some(&mut self.context),
            (Product::Output, Intermediate::Bf16(x)) => Some(self.gated.as_mut().unwrap_or(x)),
            (Product::Output, Intermediate::Fp8(_)) => None,
        }
    }

    /// `hidden` = the norm of the first `rows` rows of `update`, which first are added to the states where
    /// norms stand before; to those of the embedding if `is_first`.
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

/// A matrix product of a layer.
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

    /// The weights that it is with.
    fn weights(self, layer: &DeviceLayer) -> &Linear {
        match self {
            Self::QueryKeyValue => &layer.query_key_value,
            Self::AttentionOutput => &layer.attention_output,
            Self::Intermediate => &layer.intermediate,
            Self::Output => &layer.output,
        }
    }

    fn shape(self, model: &ModelShape, tokens: usize) -> MatmulShape {
        let &ModelShape { ref architecture, gelu, precision, .. } = model;
        let &Architecture { width, inner, pre_norm, feed_forward, .. } = architecture;
        // Where norms stand before, the sums are `add_norm`'s.
        let sum = if pre_norm { MatmulEpilogue::Bias } else { MatmulEpilogue::Residual };
        let activation = match (feed_forward, gelu) {
            (FeedForward::Gated { .. }, _) => MatmulEpilogue::Bias,
            (FeedForward::Plain, Gelu::Erf) => MatmulEpilogue::Gelu,
            (FeedForward::Plain, Gelu::Tanh) => MatmulEpilogue::GeluTanh,
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

impl DeviceModel {
    /// The weights of a product in the first layer: those of the others have their shape.
    pub(super) fn first_weights(&self, which: Product) -> &Linear {
        which.weights(&self.layers[0])
    }
}

/// What is prepared once per bucket: its matrix products, each with its algorithm.
pub(super) struct ProductPlan {
    products: [(Matmul, Algorithm); 4],
}

impl ProductPlan {
    /// A plan for `tokens` rows; `choose` finds the algorithm of a product.
    pub(super) fn new(
        model: &DeviceModel,
        device: &Device,
        tokens: usize,
        mut choose: impl FnMut(Product, &Matmul) -> Result<Algorithm>,
    ) -> Result<Self> {
        let mut product = |which: Product| {
            let matmul = Matmul::new(device, which.shape(&model.shape, tokens))?;
            let algorithm = choose(which, &matmul)?;
            Ok((matmul, algorithm))
        };
        let [a, b, c, d] = Product::ALL;
        Ok(Self { products: [product(a)?, product(b)?, product(c)?, product(d)?] })
    }

    fn run(
        &self,
        which: Product,
        stream: &Stream,
        layer: &DeviceLayer,
        arena: &mut Arena,
    ) -> Result<()> {
        let (matmul, algorithm) = &self.products[which as usize];
        matmul.run(stream, algorithm, which.weights(layer), arena.operands(which))
    }
}

/// Finds the fastest algorithm of a product, with the weights of the first layer. Overwrites `arena`.
pub(super) fn search(
    which: Product,
    matmul: &Matmul,
    stream: &Stream,
    model: &DeviceModel,
    arena: &mut Arena,
) -> Result<Algorithm> {
    let MatmulShape { tokens, inputs, .. } = matmul.shape();
    // The residual is `hidden`, whatever the input is. In fp8 there is one kernel, which is not run here.
    randomize(stream, &mut arena.hidden, tokens * model.shape.architecture.width)?;
    if let Some(input) = arena.input(which) {
        randomize(stream, input, tokens * inputs)?;
    }
    let trials = matmul.search(stream, model.first_weights(which), arena.operands(which))?;
    log(&format!("{which:?} of {tokens} tokens"), &trials);
    Ok(trials[0].candidate)
}

/// Finds the kernel for attention of each layer. Overwrites `arena`.
pub(super) fn choose_attention(
    stream: &Stream,
    shape: &ModelShape,
    arena: &mut Arena,
) -> Result<Vec<AttentionKernel>> {
    let Arena { query_key_value, context, .. } = arena;
    let heads = (shape.architecture.num_heads, shape.architecture.head_size());
    let limits = (shape.limits(), shape.architecture.max_tokens);
    let mut by_window = BTreeMap::new();
    let layers =
        shape.architecture.layers.iter().map(|layer| match by_window.entry(layer.window) {
            Entry::Occupied(chosen) => Ok(*chosen.get()),
            Entry::Vacant(entry) => {
                let window = layer.window;
                let trials = AttentionKernel::search(
                    stream,
                    query_key_value,
                    context,
                    heads,
                    window,
                    limits,
                )?;
                log(
                    &window.map_or("attention".into(), |w| format!("attention within {w}")),
                    &trials,
                );
                Ok(*entry.insert(trials[0].candidate))
            }
        });
    layers.collect()
}

/// Says which kernels were tried for `what`.
fn log<T: std::fmt::Debug>(what: &str, trials: &[Trial<T>]) {
    for (i, Trial { candidate, seconds, distance }) in trials.iter().enumerate() {
        if trials[i].is_wrong() {
            tracing::warn!(
                distance,
                "{candidate:?} gives wrong results for {what} on this GPU and is not used; please \
                 report this"
            );
        } else if i < LOGGED {
            let microseconds = seconds * 1e6;
            tracing::debug!(place = i, microseconds, distance, "{what}: {candidate:?}");
        }
    }
}

/// Puts the forward pass of the batch in `staged` into the queue; its result will be in
/// `arena.embeddings`.
pub(super) fn forward(
    stream: &Stream,
    model: &DeviceModel,
    plan: &ProductPlan,
    staged: &Staged,
    arena: &mut Arena,
) -> Result<()> {
    let &ModelShape { ref architecture, pooling, .. } = &model.shape;
    let &Architecture { width, inner, num_heads, .. } = architecture;
    let (rows, heads) = (staged.tokens(), (num_heads, architecture.head_size()));
    let Arena { hidden, quantised, .. } = &mut *arena;
    embed_layer_norm(stream, staged, &model.embedding, &model.norm, hidden, quantised.as_mut())?;
    let kinds = architecture.layers.iter().zip(&model.attention);
    for (i, (layer, (kind, &kernel))) in model.layers.iter().zip(kinds).enumerate() {
        plan.run(Product::QueryKeyValue, stream, layer, arena)?;
        let Arena { query_key_value, context, .. } = &mut *arena;
        if let Some(rope) = kind.rope {
            rotate(stream, staged, &model.angles[rope], query_key_value, heads)?;
        }
        attention(stream, staged, query_key_value, context, heads, kind.window, kernel)?;
        arena.quantise(Product::AttentionOutput, stream, (rows, width))?;
        plan.run(Product::AttentionOutput, stream, layer, arena)?;
        if let Some(norm) = &layer.attention_norm {
            arena.normalise(stream, norm, rows, i == 0)?;
        }

        plan.run(Product::Intermediate, stream, layer, arena)?;
        let Arena { intermediate, gated, .. } = &mut *arena;
        if let (Some(gated), Intermediate::Bf16(intermediate)) = (gated, intermediate) {
            glu(stream, intermediate, gated, (rows, inner))?;
        }
        arena.quantise(Product::Output, stream, (rows, inner))?;
        plan.run(Product::Output, stream, layer, arena)?;
        arena.normalise(stream, &layer.output_norm, rows, false)?;
    }
    let tokens = match pooling {
        Pooling::Mean => PooledTokens::All,
        Pooling::Cls => PooledTokens::First,
        Pooling::Last => PooledTokens::Last,
    };
    pool(stream, staged, &arena.hidden, &mut arena.embeddings, width, tokens)
}
