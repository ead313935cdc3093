//! Computes the normal form of single characters, and their role in words.
//!
//! The normal form applies NFKC, lower case and NFD without nonspacing marks (general category Mn),
//! one character at a time. A whole string gives the same result, because NFD decomposes what NFKC
//! composes. It also unifies variant spellings: letters are case-folded (a final sigma is a sigma,
//! ß is ss, and the Turkish ı, with the usual capital, is an i), decimal digits become ASCII, and
//! invisible characters (soft hyphens, joiners, direction marks, the Arabic tatweel) are dropped.
//!
//! `unicode-segmentation` (UAX #29) tells which letters stand alone, once per block of characters.

use std::sync::OnceLock;

use unicode_normalization::char::{decompose_canonical, decompose_compatible, is_combining_mark};
use unicode_segmentation::UnicodeSegmentation;

const BLOCK: usize = 256;
/// Maximum bytes of a normal form in a table; a Hangul syllable has 9.
const KEPT_BYTES: usize = 15;

/// Role of a character in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPart {
    /// Ends a word and is not part of one.
    Separator,
    /// Its normal form is empty.
    Dropped,
    /// Its normal form has characters of several roles.
    Several,
    /// A spacing mark: belongs to the word before it.
    Mark,
    /// A word by itself: Han, Kana, Thai and other scripts without spaces.
    Single,
    /// A letter, or a number that is not a digit.
    Letter,
    Digit,
}

struct Block {
    parts: [WordPart; BLOCK],
    /// Normal forms; empty if no character of the block changes.
    forms: Vec<NormalForm>,
}

/// A short normal form; its length is 0 if the character stays as it is.
#[derive(Clone, Copy, Default)]
struct NormalForm {
    len: u8,
    bytes: [u8; KEPT_BYTES],
}

/// Blocks, each built when one of its characters first occurs.
static BLOCKS: [OnceLock<Box<Block>>; (char::MAX as usize + 1) / BLOCK] =
    [const { OnceLock::new() }; (char::MAX as usize + 1) / BLOCK];

/// Returns a character's role, and its form if it changes. For `Several` call [`normal_form`].
#[inline]
pub(super) fn look_up(c: char) -> (WordPart, Option<&'static [u8]>) {
    let (block, index) = (c as usize / BLOCK, c as usize % BLOCK);
    let block = BLOCKS[block].get_or_init(|| Box::new(Block::new(block)));
    let form = block.forms.get(index).filter(|form| form.len > 0);
    (block.parts[index], form.map(|form| &form.bytes[..usize::from(form.len)]))
}

impl Block {
    fn new(number: usize) -> Self {
        let mut block = Self { parts: [WordPart::Separator; BLOCK], forms: Vec::new() };
        for index in 0..BLOCK {
            // Surrogates are not characters and occur in no text.
            let Some(c) = char::from_u32((number * BLOCK + index) as u32) else { continue };
            let normal: String = normal_form(c).into_iter().collect();
            block.parts[index] = part_of_form(&normal);
            if !normal.chars().eq([c])
                && normal.len() <= KEPT_BYTES
                && !matches!(block.parts[index], WordPart::Several | WordPart::Dropped)
            {
                let mut form = NormalForm { len: normal.len() as u8, ..NormalForm::default() };
                form.bytes[..normal.len()].copy_from_slice(normal.as_bytes());
                block.forms.resize(BLOCK, NormalForm::default());
                block.forms[index] = form;
            }
        }
        block
    }
}

pub(super) fn normal_form(c: char) -> Vec<char> {
    let mut normal = Vec::new();
    decompose_compatible(c, |c| {
        for lower in c.to_lowercase() {
            decompose_canonical(lower, |c| match c {
                'ς' => normal.push('σ'),
                'ı' => normal.push('i'),
                'ß' => normal.extend(['s', 's']),
                c if is_nonspacing_mark(c) || is_unseen(c) => {}
                c => normal.push(digit_value(c).and_then(|v| char::from_digit(v, 10)).unwrap_or(c)),
            });
        }
    });
    normal
}

/// Returns true for invisible characters without meaning: those with `Default_Ignorable_Code_Point`
/// that are not nonspacing marks, except the zero-width space, which separates words; and the
/// tatweel, which stretches a word.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{640}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200c}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
    )
}

/// Returns the value of a decimal digit, general category Nd.
pub(super) fn digit_value(c: char) -> Option<u32> {
    let place = ZEROS.partition_point(|zero| *zero <= c as u32).checked_sub(1)?;
    Some(c as u32 - ZEROS[place]).filter(|value| *value < 10)
}

