//! Finds IBANs, in one piece or in groups of four, and checks lengths, national structures and
//! check digits of the registry.

use std::ops::Range;

use iban::{Iban, IbanLike, ParseIbanError};

use super::letters::joins;

const MIN_CHARACTERS: usize = 15;
/// Maximum characters of an IBAN in the standard.
const MAX_CHARACTERS: usize = 34;
const GROUP: usize = 4;
/// Bytes searched together for the start of an IBAN.
const BLOCK_BYTES: usize = 64;

/// Finds every IBAN that neither a Latin letter nor a digit touches.
pub(super) fn find_ibans(text: &str) -> impl Iterator<Item = Range<usize>> {
    find_starts(text.as_bytes())
        .filter(|&start| !text[..start].ends_with(joins))
        .filter_map(|start| Some(start..iban_end(text, start)?))
}

/// Finds the places of two capitals before two digits, where an IBAN may start.
fn find_starts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let last = bytes.len().saturating_sub(GROUP - 1);
    (0..last).step_by(BLOCK_BYTES).flat_map(move |block| {
        let end = last.min(block + BLOCK_BYTES);
        let end = if has_start(&bytes[block..end + GROUP - 1]) { end } else { block };
        (block..end).filter(|&at| has_start(&bytes[at..at + GROUP]))
    })
}

/// Returns true if two capitals precede two digits; branch-free to vectorize. Needs three bytes.
fn has_start(bytes: &[u8]) -> bool {
    let count = bytes.len() - (GROUP - 1);
    let (first, second) = (&bytes[..count], &bytes[1..=count]);
    let (third, fourth) = (&bytes[2..count + 2], &bytes[3..]);
    let letters =
        first.iter().zip(second).map(|(a, b)| a.is_ascii_uppercase() & b.is_ascii_uppercase());
    let digits = third.iter().zip(fourth).map(|(a, b)| a.is_ascii_digit() & b.is_ascii_digit());
    letters.zip(digits).fold(0, |any, (letters, digits)| any | u8::from(letters & digits)) != 0
}

/// Returns the end of the IBAN at `start`, unless a letter or digit follows. The registry fixes the
/// length of IBANs, so at most one end of a group is the end of one.
fn iban_end(text: &str, start: usize) -> Option<usize> {
    let mut electronic = String::with_capacity(MAX_CHARACTERS);
    let mut is_separated = None;
    let mut end = start;
    while electronic.len() < MAX_CHARACTERS {
        let group = text.as_bytes()[end..].iter().take(GROUP);
        let group = group.take_while(|b| b.is_ascii_alphanumeric()).count();
        electronic.push_str(&text[end..end + group]);
        end += group;
        let is_whole = !text[end..].starts_with(joins);
        if is_whole && electronic.len() >= MIN_CHARACTERS && is_iban(&electronic) {
            return Some(end);
        }
        let is_separator = |c: &char| matches!(c, ' ' | '\u{a0}' | '\u{202f}' | '-');
        let separator = text[end..].chars().next().filter(is_separator);
        if group < GROUP || separator.is_some() != *is_separated.get_or_insert(separator.is_some())
        {
            return None;
        }
        end += separator.map_or(0, char::len_utf8);
    }
    None
}

/// Checks `electronic` against release 101 of the registry; the `iban` crate lacks two countries.
fn is_iban(electronic: &str) -> bool {
    let iban = match electronic.parse::<Iban>() {
        Err(ParseIbanError::UnknownCountry(iban)) => iban,
        parsed => return parsed.is_ok(),
    };
    let (bank, account) = iban.bban_unchecked().as_bytes().split_at_checked(4).unwrap_or_default();
    let is_account = match iban.country_code() {
        "HN" => account.len() == 20 && account.iter().all(u8::is_ascii_digit),
        "PK" => account.len() == 16, // letters and digits
        _ => false,
    };
    is_account && bank.iter().all(u8::is_ascii_uppercase)
}
