//! Words of a text in normal form, each with its place in the text.
//!
//! The words are those of UAX #29 that hold a letter or a digit, and every character of the scripts
//! without spaces (whatever else the text is in). Two rules are simpler than the annex: a joiner does not tie a
//! pictograph to the word before it, and marks without a word before them are no word.
//!
//! Up to 15 ASCII letters and digits between ASCII characters that join nothing, most of the words of a web
//! page in English, take a short way: eight bytes at a time. The other words are made a character at a time.

use std::ops::Range;

use super::character::{JoinClass, look_up, normal_form};
use super::settings::Numbers;

/// Classes of ASCII characters; of the other bytes nothing is said.
static CLASSES: [JoinClass; 128] = {
    let mut classes = [JoinClass::Other; 128];
    let mut byte = 0;
    while byte < 128 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => JoinClass::Letter,
            b'0'..=b'9' => JoinClass::Numeric,
            b'_' => JoinClass::Connector,
            b':' => JoinClass::MidLetter,
            b',' | b';' => JoinClass::MidNumber,
            b'.' => JoinClass::MidBoth,
            b'\'' => JoinClass::Apostrophe,
            b'"' => JoinClass::Quote,
            _ => JoinClass::Other,
        };
        byte += 1;
    }
    classes
};

/// Longest word that takes the short way, in bytes.
const SHORT: usize = 16;

/// Calls `take` with each word in normal form, and where it stands in `text`, in bytes.
pub(super) fn for_each_word(
    text: &str,
    numbers: Numbers,
    mut take: impl FnMut(&[u8], Range<usize>),
) {
    let bytes = text.as_bytes();
    let mut words = WordMaker::new(numbers);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if !words.is_open {
            let (run, length) = ascii_run(&bytes[at..], numbers);
            if length > 0 && length < SHORT && ends_word(bytes, at + length) {
                take(&run[..length], at..at + length);
                // What follows ends the word and begins none.
                at += length + 1;
                continue;
            }
        }
        if byte.is_ascii() {
            let class = CLASSES[usize::from(*byte)];
            if class == JoinClass::Other {
                words.finish(&mut take);
                at += 1;
                continue;
            }
            words.add(class, &[byte.to_ascii_lowercase()], at..at + 1, &mut take);
            at += 1;
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        let place = at..at + c.len_utf8();
        at = place.end;
        match look_up(c) {
            (JoinClass::Several, _) => {
                for c in normal_form(c) {
                    let mut buffer = [0; 4];
                    let form = c.encode_utf8(&mut buffer).as_bytes();
                    words.add(look_up(c).0, form, place.clone(), &mut take);
                }
            }
            (class, form) => {
                let form = form.unwrap_or(&bytes[place.clone()]);
                words.add(class, form, place, &mut take);
            }
        }
    }
    words.finish(&mut take);
}

/// The ASCII letters and digits that `bytes` begin with, in lower case, and how many they are; looks at no more than
/// [`SHORT`]. Digits end it where numbers become zeros.
fn ascii_run(bytes: &[u8], numbers: Numbers) -> ([u8; SHORT], usize) {
    let mut run = [0; SHORT];
    let mut length = 0;
    for (half, rest) in [(0, bytes), (8, bytes.get(8..).unwrap_or_default())] {
        let chunk = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        });
        let (lower, count) = lower_run(u64::from_le_bytes(chunk), numbers);
        run[half..half + 8].copy_from_slice(&lower.to_le_bytes());
        length += count;
        if count < 8 {
            break;
        }
    }
    (run, length)
}

/// Eight bytes whose letters are in lower case, and how many at their start are letters or digits.
fn lower_run(chunk: u64, numbers: Numbers) -> (u64, usize) {
    /// The high bit of each byte.
    const HIGH: u64 = 0x8080_8080_8080_8080;
    /// A byte, eight times.
    const fn all(byte: u8) -> u64 {
        byte as u64 * 0x0101_0101_0101_0101
    }
    // Sets the high bit of each byte between the two; of none is it set before, so nothing is carried.
    let between = |bytes: u64, first: u8, last: u8| {
        (bytes + all(0x80 - first)) & !(bytes + all(0x7f - last)) & HIGH
    };
    let ascii = chunk & !HIGH;
    let letters = between(ascii | all(0x20), b'a', b'z') & !chunk;
    let digits = match numbers {
        Numbers::Keep => between(ascii, b'0', b'9') & !chunk,
        Numbers::Zero => 0,
    };
    let others = !(letters | digits) & HIGH;
    (chunk | letters >> 2, others.trailing_zeros() as usize / 8)
}

/// Whether the ASCII word before `at` certainly ends there: nothing follows that joins, and no character
/// between two words that does so with what is behind it.
fn ends_word(bytes: &[u8], at: usize) -> bool {
    let class = |at| match bytes.get(at) {
        Some(byte) => CLASSES.get(usize::from(*byte)).copied(),
        None => Some(JoinClass::Other),
    };
    match class(at) {
        Some(JoinClass::Other) => true,
        Some(JoinClass::Letter | JoinClass::Numeric | JoinClass::Connector) | None => false,
        Some(_) => class(at + 1) == Some(JoinClass::Other),
    }
}

