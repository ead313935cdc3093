//! Reads a `tokenizer.json` with the `tokenizers` crate: all of it, or all but a unigram model. Our
//! engine needs no model of the crate's, and building it is the slowest step of a start.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

/// Reads a whole file with the crate, and turns its truncation and padding off.
pub(crate) fn read_whole(json: &[u8]) -> Result<Tokenizer, String> {
    let mut tokenizer =
        Tokenizer::from_bytes(json).map_err(|e| format!("is not a tokenizer: {e}"))?;
    tokenizer
        .with_truncation(None)
        .map_err(|e| format!("truncation cannot be turned off: {e}"))?
        .with_padding(None);
    Ok(tokenizer)
}

/// The unigram model as in the file. A model with other fields is left to the crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnigramEntries {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "unk_id")]
    pub(super) unknown: Option<usize>,
    /// Pieces and their scores; ids are indices.
    #[serde(rename = "vocab")]
    pub(super) vocabulary: Vec<(String, f64)>,
    #[serde(default)]
    pub(super) byte_fallback: bool,
}

#[derive(Deserialize)]
struct TokenizerFile {
    model: UnigramEntries,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Reads `json` with a unigram model: the tokenizer, whose model is a placeholder that knows only
/// added tokens, and the model. `None` for other files, and if the crate has to report an error.
pub(super) fn read_unigram(json: &[u8]) -> Option<(Tokenizer, UnigramEntries)> {
    let TokenizerFile { model, mut rest } = serde_json::from_slice(json).ok()?;
    let size = model.vocabulary.len();
    if model.kind != "Unigram" || size == 0 || model.unknown.is_some_and(|id| id >= size) {
        return None;
    }
    // The crate assigns to an added token the last piece with its text, else the next number.
    let added = rest.get("added_tokens").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = added.filter_map(|token| token["content"].as_str()).collect();
    let mut ids: HashMap<&str, Option<usize>> = texts.iter().map(|&text| (text, None)).collect();
    for (id, (text, _)) in model.vocabulary.iter().enumerate() {
        if let Some(found) = ids.get_mut(text.as_str()) {
            *found = Some(id);
        }
    }
    let mut next = size..;
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        if let Some(id @ None) = ids.get_mut(text) {
            *id = next.next();
        }
    }
    ids.retain(|_, id| id.is_some());
    let added_alone = json!({"type": "WordLevel", "vocab": ids, "unk_token": ""});
    rest.insert("model".into(), added_alone);
    let rest = serde_json::to_vec(&rest).ok()?;
    Some((read_whole(&rest).ok()?, model))
}
