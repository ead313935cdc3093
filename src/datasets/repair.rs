//! Repair of text that was decoded in the wrong encoding or escaped too often.
//!
//! This follows ftfy with the settings of datatrove's ftfy formatter: mojibake, HTML entities (up
//! to the first line with a `<`), C1 controls, terminal escapes and control characters are
//! repaired; ligatures, widths, quotes, line breaks and Unicode normalisation stay.
//!
//! Mojibake is UTF-8 that was decoded with a single-byte code page. A line is treated as mojibake
//! if its characters, as bytes of a code page, are valid UTF-8 with fewer odd neighbours: pairs
//! such as `Ã©` or `Р°`, which no language writes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The characters of the bytes from 0x80 on in Latin-1, Windows-1252, 1251, 1250, 1253, 1254, 1257,
/// ISO 8859-2, Mac Roman and code page 437, a line each, as Python decodes them. U+FFFD stands for
/// a byte without a printable character.
const CODE_PAGES_TEXT: &str = include_str!("code_pages.txt");
/// Symbols that ordinary text has next to letters above ASCII.
const PUNCTUATION: &str = "\u{a0}\u{ad}«»‘’“”…–—·•™®";
/// Stands for a byte that a decoder replaced: the control character SUB, which text does not hold.
const LOST: u8 = 0x1a;

/// Maps each character above ASCII to its byte.
type CodePage = HashMap<char, u8>;

/// All code pages; the first two, Latin-1 and Windows-1252, are also tried on parts of a line.
static CODE_PAGES: LazyLock<Vec<CodePage>> = LazyLock::new(|| {
    let page = |line| page_characters(line).zip(0x80..=0xff).collect();
    CODE_PAGES_TEXT.lines().map(page).collect()
});

/// Returns the characters of a `line` of the code pages; a byte without one has the control
/// character of its number.
fn page_characters(line: &str) -> impl Iterator<Item = char> {
    let char_of = |(byte, c)| if c == char::REPLACEMENT_CHARACTER { char::from(byte) } else { c };
    (0x80u8..=0xff).zip(line.chars()).map(char_of)
}

/// Maximum layers of damage that are removed from a line.
const MOST_LAYERS: usize = 32;

/// Returns `text` repaired, or unchanged if there is nothing to repair.
pub fn repair(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~') && byte != b'&')
    {
        return Cow::Borrowed(text);
    }
    let mut is_html = false;
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        is_html |= line.contains('<');
        let mut line = line.to_owned();
        // Each round removes one layer.
        for _ in 0..MOST_LAYERS {
            let before = line.clone();
            if !is_html {
                line = html_escape::decode_html_entities(&line).into_owned();
            }
            line = clean_controls(&without_mojibake(&line));
            if line == before {
                break;
            }
        }
        out.push_str(&line);
    }
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// Removes one layer of mojibake from the whole line or, if that is impossible, from parts of it.
fn without_mojibake(line: &str) -> String {
    if line.is_ascii() {
        return line.to_owned();
    }
    let odd = count_odd_pairs(line);
    let decoded = CODE_PAGES.iter().filter_map(|page| decode(line, page));
    let whole = decoded.map(|text| (count_odd_pairs(&text), text)).min_by_key(|(odd, _)| *odd);
    if let Some((_, text)) = whole.filter(|(less, _)| *less < odd) {
        return text;
    }
    CODE_PAGES[..2].iter().fold(line.to_owned(), |line, page| decode_parts(&line, page))
}

/// Decodes each run of `page`'s characters above ASCII that then has fewer odd neighbours.
fn decode_parts(line: &str, page: &CodePage) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(|c| page.contains_key(&c)) {
        let (before, from) = rest.split_at(at);
        let len = from.find(|c| !page.contains_key(&c)).unwrap_or(from.len());
        let (run, after) = from.split_at(len);
        out.push_str(before);
        let [left, right] = [out.chars().next_back(), after.chars().next()];
        let odd = |run: &str| {
            let around: String = left.into_iter().chain(run.chars()).chain(right).collect();
            count_odd_pairs(&around)
        };
        let decoded = decode(run, page).filter(|decoded| odd(decoded) < odd(run));
        out.push_str(decoded.as_deref().unwrap_or(run));
        rest = after;
    }
    out + rest
}

