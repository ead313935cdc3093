//! Text as editors and other programs write it.

/// `text` in UTF-8 without the byte order mark that some programs begin it with.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}
