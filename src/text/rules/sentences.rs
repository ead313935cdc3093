//! Splits a text into the sentences of UAX #29 in one pass.

use std::ops::Range;

use super::characters::{SentenceClass, look_up};

/// A possible end of a sentence.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The terminator, or `Close` or `Space` after it.
    last: SentenceClass,
    is_full_stop: bool,
    /// True if a letter with case precedes it, as in an initial.
    is_behind_case: bool,
}

/// Returns the byte ranges of the sentences, which together cover the text.
pub(super) fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut scan = Scan::default();
    for (at, c) in text.char_indices() {
        scan.add(at, c);
    }
    if let Some(at) = scan.pending {
        scan.end_sentence(at);
    }
    scan.end_sentence(text.len());
    scan.found
}

#[derive(Debug, Default)]
struct Scan {
    found: Vec<Range<usize>>,
    start: usize,
    /// Class of the last character that is not a mark.
    last: Option<SentenceClass>,
    is_behind_cr: bool,
    end: Option<End>,
    /// End of a sentence, unless the next letter is a small one (rule SB8).
    pending: Option<usize>,
}

impl Scan {
    /// Ends the current sentence at the byte `at`, if it is not empty.
    fn end_sentence(&mut self, at: usize) {
        if at > self.start {
            self.found.push(self.start..at);
        }
        self.start = at;
    }

    /// Reads the character `c` at the byte `at`.
    fn add(&mut self, at: usize, c: char) {
        use SentenceClass as Class;
        let class = look_up(c).sentence;
        let is_crlf = std::mem::replace(&mut self.is_behind_cr, c == '\r') && c == '\n';
        if self.last == Some(Class::Separator) && !is_crlf {
            self.end_sentence(at); // SB4
            self.last = None;
        }
        if class == Class::Mark && self.last.is_some() {
            return; // SB5
        }
        if let Some(pending) = self.pending {
            use Class::{FullStop, Lower, OtherLetter, Separator, Terminator, Upper};
            if matches!(class, OtherLetter | Upper | Separator | FullStop | Terminator) {
                self.end_sentence(pending);
                self.pending = None;
            } else if class == Lower {
                self.pending = None;
            }
        }
        let before = self.last.replace(class);
        if matches!(class, Class::FullStop | Class::Terminator) {
            // SB8a: there is no break before one.
            self.end = Some(End {
                last: class,
                is_full_stop: class == Class::FullStop,
                is_behind_case: matches!(before, Some(Class::Lower | Class::Upper)),
            });
        } else if let Some(end) = self.end.take() {
            self.end_or_go_on(end, at, class);
        }
    }

    /// Applies rules SB6 to SB11 to a character after a possible end of a sentence.
    fn end_or_go_on(&mut self, end: End, at: usize, class: SentenceClass) {
        use SentenceClass as Class;
        let is_next = end.last == Class::FullStop;
        match class {
            Class::Digit if is_next => {}
            Class::Upper if is_next && end.is_behind_case => {}
            Class::Continue | Class::Separator => {}
            Class::Close if end.last != Class::Space => {
                self.end = Some(End { last: class, ..end });
            }
            Class::Space => self.end = Some(End { last: class, ..end }),
            Class::Lower if end.is_full_stop => {}
            Class::OtherLetter | Class::Upper => self.end_sentence(at),
            _ if end.is_full_stop => self.pending = Some(at),
            _ => self.end_sentence(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    use super::*;

    fn awkward() -> impl Strategy<Value = String> {
        let characters: Vec<char> =
            "aAzZßʼ1٣.!?。…․,;:-–)\"'»’ \u{a0}\u{3000}\t\r\n\u{85}\u{2028}\u{301}\u{200d}\u{ad}漢अกǅ\u{5f3}😀।"
                .chars()
                .collect();
        let piece = prop_oneof![
            8 => prop::sample::select(characters).prop_map(String::from),
            4 => prop::sample::select(vec![". ", ".", "a", "A", " ", ")"]).prop_map(String::from),
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn sentences_are_those_of_the_crate(text in awkward()) {
            let found: Vec<&str> =
                sentences(&text).into_iter().map(|range| &text[range]).collect();
            let expected: Vec<&str> = text.split_sentence_bounds().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