/// Zeros of general category Nd, Unicode 18; nine more digits follow each.
#[rustfmt::skip]
const ZEROS: [u32; 77] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50,
    0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0,
    0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650,
    0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50, 0x11da0,
    0x11de0, 0x11f50, 0x16130, 0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce, 0x1d7d8,
    0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

/// Returns the role of a normal form.
fn part_of_form(normal: &str) -> WordPart {
    let mut parts = normal.chars().map(part_of);
    let Some(first) = parts.next() else { return WordPart::Dropped };
    let is_one = || normal.chars().nth(1).is_none();
    let is_joined = matches!(first, WordPart::Letter | WordPart::Digit);
    if is_one() || is_joined && normal.len() <= KEPT_BYTES && parts.all(|part| part == first) {
        first
    } else {
        WordPart::Several
    }
}

/// Returns the role of a character that is its own normal form.
fn part_of(c: char) -> WordPart {
    let joins = |before: &str| format!("{before}{c}").split_word_bounds().nth(1).is_none();
    let is_tibetan = ('\u{f00}'..='\u{fff}').contains(&c);
    if is_combining_mark(c) {
        WordPart::Mark
    } else if !c.is_alphanumeric() || ('\u{2b9}'..='\u{2bd}').contains(&c) {
        WordPart::Separator // these five letters are written as apostrophes
    } else if joins("1,") {
        WordPart::Digit
    } else if !joins("a") || is_tibetan {
        WordPart::Single
    } else {
        WordPart::Letter
    }
}

/// Returns true if the general category is Mn.
pub(super) fn is_nonspacing_mark(c: char) -> bool {
    // Index of the last range that begins at or before the character.
    let place = || SPACING_MARKS.partition_point(|(first, _)| *first <= c as u32).checked_sub(1);
    is_combining_mark(c) && place().is_none_or(|place| SPACING_MARKS[place].1 < c as u32)
}

