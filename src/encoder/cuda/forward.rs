//! The forward pass of one batch: which kernels run, in which order, on which memory.

use half::bf16;
use polysift_kernels::cuda::{
    Algorithm, AttentionKernel, Buffer, Device, LeftOperand, Linear, Matmul, MatmulEpilogue,
    MatmulPrecision, MatmulShape, Norm, Operands, Quantised, Result, Staged, Stream, Trial,
    WORKSPACE_BYTES, attention, embed_layer_norm, layer_norm, max_sequences, pool, quantise_rows,
    randomize,
};

use super::super::architecture::Architecture;
use super::model::{DeviceLayer, DeviceModel, ModelShape};
use crate::config::{Gelu, Pooling};

/// Candidates of a search that the log names.
const LOGGED: usize = 5;

/// Memory for the states of `T` tokens.
pub(super) struct Arena {
    /// `[T, H]`: what goes into a layer and what comes out.
    hidden: Buffer<bf16>,
    /// `[T, 3H]`.
    query_key_value: Buffer<bf16>,
    /// `[T, H]`: result of attention, before its output map.
    context: Buffer<bf16>,
    /// `[T, H]`: `hidden` and what a block adds to it, before its norm.
    update: Buffer<bf16>,
    /// `[T, F]`.
    intermediate: Buffer<bf16>,
    /// In fp8: the input of the next product, `[T, H]` or `[T, F]`.
    quantised: Option<Quantised>,
    workspace: Buffer<u8>,
    /// `[T / 4, H]`: the result.
    pub(super) embeddings: Buffer<f32>,
}

impl Arena {
    pub(super) fn new(device: &Device, shape: &ModelShape, tokens: usize) -> Result<Self> {
        const PURPOSE: &str = "the states of a batch";
        let states = |width: usize| device.alloc(tokens * width, PURPOSE);
        let &ModelShape { architecture: Architecture { width, inner, .. }, precision, .. } = shape;
        let quantised = match precision {
            MatmulPrecision::Bf16 => None,
            MatmulPrecision::Fp8 => {
                Some(Quantised::new(device, tokens, inner.max(width), PURPOSE)?)
            }
        };
        Ok(Self {
            hidden: states(width)?,
            query_key_value: states(3 * width)?,
            context: states(width)?,
            update: states(width)?,
            intermediate: states(inner)?,
            quantised,
            workspace: device.alloc(WORKSPACE_BYTES, "matrix products")?,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
    }

    /// What a product reads and writes; in fp8 its input must have been quantised.
    fn operands(&mut self, which: Product) -> Operands<'_> {
        let (x, residual, y) = match which {
            Product::QueryKeyValue => (&self.hidden, None, &mut self.query_key_value),
            Product::AttentionOutput => (&self.context, Some(&self.hidden), &mut self.update),
            Product::Intermediate => (&self.hidden, None, &mut self.intermediate),
            Product::Output => (&self.intermediate, Some(&self.hidden), &mut self.update),
        };
        let x = self.quantised.as_ref().map_or(LeftOperand::Bf16(x), LeftOperand::Fp8);
        Operands { x, residual, y, workspace: &mut self.workspace }
    }

    /// In fp8, quantises the first `rows` rows of the input of a product, where no norm did.
    fn quantise(
        &mut self,
        which: Product,
        stream: &Stream,
        (rows, width): (usize, usize),
    ) -> Result<()> {
        let Some(mut quantised) = self.quantised.take() else { return Ok(()) };
        let done = quantise_rows(stream, self.input(which), &mut quantised, (rows, width));
        self.quantised = Some(quantised);
        done
    }

    /// What a product reads, before it is quantised.
    fn input(&mut self, which: Product) -> &mut Buffer<bf16> {
        match which {
            Product::QueryKeyValue | Product::Intermediate => &mut self.hidden,
            Product::AttentionOutput => &mut self.context,
            Product::Output => &mut self.intermediate,
        }
    }

    /// `hidden` = the norm of the first `rows` rows of `update`.
    fn normalise(&mut self, stream: &Stream, norm: &Norm, rows: usize) -> Result<()> {
        let Self { hidden, update, quantised, .. } = self;
        layer_norm(stream, update, norm, hidden, quantised.as_mut(), rows)
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
        let &Architecture { width, inner, .. } = architecture;
        let (outputs, inputs, epilogue) = match (self, gelu) {
            (Self::QueryKeyValue, _) => (3 * width, width, MatmulEpilogue::Bias),
            (Self::AttentionOutput, _) => (width, width, MatmulEpilogue::Residual),
            (Self::Intermediate, Gelu::Erf) => (inner, width, MatmulEpilogue::Gelu),
            (Self::Intermediate, Gelu::Tanh) => (inner, width, MatmulEpilogue::GeluTanh),
            (Self::Output, _) => (width, inner, MatmulEpilogue::Residual),
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
    // The residual is `hidden`, whatever the input is.
    randomize(stream, &mut arena.hidden, tokens * model.shape.architecture.width)?;
    randomize(stream, arena.input(which), tokens * inputs)?;
    arena.quantise(which, stream, (tokens, inputs))?;
    let trials = matmul.search(stream, model.first_weights(which), arena.operands(which))?;
    log(&format!("{which:?} of {tokens} tokens"), &trials);
    Ok(trials[0].candidate)
}

/// Finds the kernel for attention. Overwrites `arena`.
pub(super) fn choose_attention(
    stream: &Stream,
    shape: &ModelShape,
    arena: &mut Arena,
) -> Result<AttentionKernel> {
    let Arena { query_key_value, context, .. } = arena;
    let heads = (shape.architecture.num_heads, shape.architecture.head_size());
    let limits = (shape.limits(), shape.architecture.max_tokens);
    let trials = AttentionKernel::search(stream, query_key_value, context, heads, limits)?;
    log("attention", &trials);
    Ok(trials[0].candidate)
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
    let rows = staged.tokens();
    let Arena { hidden, quantised, .. } = &mut *arena;
    embed_layer_norm(stream, staged, &model.embedding, &model.norm, hidden, quantised.as_mut())?;
    for layer in &model.layers {
        plan.run(Product::QueryKeyValue, stream, layer, arena)?;
        attention(
            stream,
            staged,
            &arena.query_key_value,
            &mut arena.context,
            (num_heads, architecture.head_size()),
            model.attention,
        )?;
        arena.quantise(Product::AttentionOutput, stream, (rows, width))?;
        plan.run(Product::AttentionOutput, stream, layer, arena)?;
        if let Some(norm) = &layer.attention_norm {
            arena.normalise(stream, norm, rows)?;
        }

        plan.run(Product::Intermediate, stream, layer, arena)?;
        arena.quantise(Product::Output, stream, (rows, inner))?;
        plan.run(Product::Output, stream, layer, arena)?;
        arena.normalise(stream, &layer.output_norm, rows)?;
    }
    let cls = pooling == Pooling::Cls;
    pool(stream, staged, &arena.hidden, &mut arena.embeddings, width, cls)
}
