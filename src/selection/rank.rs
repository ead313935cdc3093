//! Defines the total order of documents for one threshold: best first, no two equal.
//!
//! This module maps (logit, id, ordinal) to an unsigned key and splits the key into 16-bit digits.
//! NaN has no place in the order; the caller excludes it.

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
    pub(super) const FIRST: Self = Self { logit: 0, id_hash: 0, ordinal: 0 };

    /// Returns the key of a logit, with tie-breaks of zero.
    pub fn of_logit(logit: f32, keep: Keep) -> Self {
        let bits = (logit + 0.0).to_bits(); // −0.0 + 0.0 is +0.0
        let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        let logit = if keep == Keep::Above { !ascending } else { ascending };
        Self { logit, ..Self::FIRST }
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
    pub(super) fn reversed(self) -> Self {
        Self { logit: !self.logit, id_hash: !self.id_hash, ordinal: !self.ordinal }
    }

    /// Returns digit number `level`, most significant first.
    pub(super) fn digit(self, level: usize) -> usize {
        let (word, place) = match level {
            0..ID_LEVEL => (u64::from(self.logit) << 32, level),
            ID_LEVEL..ORDINAL_LEVEL => (self.id_hash, level - ID_LEVEL),
            _ => (self.ordinal, level - ORDINAL_LEVEL),
        };
        (word >> (48 - 16 * place)) as usize & (RADIX - 1)
    }

    /// Sets the digit at `level` of a prefix, whose digits from `level` on are zero.
    pub(super) fn with_digit(mut self, level: usize, digit: usize) -> Self {
        let at = |place: usize| (digit as u64) << (48 - 16 * place);
        match level {
            0..ID_LEVEL => self.logit |= (at(level) >> 32) as u32,
            ID_LEVEL..ORDINAL_LEVEL => self.id_hash |= at(level - ID_LEVEL),
            _ => self.ordinal |= at(level - ORDINAL_LEVEL),
        }
        self
    }

    /// Returns this key with the digits from `level` on set to zero.
    pub(super) fn prefix(self, level: usize) -> Self {
        Self {
            logit: self.logit & (top_digits(level.min(ID_LEVEL)) >> 32) as u32,
            id_hash: self.id_hash & top_digits(level.saturating_sub(ID_LEVEL)),
            ordinal: self.ordinal & top_digits(level.saturating_sub(ORDINAL_LEVEL)),
        }
    }

    /// Returns the last key that shares the digits before `level` with this prefix.
    pub(super) fn last_of_prefix(self, level: usize) -> Self {
        self.reversed().prefix(level).reversed()
    }
}

/// Returns a word whose first `count` digits are all ones.
fn top_digits(count: usize) -> u64 {
    !u64::MAX.checked_shr(16 * count as u32).unwrap_or(0)
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
            let rebuilt =
                (0..level).fold(RankKey::FIRST, |k, l| k.with_digit(l, key.digit(l)));
            prop_assert_eq!(rebuilt, key.prefix(level));
            prop_assert_eq!(key.prefix(level).last_of_prefix(level).prefix(level), rebuilt);
            prop_assert!(rebuilt <= key && key <= rebuilt.last_of_prefix(level));
        }
    }
}
