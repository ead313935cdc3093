//! Keys of texts, their ranks by a seed, and uniform samples independent of the order of a stream.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash3_64;

use crate::panics::{lock, unpoisoned};

/// Returns a hash seed: xxh3-64 of the joined `names` and of `seed` as 8 little-endian bytes.
pub fn hash_seed(names: &[&str], seed: u64) -> u64 {
    let names = names.iter().map(|name| name.as_bytes());
    XxHash3_64::oneshot(&names.chain([&seed.to_le_bytes()[..]]).collect::<Vec<_>>().concat())
}

/// Returns the rank of a document in a random order: a hash of its `ordinal`, then the ordinal.
pub fn ordinal_rank(seed: u64, ordinal: u64) -> u128 {
    let hash = XxHash3_64::oneshot_with_seed(seed, &ordinal.to_le_bytes());
    u128::from(hash) << 64 | u128::from(ordinal)
}

/// Returns the [`key_of`] a text: case and the amount of white space do not change it.
pub fn text_key(text: &str) -> u128 {
    let mut normal = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !normal.is_empty() {
            normal.push(' ');
        }
        if word.is_ascii() {
            normal.extend(word.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        } else {
            normal.extend(word.chars().flat_map(char::to_lowercase));
        }
    }
    key_of("text", &[&normal])
}

/// Returns half of the BLAKE3 hash of `kind` and `parts`; equal parts of two kinds differ.
pub fn key_of(kind: &str, parts: &[&str]) -> u128 {
    leading_u128(hash_of([kind].iter().chain(parts)))
}

/// Returns the BLAKE3 hash of `parts`, each after its length in bytes (u64, little endian).
pub fn hash_of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}

/// A random order of keys, determined by a seed and a purpose.
#[derive(Debug, Clone)]
pub struct Ranks([u8; 32]);

impl Ranks {
    /// Returns the order for `seed` and `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(purpose.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the rank of `key`, which is uniform and unique (up to collisions of 128-bit hashes).
    pub fn rank_of(&self, key: u128) -> u128 {
        leading_u128(blake3::keyed_hash(&self.0, &key.to_le_bytes()))
    }
}

fn leading_u128(hash: blake3::Hash) -> u128 {
    u128::from_le_bytes(hash.as_bytes().as_chunks::<16>().0[0])
}

/// Keeps the `k` items of smallest rank among all items that any number of threads offer; of equal
/// rank the smallest item. If ranks are a uniform hash of the items, the result is a uniform sample
/// of the distinct items, whatever their order.
#[derive(Debug)]
pub struct BottomKSample<T> {
    k: usize,
    /// Upper half of the largest kept rank once `k` items are kept, which rejects most offers.
    limit: AtomicU64,
    kept: Mutex<BTreeMap<u128, T>>,
}

impl<T: PartialOrd> BottomKSample<T> {
    /// Returns an empty sample that keeps at most `k` items.
    pub fn new(k: usize) -> Self {
        Self { k, limit: AtomicU64::new(u64::MAX), kept: Mutex::default() }
    }

    /// Offers the item that `make` returns; `make` is not called if the rank is too large.
    pub fn offer(&self, rank: u128, make: impl FnOnce() -> T) {
        // The limit only falls, so a stale value lets too many items through, never too few.
        if self.k == 0 || (rank >> 64) as u64 > self.limit.load(Ordering::Relaxed) {
            return;
        }
        let item = make();
        // The map holds whole items even if another thread panicked.
        let mut kept = lock(&self.kept);
        if kept.get(&rank).is_none_or(|known| item < *known) {
            kept.insert(rank, item);
        }
        if kept.len() > self.k {
            kept.pop_last();
        }
        if kept.len() == self.k
            && let Some((&largest, _)) = kept.last_key_value()
        {
            self.limit.store((largest >> 64) as u64, Ordering::Relaxed);
        }
    }

    /// Returns the kept items in ascending order of rank.
    pub fn into_items(self) -> Vec<T> {
        let kept = unpoisoned(self.kept.into_inner());
        kept.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(item: u64, seed: u64) -> u128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&item.to_le_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_le_bytes(half)
    }

    fn sample(items: &[u64], k: usize, seed: u64) -> Vec<u64> {
        let sampler = BottomKSample::new(k);
        for &item in items {
            sampler.offer(rank(item, seed), || item);
        }
        sampler.into_items()
    }

    #[test]
    fn every_item_is_drawn_equally_often() {
        let items: Vec<u64> = (0..50).collect();
        let (k, draws) = (10, 4000);
        let mut counts = [0u64; 50];
        for seed in 0..draws {
            for item in sample(&items, k, seed) {
                counts[item as usize] += 1;
            }
        }
        // Without replacement each count has the variance d p (1 - p), and counts of one draw are
        // correlated by -1 / (n - 1). So the sum of squares over d p (1 - p) n / (n - 1) is
        // chi-square with 49 degrees of freedom; its 0.01% and 99.99% quantiles are 18.7 and 96.2.
        let p = k as f64 / items.len() as f64;
        let expected = draws as f64 * p;
        let squares: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2)).sum();
        let n = items.len() as f64;
        let chi_square = squares / (expected * (1.0 - p) * n / (n - 1.0));
        assert!((18.7..96.2).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn order_and_repetition_change_nothing() {
        let items: Vec<u64> = (0..1000).collect();
        let mut other: Vec<u64> = items.iter().rev().chain(&items[..500]).copied().collect();
        other.rotate_left(123);
        assert_eq!(sample(&items, 37, 1), sample(&other, 37, 1));
        assert_ne!(sample(&items, 37, 1), sample(&items, 37, 2));
        assert_eq!(sample(&items, 37, 1), sample(&items, 40, 1)[..37]);
    }

    #[test]
    fn none_and_all_are_fine() {
        assert_eq!(sample(&[1, 2], 0, 1), [0; 0]);
        let mut all = sample(&[3, 1, 2], 9, 1);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    }

    #[test]
    fn of_equal_ranks_the_smallest_item_is_kept() {
        for items in [["b", "a", "c"], ["c", "b", "a"]] {
            let sampler = BottomKSample::new(2);
            for item in items {
                sampler.offer(5, || item);
            }
            assert_eq!(sampler.into_items(), ["a"]);
        }
    }

    #[test]
    fn case_and_white_space_make_no_other_text() {
        assert_eq!(text_key("Ein  Äpfel\n"), text_key("ein äpfel"));
        assert_ne!(text_key("2 + 2"), text_key("2 - 2"));
        assert_ne!(text_key("ab c"), text_key("a bc"));
    }

    #[test]
    fn seeds_and_purposes_order_differently() {
        let key = text_key("a");
        let rank = |seed, purpose| Ranks::new(seed, purpose).rank_of(key);
        assert_ne!(rank(1, "a"), rank(2, "a"));
        assert_ne!(rank(1, "a"), rank(1, "b"));
    }
}
