//! Converts a `tokenizer.json` to this engine's pipeline, or names an unsupported part. Anything
//! that is not matched exactly below is refused, and the `tokenizers` crate does the work.

use std::sync::Mutex;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{ModelWrapper, NormalizedString, Normalizer as _, Tokenizer};

use super::added_tokens::AddedTokens;
use super::bpe::Bpe;
use super::charmap::{CharMap, META};
use super::file::UnigramEntries;
use super::unigram::Unigram;
use super::words::{WordModel, WordScratch};

/// A pipeline, and the memory of the threads that use it; `engine` encodes with it.
pub(super) struct Engine {
    pub(super) model: PipelineModel,
    /// Added tokens that are searched in the original text.
    pub(super) added_tokens: Option<AddedTokens>,
    /// Memory of threads that are not at work.
    pub(super) idle: Mutex<Vec<WordScratch>>,
}

/// Produces the ids of a segment.
pub(super) enum PipelineModel {
    /// XLM-RoBERTa's pipeline.
    Unigram(Box<WordModel>),
    /// Gemma's pipeline.
    Bpe(Box<Bpe>),
}

/// A part of the pipeline, or why it is not supported.
type Supported<T> = Result<T, &'static str>;

impl Engine {
    /// Converts `tokenizer`, with the model `unigram` if there is one.
    pub(crate) fn new(tokenizer: &Tokenizer, unigram: Option<&UnigramEntries>) -> Supported<Self> {
        match (unigram, tokenizer.get_model()) {
            (Some(model), _) => Self::from_unigram(tokenizer, model),
            (None, ModelWrapper::BPE(model)) => Self::from_bpe(tokenizer, model),
            _ => Err("its model is neither Unigram nor BPE"),
        }
    }

    /// Builds XLM-RoBERTa's pipeline; the model in `tokenizer` is a placeholder for `model`.
    fn from_unigram(tokenizer: &Tokenizer, model: &UnigramEntries) -> Supported<Self> {
        let (map, strips_end, collapses) = read_normalizer(tokenizer.get_normalizer())?;
        let splits = read_pre_tokenizer(tokenizer.get_pre_tokenizer())?;
        if splits && collapses {
            return Err("it replaces spaces and splits at white space");
        }
        if model.byte_fallback {
            return Err("it falls back to bytes");
        }
        let unknown = model.unknown.ok_or("it has no unknown token")?;
        let unigram = Unigram::new(&model.vocabulary, unknown as u32)
            .ok_or("its vocabulary cannot be searched")?;
        let [raw, added_tokens] = read_added_tokens(tokenizer, splits)?;
        let model = WordModel { map, splits, strips_end, collapses, unigram, added_tokens };
        let model = PipelineModel::Unigram(Box::new(model));
        Ok(Self { model, added_tokens: raw, idle: Mutex::default() })
    }

    /// Builds Gemma's pipeline. Its normalizer turns spaces into `▁`: a split at them finds none.
    fn from_bpe(tokenizer: &Tokenizer, model: &BPE) -> Supported<Self> {
        let space = Replace::new(" ", META.to_string());
        if !matches!((tokenizer.get_normalizer(), space),
            (Some(NormalizerWrapper::Replace(replace)), Ok(space)) if *replace == space)
        {
            return Err("it is BPE, and its normalizer is not Gemma's");
        }
        match tokenizer.get_pre_tokenizer() {
            None => {}
            Some(PreTokenizerWrapper::Split(split))
                if split.pattern == SplitPattern::String(" ".into()) && !split.invert => {}
            Some(_) => return Err("it is BPE, and its pre-tokenizer is not Gemma's"),
        }
        let mut texts = Vec::new();
        for (id, token) in tokenizer.get_added_tokens_decoder() {
            if token.normalized || token.single_word || token.content.is_empty() {
                return Err("an added token is a single word, empty or of normalized text");
            }
            texts.push((token.content.clone(), (id, token)));
        }
        let added_tokens = AddedTokens::new(texts)?;
        let model = PipelineModel::Bpe(Box::new(Bpe::from_crate(model)?));
        Ok(Self { model, added_tokens, idle: Mutex::default() })
    }
}

