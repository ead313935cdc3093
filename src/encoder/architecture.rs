//! Describes what an encoder computes. The module `families` parses it from a `config.json`.

use std::sync::Arc;

/// What an encoder computes, under the names that both devices use. A model family is one way to
/// write this in a `config.json`, and a set of tensor names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Architecture {
    /// Width H of a token's state.
    pub(super) width: usize,
    /// Width F inside the feed-forward block.
    pub(super) inner: usize,
    pub(super) num_heads: usize,
    pub(super) vocab_size: usize,
    /// Maximum length of a sequence, special tokens included.
    pub(super) max_tokens: usize,
    pub(super) positions: Positions,
    /// 0 if the model has no token types.
    pub(super) num_token_types: usize,
    pub norm_eps: f64,
    /// True if the norms precede attention and feed-forward, with one more norm after the last
    /// layer; false if they follow the residual sums.
    pub(super) pre_norm: bool,
    pub(super) feed_forward: FeedForward,
    pub(super) ropes: Vec<Rope>,
    pub(super) layers: Arc<[LayerKind]>,
    pub(super) names: Names,
}

/// How a token's position enters its embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// A learned table of `rows` rows. The first token has row `first`. A token with the id `skips`
    /// has the row of that number and does not advance the position.
    Learned { rows: usize, first: usize, skips: Option<usize> },
    /// The model does not add positions to the embedding.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedForward {
    /// `gelu(x W) Wo`.
    Plain,
    /// `(gelu(x Wa) · x Wb) Wo`, with Wa and Wb in one tensor, Wa before or after Wb.
    Gated { activated_first: bool },
}

/// A rotary position embedding. Its frequency `i` is `theta^(-2i / head_size) / divisor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rope {
    pub(super) theta: f64,
    /// Divides all frequencies.
    pub(super) divisor: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerKind {
    /// How many tokens before and after itself a token attends to; `None` for all tokens.
    pub(super) window: Option<usize>,
    /// Index into the model's ropes; `None` for no rope.
    pub(super) rope: Option<usize>,
}

/// Tensor names by family, each after one of `prefixes`, and before `.weight` or `.bias`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Names {
    pub(super) prefixes: &'static [&'static str],
    pub(super) words: &'static str,
    pub(super) embedding_norm: &'static str,
    /// Precedes the names below; `{i}` is the index of the layer.
    pub(super) layer: &'static str,
    /// One tensor for all three maps, or one each for queries, keys and values.
    pub(super) query_key_value: TensorsOfMap,
    pub(super) attention_output: TensorsOfMap,
    pub(super) attention_norm: &'static str,
    pub(super) intermediate: TensorsOfMap,
    pub(super) output: TensorsOfMap,
    pub(super) output_norm: &'static str,
    pub(super) norm_bias: bool,
}

/// Names, as words, of the tensors whose outputs a map concatenates, and whether they have biases.
pub(super) type TensorsOfMap = (&'static str, bool);

impl Positions {
    /// Returns the number of rows of the table of positions; 1, of zeros, without a table.
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Learned { rows, .. } => rows,
            Self::None => 1,
        }
    }

    /// Returns the table row of each token of a sequence.
    pub(crate) fn table_rows(self, ids: &[u32]) -> impl Iterator<Item = usize> {
        let (mut next, skips, step) = match self {
            Self::Learned { first, skips, .. } => (first, skips, 1),
            Self::None => (0, None, 0),
        };
        ids.iter().map(move |&id| match skips {
            Some(skips) if skips == id as usize => skips,
            _ => {
                next += step;
                next - step
            }
        })
    }
}

impl Rope {
    /// Computes `[max_tokens, head_size]`: for each position the cosines of its angles, then the
    /// sines. As in transformers, all but powers, cosines and sines is in f32. `libm` computes
    /// these three, so that all machines agree.
    fn angles(self, max_tokens: usize, head_size: usize) -> Vec<f32> {
        let half = head_size / 2;
        let frequency = |i: usize| {
            let exponent = (2 * i) as f32 / head_size as f32;
            1.0 / libm::pow(self.theta, f64::from(exponent)) as f32 / self.divisor as f32
        };
        let frequencies: Vec<f32> = (0..half).map(frequency).collect();
        let mut angles = Vec::with_capacity(max_tokens * head_size);
        for position in 0..max_tokens {
            let of = frequencies.iter().map(|f| f64::from(f * position as f32));
            angles.extend(of.clone().map(|angle| libm::cos(angle) as f32));
            angles.extend(of.map(|angle| libm::sin(angle) as f32));
        }
        angles
    }
}

impl Architecture {
    pub(super) fn head_size(&self) -> usize {
        self.width / self.num_heads
    }

    /// Computes the angles `[max_tokens, head_size]` of each rope.
    pub(super) fn angles(&self) -> Vec<Arc<[f32]>> {
        let angles = |rope: &Rope| rope.angles(self.max_tokens, self.head_size()).into();
        self.ropes.iter().map(angles).collect()
    }

    /// Returns the floating-point operations per token in the linear maps of all layers.
    pub(super) fn linear_flops(&self) -> u64 {
        let (h, f) = (self.width, self.inner);
        (2 * self.layers.len() * h * (4 * h + self.intermediate_size() + f)) as u64
    }

    /// Returns the number of outputs of the first linear map of the feed-forward block.
    pub(super) fn intermediate_size(&self) -> usize {
        match self.feed_forward {
            FeedForward::Plain => self.inner,
            FeedForward::Gated { .. } => 2 * self.inner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_what_is_not_skipped_or_are_zeros() {
        let learned = |first, skips| Positions::Learned { rows: 514, first, skips };
        for (positions, expected) in [
            (learned(2, Some(1)), [2, 3, 1, 4, 5]),
            (learned(0, None), [0, 1, 2, 3, 4]),
            (Positions::None, [0; 5]),
        ] {
            assert!(positions.table_rows(&[0, 5, 1, 6, 2]).eq(expected), "{positions:?}");
        }
    }

    #[test]
    fn angles_start_with_no_turn_and_end_far_away() {
        let angles = Rope { theta: 10_000.0, divisor: 2.0 }.angles(3, 4);
        let exact =
            [1.0, 1.0, 0.0, 0.0].into_iter().chain([1.0f64, 2.0].into_iter().flat_map(|p| {
                [(p / 2.0).cos(), (p / 200.0).cos(), (p / 2.0).sin(), (p / 200.0).sin()]
            }));
        for (value, exact) in angles.iter().zip(exact) {
            assert!((f64::from(*value) - exact).abs() < 1e-7, "{value} {exact}");
        }
    }
}
