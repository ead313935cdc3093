//! Splits a text into words in normal form, each with its place in the text.
//!
//! A word is a run of letters and digits. Everything else separates words, including apostrophes,
//! points and underscores, so the kind of apostrophe or a missing space makes no difference. Every
//! character of a script without spaces is a word, whatever the rest of the text is in.
//!
//! Up to 15 ASCII letters and digits before another ASCII character, like most words of an English
//! web page, take a fast path of sixteen bytes at a time; others are built character by character.

use std::ops::Range;

use super::character::{WordPart, look_up};
use super::open_word::OpenWord;
use super::settings::Numbers;

/// Bytes that the fast path reads; its words are shorter.
const SHORT: usize = 16;

/// Calls `take` with each word in normal form, and its place in `text`, in bytes.
pub(super) fn for_each_word(text: &str, numbers: Numbers, take: impl FnMut(&[u8], Range<usize>)) {
    let bytes = text.as_bytes();
    let (open, last) = (OpenWord::new(take), WordPart::Separator);
    let mut words = WordMaker { numbers, open, last, has_point: false };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if words.open.is_empty() {
            let (run, length) = ascii_run(&bytes[at..], numbers);
            let next = bytes.get(at + length).unwrap_or(&b' ');
            if length > 0 && length < SHORT && next.is_ascii() && !next.is_ascii_alphanumeric() {
                (words.open.take)(&run[..length], at..at + length);
                // The next character ends the word and begins none.
                at += length + 1;
                continue;
            }
        }
        if byte.is_ascii() {
            let part = match byte {
                b'0'..=b'9' => WordPart::Digit,
                b'a'..=b'z' | b'A'..=b'Z' => WordPart::Letter,
                _ => WordPart::Separator,
            };
            words.add(part, &[byte.to_ascii_lowercase()], at..at + 1);
            at += 1;
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        let place = at..at + c.len_utf8();
        at = place.end;
        match look_up(c) {
            (WordPart::Several, Some(form)) => {
                for c in form.chars() {
                    let mut buffer = [0; 4];
                    let form = c.encode_utf8(&mut buffer).as_bytes();
                    words.add(look_up(c).0, form, place.clone());
                }
            }
            (part, form) => {
                let form = form.map_or(&bytes[place.clone()], str::as_bytes);
                words.add(part, form, place);
            }
        }
    }
    words.open.end();
}

/// Returns the first [`SHORT`] bytes with ASCII letters in lower case, and the number of leading
/// ASCII letters and digits. Digits end the run where numbers become zeros.
fn ascii_run(bytes: &[u8], numbers: Numbers) -> ([u8; SHORT], usize) {
    const HIGH: u128 = all(0x80);
    const fn all(byte: u8) -> u128 {
        u128::from_le_bytes([byte; SHORT])
    }
    let chunk = u128::from_le_bytes(bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0; SHORT];
        padded[..bytes.len()].copy_from_slice(bytes);
        padded
    }));
    // Sets the high bit of each byte in the range. No byte has it set before, so nothing carries.
    let between = |bytes: u128, first: u8, last: u8| {
        (bytes + all(0x80 - first)) & !(bytes + all(0x7f - last)) & HIGH
    };
    let ascii = chunk & !HIGH;
    let letters = between(ascii | all(0x20), b'a', b'z') & !chunk;
    let digits = match numbers {
        Numbers::Keep => between(ascii, b'0', b'9') & !chunk,
        Numbers::Zero => 0,
    };
    let others = !(letters | digits) & HIGH;
    ((chunk | letters >> 2).to_le_bytes(), others.trailing_zeros() as usize / 8)
}

/// Puts words together from the normal forms of characters.
struct WordMaker<F> {
    numbers: Numbers,
    open: OpenWord<F>,
    /// Role of its last character that is not a mark.
    last: WordPart,
    /// True if a point or comma follows that may be within a number.
    has_point: bool,
}