/// Returns the character map, whether the end is stripped, and whether spaces collapse.
fn read_normalizer(normalizer: Option<&NormalizerWrapper>) -> Supported<(CharMap, bool, bool)> {
    let steps = match normalizer {
        None => &[],
        Some(NormalizerWrapper::Sequence(sequence)) => sequence.as_ref(),
        Some(step) => std::slice::from_ref(step),
    };
    let (map, steps) = match steps {
        [NormalizerWrapper::Precompiled(map), rest @ ..] => {
            let json = serde_json::to_value(map).unwrap_or_default();
            let map = json["precompiled_charsmap"].as_str().and_then(CharMap::from_base64);
            (map.ok_or("its character map cannot be read")?, rest)
        }
        steps => (CharMap::new(Vec::new(), String::new()), steps),
    };
    let (strips_end, steps) = match steps {
        [NormalizerWrapper::StripNormalizer(strip), rest @ ..]
            if strip.strip_right && !strip.strip_left =>
        {
            (true, rest)
        }
        steps => (false, steps),
    };
    let spaces = Replace::new(ReplacePattern::Regex(" {2,}".into()), META.to_string());
    match steps {
        [] => Ok((map, strips_end, false)),
        [NormalizerWrapper::Replace(replace)] if spaces.is_ok_and(|spaces| *replace == spaces) => {
            Ok((map, strips_end, true))
        }
        _ => Err("its normalizer is not XLM-RoBERTa's"),
    }
}

/// Returns true if white space splits words before `▁` is inserted.
fn read_pre_tokenizer(pre_tokenizer: Option<&PreTokenizerWrapper>) -> Supported<bool> {
    use PreTokenizerWrapper::{Metaspace as Meta, Sequence, WhitespaceSplit};
    let steps = match pre_tokenizer {
        None => &[],
        Some(Sequence(sequence)) => sequence.as_ref(),
        Some(step) => std::slice::from_ref(step),
    };
    let (splits, metaspace) = match steps {
        [Meta(metaspace)] => (false, metaspace),
        [WhitespaceSplit(_), Meta(metaspace)] => (true, metaspace),
        _ => return Err("its pre-tokenizer is not XLM-RoBERTa's"),
    };
    if *metaspace == Metaspace::new(META, PrependScheme::Always, true) {
        Ok(splits)
    } else {
        Err("its Metaspace is not XLM-RoBERTa's")
    }
}

/// Returns the added tokens to search in the original text, and those in normalized text.
fn read_added_tokens(tokenizer: &Tokenizer, splits: bool) -> Supported<[Option<AddedTokens>; 2]> {
    let mut texts: [Vec<_>; 2] = Default::default();
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        let text = if token.normalized {
            normalize(tokenizer, &token.content)?
        } else {
            token.content.clone()
        };
        if token.single_word || text.is_empty() || text.contains(char::is_whitespace) {
            return Err("an added token is a single word, empty or holds white space");
        }
        // Unless white space splits, the words around a token are written before it is found.
        let takes_space = (token.lstrip || token.rstrip) && !splits;
        if token.normalized && (text.contains(META) || takes_space) {
            return Err("an added token in normalized text holds ▁ or takes white space");
        }
        texts[usize::from(token.normalized)].push((text, (id, token)));
    }
    let [raw, normalized] = texts;
    Ok([AddedTokens::new(raw)?, AddedTokens::new(normalized)?])
}

/// Returns `text`, of an added token, as the normalizer of `tokenizer` writes it.
pub(super) fn normalize(tokenizer: &Tokenizer, text: &str) -> Supported<String> {
    let mut string = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer.normalize(&mut string).map_err(|_| "an added token cannot be normalized")?;
    }
    Ok(string.get().to_owned())
}
