//! Computes the normal form of single characters, and their role in words.
//!
//! The normal form applies NFKC, lower case and NFD without nonspacing marks (general category Mn),
//! one character at a time. A whole string gives the same result, because NFD decomposes what NFKC
//! composes. It also unifies variant spellings: letters are case-folded (a final sigma is a sigma,
//! ß is ss, and the Turkish ı, with the usual capital, is an i), decimal digits become ASCII, and
//! invisible characters (soft hyphens, joiners, direction marks, the Arabic tatweel) are dropped.

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::char::{decompose_canonical, decompose_compatible, is_combining_mark};

use crate::characters::{CharacterTable, WordClass, is_match};

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

/// Roles, and normal forms that are another character or several.
static CHARACTERS: CharacterTable<(WordPart, Option<Box<str>>)> = CharacterTable::new(|c| {
    let normal = normal_form(c);
    (role_of_form(&normal), (!normal.chars().eq([c])).then(|| normal.into()))
});

static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{Nd}").ok());
/// General categories Mc and Me: combining marks that take space.
static SPACING_MARK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{Mc}\p{Me}]").ok());

/// Returns a character's role, and its normal form if it is another character or several.
#[inline]
pub(super) fn look_up(c: char) -> (WordPart, Option<&'static str>) {
    let (part, form) = CHARACTERS.get(c);
    (*part, form.as_deref())
}

/// Returns the normal form of a single character, which may be empty.
fn normal_form(c: char) -> String {
    let mut normal = String::new();
    decompose_compatible(c, |c| {
        for lower in c.to_lowercase() {
            decompose_canonical(lower, |c| match c {
                'ς' => normal.push('σ'),
                'ı' => normal.push('i'),
                'ß' => normal.push_str("ss"),
                c if is_nonspacing_mark(c) || is_unseen(c) => {}
                c => normal.push(digit_value(c).and_then(|v| char::from_digit(v, 10)).unwrap_or(c)),
            });
        }
    });
    normal
}

/// Returns true for invisible characters without meaning (`Default_Ignorable_Code_Point` but no
/// nonspacing mark nor zero-width space, which separates words), and for the tatweel.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{640}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200c}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
    )
}

/// Returns the value of a decimal digit of any script; `None` for other characters.
pub(super) fn digit_value(c: char) -> Option<u32> {
    // The ten digits of a script follow each other, from zero on; perhaps another ten follow.
    let up_to_c = (0..=c as u32).rev().map_while(char::from_u32);
    let digits = up_to_c.take_while(|c| is_digit(*c)).count() as u32;
    digits.checked_sub(1).map(|before| before % 10)
}

/// Returns true if the general category is Nd in Unicode 18.
pub(super) fn is_digit(c: char) -> bool {
    // `regex` has Unicode 16.
    matches!(c, '\u{11de0}'..='\u{11de9}') || is_match(DIGIT.as_ref(), c)
}

/// Returns the role of a character with this normal form.
fn role_of_form(normal: &str) -> WordPart {
    let mut parts = normal.chars().map(role_of_normal);
    let Some(first) = parts.next() else { return WordPart::Dropped };
    let is_joined = matches!(first, WordPart::Letter | WordPart::Digit);
    let is_one = normal.chars().nth(1).is_none();
    if is_one || is_joined && parts.all(|part| part == first) { first } else { WordPart::Several }
}

/// Returns the role of a character that is its own normal form.
fn role_of_normal(c: char) -> WordPart {
    if is_combining_mark(c) {
        WordPart::Mark
    } else if !c.is_alphanumeric() || ('\u{2b9}'..='\u{2bd}').contains(&c) {
        WordPart::Separator // these five letters are written as apostrophes
    } else if ('\u{f00}'..='\u{fff}').contains(&c) {
        WordPart::Single // Tibetan
    } else {
        match WordClass::new(c) {
            WordClass::Digit => WordPart::Digit,
            WordClass::Letter | WordClass::Hebrew | WordClass::Mark => WordPart::Letter,
            _ => WordPart::Single,
        }
    }
}

/// Returns true if the general category is Mn in Unicode 18.
pub(super) fn is_nonspacing_mark(c: char) -> bool {
    // `regex` has Unicode 16.
    let is_new = || {
        matches!(c, '\u{11b61}' | '\u{11b65}' | '\u{11b67}' | '\u{1d250}'..='\u{1d252}'
            | '\u{1d25f}' | '\u{1d280}'..='\u{1d281}')
    };
    is_combining_mark(c) && !is_new() && !is_match(SPACING_MARK.as_ref(), c)
}
