//! Defines the total order of documents for one threshold: best first, no two equal.
//!
//! This module maps (logit, id, ordinal) to an unsigned key and splits the key into 16-bit digits.
//! NaN has no place in the order; the caller excludes it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use polysift_config::Keep;

/// Number of 16-bit digits of a [`RankKey`].
pub(super) const LEVELS: usize = 10;
/// First digit that comes from the id; the digits before it come from the logit alone.
pub(super) const ID_LEVEL: usize = 2;
pub(super) const RADIX: usize = 1 << 16;
/// First digit that comes from the ordinal.
const ORDINAL_LEVEL: usize = 6;

/// A document's place in the order of one threshold; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankKey {
    /// Order-preserving key of the logit, inverted where high scores are good; −0.0 is +0.0.
    pub logit: u32,
    /// xxh3-64 (seed 0) of the id's bytes: breaks ties of the logit, ascending.
    pub id_hash: u64,
    /// Position in plan order: breaks ties of the hash (equal ids), ascending.
    pub ordinal: u64,
}

impl RankKey {
    /// Returns the key of a logit, with tie-breaks of zero.
    pub fn of_logit(logit: f32, keep: Keep) -> Self {
        let bits = (logit + 0.0).to_bits(); // −0.0 + 0.0 is +0.0
        let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        let logit = if keep == Keep::Above { !ascending } else { ascending };
        Self { logit, id_hash: 0, ordinal: 0 }
    }

    /// Returns the key with the tie-breaks of a document.
    #[must_use]
    pub fn with_id(self, id: &str, ordinal: u64) -> Self {
        Self { id_hash: XxHash3_64::oneshot(id.as_bytes()), ordinal, ..self }
    }

    /// Returns the logit of the key (+0.0 for both zeros).
    pub fn logit(self, keep: Keep) -> f32 {
        let ascending = if keep == Keep::Above { !self.logit } else { self.logit };
        f32::from_bits(if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending })
    }

    /// Returns the key of the same document in the reversed order (worst first).
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { logit: !self.logit, id_hash: !self.id_hash, ordinal: !self.ordinal }
    }

    /// Returns the first of the digits.
    pub(super) fn first_digit(self) -> usize {
        (self.logit >> 16) as usize
    }

    /// Returns the digit at `level`; level 0 has the most significant one.
    pub(super) fn digit(self, level: usize) -> u16 {
        let ties = || u128::from(self.id_hash) << 64 | u128::from(self.ordinal);
        match level.checked_sub(ID_LEVEL) {
            Some(place) => (ties() >> (112 - 16 * place)) as u16,
            None => (self.logit >> (16 - 16 * level)) as u16,
        }
    }

    /// Returns the last key whose digits begin with `prefix`.
    pub(super) fn last_with(prefix: &[u16]) -> Self {
        let digit = |level: usize| prefix.get(level).copied().unwrap_or(u16::MAX);
        let word = |levels: Range<usize>| {
            levels.fold(0, |word: u64, level| word << 16 | u64::from(digit(level)))
        };
        let (id_hash, ordinal) = (word(ID_LEVEL..ORDINAL_LEVEL), word(ORDINAL_LEVEL..LEVELS));
        Self { logit: word(0..ID_LEVEL) as u32, id_hash, ordinal }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_zeros_share_a_key_and_infinities_are_the_ends() {
        let key = |logit| RankKey::of_logit(logit, Keep::Below);
        assert_eq!(key(-0.0), key(0.0));
        assert!(key(f32::NEG_INFINITY) < key(f32::MIN) && key(f32::MAX) < key(f32::INFINITY));
    }

    #[test]
    fn the_tie_break_hash_is_the_published_xxh3_of_the_id() {
        // XXH3_64bits of the empty input, from the xxHash specification's test vectors.
        assert_eq!(
            RankKey::of_logit(0.0, Keep::Above).with_id("", 3).id_hash,
            0x2D06_8005_38D3_94C2
        );
    }

    proptest! {
        #[test]
        fn keys_order_as_logits_do(a: f32, b: f32) {
            for (keep, better) in [(Keep::Above, a > b), (Keep::Below, a < b)] {
                let (key_a, key_b) = (RankKey::of_logit(a, keep), RankKey::of_logit(b, keep));
                prop_assert_eq!(key_a < key_b, better);
                prop_assert_eq!(key_a.logit(keep).to_bits(), (a + 0.0).to_bits());
            }
        }

        #[test]
        fn digits_rebuild_the_key(logit: u32, id_hash: u64, ordinal: u64, level in 0..=LEVELS) {
            let key = RankKey { logit, id_hash, ordinal };
            let digits_of =
                |key: RankKey| -> [u16; LEVELS] { std::array::from_fn(|level| key.digit(level)) };
            let digits = digits_of(key);
            prop_assert_eq!(RankKey::last_with(&digits), key);
            prop_assert_eq!(key.first_digit(), usize::from(digits[0]));
            let (last, first) = (
                RankKey::last_with(&digits[..level]),
                RankKey::last_with(&digits[..level].iter().map(|d| !d).collect::<Vec<_>>()).reversed(),
            );
            for end in [first, last] {
                prop_assert_eq!(&digits_of(end)[..level], &digits[..level]);
            }
            prop_assert!(first <= key && key <= last);
        }
    }
}
