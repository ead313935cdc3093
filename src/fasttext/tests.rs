//! Tests of the steps from a text to rows.

use super::dictionary::{Dictionary, LineRows, tokens};
use super::settings::ModelSettings;
use polysift_config::FastTextConfig;

fn texts(line: &str) -> Vec<String> {
    tokens(line.as_bytes()).map(|token| String::from_utf8_lossy(token).into_owned()).collect()
}

#[test]
fn a_line_ends_with_its_first_newline_or_end_mark() {
    assert_eq!(texts("a  b\tc\x0bd\x0ce\0f\rg"), ["a", "b", "c", "d", "e", "f", "g", "</s>"]);
    assert_eq!(texts("a\nb"), ["a", "</s>"]);
    assert_eq!(texts("a </s> b"), ["a", "</s>"]);
    assert_eq!(texts(""), ["</s>"]);
    assert_eq!(texts("a\u{a0}b"), ["a\u{a0}b", "</s>"]);
}

#[test]
fn rows_are_words_then_ngrams_of_words_within_the_buckets() {
    let words: [(&[u8], i64); 2] = [(b"</s>", 5), (b"a", 3)];
    let labels: [(&[u8], i64); 1] = [(b"__label__x", 2)];
    let dictionary = Dictionary::new(&words, &labels, 10);
    let mut line = LineRows::default();
    let rows = |ngrams: usize, text: &str, line: &mut LineRows| {
        let config = FastTextConfig { dim: 4, buckets: 10, ..FastTextConfig::default() };
        let settings = ModelSettings::supervised(&config, ngrams);
        dictionary.find_rows(&settings, text.as_bytes(), line);
        line.rows.clone()
    };
    assert_eq!(rows(1, "a unknown a", &mut line), [1, 1, 0]);
    assert_eq!(line.num_tokens, 4);
    // Four tokens have three pairs and two triples.
    let with_ngrams = rows(3, "a unknown a", &mut line);
    assert_eq!(with_ngrams.len(), 3 + 3 + 2);
    assert!(with_ngrams[3..].iter().all(|row| (2..12).contains(row)));
    // Labels are no words.
    assert_eq!(rows(1, "__label__x __label__y", &mut line), [0]);
}