/// Ranges of combining marks that take space, general categories Mc and Me, in Unicode 18.
#[rustfmt::skip]
const SPACING_MARKS: [(u32, u32); 201] = [
    (0x488, 0x489), (0x903, 0x903), (0x93b, 0x93b), (0x93e, 0x940), (0x949, 0x94c), (0x94e, 0x94f),
    (0x982, 0x983), (0x9be, 0x9c0), (0x9c7, 0x9c8), (0x9cb, 0x9cc), (0x9d7, 0x9d7), (0xa03, 0xa03),
    (0xa3e, 0xa40), (0xa83, 0xa83), (0xabe, 0xac0), (0xac9, 0xac9), (0xacb, 0xacc), (0xb02, 0xb03),
    (0xb3e, 0xb3e), (0xb40, 0xb40), (0xb47, 0xb48), (0xb4b, 0xb4c), (0xb57, 0xb57), (0xbbe, 0xbbf),
    (0xbc1, 0xbc2), (0xbc6, 0xbc8), (0xbca, 0xbcc), (0xbd7, 0xbd7), (0xc01, 0xc03), (0xc41, 0xc44),
    (0xc82, 0xc83), (0xcbe, 0xcbe), (0xcc0, 0xcc4), (0xcc7, 0xcc8), (0xcca, 0xccb), (0xcd5, 0xcd6),
    (0xcf3, 0xcf3), (0xd02, 0xd03), (0xd3e, 0xd40), (0xd46, 0xd48), (0xd4a, 0xd4c), (0xd57, 0xd57),
    (0xd82, 0xd83), (0xdcf, 0xdd1), (0xdd8, 0xddf), (0xdf2, 0xdf3), (0xf3e, 0xf3f), (0xf7f, 0xf7f),
    (0x102b, 0x102c), (0x1031, 0x1031), (0x1038, 0x1038), (0x103b, 0x103c), (0x1056, 0x1057),
    (0x1062, 0x1064), (0x1067, 0x106d), (0x1083, 0x1084), (0x1087, 0x108c), (0x108f, 0x108f),
    (0x109a, 0x109c), (0x1715, 0x1715), (0x1734, 0x1734), (0x17b6, 0x17b6), (0x17be, 0x17c5),
    (0x17c7, 0x17c8), (0x1923, 0x1926), (0x1929, 0x192b), (0x1930, 0x1931), (0x1933, 0x1938),
    (0x1a19, 0x1a1a), (0x1a55, 0x1a55), (0x1a57, 0x1a57), (0x1a61, 0x1a61), (0x1a63, 0x1a64),
    (0x1a6d, 0x1a72), (0x1abe, 0x1abe), (0x1b04, 0x1b04), (0x1b35, 0x1b35), (0x1b3b, 0x1b3b),
    (0x1b3d, 0x1b41), (0x1b43, 0x1b44), (0x1b82, 0x1b82), (0x1ba1, 0x1ba1), (0x1ba6, 0x1ba7),
    (0x1baa, 0x1baa), (0x1be7, 0x1be7), (0x1bea, 0x1bec), (0x1bee, 0x1bee), (0x1bf2, 0x1bf3),
    (0x1c24, 0x1c2b), (0x1c34, 0x1c35), (0x1ce1, 0x1ce1), (0x1cf7, 0x1cf7), (0x20dd, 0x20e0),
    (0x20e2, 0x20e4), (0x302e, 0x302f), (0xa670, 0xa672), (0xa823, 0xa824), (0xa827, 0xa827),
    (0xa880, 0xa881), (0xa8b4, 0xa8c3), (0xa952, 0xa953), (0xa983, 0xa983), (0xa9b4, 0xa9b5),
    (0xa9ba, 0xa9bb), (0xa9be, 0xa9c0), (0xaa2f, 0xaa30), (0xaa33, 0xaa34), (0xaa4d, 0xaa4d),
    (0xaa7b, 0xaa7b), (0xaa7d, 0xaa7d), (0xaaeb, 0xaaeb), (0xaaee, 0xaaef), (0xaaf5, 0xaaf5),
    (0xabe3, 0xabe4), (0xabe6, 0xabe7), (0xabe9, 0xabea), (0xabec, 0xabec), (0x11000, 0x11000),
    (0x11002, 0x11002), (0x11082, 0x11082), (0x110b0, 0x110b2), (0x110b7, 0x110b8),
    (0x1112c, 0x1112c), (0x11145, 0x11146), (0x11182, 0x11182), (0x111b3, 0x111b5),
    (0x111bf, 0x111c0), (0x111ce, 0x111ce), (0x1122c, 0x1122e), (0x11232, 0x11233),
    (0x11235, 0x11235), (0x112e0, 0x112e2), (0x11302, 0x11303), (0x1133e, 0x1133f),
    (0x11341, 0x11344), (0x11347, 0x11348), (0x1134b, 0x1134d), (0x11357, 0x11357),
    (0x11362, 0x11363), (0x113b8, 0x113ba), (0x113c2, 0x113c2), (0x113c5, 0x113c5),
    (0x113c7, 0x113ca), (0x113cc, 0x113cd), (0x113cf, 0x113cf), (0x11435, 0x11437),
    (0x11440, 0x11441), (0x11445, 0x11445), (0x114b0, 0x114b2), (0x114b9, 0x114b9),
    (0x114bb, 0x114be), (0x114c1, 0x114c1), (0x115af, 0x115b1), (0x115b8, 0x115bb),
    (0x115be, 0x115be), (0x11630, 0x11632), (0x1163b, 0x1163c), (0x1163e, 0x1163e),
    (0x116ac, 0x116ac), (0x116ae, 0x116af), (0x116b6, 0x116b6), (0x1171e, 0x1171e),
    (0x11720, 0x11721), (0x11726, 0x11726), (0x1182c, 0x1182e), (0x11838, 0x11838),
    (0x11930, 0x11935), (0x11937, 0x11938), (0x1193d, 0x1193d), (0x11940, 0x11940),
    (0x11942, 0x11942), (0x119d1, 0x119d3), (0x119dc, 0x119df), (0x119e4, 0x119e4),
    (0x11a39, 0x11a39), (0x11a57, 0x11a58), (0x11a97, 0x11a97), (0x11b61, 0x11b61),
    (0x11b65, 0x11b65), (0x11b67, 0x11b67), (0x11c2f, 0x11c2f), (0x11c3e, 0x11c3e),
    (0x11ca9, 0x11ca9), (0x11cb1, 0x11cb1), (0x11cb4, 0x11cb4), (0x11d8a, 0x11d8e),
    (0x11d93, 0x11d94), (0x11d96, 0x11d96), (0x11ef5, 0x11ef6), (0x11f03, 0x11f03),
    (0x11f34, 0x11f35), (0x11f3e, 0x11f3f), (0x11f41, 0x11f41), (0x1612a, 0x1612c),
    (0x16f51, 0x16f87), (0x16ff0, 0x16ff1), (0x1d165, 0x1d166), (0x1d16d, 0x1d172),
    (0x1d250, 0x1d252), (0x1d25f, 0x1d25f), (0x1d280, 0x1d281),
];
