//! Self-attention of each sequence with itself, head by head.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm, softmax,
};

/// Queries that are scored at a time: their scores against 512 keys stay in the second-level cache.
const QUERY_BLOCK: usize = 112;

/// Memory of [`attend`].
#[derive(Default)]
pub(super) struct AttentionScratch {
    keys: PackedMatrix,
    values: PackedMatrix,
    scores: Vec<f32>,
}

/// `query_key_value` `[N, 3H]` to `context` `[N, H]`: for each head
/// `softmax(Q · Kᵀ / √head_size) · V` within each sequence that `starts` bounds.
///
/// The factor is applied to the scores, as transformers does it.
pub(super) fn attend(
    isa: Isa,
    query_key_value: &[f32],
    starts: &[usize],
    num_heads: usize,
    context: &mut [f32],
    scratch: (&mut AttentionScratch, &mut GemmScratch),
) {
    let tokens = starts.last().copied().unwrap_or(0);
    let width = context.len() / tokens.max(1);
    let head_size = width / num_heads;
    let scale = 1.0 / (head_size as f32).sqrt();
    let (AttentionScratch { keys, values, scores }, gemm_scratch) = scratch;
    let stride = 3 * width;
    for span in starts.windows(2) {
        let (start, length) = (span[0], span[1] - span[0]);
        let part = |row: usize, column: usize, rows: usize| {
            Matrix::new(
                &query_key_value[(start + row) * stride + column..],
                rows,
                head_size,
                stride,
            )
        };
        for column in (0..width).step_by(head_size) {
            keys.pack(part(0, width + column, length));
            values.pack_transposed(part(0, 2 * width + column, length));
            for first in (0..length).step_by(QUERY_BLOCK) {
                let rows = QUERY_BLOCK.min(length - first);
                scores.resize(scores.len().max(rows * length), 0.0);
                let scores = &mut scores[..rows * length];
                let queries = part(first, column, rows);
                let mut out = MatrixMut::new(scores, rows, length, length);
                gemm(isa, queries, keys, Epilogue::None, &mut out, gemm_scratch);
                softmax(isa, scores, length, scale);
                let weights = Matrix::new(scores, rows, length, length);
                let context = &mut context[(start + first) * width + column..];
                let mut out = MatrixMut::new(context, rows, head_size, width);
                gemm(isa, weights, values, Epilogue::None, &mut out, gemm_scratch);
            }
        }
    }
}