impl<F: FnMut(&[u8], Range<usize>)> WordMaker<F> {
    /// Adds a character with its role and normal form to the open word, which it may end.
    fn add(&mut self, part: WordPart, form: &[u8], place: Range<usize>) {
        let zeros = self.numbers == Numbers::Zero;
        let is_open = !self.open.is_empty();
        match part {
            WordPart::Separator => {
                let in_number = zeros && is_open && self.last == WordPart::Digit;
                if in_number && !self.has_point && matches!(form, b"." | b",") {
                    self.has_point = true;
                } else {
                    self.open.end();
                    self.has_point = false;
                }
            }
            WordPart::Dropped | WordPart::Several | WordPart::Mark => {
                if is_open && !self.has_point {
                    self.open.push(if part == WordPart::Mark { form } else { b"" }, place);
                }
            }
            WordPart::Single | WordPart::Letter | WordPart::Digit => {
                let joins = is_open
                    && (part == WordPart::Digit || !self.has_point)
                    && part != WordPart::Single
                    && self.last != WordPart::Single;
                if !joins {
                    self.open.end();
                }
                if !zeros || part != WordPart::Digit {
                    self.open.push(form, place);
                } else {
                    let goes_on = joins && self.last == WordPart::Digit;
                    self.open.push(if goes_on { b"" } else { b"0" }, place);
                }
                self.last = part;
                self.has_point = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization;
    use unicode_normalization::char::is_combining_mark;
    use unicode_segmentation::UnicodeSegmentation;

    use super::super::character::{digit_value, is_nonspacing_mark};
    use super::*;

    fn words(text: &str, numbers: Numbers) -> Vec<(String, Range<usize>)> {
        let mut words = Vec::new();
        for_each_word(text, numbers, |word, place| {
            words.push((String::from_utf8_lossy(word).into_owned(), place));
        });
        words
    }

    /// Returns the words of the whole text's normal form, computed independently.
    fn reference(text: &str, numbers: Numbers) -> Vec<String> {
        let is_digit = |c: char| digit_value(c).is_some();
        let ascii = |c: char| {
            // Digits come in tens, from zero on.
            let is_before =
                |i: &u32| (c as u32).checked_sub(*i).and_then(char::from_u32).is_some_and(is_digit);
            char::from_digit((1..=100).take_while(is_before).count() as u32 % 10, 10).unwrap_or(c)
        };
        let is_unseen = |c: char| {
            let ranges = [
                ('\u{ad}', '\u{ad}'),
                ('\u{61c}', '\u{61c}'),
                ('\u{640}', '\u{640}'),
                ('\u{115f}', '\u{1160}'),
                ('\u{180e}', '\u{180e}'),
                ('\u{200c}', '\u{200f}'),
                ('\u{202a}', '\u{202e}'),
                ('\u{2060}', '\u{206f}'),
                ('\u{feff}', '\u{feff}'),
                ('\u{1d173}', '\u{1d17a}'),
                ('\u{e0000}', '\u{e00ff}'),
            ];
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&c))
        };
        let lower = text.nfkc().collect::<String>().to_lowercase();
        let folded = lower.replace('ς', "σ").replace('ı', "i").replace('ß', "ss");
        let normal: Vec<char> = (folded.nfd())
            .filter(|c| !is_nonspacing_mark(*c) && !is_unseen(*c))
            .map(|c| if is_digit(c) { ascii(c) } else { c })
            .collect();
        let (mut words, mut word, mut is_alone) = (Vec::new(), String::new(), false);
        let mut at = 0;
        while let Some(&c) = normal.get(at) {
            at += 1;
            if is_combining_mark(c) {
                word.extend((!word.is_empty()).then_some(c));
                continue;
            }
            let is_apostrophe = ('\u{2b9}'..='\u{2bd}').contains(&c);
            if !c.is_alphanumeric() || is_apostrophe {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                continue;
            }
            let joins = format!("a{c}").split_word_bounds().nth(1).is_none();
            let is_tibetan = ('\u{f00}'..='\u{fff}').contains(&c);
            let ends_other = std::mem::replace(&mut is_alone, !joins || is_tibetan);
            if ends_other || is_alone {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            }
            if numbers == Numbers::Keep || !is_digit(c) {
                word.push(c);
                continue;
            }
            word.push('0');
            loop {
                match normal.get(at) {
                    Some(&c) if is_combining_mark(c) => word.push(c),
                    Some(&c) if is_digit(c) => {}
                    Some('.' | ',') => {
                        let next = normal[at + 1..].iter().position(|c| !is_combining_mark(*c));
                        match next.map(|next| at + 1 + next) {
                            Some(next) if is_digit(normal[next]) => at = next,
                            _ => break,
                        }
                    }
                    _ => break,
                }
                at += 1;
            }
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
        words
    }

    fn awkward() -> impl Strategy<Value = String> {
        let characters: Vec<char> = "aZ09 _.,:;'\"-\n\r\t’·‧٫٬٣\u{600}\u{6dd}˂أبהםא׳״ΣςΐßſK\u{130}İıǅéÅ½²①Ⅷﬁ㍿가각ᄀアｱー々漢ひก\u{e33}\u{e34}ខ\u{17b6}က\u{102c}ཀ༣\u{fb2}\u{200d}\u{200c}\u{ad}\u{feff}\u{301}\u{327}\u{93e}\u{903}क्ष१😀🇩🄰Ⓜ\u{20dd}\u{202f}\u{3000}\u{a0}\u{85}＿，．１"
            .chars()
            .collect();
        let piece = prop_oneof![
            6 => prop::sample::select(characters).prop_map(String::from),
            3 => prop::sample::select(vec![" ", ".", ",", "'", "_", "1", "9", "x", "Y"])
                .prop_map(String::from),
            1 => any::<char>().prop_map(String::from),
            1 => "[a-zA-Z0-9]{2,20}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_short_way_gives_the_words_of_the_long_one(text in awkward(), zero: bool) {
            let numbers = if zero { Numbers::Zero } else { Numbers::Keep };
            let found = words(&text, numbers);
            let found_words: Vec<String> = found.iter().map(|(word, _)| word.clone()).collect();
            prop_assert_eq!(found_words, reference(&text, numbers));
            let mut before = 0;
            for (word, place) in &found {
                prop_assert!(before <= place.start);
                before = place.start;
                let again = words(&text[place.clone()], numbers);
                prop_assert!(again.iter().any(|(again, _)| again == word), "{word:?} {again:?}");
                prop_assert!(!word.contains(' ') && !word.is_empty());
            }
        }
    }

    #[test]
    fn spellings_of_one_text_are_the_same_words() {
        for (text, others) in [
            ("l'homme d'état", ["l’homme d’état", "L´HOMME D`E\u{301}TAT"]),
            ("see the red fox. Before", ["_see_ *the* red fox.Before", "see-the (red) fox/before"]),
            (
                "cooperation of all",
                ["co\u{ad}operation\u{200b}of all", "\u{feff}cooper\u{2060}ation of \u{202b}all"],
            ),
            ("yazın sıcak İstanbul", ["YAZIN SICAK İSTANBUL", "yazin sicak istanbul"]),
            ("Straße οδός", ["STRASSE ΟΔΟΣ", "strasse οδοσ"]),
            ("العربية ١٩٩٩", ["العــربية 1999", "العربي\u{200c}ة ۱۹۹۹"]),
            ("м'ята צה\"ל", ["мʼята צה״ל", "м’ята צה”ל"]),
        ] {
            for other in others {
                let found =
                    |text| words(text, Numbers::Keep).into_iter().map(|w| w.0).collect::<Vec<_>>();
                assert_eq!(found(other), found(text), "{other}");
            }
        }
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        for (text, expected) in [
            ("", ""),
            (
                "Don't panic: 3.14, 1,000; U.S.A. foo_bar __ (x)",
                "don|t|panic|3|14|1|000|u|s|a|foo|bar|x",
            ),
            ("ΟΔΟΣ οδός", "οδοσ|οδοσ"),
            ("STRASSE Ⅷ ﬁn ½", "strasse|viii|fin|1|2"),
            ("我们AI研究", "我|们|ai|研|究"),
            ("カタカナ ひら ไทย", "カ|タ|カ|ナ|ひ|ら|ไ|ท|ย"),
            ("क्षेत्र हिन्दी", "कषतर|हिनदी"),
            ("مُحَمَّد ١٢٣٫٤", "محمد|123|4"),
        ] {
            let found: Vec<String> = words(text, Numbers::Keep).into_iter().map(|w| w.0).collect();
            assert_eq!(found.join("|"), expected);
        }
        let zero: Vec<String> =
            words("1,000,000 v1.2 ١٢٣.٤ 2nd 3.x", Numbers::Zero).into_iter().map(|w| w.0).collect();
        assert_eq!(zero.join("|"), "0|v0|0|0nd|0|x");
    }
}
