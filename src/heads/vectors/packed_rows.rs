//! Rows of unit norm that other rows are compared with.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, gemm, mean_rows,
    raise_to_row_max,
};

/// Rows per product: whole tiles of every instruction set, which with a usual hidden layer take
/// half of an L2 cache of 1 MiB.
pub const BLOCK_ROWS: usize = 126;
/// Packed rows per product: their similarities to a block of rows stay in the L2 cache.
pub(super) const PACKED_BLOCK: usize = 1024;

/// Rows `[n, width]` of unit norm, packed for products.
#[derive(Debug, Clone)]
pub struct PackedRows {
    width: usize,
    /// Blocks of at most [`PACKED_BLOCK`] packed rows.
    blocks: Vec<PackedMatrix>,
}

/// Returns `row` divided by its L2 norm, in f64, or `None` if the norm is zero or not finite.
pub fn normalised(row: &[f32]) -> Option<Vec<f32>> {
    let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    (norm > 0.0 && norm.is_finite())
        .then(|| row.iter().map(|&x| (f64::from(x) / norm) as f32).collect())
}

/// Returns the mean of `rows` `[n, width]` (summed in f64), [normalised]; `None` without rows.
pub fn unit_mean(rows: &[f32], width: usize) -> Option<Vec<f32>> {
    let mut mean = vec![0.0; width];
    mean_rows(Isa::detect(), rows, &mut mean);
    normalised(&mean)
}

/// Memory of searches that is reused between calls.
#[derive(Debug, Default)]
pub struct SearchScratch {
    similarities: Vec<f32>,
    pub(crate) gemm: GemmScratch,
}

impl PackedRows {
    /// Packs `rows` `[n, width]`.
    pub fn new(rows: &[f32], width: usize) -> Self {
        let mut packed = Self { width: width.max(1), blocks: Vec::new() };
        packed.push(rows);
        packed
    }

    /// Appends `rows` `[n, width]`.
    pub fn push(&mut self, rows: &[f32]) {
        let width = self.width;
        let pack = |block: &[f32]| {
            let matrix = Matrix::new(block, block.len() / width, width, width);
            PackedMatrix::new(Isa::detect(), Precision::F32, matrix)
        };
        self.blocks.extend(rows.chunks(PACKED_BLOCK * width).map(pack));
    }

    /// Calls `visit` for each block of packed rows with the index of its first row, its number of
    /// rows `n`, and the similarities `[m, n]` of `rows` `[m, width]` to them.
    pub fn compare(
        &self,
        rows: &[f32],
        scratch: &mut SearchScratch,
        mut visit: impl FnMut(usize, usize, &[f32]),
    ) {
        let SearchScratch { similarities, gemm: scratch } = scratch;
        let (isa, count, mut first) = (Isa::detect(), rows.len() / self.width, 0);
        let rows = Matrix::new(rows, count, self.width, self.width);
        for block in &self.blocks {
            let n = block.outputs();
            similarities.resize(count * n, 0.0);
            let mut out = MatrixMut::new(similarities, count, n, n);
            gemm(isa, rows, block, Epilogue::None, &mut out, scratch);
            visit(first, n, similarities);
            first += n;
        }
    }

    /// Returns for each of `rows` `[m, width]` the nearest packed row and its similarity; of equally
    /// near rows the first. Without packed rows all similarities are -inf.
    pub fn nearest(&self, rows: &[f32], scratch: &mut SearchScratch) -> Vec<(usize, f32)> {
        let mut nearest = vec![(0, f32::NEG_INFINITY); rows.len() / self.width];
        let mut best = vec![f32::NEG_INFINITY; nearest.len()];
        self.compare(rows, scratch, |first, n, similarities| {
            raise_to_row_max(Isa::detect(), similarities, n, &mut best);
            let rows = similarities.chunks_exact(n).zip(&best).zip(&mut nearest);
            for ((similarities, best), nearest) in rows.filter(|((_, best), of)| **best > of.1) {
                let at = similarities.iter().position(|similarity| similarity >= best);
                *nearest = (first + at.unwrap_or_default(), *best);
            }
        });
        nearest
    }
}
