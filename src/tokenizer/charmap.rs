//! The `Precompiled` normalizer of `tokenizer.json`, and a fast way to find grapheme clusters.
//!
//! The normalizer maps grapheme clusters. A cluster below six bytes is looked up whole: the
//! shortest key that is a prefix of it wins and replaces all of it. Otherwise each of its
//! characters is looked up alone. Most clusters are one unchanged character. So a table over the
//! Basic Multilingual Plane gives, in one load, the replacement of a character and whether it could
//! share a cluster with a neighbour. Only then is the text segmented.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use unicode_segmentation::UnicodeSegmentation;

/// The character that stands for a space in the pieces of the model.
pub(super) const META: char = '▁';
/// Number of characters in a table of the Basic Multilingual Plane.
pub(super) const TABLE_LEN: u32 = 0x1_0000;
/// Clusters of at least this many bytes are split into characters.
const LONG_CLUSTER: usize = 6;
/// Flags of a [`Glyph`]: it may continue a cluster before it, or its own may be continued.
const JOINS: u32 = 1 << 31;
const OPENS: u32 = 1 << 30;
/// Kinds of a [`Glyph`]: unchanged, of which white space and [`META`] end words. A number from
/// `FIRST_TEXT` on is the index of a replacement.
const KEEP: u32 = 0;
const BLANK: u32 = 1;
const FIRST_TEXT: u32 = 2;

/// Entry of a character in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glyph(u32);

impl Glyph {
    /// Returns true if the character is unchanged, not blank, and a cluster unless the next joins.
    pub(super) fn is_plain(self) -> bool {
        self.0 == KEEP
    }

    /// Returns true if the character may continue the cluster before it.
    pub(super) fn joins(self) -> bool {
        self.0 & JOINS != 0
    }

    /// Returns true if its clusters may depend on more than whether the next character joins.
    pub(super) fn is_open(self) -> bool {
        self.0 & (JOINS | OPENS) != 0
    }
}

/// A `Precompiled` normalizer's map from clusters and characters to replacements.
pub(super) struct CharMap {
    /// sentencepiece's double array.
    units: Vec<u32>,
    /// Replacements, each ended by NUL.
    texts: String,
    table: Vec<u32>,
    /// Start and end in `texts` of each replacement in the table.
    ranges: Vec<(u32, u32)>,
}

impl CharMap {
    /// Reads a `precompiled_charsmap` (length as u32, double array, replacements), if it is valid.
    pub(super) fn from_base64(charsmap: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(charsmap).ok()?;
        let (len, rest) = bytes.split_first_chunk()?;
        let (units, texts) = rest.split_at_checked(u32::from_le_bytes(*len) as usize / 4 * 4)?;
        let unit = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let units = units.as_chunks().0.iter().map(unit).collect();
        Some(Self::new(units, String::from_utf8(texts.to_vec()).ok()?))
    }

    /// Makes the map of a double array; an empty one changes nothing.
    pub(super) fn new(units: Vec<u32>, texts: String) -> Self {
        let (table, ranges) = (Vec::with_capacity(TABLE_LEN as usize), Vec::new());
        let mut map = Self { units, texts, table, ranges };
        for code in 0..TABLE_LEN {
            let entry =
                char::from_u32(code).map_or(KEEP, |c| map.new_entry(c) | CLUSTERS[code as usize]);
            map.table.push(entry);
        }
        map
    }

    /// Returns the entry of `c` without flags; appends the range of its replacement to `ranges`.
    fn new_entry(&mut self, c: char) -> u32 {
        let Some((start, end)) = self.find_replacement(c.encode_utf8(&mut [0; 4]).as_bytes())
        else {
            return if c == META || c.is_whitespace() { BLANK } else { KEEP };
        };
        self.ranges.push((start as u32, end as u32));
        FIRST_TEXT + self.ranges.len() as u32 - 1
    }

    /// Returns the entry of `c`; characters beyond the table may join both neighbours.
    #[inline]
    pub(super) fn glyph_of(&self, c: char) -> Glyph {
        self.table.get(c as usize).map_or(Glyph(JOINS | OPENS), |&entry| Glyph(entry))
    }

    /// Returns the replacement, if any, of a character that is a cluster or looked up alone.
    pub(super) fn replacement_of_char(&self, c: char) -> Option<&str> {
        let Some(entry) = self.table.get(c as usize) else {
            return self.replacement_of_cluster(c.encode_utf8(&mut [0; 4]));
        };
        let index = (entry & !(JOINS | OPENS)).checked_sub(FIRST_TEXT)?;
        let (start, end) = self.ranges[index as usize];
        Some(&self.texts[start as usize..end as usize])
    }

    /// Returns the replacement of a cluster as a whole; `None` if there is none or it is long.
    pub(super) fn replacement_of_cluster(&self, cluster: &str) -> Option<&str> {
        if cluster.len() >= LONG_CLUSTER {
            return None;
        }
        self.find_replacement(cluster.as_bytes()).map(|(start, end)| &self.texts[start..end])
    }

    /// Finds the replacement of the shortest key that is a prefix of `text`: its range in `texts`.
    fn find_replacement(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        for &byte in text.iter().take_while(|&&byte| byte != 0) {
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            if unit & ((1 << 31) | 0xFF) != u32::from(byte) {
                return None;
            }
            at ^= offset(unit);
            if (unit >> 8) & 1 == 1 {
                let start = (*self.units.get(at)? & ((1 << 31) - 1)) as usize;
                let text = self.texts.get(start..)?;
                return Some((start, start + text.find('\0').unwrap_or(text.len())));
            }
        }
        None
    }
}

/// Returns true for ideographs, Hangul and private use: most of the table, whose flags are all 0.
fn has_no_flags(c: char) -> bool {
    matches!(c, '㐀'..='鿿' | '가'..='힣' | '\u{E000}'..='\u{F8FF}')
}

/// [`JOINS`] and [`OPENS`] of the characters in the table, found by segmenting pairs.
///
/// Two characters are separate clusters if the first is not open and the second does not join.
/// Extend, SpacingMark and ZWJ join any letter; vowel and trailing jamo join a vowel. Prepended
/// characters, leading jamo and regional indicators are open, and so is all that joins, since emoji
/// and conjuncts continue after it. Line feed joins only a carriage return, which is open.
static CLUSTERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut pair = String::new();
    let mut one = |first: char, second: char| {
        pair.clear();
        pair.extend([first, second]);
        pair.graphemes(true).nth(1).is_none()
    };
    let mut flags = |c: char| {
        let joins = one('a', c) || one('\u{1161}', c);
        let opens = joins || c == '\r' || one(c, 'a') || one(c, c);
        (if joins { JOINS } else { 0 }) | (if opens { OPENS } else { 0 })
    };
    let flags_of = |code| match char::from_u32(code) {
        Some(c) if !has_no_flags(c) => flags(c),
        _ => 0,
    };
    (0..TABLE_LEN).map(flags_of).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segmenter_joins_nothing_to_the_characters_that_are_alone() {
        for c in (0..TABLE_LEN).filter_map(char::from_u32).filter(|&c| has_no_flags(c)) {
            for (a, b) in [('a', c), ('\u{1161}', c), (c, 'a'), (c, c)] {
                assert_eq!(String::from_iter([a, b]).graphemes(true).count(), 2, "{a:?} {b:?}");
            }
        }
    }
}
