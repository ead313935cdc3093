//! Tables of what the rules need to know of each character, and its role in words by UAX #29.
//! `unicode-segmentation` does not export the roles, so they are derived from its breaks of short
//! strings with the character, once for each block of 256 characters that a text has.

use std::sync::OnceLock;

use regex::Regex;
use unicode_segmentation::UnicodeSegmentation;

const BLOCK: usize = 256;
const BLOCKS: usize = (char::MAX as usize + 1) / BLOCK;

type Blocks<T> = Box<[OnceLock<Box<[T; BLOCK]>>]>;

/// Values of characters, computed for a block of them when one first occurs.
pub(crate) struct CharacterTable<T: 'static> {
    /// Allocated at first use: in place, each table would add 70 KB to the program.
    blocks: OnceLock<Blocks<T>>,
    value: fn(char) -> T,
}

impl<T> CharacterTable<T> {
    pub(crate) const fn new(value: fn(char) -> T) -> Self {
        Self { blocks: OnceLock::new(), value }
    }

    /// Returns the value of `c`; the first look-up in a block of characters computes all of them.
    #[inline]
    pub(crate) fn get(&self, c: char) -> &T {
        let (block, index) = (c as usize / BLOCK, c as usize % BLOCK);
        let empty = || std::iter::repeat_with(OnceLock::new).take(BLOCKS).collect();
        let blocks = self.blocks.get_or_init(empty);
        let block = blocks[block].get_or_init(|| {
            Box::new(std::array::from_fn(|index| {
                // Surrogates are not characters and occur in no text.
                let c = char::from_u32((block * BLOCK + index) as u32);
                (self.value)(c.unwrap_or(char::REPLACEMENT_CHARACTER))
            }))
        });
        &block[index]
    }
}

/// Returns true if a regular expression of one character matches `c`; false if there is none.
pub(crate) fn is_match(class: Option<&Regex>, c: char) -> bool {
    class.is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}

/// Role in words: the values of `Word_Break` that matter outside emoji.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordClass {
    /// A character between words.
    Other,
    /// A unit by itself: a character of a script without spaces, including Katakana.
    Single,
    /// `ALetter`
    Letter,
    /// `Hebrew_Letter`
    Hebrew,
    /// `Numeric`
    Digit,
    /// `ExtendNumLet`, the underscore
    Joiner,
    /// `Extend`, `Format` or `ZWJ`: belongs to the preceding character.
    Mark,
    /// `MidLetter`: joins letters.
    MidLetter,
    /// `MidNum`: joins digits.
    MidDigit,
    /// `MidNumLet` or `Single_Quote`: joins both.
    MidBoth,
}

impl WordClass {
    /// Derives the role of `c` from where short strings with it break, which is slow.
    pub(crate) fn new(c: char) -> Self {
        // Returns true if there is no break on either side of `c`.
        let joins = |before: &str, after: &str| {
            format!("{before}{c}{after}").split_word_bounds().nth(1).is_none()
        };
        let (joins_letters, joins_digits) = (joins("a", "a"), joins("1", "1"));
        if joins("!", "") {
            Self::Mark
        } else if joins("ア", "ア") {
            if joins("a", "") { Self::Joiner } else { Self::Single }
        } else if joins("1,", "") {
            Self::Digit
        } else if joins("a", "") && joins("", "a") {
            if joins("", "'") { Self::Hebrew } else { Self::Letter }
        } else if joins_letters {
            if joins_digits { Self::MidBoth } else { Self::MidLetter }
        } else if joins_digits {
            Self::MidDigit
        } else if c.is_alphanumeric() {
            Self::Single
        } else {
            Self::Other
        }
    }
}
