//! Mean of token states.

use crate::cpu::isa::vectorized;

vectorized! {
    /// Mean over the rows of `rows` (`out.len()` f32 each) into `out`; summed in f64, first row to
    /// last. No rows give zeros.
    pub fn mean_rows(rows: &[f32], out: &mut [f32]) {
        let width = out.len().max(1);
        let count = (rows.len() / width).max(1) as f64;
        for (i, out) in out.chunks_mut(LANES).enumerate() {
            let mut sums = [0.0f64; LANES];
            for row in rows.chunks_exact(width) {
                for (sum, &value) in sums.iter_mut().zip(&row[i * LANES..][..out.len()]) {
                    *sum += f64::from(value);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (sum / count) as f32;
            }
        }
    }
}

/// Columns whose sums are kept at a time.
const LANES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn the_mean_is_the_rounded_f64_mean_on_every_instruction_set() {
        let (count, width) = (37, 21);
        let rows: Vec<f32> =
            (0..count * width).map(|i| ((i * 7919) % 1009) as f32 * 0.37).collect();
        let exact: Vec<f32> = (0..width)
            .map(|j| {
                let column = rows[j..].iter().step_by(width);
                (column.map(|&v| f64::from(v)).sum::<f64>() / count as f64) as f32
            })
            .collect();
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; width];
            mean_rows(isa, &rows, &mut out);
            assert_eq!(out, exact);
        }
    }

    #[test]
    fn one_row_is_its_own_mean() {
        let row = vec![0.1, 0.2, 0.3];
        let mut out = vec![0.0; 3];
        mean_rows(Isa::detect(), &row, &mut out);
        assert_eq!(out, row);
    }
}
