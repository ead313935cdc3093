//! Folds texts for comparison: NFKC without case and invisible characters, with single spaces, and
//! one form each of apostrophe and hyphen.

use unicode_normalization::UnicodeNormalization;

use super::characters::{Folded, fold_case, is_unseen, look_up};

/// Returns the folded form of a text, as [`fold_into`] appends it.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len() + 8);
    fold_into(text, &mut folded);
    folded
}

/// Appends the folded form of a text. White space at its ends becomes one space each.
pub(super) fn fold_into(text: &str, out: &mut String) {
    let first = out.len();
    let mut at = 0;
    // Place of the last character that the next may join, in `text` and in `out`.
    let mut starter = None;
    while at < text.len() {
        let plain = plain_ascii_len(&text.as_bytes()[at..]);
        if plain > 0 {
            let written = out.len();
            // A space at the start of the plain part may be the second in a row.
            let is_second = text.as_bytes()[at] == b' ' && out[first..].ends_with(' ');
            out.push_str(&text[at + usize::from(is_second)..at + plain]);
            // `written` is a character boundary, so this part exists.
            if let Some(new) = out.get_mut(written..) {
                new.make_ascii_lowercase();
            }
            at += plain;
            starter = (text.as_bytes()[at - 1] != b' ').then(|| (at - 1, out.len() - 1));
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        match look_up(c).folded {
            Folded::One(one) => {
                starter = Some((at, out.len()));
                out.push(one);
                at += c.len_utf8();
            }
            Folded::Space => {
                push(out, first, ' ');
                starter = None;
                at += c.len_utf8();
            }
            Folded::Dropped => at += c.len_utf8(),
            Folded::Several => {
                let (start, written) = starter.take().unwrap_or((at, out.len()));
                let of_others =
                    |c: char| !matches!(look_up(c).folded, Folded::Several | Folded::Dropped);
                at += text[at..].find(of_others).unwrap_or(text.len() - at);
                out.truncate(written);
                let seen = text[start..at].chars().filter(|c| !is_unseen(*c));
                for c in seen.nfkc().flat_map(fold_case).filter(|c| !is_unseen(*c)) {
                    push(out, first, if c.is_whitespace() { ' ' } else { c });
                }
            }
        }
    }
}

/// Appends `c`, unless it is a space behind another; `first` is where the folded text starts.
fn push(out: &mut String, first: usize, c: char) {
    if c != ' ' || !out[first..].ends_with(' ') {
        out.push(c);
    }
}

/// Counts the leading bytes that are ASCII with only single spaces as white space.
fn plain_ascii_len(bytes: &[u8]) -> usize {
    let mut before = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let is_plain = byte.is_ascii_graphic()
            || byte == b' ' && before != b' '
            || byte.is_ascii_control() && !matches!(byte, b'\t'..=b'\r');
        if !is_plain {
            return at;
        }
        before = byte;
    }
    bytes.len()
}
