//! Samples, the hashes that stand for their texts and places, and the order in which a seed ranks
//! them.

/// A sample on its way into a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatasetSample {
    /// Unique within a dataset: the source, and where in it the sample comes from.
    pub id: String,
    /// The text.
    pub text: String,
    /// Folder of the source of a positive, `corpus` for a negative, file of a toxicity sample.
    pub source: String,
    /// Whether it is of the positive (toxic) class.
    pub positive: bool,
    /// What makes it the same sample as another: a hash of its text, or of its place in
    /// published mode, which drops no duplicates.
    pub key: u128,
    /// Samples of one group are never separated by a split.
    pub group: u128,
    /// Whether the group goes through all languages, so that it has to be in one split in all of them.
    pub is_translated: bool,
}

/// Key of a text: that of its words, in lower case, with one space between them.
pub(super) fn text_key(text: &str) -> u128 {
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

/// Key of a row of a file.
pub(super) fn place_key(file: &str, row: u64) -> u128 {
    key_of("place", &[file, &row.to_string()])
}

/// Key of `parts`, of which other kinds have others.
pub(super) fn key_of(kind: &str, parts: &[&str]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in [kind].iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    first_half(hasher.finalize())
}

/// A random order of keys: one for every seed and purpose.
#[derive(Debug, Clone)]
pub(super) struct Ranks([u8; 32]);

impl Ranks {
    pub(super) fn new(seed: u64, purpose: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(purpose.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// Place of `key` in the order: uniform, and no two keys share one (as far as 128 bits tell).
    pub(super) fn of(&self, key: u128) -> u128 {
        first_half(blake3::keyed_hash(&self.0, &key.to_le_bytes()))
    }
}

fn first_half(hash: blake3::Hash) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_white_space_make_no_other_text() {
        assert_eq!(text_key("Ein  Äpfel\n"), text_key("ein äpfel"));
        assert_ne!(text_key("2 + 2"), text_key("2 - 2"));
        assert_ne!(text_key("ab c"), text_key("a bc"));
    }

    #[test]
    fn seeds_and_purposes_order_differently() {
        let key = text_key("a");
        let rank = |seed, purpose| Ranks::new(seed, purpose).of(key);
        assert_ne!(rank(1, "a"), rank(2, "a"));
        assert_ne!(rank(1, "a"), rank(1, "b"));
    }
}
