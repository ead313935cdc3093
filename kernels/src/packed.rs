//! The right-hand side of a matrix multiplication, in the order in which the kernels read it.

use crate::Matrix;

/// Columns of the result that one panel serves.
pub(crate) const PANEL: usize = 32;
const LINE: usize = 16;

/// One cache line; loads of a panel must not straddle two.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// `[outputs, depth]` f32, kept as panels of 32 outputs (the last one padded with zeros); a panel
/// is `[depth, 32]`.
#[derive(Debug, Clone, Default)]
pub struct PackedMatrix {
    outputs: usize,
    depth: usize,
    lines: Vec<Line>,
}

impl PackedMatrix {
    /// Packs `weights` `[outputs, depth]`, the layout of a linear layer.
    pub fn new(weights: Matrix<'_>) -> Self {
        let mut packed = Self::default();
        packed.pack(weights);
        packed
    }

    /// As [`PackedMatrix::new`], into the memory of `self`.
    pub fn pack(&mut self, weights: Matrix<'_>) {
        self.resize(weights.rows(), weights.columns());
        for (p, panel) in self.panels_mut() {
            let first = p * PANEL;
            for i in 0..PANEL.min(weights.rows() - first) {
                for (k, &value) in weights.row(first + i).iter().enumerate() {
                    panel[k * (PANEL / LINE) + i / LINE].0[i % LINE] = value;
                }
            }
        }
    }

    /// Packs the transpose of `values` `[depth, outputs]`, into the memory of `self`.
    pub fn pack_transposed(&mut self, values: Matrix<'_>) {
        self.resize(values.columns(), values.rows());
        for (p, panel) in self.panels_mut() {
            for (k, lines) in panel.chunks_exact_mut(PANEL / LINE).enumerate() {
                for (line, part) in lines.iter_mut().zip(values.row(k)[p * PANEL..].chunks(LINE)) {
                    line.0[..part.len()].copy_from_slice(part);
                }
            }
        }
    }

    /// Number of outputs (rows of the weights, columns of a product).
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    fn resize(&mut self, outputs: usize, depth: usize) {
        self.outputs = outputs;
        self.depth = depth;
        self.lines.clear();
        let lines = outputs.div_ceil(PANEL) * depth * (PANEL / LINE);
        self.lines.resize(lines, Line([0.0; LINE]));
    }

    fn panels_mut(&mut self) -> impl Iterator<Item = (usize, &mut [Line])> {
        self.lines.chunks_exact_mut((self.depth * (PANEL / LINE)).max(1)).enumerate()
    }

    /// Start of rows `from..from + depth` of panel `p`: `[depth, 32]` contiguous values, aligned to 64 bytes.
    pub(crate) fn panel(&self, p: usize, from: usize, depth: usize) -> *const f32 {
        assert!(from + depth <= self.depth && p * PANEL < self.outputs, "outside the panel");
        self.lines[(p * self.depth + from) * (PANEL / LINE)..].as_ptr().cast()
    }
}
