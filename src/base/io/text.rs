//! Handles text as editors and other programs write it.

/// Returns `text` without the UTF-8 byte order mark that some programs put first.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}
