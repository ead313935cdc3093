//! A Bloom filter over the hashes of an index, which rejects nearly all n-grams of a corpus. It is
//! blocked: the bits of a key lie in one word of 64 bits, so a query costs one memory access.
//!
//! # Source
//! F. Putze, P. Sanders, J. Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007.

/// Bits of the filter per key; about one query in 50 is a false positive.
const BITS_PER_KEY: usize = 10;
/// Bits that a key sets in its word.
const BITS_SET: u32 = 4;

/// Returns the words of a filter that holds `keys`, at least one word.
pub(super) fn build_words(keys: &[u64]) -> Vec<u64> {
    let mut words = vec![0; (keys.len() * BITS_PER_KEY).div_ceil(64).max(1)];
    for key in keys {
        let word = place_of_key(*key, words.len());
        words[word] |= bits(*key);
    }
    words
}

/// Returns true if `key` may be in the filter of these little-endian words, and always if it is.
#[inline]
pub(super) fn may_contain(words: &[[u8; 8]], key: u64) -> bool {
    let word =
        words.get(place_of_key(key, words.len())).map_or(0, |word| u64::from_le_bytes(*word));
    word & bits(key) == bits(key)
}

/// Returns the place of a key among `places` that divide the range of keys evenly, ascending.
#[inline]
pub(super) fn place_of_key(key: u64, places: usize) -> usize {
    ((u128::from(key) * places as u128) >> 64) as usize
}

/// Returns the bits that a key sets in its word.
fn bits(key: u64) -> u64 {
    (0..BITS_SET).fold(0, |bits, index| bits | 1 << (key >> (6 * index) & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_missed_and_few_others_pass() {
        let key = |number: u64| blake3::hash(&number.to_le_bytes());
        let key = |number| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&key(number).as_bytes()[..8]);
            u64::from_le_bytes(bytes)
        };
        let keys: Vec<u64> = (0..10_000).map(key).collect();
        let words: Vec<[u8; 8]> =
            build_words(&keys).iter().map(|word| word.to_le_bytes()).collect();
        assert!(keys.iter().all(|key| may_contain(&words, *key)));
        let passed = (10_000..110_000).filter(|n| may_contain(&words, key(*n))).count();
        assert!(passed < 3_000, "{passed} of 100,000");
        assert!(!may_contain(&[], 7));
        assert!(build_words(&[]).len() == 1);
    }
}