/// Reads `text`, as bytes of `page`, as UTF-8; `None` if this is impossible or changes nothing. A
/// sequence with a lost byte becomes U+FFFD; a no-break space that became a space is restored.
fn decode(text: &str, page: &CodePage) -> Option<String> {
    let byte = |c: char| match c {
        '\0'..='\x7f' => Some(c as u8),
        char::REPLACEMENT_CHARACTER => Some(LOST),
        _ => page.get(&c).copied(),
    };
    let bytes: Vec<u8> = text.chars().map(byte).collect::<Option<_>>()?;
    let mut out = String::with_capacity(bytes.len());
    let mut rest = &bytes[..];
    while let Some(&first) = rest.first() {
        let len = match first {
            LOST => return None,
            0..=0x7f => 1,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return None,
        };
        let (sequence, after) = rest.split_at_checked(len)?;
        match sequence {
            [0xc2, b' '] => out.push('\u{a0}'),
            [0xc3, b' '] => out.push_str("à "),
            [_, next @ ..] if next.contains(&LOST) => out.push(char::REPLACEMENT_CHARACTER),
            _ => out.push_str(std::str::from_utf8(sequence).ok()?),
        }
        rest = after;
    }
    (out != text).then_some(out)
}

/// Counts pairs of characters that ordinary text does not have next to each other.
fn count_odd_pairs(text: &str) -> usize {
    text.chars().zip(text.chars().skip(1)).filter(|&(a, b)| is_odd_pair(a, b)).count()
}

/// Returns true if ordinary text does not have `b` next after `a`.
fn is_odd_pair(a: char, b: char) -> bool {
    let is_c1 = |c| matches!(c, '\u{80}'..='\u{9f}');
    let is_symbol = |c: char| !c.is_alphabetic() && !is_mark(c) && !PUNCTUATION.contains(c);
    let is_letter = a.is_alphabetic() && b.is_alphabetic();
    let has_symbol = !a.is_ascii() && !b.is_ascii() && (is_symbol(a) || is_symbol(b));
    let has_lead = matches!(a, 'Ã' | 'Â') && !b.is_ascii();
    let has_break = a.is_lowercase() && b.is_uppercase() && !(a.is_ascii() && b.is_ascii());
    let has_scripts = is_letter && script(a) != script(b);
    is_c1(a) || is_c1(b) || has_symbol || has_lead || has_break || has_scripts
}

/// Returns true for joiners and marks, which belong to the letter before them.
fn is_mark(c: char) -> bool {
    matches!(c as u32, 0x300..=0x36f | 0x590..0x1e00 | 0x200b..=0x200f | 0x2060..0x2070 | 0x2e80..)
        && c != char::REPLACEMENT_CHARACTER
}

/// Returns a number for the script of a letter, as far as Unicode blocks tell it.
fn script(c: char) -> u32 {
    match c as u32 {
        0..0x250 | 0x1e00..0x1f00 => 0,
        0x370..0x400 | 0x1f00..0x2000 => 1,
        0x600..0x780 | 0xfb50..0xff00 => 2,
        block @ 0x250..0x2e80 => block >> 7,
        _ => u32::MAX,
    }
}

/// Decodes C1 controls as Windows-1252, as browsers do; removes terminal escapes and controls.
fn clean_controls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\x1b' if rest.starts_with('[') => {
                let end = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
                if end.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    rest = &end[1..];
                }
            }
            '\u{80}'..='\u{9f}' => {
                let windows_1252 = CODE_PAGES_TEXT.lines().nth(1).unwrap_or_default();
                out.extend(page_characters(windows_1252).nth(c as usize - 0x80));
            }
            '\0'..='\x08'
            | '\x0b'
            | '\x0e'..='\x1f'
            | '\x7f'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffc}' => {}
            _ => out.push(c),
        }
    }
    out
}
