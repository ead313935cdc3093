//! A cache of the ids of recent words.

/// Maximum bytes of a cached word.
const LONGEST_CACHED: usize = 31;
/// Maximum ids of a cached word.
const MOST_IDS: usize = 7;
/// log2 of the number of entries: 1 MiB, half of a typical core's second-level cache.
const BITS: u32 = 14;

/// A word padded with zeros, with its length plus one in the last byte; all zeros is no word.
type WordKey = [u64; 4];

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct CacheEntry {
    key: WordKey,
    ids: [u32; MOST_IDS],
    len: u32,
}

/// Ids of recent words: a fixed table, one cache line per entry. Newer words replace older ones.
pub(super) struct WordCache(Box<[CacheEntry]>);

impl Default for WordCache {
    fn default() -> Self {
        Self(vec![CacheEntry::default(); 1 << BITS].into_boxed_slice())
    }
}

impl WordCache {
    /// Appends the ids of `word` to `ids`: those in the cache, or those that `encode` appends.
    #[inline]
    pub(super) fn append(
        &mut self,
        word: &[u8],
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>),
    ) {
        if word.len() > LONGEST_CACHED {
            return encode(ids);
        }
        let key = key_of(word);
        let entry = &mut self.0[slot_of(&key)];
        if entry.key == key {
            return ids.extend_from_slice(&entry.ids[..entry.len as usize]);
        }
        let first = ids.len();
        encode(ids);
        let new = &ids[first..];
        if new.len() <= MOST_IDS {
            entry.key = key;
            entry.ids[..new.len()].copy_from_slice(new);
            entry.len = new.len() as u32;
        }
    }
}

/// Returns the key of a word of at most [`LONGEST_CACHED`] bytes.
#[inline]
fn key_of(word: &[u8]) -> WordKey {
    let mut bytes = [0u8; 32];
    bytes[..word.len()].copy_from_slice(word);
    bytes[LONGEST_CACHED] = word.len() as u8 + 1;
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

/// Returns the index of the only entry that may hold `key`: a hash of it.
#[inline]
fn slot_of(key: &WordKey) -> usize {
    // Odd constants from splitmix64 and similar. The products mix; the high bits are used.
    let a = (key[0] ^ key[2].rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let b = (key[1] ^ key[3].rotate_left(32)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (a ^ b.rotate_left(29) ^ (a >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> (u64::BITS - BITS)) as usize
}