/// The word that is being made.
struct WordMaker {
    numbers: Numbers,
    /// Its normal form, and behind it a character that may join the next one.
    word: Vec<u8>,
    /// Where it begins and ends in the text; the end of its normal form.
    start: usize,
    end: usize,
    committed: usize,
    /// Whether there is one, and whether it has a letter or a digit.
    is_open: bool,
    is_word: bool,
    /// The class of its last character, ignorable ones aside.
    last: JoinClass,
    /// The class of the character behind it, if there is one.
    between: Option<JoinClass>,
}

impl WordMaker {
    fn new(numbers: Numbers) -> Self {
        Self {
            numbers,
            word: Vec::new(),
            start: 0,
            end: 0,
            committed: 0,
            is_open: false,
            is_word: false,
            last: JoinClass::Other,
            between: None,
        }
    }

    /// Begins a word at `at`.
    fn start(&mut self, at: usize) {
        self.word.clear();
        self.start = at;
        self.is_open = true;
        self.is_word = false;
    }

    /// What was added belongs to the word.
    fn commit(&mut self, class: JoinClass, end: usize) {
        self.end = end;
        self.committed = self.word.len();
        self.last = class;
        self.between = None;
        self.is_word |=
            !matches!(class, JoinClass::LetterSign | JoinClass::NumberSign | JoinClass::Connector);
    }

    /// Ends the word.
    fn finish(&mut self, take: &mut impl FnMut(&[u8], Range<usize>)) {
        if self.is_open && self.is_word {
            take(&self.word[..self.committed], self.start..self.end);
        }
        self.is_open = false;
    }

    /// Adds a normal form: most are short, and copying a known number of bytes takes no call.
    fn push(&mut self, form: &[u8]) {
        match *form {
            [a] => self.word.push(a),
            [a, b] => self.word.extend_from_slice(&[a, b]),
            [a, b, c] => self.word.extend_from_slice(&[a, b, c]),
            _ => self.word.extend_from_slice(form),
        }
    }

    /// Adds a character, whose normal form is `form`.
    fn add(
        &mut self,
        class: JoinClass,
        form: &[u8],
        place: Range<usize>,
        take: &mut impl FnMut(&[u8], Range<usize>),
    ) {
        match class {
            JoinClass::Other => self.finish(take),
            JoinClass::Dropped | JoinClass::Several | JoinClass::Ignorable => {
                let is_committed = self.committed == self.word.len();
                if self.is_open && class == JoinClass::Ignorable {
                    self.push(form);
                }
                if self.is_open && is_committed {
                    self.committed = self.word.len();
                    self.end = place.end;
                }
            }
            JoinClass::Single => {
                self.finish(take);
                self.start(place.start);
                self.push(form);
                self.commit(class, place.end);
            }
            JoinClass::Letter
            | JoinClass::Hebrew
            | JoinClass::LetterSign
            | JoinClass::Numeric
            | JoinClass::NumberSign
            | JoinClass::Connector => {
                let joins = self.is_open && joins(self.last, self.between, class);
                if !joins {
                    self.finish(take);
                    self.start(place.start);
                }
                if is_number(class) && self.numbers == Numbers::Zero {
                    if joins && is_number(self.last) {
                        self.word.truncate(self.committed);
                    } else {
                        self.word.push(b'0');
                    }
                } else {
                    self.push(form);
                }
                self.commit(class, place.end);
            }
            JoinClass::MidLetter
            | JoinClass::MidNumber
            | JoinClass::MidBoth
            | JoinClass::Apostrophe
            | JoinClass::Quote => {
                if !self.is_open || self.between.is_some() {
                    return self.finish(take);
                }
                self.push(form);
                if (self.last, class) == (JoinClass::Hebrew, JoinClass::Apostrophe) {
                    self.commit(self.last, place.end);
                }
                self.between = Some(class);
            }
        }
    }
}

/// Whether a word that ends in `last`, with `between` behind it, goes on with `next`.
fn joins(last: JoinClass, between: Option<JoinClass>, next: JoinClass) -> bool {
    let letters = is_letter(last) && is_letter(next);
    let numbers = is_number(last) && is_number(next);
    match between {
        None => last != JoinClass::Single,
        Some(JoinClass::MidLetter) => letters,
        Some(JoinClass::MidNumber) => numbers,
        Some(JoinClass::Quote) => (last, next) == (JoinClass::Hebrew, JoinClass::Hebrew),
        Some(_) => letters || numbers,
    }
}

fn is_letter(class: JoinClass) -> bool {
    matches!(class, JoinClass::Letter | JoinClass::Hebrew | JoinClass::LetterSign)
}

