//! Classifies letters beside personal data, which may make it part of something else.

/// Returns true if the non-ASCII `c` is a letter of the Latin script.
pub(super) fn is_latin(c: char) -> bool {
    matches!(c, 'ª' | 'º' | 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ɏ' | 'Ḁ'..='ỿ')
}

/// Returns true if `c` beside an IP address or IBAN makes it part of something else: numeric
/// characters of any script (also ² and ½) and Latin letters do. Other scripts have other letters,
/// and some have no spaces.
pub(super) fn joins(c: char) -> bool {
    c.is_ascii_alphanumeric() || c.is_numeric() || is_latin(c)
}
