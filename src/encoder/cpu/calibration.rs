//! Calibrates int8 with the mean inputs of linear maps, and deviations, on lines in 24 languages.
//!
//! Trained encoders put up to half of all attention on their first and last tokens, for lack of
//! anything better ("Efficient Streaming Language Models with Attention Sinks", Xiao et al., 2024),
//! so rounding errors in the values of these two reach every token. But their states hardly depend
//! on the text: once the mean is subtracted, little is left to round. The deviations from the means
//! say how large the values of each channel are.

use polysift_kernels::Matrix;

/// Sentences written for polysift: prose, forums, shops, menus, insults, code.
pub(super) const TEXTS: &str = include_str!("calibration.txt");

/// Number of token kinds; each kind has its own mean.
const NUM_KINDS: usize = 3;
const MIDDLE: u8 = 0;
pub(super) const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Returns the kinds of the tokens of a sequence; an only token is the first.
pub(super) fn token_kinds(length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(move |i| match i {
        0 => FIRST,
        i if i + 1 == length => LAST,
        _ => MIDDLE,
    })
}

/// Input sums of the four linear maps of a layer.
pub(super) type LayerInputs = [InputSums; 4];

/// Sums of a linear map's input rows, by kind.
#[derive(Default)]
pub(super) struct InputSums {
    /// `[NUM_KINDS, inputs]` sums and sums of squares, or empty before the first row.
    sums: Vec<[f64; 2]>,
    rows: [u32; NUM_KINDS],
}

impl InputSums {
    /// Adds the rows of `x`, each to the sums of its kind.
    pub(super) fn add(&mut self, x: Matrix<'_>) {
        self.sums.resize(NUM_KINDS * x.columns(), [0.0; 2]);
        for (row, kind) in (0..x.rows()).map(|i| (x.row(i), x.kind(i))) {
            self.rows[kind] += 1;
            let sums = &mut self.sums[kind * row.len()..][..row.len()];
            for ([sum, squares], value) in sums.iter_mut().zip(row) {
                *sum += f64::from(*value);
                *squares += f64::from(*value).powi(2);
            }
        }
    }

    /// Adds the sums of `other`, which belongs to the same map.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sums.resize(other.sums.len(), [0.0; 2]);
        let rows = self.rows.iter_mut().zip(other.rows);
        rows.for_each(|(rows, others)| *rows += others);
        let sums = self.sums.as_flattened_mut().iter_mut().zip(other.sums.as_flattened());
        sums.for_each(|(sum, others)| *sum += others);
    }

    /// Returns the means `[NUM_KINDS, k]`: 0 for an absent kind, all 0 if one is not finite.
    pub(super) fn means(&self, k: usize) -> Vec<f32> {
        let mut means = vec![0.0; NUM_KINDS * k];
        for (i, (mean, [sum, _])) in means.iter_mut().zip(&self.sums).enumerate() {
            *mean = (sum / f64::from(self.rows[i / k].max(1))) as f32;
        }
        if means.iter().all(|mean| mean.is_finite()) { means } else { vec![0.0; means.len()] }
    }

    /// Returns the standard deviations `[k]` from the kinds' means; 0 where an input is not finite.
    pub(super) fn deviations(&self, k: usize) -> Vec<f32> {
        let mut variances = vec![0.0; k];
        for (i, [sum, squares]) in self.sums.iter().enumerate() {
            let rows = f64::from(self.rows[i / k].max(1));
            variances[i % k] += (squares - sum * sum / rows).max(0.0);
        }
        let rows = f64::from(self.rows.iter().sum::<u32>().max(1));
        variances.into_iter().map(|variance| (variance / rows).sqrt() as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_those_of_each_kind() {
        let [mut inputs, mut others, mut infinite] = [(); 3].map(|()| InputSums::default());
        assert_eq!(inputs.means(2), [0.0; 6]);
        let of_tokens: Vec<u8> = token_kinds(3).collect();
        inputs.add(Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2, 2).with_kinds(&of_tokens));
        others
            .add(Matrix::new(&[2.0, 4.0], 1, 2, 2).with_kinds(&token_kinds(1).collect::<Vec<_>>()));
        inputs.merge(&others);
        assert_eq!(inputs.means(2), [3.0, 4.0, 1.5, 3.0, 5.0, 6.0]);
        // Only the first token occurs twice: 1 and 2, 2 and 4, in four rows.
        assert_eq!(inputs.deviations(2), [0.125f32.sqrt(), 0.5f32.sqrt()]);
        infinite.add(Matrix::new(&[1.0, f32::INFINITY], 1, 2, 2).with_kinds(&[FIRST]));
        inputs.merge(&infinite);
        assert_eq!(inputs.means(2), [0.0; 6]);
    }
}