fn is_number(class: JoinClass) -> bool {
    matches!(class, JoinClass::Numeric | JoinClass::NumberSign)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization;
    use unicode_segmentation::UnicodeSegmentation;

    use super::super::character::is_nonspacing_mark;
    use super::*;

    fn words(text: &str, numbers: Numbers) -> Vec<(String, Range<usize>)> {
        let mut words = Vec::new();
        for_each_word(text, numbers, |word, place| {
            words.push((String::from_utf8_lossy(word).into_owned(), place));
        });
        words
    }

    fn is_one_word(text: &str) -> bool {
        text.split_word_bounds().nth(1).is_none()
    }

    /// What a character is for UAX #29: Katakana and Tibetan, which would join, are as Han, and the joiner as
    /// another format character.
    fn stand_in(c: char) -> char {
        let is_katakana = is_one_word(&format!("{c}{c}")) && !is_one_word(&format!("a{c}"));
        let is_tibetan = ('\u{f00}'..='\u{fff}').contains(&c)
            && !is_one_word(&format!("1,{c}"))
            && !is_one_word(&format!("-{c}"));
        match c {
            '\u{200d}' => '\u{200e}',
            _ if c.is_alphanumeric() && (is_katakana || is_tibetan) => '一',
            _ => c,
        }
    }

    /// The words of the normal form of the whole text, by the crates that know how.
    fn reference(text: &str, numbers: Numbers) -> Vec<String> {
        let lower = text.nfkc().collect::<String>().to_lowercase().replace('ς', "σ");
        let normal: Vec<char> = lower.nfd().filter(|c| !is_nonspacing_mark(*c)).collect();
        let disguised: String = normal.iter().map(|c| stand_in(*c)).collect();
        let mut rest = normal.as_slice();
        let mut words = Vec::new();
        for word in disguised.split_word_bounds() {
            let (word, behind) = rest.split_at(word.chars().count());
            rest = behind;
            let is_mark = |c: char| is_one_word(&format!("-{c}"));
            let begins_word =
                |c: char| !is_mark(c) && (c.is_alphanumeric() || is_one_word(&format!("a{c}")));
            if begins_word(word[0]) && word.iter().any(|c| c.is_alphanumeric() && !is_mark(*c)) {
                words.push(match numbers {
                    Numbers::Keep => word.iter().collect(),
                    Numbers::Zero => with_zeros(word),
                });
            }
        }
        words
    }

    /// A word whose numbers are 0: digits, with what stands between two of them.
    fn with_zeros(word: &[char]) -> String {
        let is_ignorable = |c: char| is_one_word(&format!("-{c}"));
        let is_digit = |c: char| is_one_word(&format!("1,{c}"));
        let mut text = String::new();
        let mut at = 0;
        while at < word.len() {
            if !is_digit(word[at]) {
                text.push(word[at]);
                at += 1;
                continue;
            }
            text.push('0');
            at += 1;
            // Ignorable characters stay, but for those around what is left out.
            let next = |at: usize| (at..word.len()).find(|at| !is_ignorable(word[*at]));
            while let Some(second) = next(at) {
                if is_digit(word[second]) {
                    text.extend(&word[at..second]);
                    at = second + 1;
                    continue;
                }
                let third = next(second + 1);
                let joins = is_one_word(&format!("1{}1", word[second]));
                match third {
                    Some(third)
                        if joins
                            && is_digit(word[third])
                            && !word[second].is_alphanumeric()
                            && !is_one_word(&format!("a{}", word[second])) =>
                    {
                        text.extend(&word[at..second]);
                        at = third + 1;
                    }
                    _ => break,
                }
            }
        }
        text
    }

    /// Strings of what makes words hard.
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
    fn classes_of_ascii_are_those_of_the_crate() {
        for byte in 0..128_u8 {
            assert_eq!(CLASSES[usize::from(byte)], look_up(byte.into()).0, "{byte}");
        }
    }

    #[test]
    fn words_are_those_of_the_annex() {
        for (text, expected) in [
            ("", ""),
            (
                "Don't panic: 3.14, 1,000; U.S.A. foo_bar __ (x)",
                "don't|panic|3.14|1,000|u.s.a|foo_bar|x",
            ),
            ("ΟΔΟΣ οδός", "οδοσ|οδοσ"),
            ("STRASSE Ⅷ ﬁn ½", "strasse|viii|fin|1⁄2"),
            ("我们AI研究", "我|们|ai|研|究"),
            ("カタカナ ひら ไทย", "カ|タ|カ|ナ|ひ|ら|ไ|ท|ย"),
            ("צה\"ל ג'ירפה'", "צה\"ל|ג'ירפה'"),
            ("क्षेत्र हिन्दी", "कषतर|हिनदी"),
            ("مُحَمَّد ١٢٣٫٤", "محمد|١٢٣٫٤"),
        ] {
            let found: Vec<String> = words(text, Numbers::Keep).into_iter().map(|w| w.0).collect();
            assert_eq!(found.join("|"), expected);
        }
        let zero: Vec<String> =
            words("1,000,000 v1.2 ١٢٣٫٤ 2nd 3.x", Numbers::Zero).into_iter().map(|w| w.0).collect();
        assert_eq!(zero.join("|"), "0|v0|0|0nd|0|x");
    }
}
