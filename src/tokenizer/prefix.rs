//! Finds where a text can be cut for the `tokenizers` crate, so that the ids of the text before the
//! cut are the first ids of the whole text.
//!
//! A cut is before a space after a letter or digit, or before an East Asian comma or full stop
//! after an East Asian letter. The pre-tokenizers below split there whatever surrounds it: their
//! look-ahead (`\s+(?!\S)`) applies only to white space, no normalizer below composes across a cut,
//! and no added token contains one. Words are then modelled one by one.

use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::pipeline::normalize;

/// Returns true if `tokenizer` is known to split every text wherever [`find_cut`] finds a place.
pub(super) fn splits_at_cuts(tokenizer: &Tokenizer) -> bool {
    let has_cut = |text: &str| {
        let mut pairs = text.chars().zip(text.chars().skip(1));
        pairs.any(|(a, b)| !a.is_whitespace() && (b == ' ' || is_stop(b)))
    };
    let is_split = |token: tokenizers::AddedToken| {
        let text = &token.content;
        has_cut(text) || normalize(tokenizer, text).is_ok_and(|text| has_cut(&text))
    };
    keeps_cuts(tokenizer.get_normalizer())
        && splits_at_every_cut(tokenizer.get_pre_tokenizer())
        && !tokenizer.get_added_tokens_decoder().into_values().any(is_split)
}

/// Returns the first byte at `from` or later at which `text` may be cut, else its length.
pub(super) fn find_cut(text: &str, from: usize) -> usize {
    let from = text.floor_char_boundary(from);
    let pairs = text[from..].char_indices().zip(text[from..].char_indices().skip(1));
    let is_cut = |((_, last), (_, c)): &((usize, char), (usize, char))| {
        *c == ' ' && last.is_alphanumeric() || is_stop(*c) && is_east_asian(*last)
    };
    pairs.into_iter().find(is_cut).map_or(text.len(), |(_, (at, _))| from + at)
}

/// Returns true for the comma and the full stop of East Asia.
fn is_stop(c: char) -> bool {
    matches!(c, '、' | '。' | '，')
}

/// Returns true for kana, ideographs and Hangul that are letters in every version of Unicode.
fn is_east_asian(c: char) -> bool {
    matches!(c, 'ぁ'..='ゔ' | 'ァ'..='ヴ' | '一'..='龥' | '가'..='힣')
}

/// Returns true if the normalizer keeps every place where a text can be cut.
fn keeps_cuts(normalizer: Option<&NormalizerWrapper>) -> bool {
    use NormalizerWrapper::{BertNormalizer, Lowercase, NFC, Sequence};
    match normalizer {
        Some(Sequence(steps)) => steps.as_ref().iter().all(|step| keeps_cuts(Some(step))),
        None | Some(BertNormalizer(_) | Lowercase(_) | NFC(_)) => true,
        // NFD would put marks after letters.
        Some(_) => false,
    }
}

/// Returns true if the text is split at every cut; later steps then see only the parts.
fn splits_at_every_cut(pre_tokenizer: Option<&PreTokenizerWrapper>) -> bool {
    use PreTokenizerWrapper::{BertPreTokenizer, ByteLevel, Sequence, Whitespace};
    match pre_tokenizer {
        Some(BertPreTokenizer(_) | Whitespace(_)) => true,
        Some(ByteLevel(bytes)) => bytes.use_regex,
        Some(Sequence(steps)) => splits_at_every_cut(steps.as_ref().first()),
        _ => false,
    }
}
