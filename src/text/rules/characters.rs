//! Classifies characters: form in comparisons, and role in words and sentences by UAX #29.

use std::iter::once;

use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};
use unicode_segmentation::UnicodeSegmentation;

use crate::characters::{CharacterTable, WordClass};

/// Form and roles of a character.
#[derive(Debug, Clone, Copy)]
pub(super) struct Character {
    pub(super) folded: Folded,
    pub(super) word: WordClass,
    pub(super) sentence: SentenceClass,
    /// True if a unit that contains it counts as a word.
    pub(super) is_alphanumeric: bool,
}

/// Form of a character in comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folded {
    /// This character, whatever precedes it.
    One(char),
    /// White space; a run of it becomes one space.
    Space,
    /// Nothing, because the character is invisible.
    Dropped,
    /// A form that depends on the neighbours, or several characters.
    Several,
}

/// Role in sentences: the values of `Sentence_Break`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentenceClass {
    /// `Sep`, `CR` or `LF`: always ends a sentence.
    Separator,
    /// `Sp`
    Space,
    Close,
    /// `ATerm`, the full stop: may end an abbreviation.
    FullStop,
    /// `STerm`: ends a sentence.
    Terminator,
    /// `SContinue`, such as the comma
    Continue,
    Lower,
    Upper,
    /// `OLetter`: a letter without case.
    OtherLetter,
    /// `Numeric`
    Digit,
    /// `Extend` or `Format`: has no role of its own.
    Mark,
    Other,
}

static CHARACTERS: CharacterTable<Character> = CharacterTable::new(|c| {
    let word = WordClass::new(c);
    Character {
        folded: Folded::new(c),
        word,
        sentence: SentenceClass::new(c),
        is_alphanumeric: c.is_alphanumeric() || word == WordClass::Single,
    }
});

/// Returns what is known of `c`, which is computed once.
#[inline]
pub(super) fn look_up(c: char) -> Character {
    *CHARACTERS.get(c)
}

impl Folded {
    /// Derives the form of `c` from NFKC.
    fn new(c: char) -> Self {
        if c.is_whitespace() {
            return Self::Space;
        } else if is_unseen(c) {
            return Self::Dropped;
        }
        let mut folded = once(c).nfkc().flat_map(fold_case);
        let is_starter =
            |c| is_nfkc_quick(once(c)) == IsNormalized::Yes && canonical_combining_class(c) == 0;
        match (folded.next(), folded.next()) {
            (Some(one), None) if is_starter(one) && !one.is_whitespace() => Self::One(one),
            _ => Self::Several,
        }
    }
}

/// Folds a character of NFKC for comparison: without case, with one form of apostrophe and hyphen.
pub(super) fn fold_case(c: char) -> impl Iterator<Item = char> {
    let listed = match c {
        'ς' => "σ",
        'ß' | 'ẞ' => "ss",
        '‘' | '’' | 'ʼ' => "'",
        '\u{2010}'..='\u{2015}' | '−' => "-",
        _ => "",
    };
    let other = listed.is_empty().then(|| c.to_lowercase());
    listed.chars().chain(other.into_iter().flatten())
}

/// Returns true if a character has the property `Default_Ignorable_Code_Point` (Unicode 17).
pub(super) fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

impl SentenceClass {
    /// Derives the class of `c` from where short strings with it break.
    fn new(c: char) -> Self {
        let has_break = |before: &str, after: &str, at: usize| {
            let text = format!("{before}{c}{after}");
            text.split_sentence_bound_indices().any(|(start, _)| start == at)
        };
        let breaks_before = |before: &str, after: &str| has_break(before, after, before.len());
        let breaks_behind =
            |before: &str, after: &str| has_break(before, after, before.len() + c.len_utf8());
        if breaks_behind("", ")") {
            Self::Separator
        } else if breaks_behind("", "a") {
            Self::Terminator
        } else if breaks_behind("", "A") {
            Self::FullStop
        } else if !breaks_before("!", "") {
            // These classes do not end the run after a terminator.
            if !breaks_behind("!", "x") {
                Self::Continue
            } else if breaks_before("! ", "") {
                Self::Close
            } else if breaks_behind("!", ")") {
                Self::Space
            } else {
                Self::Mark
            }
        } else if !breaks_before(". ", "") {
            Self::Lower
        } else if !breaks_before(".", "") {
            Self::Digit
        } else if !breaks_before("x.", "") {
            Self::Upper
        } else if breaks_before(". ", "a") {
            Self::OtherLetter
        } else {
            Self::Other
        }
    }
}
