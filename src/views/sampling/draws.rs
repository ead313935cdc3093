//! Random numbers by hashing: they depend on the seed and not on the order of calls.

use twox_hash::XxHash3_64;

/// A random number for every `u64`, different for each seed, history and purpose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws(u64);

impl Draws {
    /// Creates the numbers of `purpose` in `language`; `history` separates rounds with one seed.
    pub(super) fn new(seed: u64, history: &[u8], purpose: &str, language: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [&seed.to_le_bytes(), history, purpose.as_bytes(), language.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let mut key = [0; 8];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(u64::from_le_bytes(key))
    }

    /// Returns a number that is uniform over all `u64`.
    pub(super) fn of(self, item: u64) -> u64 {
        XxHash3_64::oneshot_with_seed(self.0, &item.to_le_bytes())
    }

    /// Returns a number that is uniform in [0, 1).
    pub(super) fn uniform(self, item: u64) -> f64 {
        (self.of(item) >> 11) as f64 / (1u64 << 53) as f64
    }
}
