//! Letters beside personal data, which may make it part of something else.

/// Whether `c`, beyond ASCII, is a letter of the Latin script.
pub(super) fn is_latin(c: char) -> bool {
    matches!(c, 'ª' | 'º' | 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ɏ' | 'Ḁ'..='ỿ')
}

/// Whether a character beside an IP address or an IBAN makes it part of something else: digits and Latin letters do.
/// Other scripts have other letters than these, and some no spaces.
pub(super) fn joins(c: char) -> bool {
    c.is_ascii_alphanumeric() || c.is_numeric() || is_latin(c)
}
