//! Finds which rows of unit norm may be near each other.
//!
//! Two bf16 values hold 16 bits of an f32: x ≈ h + l, where h and l are bf16. So x·y ≈ h·h' + h·l' +
//! l·h', which is one product in bf16 of three times the width. Its bias subtracts the similarity
//! that is looked for, so that the result is precise where it matters.

use half::bf16;

use super::device::Device;
use super::e4m3::Output;
use super::error::{CudaError, Result};
use super::instructions::MatrixInstructions;
use super::linear::{LeftOperand, Linear, MatmulEpilogue, Operands};
use super::matmul::matmul;
use super::memory::{Buffer, Pinned};
use super::stream::Stream;

/// Rows of unit norm on a GPU, in blocks, and memory for comparing them.
pub struct NearRows {
    stream: Stream,
    width: usize,
    least: f32,
    blocks: Vec<Linear>,
    /// The last block as the left operand.
    x: Buffer<bf16>,
    y: Buffer<bf16>,
    result: Pinned<bf16>,
}

impl NearRows {
    /// Maximum rows of a block.
    pub const BLOCK_ROWS: usize = 2048;

    /// Allocates memory for blocks of rows of `width` values. [`Self::compare`] finds the pairs of
    /// rows with a similarity of at least `least`.
    pub fn new(device: &Device, width: usize, least: f32) -> Result<Self> {
        const PURPOSE: &str = "similarities";
        let (stream, len) = (device.stream()?, Self::BLOCK_ROWS * Self::BLOCK_ROWS);
        let x = device.alloc(Self::BLOCK_ROWS * operand_width(width), PURPOSE)?;
        let (y, result) = (device.alloc(len, PURPOSE)?, device.alloc_pinned(len)?);
        Ok(Self { stream, width, least, blocks: Vec::new(), x, y, result })
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Appends a block of at most [`Self::BLOCK_ROWS`] `rows` `[n, width]` (all blocks but the last
    /// have to be full), and compares it with each block. Calls `visit` with the index of the first
    /// row of that block, the number of columns `c`, and values `[n, c]`: where a similarity (to a
    /// row that exists) is at least `least`, the value is at least [`Self::bound`].
    pub fn compare(
        &mut self,
        rows: &[f32],
        mut visit: impl FnMut(usize, usize, &[bf16]),
    ) -> Result<()> {
        if rows.len() > Self::BLOCK_ROWS * self.width {
            return Err(CudaError::shape("near rows", format!("a block of {} values", rows.len())));
        }
        let (x, mut weight) =
            (split_rows(rows, self.width, false), split_rows(rows, self.width, true));
        self.stream.upload(&mut self.x, 0, &x)?;
        let columns = operand_width(self.width);
        let outputs = (weight.len() / columns).next_multiple_of(8);
        weight.resize(outputs * columns, bf16::ZERO);
        let bias = vec![bf16::from_f32(-self.least); outputs];
        self.blocks.push(Linear::new(&self.stream, &weight, &bias, None)?);
        let n = x.len() / columns;
        for (block, linear) in self.blocks.iter().enumerate() {
            let (x, y) = (LeftOperand::Bf16(&self.x), Output::Bf16(&mut self.y));
            let operands = Operands { rows: n, x, epilogue: MatmulEpilogue::Bias, y };
            // The copy of the result takes longer than the product.
            matmul(&self.stream, linear, &operands, MatrixInstructions::Warp)?;
            let len = n * linear.outputs();
            self.stream.copy_out(&self.y, &mut self.result, len)?;
            visit(block * Self::BLOCK_ROWS, linear.outputs(), &self.result.values()?[..len]);
        }
        Ok(())
    }

    /// Returns a lower bound of the values that [`Self::compare`] gives for near rows.
    pub fn bound(&self) -> f32 {
        // Each of h + l and l is off by 2^-16 of x: 3 · 2^-16 of the product. Rounding the result,
        // which is below 2^-8, adds less than 2^-16. Sums lose at most 2^-22 in each of their steps,
        // on the GPU and in the f32 product that decides.
        let error = 2f32.powi(-13) + operand_width(self.width) as f32 * 2f32.powi(-22);
        self.least + bf16::from_f32(-self.least).to_f32() - error
    }
}

/// Returns the number of columns of an operand: three parts of `width` in whole steps of 8.
fn operand_width(width: usize) -> usize {
    3 * width.next_multiple_of(8)
}

/// Splits each value of `rows` `[n, width]` into bf16 h and l, and returns the operand with rows h
/// h l, or h l h for the right side; each part is padded to whole steps of 8.
fn split_rows(rows: &[f32], width: usize, is_right: bool) -> Vec<bf16> {
    let (mut operand, padded) = (Vec::new(), width.next_multiple_of(8));
    operand.reserve(rows.len() / width.max(1) * operand_width(width));
    let (mut high, mut low) = (vec![bf16::ZERO; padded], vec![bf16::ZERO; padded]);
    for row in rows.chunks_exact(width.max(1)) {
        for (&x, (high, low)) in row.iter().zip(high.iter_mut().zip(&mut low)) {
            *high = bf16::from_f32(x);
            *low = bf16::from_f32(x - high.to_f32());
        }
        let [second, third] = if is_right { [&low, &high] } else { [&high, &low] };
        operand.extend_from_slice(&high);
        operand.extend_from_slice(second);
        operand.extend_from_slice(third);
    }
    operand
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums in f64, so that only the operands are off.
    #[test]
    fn operands_hold_sixteen_bits_of_each_value() {
        let rows: Vec<f32> = (0..60u8).map(|at| (f32::from(at) * 0.7).sin()).collect();
        let (left, right) = (split_rows(&rows, 12, false), split_rows(&rows, 12, true));
        assert_eq!(left.len(), 5 * operand_width(12));
        let wide = |values: &[bf16]| values.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (a, left) in rows.chunks(12).zip(left.chunks(48).map(wide)) {
            for (b, right) in rows.chunks(12).zip(right.chunks(48).map(wide)) {
                let [a, b] =
                    [a, b].map(|row| row.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
                let size = (dot(&a, &a) * dot(&b, &b)).sqrt();
                let error = (dot(&a, &b) - dot(&left, &right)).abs();
                assert!(error <= 3.0 * 2f64.powi(-16) * 1.01 * size, "{error} of {size}");
            }
        }
    }
}
