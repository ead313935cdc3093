//! A `tokenizer.json` in this engine's terms, or what of it the engine does not know. Anything
//! that is not read below exactly is refused, and the `tokenizers` crate does the work.

use tokenizers::models::unigram::Unigram as CrateUnigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{Model as _, ModelWrapper, NormalizedString, Normalizer as _, Tokenizer};

use super::added_tokens::{AddedToken, AddedTokens};
use super::charmap::{CharMap, META};
use super::unigram::Unigram;
use super::words::{Spacing, WordModel};

/// What the engine runs on.
pub(super) struct UnigramPipeline {
    pub(super) map: CharMap,
    pub(super) model: WordModel,
    /// Added tokens that are looked for in the text as it is.
    pub(super) added_tokens: Option<AddedTokens>,
}

/// A part of the pipeline, or what is not known about it.
type Supported<T> = Result<T, &'static str>;

impl UnigramPipeline {
    /// # Errors
    /// What `tokenizer` has that this engine has not.
    pub(super) fn of(tokenizer: &Tokenizer) -> Supported<Self> {
        let (map, strips_end, collapses) = normalizer(tokenizer.get_normalizer())?;
        let splits = splits(tokenizer.get_pre_tokenizer())?;
        if splits && collapses {
            return Err("it replaces spaces and splits at white space");
        }
        let spacing = Spacing { splits, strips_end, collapses };
        let ModelWrapper::Unigram(model) = tokenizer.get_model() else {
            return Err("its model is not Unigram");
        };
        let unigram = unigram(model)?;
        let [added_tokens, normalized] = added_tokens(tokenizer, spacing)?;
        Ok(Self {
            map,
            model: WordModel { spacing, unigram, added_tokens: normalized },
            added_tokens,
        })
    }
}

/// The character map, whether the end is stripped, whether spaces collapse.
fn normalizer(normalizer: Option<&NormalizerWrapper>) -> Supported<(CharMap, bool, bool)> {
    let steps = match normalizer {
        None => &[],
        Some(NormalizerWrapper::Sequence(sequence)) => sequence.as_ref(),
        Some(step) => std::slice::from_ref(step),
    };
    let (map, steps) = match steps {
        [NormalizerWrapper::Precompiled(map), rest @ ..] => (charmap(map)?, rest),
        steps => (CharMap::identity(), steps),
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

fn charmap(precompiled: &Precompiled) -> Supported<CharMap> {
    let json = serde_json::to_value(precompiled).unwrap_or_default();
    let charsmap = json["precompiled_charsmap"].as_str().and_then(CharMap::from_base64);
    charsmap.ok_or("its character map cannot be read")
}

/// Whether white space splits before `▁` is put in.
fn splits(pre_tokenizer: Option<&PreTokenizerWrapper>) -> Supported<bool> {
    use PreTokenizerWrapper::{Metaspace as Meta, Sequence, WhitespaceSplit};
    let (splits, metaspace) = match pre_tokenizer {
        Some(Meta(metaspace)) => (false, metaspace),
        Some(Sequence(sequence)) => match sequence.as_ref() {
            [Meta(metaspace)] => (false, metaspace),
            [WhitespaceSplit(_), Meta(metaspace)] => (true, metaspace),
            _ => return Err("its pre-tokenizer is not XLM-RoBERTa's"),
        },
        _ => return Err("its pre-tokenizer is not XLM-RoBERTa's"),
    };
    if *metaspace == Metaspace::new(META, PrependScheme::Always, true) {
        Ok(splits)
    } else {
        Err("its Metaspace is not XLM-RoBERTa's")
    }
}

fn unigram(model: &CrateUnigram) -> Supported<Unigram> {
    if model.byte_fallback() {
        return Err("it falls back to bytes");
    }
    let vocabulary: Vec<(&str, f64)> =
        model.iter().map(|(text, score)| (&**text, *score)).collect();
    // The id of the unknown token is not to be had but from the model at work.
    let unknown = ('\u{E000}'..=char::MAX)
        .map(String::from)
        .find(|text| model.token_to_id(text).is_none())
        .and_then(|text| model.tokenize(&text).ok())
        .ok_or("it has no unknown token")?;
    let [unknown] = &unknown[..] else { return Err("it has no unknown token") };
    Unigram::new(&vocabulary, unknown.id).ok_or("its vocabulary cannot be searched")
}

/// Added tokens to be found in the text as it is, and in normalized text.
fn added_tokens(tokenizer: &Tokenizer, spacing: Spacing) -> Supported<[Option<AddedTokens>; 2]> {
    let mut texts: [Vec<(String, AddedToken)>; 2] = Default::default();
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        let text = if token.normalized {
            normalized(tokenizer, &token.content)?
        } else {
            token.content.clone()
        };
        if token.single_word || text.is_empty() || text.contains(char::is_whitespace) {
            return Err("an added token is a single word, empty or holds white space");
        }
        // Where white space does not split, the words around one are written before it is seen.
        let takes_space = (token.lstrip || token.rstrip) && !spacing.splits;
        if token.normalized && (text.contains(META) || takes_space) {
            return Err("an added token in normalized text holds ▁ or takes white space");
        }
        let added = AddedToken { id, lstrip: token.lstrip, rstrip: token.rstrip };
        texts[usize::from(token.normalized)].push((text, added));
    }
    for texts in &mut texts {
        texts.sort_by(|a, b| a.0.cmp(&b.0));
        if texts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two added tokens have one text");
        }
    }
    let search = |texts: &[(String, AddedToken)]| match texts {
        [] => Ok(None),
        texts => AddedTokens::new(texts).map(Some).ok_or("its added tokens cannot be searched"),
    };
    Ok([search(&texts[0])?, search(&texts[1])?])
}

fn normalized(tokenizer: &Tokenizer, text: &str) -> Supported<String> {
    let mut string = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer.normalize(&mut string).map_err(|_| "an added token cannot be normalized")?;
    }
    Ok(string.get().to_owned())
}
