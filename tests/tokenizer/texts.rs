//! Texts to hold two tokenizers against each other: made up, and real ones changed.

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

/// What texts are made of: scripts, and the characters that normalization and clusters trip over.
const RANGES: &[(u32, u32)] = &[
    (0x61, 0x7A),
    (0x61, 0x7A),
    (0x41, 0x5A),
    (0x20, 0x7E),
    (0x00, 0x1F),
    (0x7F, 0xA0),
    (0xA0, 0x24F),
    (0x2B0, 0x36F), // modifiers, combining marks
    (0x300, 0x315),
    (0x370, 0x52F),
    (0x590, 0x6FF), // with prepended signs 0600..0605, 06DD
    (0x700, 0x74F),
    (0x8D0, 0x97F),
    (0x900, 0x97F), // conjuncts, spacing marks
    (0x980, 0xDFF),
    (0xE00, 0xEFF),
    (0xF00, 0xFFF),
    (0x1000, 0x109F),
    (0x1100, 0x11FF), // jamo
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F), // spaces, joiners, directions
    (0x2070, 0x218F),
    (0x20D0, 0x20F0),
    (0x2500, 0x2590),
    (0x3000, 0x30FF),
    (0x3130, 0x33FF),
    (0x4E00, 0x9FFF),
    (0x4E00, 0x4FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7A3),
    (0xD7B0, 0xD7FB),
    (0xF900, 0xFAFF),
    (0xFB00, 0xFDFF),
    (0xFE00, 0xFEFF),
    (0xFF00, 0xFFEF),
    (0x110BD, 0x110BD),
    (0x11100, 0x1114F),
    (0x1D400, 0x1D7FF),
    (0x1F1E6, 0x1F1FF), // flags
    (0x1F300, 0x1FAFF),
    (0x1F3FB, 0x1F3FF),
    (0x20000, 0x2FA1F),
    (0xE0000, 0xE01EF),
    (0x1, 0x0010_FFFF),
];

/// Strings that matter whole.
const STRINGS: &[&str] = &[
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\n\n",
    " \n ",
    "\u{A0}",
    "\u{85}",
    "\u{2028}",
    "\u{3000}",
    "\u{200B}",
    "\u{200D}",
    "\u{200C}",
    "\u{FEFF}",
    "\u{AD}",
    "\0",
    "▁",
    "▁▁",
    " ▁",
    "▁ ",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<mask>",
    " <mask>",
    "  <mask>",
    "<mask> ",
    "<mask",
    "<",
    "s>",
    "＜mask＞",
    "＜s＞",
    "[A]",
    " [B] ",
    "e\u{301}",
    " \u{301}",
    "\u{301}",
    "\u{FE0F}",
    "\u{20E3}",
    "1\u{FE0F}\u{20E3}",
    "👩‍👩‍👧‍👦",
    "👍🏽",
    "🇨🇭",
    "🇨",
    "½\u{301}",
    "ﷺ",
    "㍿",
    "ｶﾞ",
    "क्षि",
    "\u{94D}",
    "ก็",
    "ำ",
    "각",
    "ᄀ",
    "ᆨ",
    "ﬁ",
    "™",
    "…",
    "the",
    "and",
    " the ",
    "ing",
    "。",
    "的",
];

fn character(rng: &mut impl Rng) -> char {
    let (from, to) = *RANGES.choose(rng).unwrap_or(&(0x61, 0x7A));
    char::from_u32(rng.random_range(from..=to)).unwrap_or('\u{FFFD}')
}

/// Appends a short random string.
fn atom(rng: &mut impl Rng, text: &mut String) {
    match rng.random_range(0..10u32) {
        0..4 => text.push_str(STRINGS.choose(rng).unwrap_or(&" ")),
        4..6 => text.push(character(rng)),
        // A word of one script.
        _ => {
            let (from, to) = *RANGES.choose(rng).unwrap_or(&(0x61, 0x7A));
            for _ in 0..rng.random_range(1..8) {
                text.push(char::from_u32(rng.random_range(from..=to)).unwrap_or('x'));
            }
        }
    }
}

/// A text from nothing; one in 32 is long.
pub(crate) fn made_up(rng: &mut impl Rng) -> String {
    let atoms = if rng.random_range(0..32) == 0 { 1500 } else { 24 };
    let mut text = String::new();
    for _ in 0..rng.random_range(0..atoms) {
        atom(rng, &mut text);
    }
    text
}

/// A piece of one of `texts` with some places changed.
pub(crate) fn mutated(rng: &mut impl Rng, texts: &[String]) -> String {
    let Some(text) = texts.choose(rng) else { return made_up(rng) };
    let most = if rng.random_range(0..32) == 0 { 20_000 } else { 200 };
    let from = text.floor_char_boundary(rng.random_range(0..=text.len()));
    let to = text.floor_char_boundary(from + rng.random_range(0..most));
    let mut text = text[from..to].to_owned();
    for _ in 0..rng.random_range(0..5) {
        let at = text.floor_char_boundary(rng.random_range(0..=text.len()));
        let until = text.floor_char_boundary(at + rng.random_range(0..4));
        let mut new = String::new();
        atom(rng, &mut new);
        text.replace_range(at..until, &new);
    }
    text
}
