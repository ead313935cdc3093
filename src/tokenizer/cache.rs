//! The ids of the words seen last.

/// Bytes of the longest word that is kept.
pub(super) const LONGEST_CACHED: usize = 31;
/// Most ids of a word that is kept.
const MOST_IDS: usize = 7;
/// log2 of the entries: 1 MiB, half of a usual core's second-level cache.
const BITS: u32 = 14;

/// A word padded with zeros, its length and one in the last byte; all zeros is no word.
pub(super) type WordKey = [u64; 4];

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct CacheEntry {
    key: WordKey,
    ids: [u32; MOST_IDS],
    len: u32,
}

/// Ids of the words seen last: a fixed table, one cache line an entry, newer words replace older.
pub(super) struct WordCache(Box<[CacheEntry]>);

impl WordCache {
    pub(crate) fn new() -> Self {
        Self(vec![CacheEntry::default(); 1 << BITS].into_boxed_slice())
    }

    /// The ids of a word.
    #[inline]
    pub(crate) fn get(&self, key: &WordKey) -> Option<&[u32]> {
        let entry = &self.0[slot(key)];
        (entry.key == *key).then(|| &entry.ids[..entry.len as usize])
    }

    /// Keeps the ids of a word if they fit.
    pub(super) fn set(&mut self, key: &WordKey, ids: &[u32]) {
        if ids.len() <= MOST_IDS {
            let entry = &mut self.0[slot(key)];
            entry.key = *key;
            entry.ids[..ids.len()].copy_from_slice(ids);
            entry.len = ids.len() as u32;
        }
    }
}

/// The key of a word of at most [`LONGEST_CACHED`] bytes.
#[inline]
pub(super) fn key(word: &[u8]) -> WordKey {
    let mut bytes = [0u8; 32];
    bytes[..word.len()].copy_from_slice(word);
    bytes[LONGEST_CACHED] = word.len() as u8 + 1;
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

#[inline]
fn slot(key: &WordKey) -> usize {
    // Odd constants of splitmix64 and friends; the products mix, the high bits are taken.
    let a = (key[0] ^ key[2].rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let b = (key[1] ^ key[3].rotate_left(32)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (a ^ b.rotate_left(29) ^ (a >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> (u64::BITS - BITS)) as usize
}
