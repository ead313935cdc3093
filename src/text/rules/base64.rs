//! Finds base64 data in a text.

use std::ops::Range;

/// Minimum length of a run, in characters without padding and line ends.
pub const MIN_BASE64_CHARACTERS: usize = 100;
/// Line lengths of wrapped data: MIME has at most 76, PEM 64; some tools make 60 or 72.
const WRAPPED_LINE: std::ops::RangeInclusive<usize> = 60..=76;
/// Maximum spaces and tabs before a line of wrapped data.
const MAX_INDENT: usize = 16;
/// Mean length of parts below which a run may be a name, in characters; parts of data have 32.
const MAX_MEAN_PART: usize = 20;
const UPPER: u8 = 1;
const LOWER: u8 = 2;
const DIGIT: u8 = 4;
/// `+` and `/`
const STANDARD: u8 = 8;
/// `-` and `_`
const URL_SAFE: u8 = 16;
/// No hexadecimal digit.
const NO_HEX: u8 = 32;
/// Character that ends a URL.
const DELIMITER: u8 = 64;

/// Classes of every byte; 0 means none.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'A'..=b'F' => UPPER,
            b'a'..=b'f' => LOWER,
            b'G'..=b'Z' => UPPER | NO_HEX,
            b'g'..=b'z' => LOWER | NO_HEX,
            b'0'..=b'9' => DIGIT,
            b'+' | b'/' => STANDARD | NO_HEX,
            b'-' | b'_' => URL_SAFE | NO_HEX,
            0..=b' ' | b'"' | b'\''..=b')' | b'<' | b'>' | b'[' | b']' | b'`' | b'{'..=b'}' => {
                DELIMITER
            }
            _ => 0,
        };
        byte += 1;
    }
    classes
};
const IN_ALPHABET: u8 = UPPER | LOWER | DIGIT | STANDARD | URL_SAFE;

/// A run of base64 characters of one alphabet.
struct Run {
    /// Byte range with padding and inner line ends.
    range: Range<usize>,
    /// Number of characters without padding.
    len: usize,
    padding: usize,
    classes: u8,
}

/// Returns the byte ranges of base64 in a text: runs of at least [`MIN_BASE64_CHARACTERS`] in one
/// alphabet (standard or URL-safe), with small letters, capitals and digits, of a decodable length.
///
/// Consecutive lines of 60 to 76 characters form one run; its last line may be shorter. Parts of
/// URLs, paths, names and hexadecimal numbers do not count; the data of a `data:` URI does.
pub fn base64_ranges(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut is_url) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        let class = CLASSES[usize::from(byte)];
        if class & IN_ALPHABET == 0 {
            if class == DELIMITER {
                is_url = false;
            } else if byte == b':' && bytes[at..].starts_with(b"://") {
                is_url = true;
            } else if byte == b',' && bytes[..at].ends_with(b";base64") {
                is_url = false;
            }
            at += 1;
            continue;
        }
        let run = Run::read_wrapped(bytes, at);
        at = run.range.end;
        if !is_url && run.is_data(bytes) && !run.is_path_behind_host(bytes) {
            found.push(run.range);
        }
    }
    found
}

impl Run {
    /// Reads the run that starts at `start`, with the following lines that are part of it.
    fn read_wrapped(bytes: &[u8], start: usize) -> Self {
        let mut run = Self::read_line(bytes, start);
        let width = run.len;
        if !WRAPPED_LINE.contains(&width) {
            return run;
        }
        while run.padding == 0 {
            let Some(start) = next_line_start(bytes, run.range.end) else { break };
            let line = Self::read_line(bytes, start);
            let is_last = line.len < width || line.padding > 0;
            let is_whole = bytes
                .get(line.range.end)
                .is_none_or(|byte| matches!(byte, b'\r' | b'\n' | b'"' | b'\'' | b'<' | b')'));
            let classes = run.classes | line.classes;
            // No base64 without padding has one character more than whole groups of four.
            let is_word = is_last && line.padding == 0 && (run.len + line.len) % 4 == 1;
            if line.len == 0 || line.len > width || is_mixed(classes) || !is_whole || is_word {
                break;
            }
            run = Self {
                range: run.range.start..line.range.end,
                len: run.len + line.len,
                padding: line.padding,
                classes,
            };
            if is_last {
                break;
            }
        }
        run
    }

    /// Reads the run that starts at `start`, up to the end of the line.
    fn read_line(bytes: &[u8], start: usize) -> Self {
        let (mut at, mut classes) = (start, 0);
        while let Some(&byte) = bytes.get(at) {
            let class = CLASSES[usize::from(byte)];
            if class & IN_ALPHABET == 0 || is_mixed(classes | class) {
                break;
            }
            classes |= class;
            at += 1;
        }
        let padding = bytes[at..].iter().take(2).take_while(|byte| **byte == b'=').count();
        Self { range: start..at + padding, len: at - start, padding, classes }
    }

    /// Returns true if the parts between characters that are neither letters nor digits are short,
    /// and half of them could be words or numbers: in one case, perhaps with a capital.
    fn is_name(&self, bytes: &[u8]) -> bool {
        let (mut parts, mut words) = (0, 0);
        for part in bytes[self.range.clone()].split(|byte| !byte.is_ascii_alphanumeric()) {
            let [first, others @ ..] = part else { continue };
            if part.len() < MIN_BASE64_CHARACTERS {
                let is_word = part.iter().all(u8::is_ascii_uppercase)
                    || part.iter().all(u8::is_ascii_digit)
                    || first.is_ascii_alphabetic() && others.iter().all(u8::is_ascii_lowercase);
                parts += 1;
                words += usize::from(is_word);
            }
        }
        self.len < parts * MAX_MEAN_PART && words * 2 >= parts
    }

    /// Returns true if the run is long enough, decodable, and neither a number nor a name.
    fn is_data(&self, bytes: &[u8]) -> bool {
        // Data without letters from G on is a number.
        let needed = UPPER | LOWER | DIGIT | NO_HEX;
        let is_decodable = match self.padding {
            0 => self.len % 4 != 1,
            padding => (self.len + padding).is_multiple_of(4),
        };
        self.len >= MIN_BASE64_CHARACTERS
            && self.classes & needed == needed
            && is_decodable
            && !self.is_name(bytes)
    }

    /// Returns true if the run continues a host without a scheme: letters and `/` after a dot.
    fn is_path_behind_host(&self, bytes: &[u8]) -> bool {
        let run = &bytes[self.range.clone()];
        let letters = run.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        bytes[..self.range.start].ends_with(b".")
            && (2..=24).contains(&letters)
            && run.get(letters) == Some(&b'/')
    }
}

/// Returns true for characters of both alphabets; a run that mixes them is two.
fn is_mixed(classes: u8) -> bool {
    classes & STANDARD != 0 && classes & URL_SAFE != 0
}

/// Returns the start of the next line after its indentation; `None` unless a line ends at `at`.
fn next_line_start(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let end = match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => return None,
    };
    let indent =
        rest[end..].iter().take(MAX_INDENT).take_while(|byte| matches!(byte, b' ' | b'\t'));
    Some(at + end + indent.count())
}
