//! The forward pass of one batch: which kernels run, in which order, on which memory.

use half::bf16;
use polysift_kernels::cuda::{
    Algorithm, AttentionKernel, Buffer, Device, Linear, Matmul, MatmulEpilogue, Operands, Result,
    Staged, Stream, WORKSPACE_BYTES, add_layer_norm, attention, embed_layer_norm, gelu,
    max_sequences, pool,
};

use super::model::{Layer, Model, Shape};
use crate::config::{Gelu, Pooling};

/// Memory for the states of `T` tokens.
pub(super) struct Arena {
    /// `[T, H]`: what goes into a layer and what comes out.
    hidden: Buffer<bf16>,
    /// `[T, 3H]`.
    query_key_value: Buffer<bf16>,
    /// `[T, H]`: result of attention, before its output map.
    context: Buffer<bf16>,
    /// `[T, H]`: what is added to `hidden`.
    update: Buffer<bf16>,
    /// `[T, F]`.
    intermediate: Buffer<bf16>,
    workspace: Buffer<u8>,
    /// `[T / 4, H]`: the result.
    pub(super) embeddings: Buffer<f32>,
}

impl Arena {
    pub(super) fn new(device: &Device, shape: Shape, tokens: usize) -> Result<Self> {
        let states = |width: usize| device.alloc(tokens * width, "the states of a batch");
        let Shape { width, inner, .. } = shape;
        Ok(Self {
            hidden: states(width)?,
            query_key_value: states(3 * width)?,
            context: states(width)?,
            update: states(width)?,
            intermediate: states(inner)?,
            workspace: device.alloc(WORKSPACE_BYTES, "matrix products")?,
            embeddings: device.alloc(max_sequences(tokens) * width, "embeddings")?,
        })
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
    /// The weights that it is with.
    fn weights(self, layer: &Layer) -> &Linear {
        match self {
            Self::QueryKeyValue => &layer.query_key_value,
            Self::AttentionOutput => &layer.attention_output,
            Self::Intermediate => &layer.intermediate,
            Self::Output => &layer.output,
        }
    }
}

pub(super) const PRODUCTS: [Product; 4] =
    [Product::QueryKeyValue, Product::AttentionOutput, Product::Intermediate, Product::Output];

/// What is prepared once per bucket: its matrix products, each with its algorithm.
pub(super) struct Plan {
    products: [(Matmul, Algorithm); 4],
}

impl Plan {
    /// A plan for `tokens` rows; `choose` finds the algorithm of a product.
    pub(super) fn new(
        model: &Model,
        device: &Device,
        tokens: usize,
        mut choose: impl FnMut(Product, &mut Matmul) -> Result<Algorithm>,
    ) -> Result<Self> {
        let Shape { width, inner, gelu, .. } = model.shape;
        let mut product = |which| {
            let epilogue = match (which, gelu) {
                (Product::Intermediate, Gelu::Tanh) => MatmulEpilogue::BiasGeluTanh,
                _ => MatmulEpilogue::Bias,
            };
            let (outputs, inputs) = match which {
                Product::QueryKeyValue => (3 * width, width),
                Product::AttentionOutput => (width, width),
                Product::Intermediate => (inner, width),
                Product::Output => (width, inner),
            };
            let mut matmul = Matmul::new(device, tokens, outputs, inputs, epilogue)?;
            let algorithm = choose(which, &mut matmul)?;
            Ok((matmul, algorithm))
        };
        let [a, b, c, d] = PRODUCTS;
        Ok(Self { products: [product(a)?, product(b)?, product(c)?, product(d)?] })
    }

    fn run(
        &mut self,
        which: Product,
        stream: &Stream,
        linear: &Linear,
        operands: Operands<'_>,
    ) -> Result<()> {
        let (matmul, algorithm) = &mut self.products[which as usize];
        matmul.run(stream, algorithm, linear, operands)
    }
}

/// The algorithm that cublasLt expects to be the fastest for a product.
pub(super) fn first_choice(
    which: Product,
    matmul: &mut Matmul,
    model: &Model,
) -> Result<Algorithm> {
    Ok(matmul.candidates(which.weights(&model.layers[0]), 1)?[0])
}

/// Finds the fastest algorithm of a product, with the weights of the first layer. Overwrites `arena`.
pub(super) fn search(
    which: Product,
    matmul: &mut Matmul,
    stream: &Stream,
    model: &Model,
    arena: &mut Arena,
) -> Result<Algorithm> {
    let Arena { hidden, query_key_value, context, update, intermediate, workspace, .. } = arena;
    let (x, y) = match which {
        Product::QueryKeyValue => (hidden, query_key_value),
        Product::AttentionOutput => (context, update),
        Product::Intermediate => (hidden, intermediate),
        Product::Output => (intermediate, update),
    };
    matmul.search(stream, which.weights(&model.layers[0]), x, y, workspace)
}

/// Finds the kernel for attention. Overwrites `arena`.
pub(super) fn choose_attention(
    stream: &Stream,
    shape: Shape,
    arena: &mut Arena,
) -> Result<AttentionKernel> {
    let Shape { width, heads, limits, max_tokens, .. } = shape;
    let Arena { query_key_value, context, .. } = arena;
    let heads = (heads, width / heads);
    let choice =
        AttentionKernel::choose(stream, query_key_value, context, heads, (limits, max_tokens))?;
    if choice.is_disagreement() {
        tracing::warn!(
            distance = choice.distance,
            "the attention kernel for {:?} gives wrong results and is not used; please report this",
            stream.device()
        );
    }
    tracing::debug!(kernel = ?choice.kernel, distance = choice.distance, "attention");
    Ok(choice.kernel)
}

/// Puts the forward pass of the batch in `staged` into the queue; its result will be in
/// `arena.embeddings`.
pub(super) fn forward(
    stream: &Stream,
    model: &Model,
    plan: &mut Plan,
    staged: &Staged,
    arena: &mut Arena,
) -> Result<()> {
    let Shape { width, inner, heads, pooling, .. } = model.shape;
    let rows = staged.tokens();
    let Arena { hidden, query_key_value, context, update, intermediate, workspace, embeddings } =
        arena;
    embed_layer_norm(stream, staged, &model.embedding, &model.norm, hidden)?;
    for layer in &model.layers {
        let operands = Operands { x: &*hidden, y: query_key_value, workspace: &mut *workspace };
        plan.run(Product::QueryKeyValue, stream, &layer.query_key_value, operands)?;
        attention(
            stream,
            staged,
            query_key_value,
            context,
            (heads, width / heads),
            model.attention,
        )?;
        let operands = Operands { x: &*context, y: update, workspace: &mut *workspace };
        plan.run(Product::AttentionOutput, stream, &layer.attention_output, operands)?;
        add_layer_norm(stream, update, &layer.attention_norm, hidden, rows)?;

        let operands = Operands { x: &*hidden, y: intermediate, workspace: &mut *workspace };
        plan.run(Product::Intermediate, stream, &layer.intermediate, operands)?;
        if model.shape.gelu == Gelu::Erf {
            gelu(stream, intermediate, rows * inner)?;
        }
        let operands = Operands { x: &*intermediate, y: update, workspace: &mut *workspace };
        plan.run(Product::Output, stream, &layer.output, operands)?;
        add_layer_norm(stream, update, &layer.output_norm, hidden, rows)?;
    }
    pool(stream, staged, hidden, embeddings, width, pooling == Pooling::Cls)
}
