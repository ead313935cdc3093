//! Finds where a text can be cut for the `tokenizers` crate, so that the ids of the text before the
//! cut are the first ids of the whole text.
//!
//! A cut is before a space after a letter or digit, or before an East Asian comma or full stop
//! after an East Asian letter. The pre-tokenizers below split there whatever surrounds it: their
//! look-ahead (`\s+(?!\S)`) applies only to white space, no normalizer below composes across a cut,
//! and no added token contains one. Words are then modelled one by one.

use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::pipeline::normalized;

/// Start and end of the patterns of Llama 3 and Qwen 2. The crate itself knows GPT-2's pattern.
const PATTERN_START: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}";
const PATTERN_END: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Proof that a pipeline splits every text at the places that [`SureSplits::find`] returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct SureSplits(());

impl SureSplits {
    /// Returns `None` unless `tokenizer` is known to split there.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let tokens = tokenizer.get_added_tokens_decoder().into_values();
        let is_inside = |text: &str| {
            let pairs = text.chars().zip(text.chars().skip(1));
            pairs.into_iter().any(|(a, b)| !a.is_whitespace() && (b == ' ' || is_stop(b)))
        };
        let is_split = |token: &tokenizers::AddedToken| {
            let text = &token.content;
            is_inside(text) || normalized(tokenizer, text).is_ok_and(|text| is_inside(&text))
        };
        let is_sure = keeps(tokenizer.get_normalizer())
            && splits(tokenizer.get_pre_tokenizer())
            && !tokens.into_iter().any(|token| is_split(&token));
        is_sure.then_some(Self(()))
    }

    /// Returns the first such place at `from` or later, or the end of the text.
    pub(crate) fn find(text: &str, from: usize) -> usize {
        let from = text.floor_char_boundary(from);
        let mut chars = text[from..].char_indices();
        let Some((_, mut last)) = chars.next() else { return text.len() };
        for (at, c) in chars {
            if (c == ' ' && last.is_alphanumeric()) || (is_stop(c) && is_east_asian(last)) {
                return from + at;
            }
            last = c;
        }
        text.len()
    }
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
fn keeps(normalizer: Option<&NormalizerWrapper>) -> bool {
    use NormalizerWrapper::{BertNormalizer, Lowercase, NFC, Sequence};
    match normalizer {
        Some(Sequence(steps)) => steps.as_ref().iter().all(|step| keeps(Some(step))),
        None | Some(BertNormalizer(_) | Lowercase(_) | NFC(_)) => true,
        // NFD would put marks after letters.
        Some(_) => false,
    }
}

/// Returns true if the text is split at every such place; later steps then see only the parts.
fn splits(pre_tokenizer: Option<&PreTokenizerWrapper>) -> bool {
    use PreTokenizerWrapper::{BertPreTokenizer, ByteLevel, Sequence, Split, Whitespace};
    match pre_tokenizer {
        Some(BertPreTokenizer(_) | Whitespace(_)) => true,
        Some(ByteLevel(bytes)) => bytes.use_regex,
        Some(Sequence(steps)) => splits(steps.as_ref().first()),
        Some(Split(split)) => {
            let SplitPattern::Regex(pattern) = &split.pattern else { return false };
            let digits = pattern.strip_prefix(PATTERN_START);
            let digits = digits.and_then(|rest| rest.strip_suffix(PATTERN_END));
            let isolates = split.behavior == SplitDelimiterBehavior::Isolated && !split.invert;
            isolates && matches!(digits, Some("" | "{1,3}"))
        }
        _ => false,
    }
}
