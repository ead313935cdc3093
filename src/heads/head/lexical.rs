//! Lexical heads: a network over n-grams of tokens. The file (safetensors) also holds the
//! tokenizer, so that the head scores texts without an encoder.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use serde_json::json;

use super::card::{HeadOf, HeadSpec, ModelCard};
use super::file;
use super::scorer::DocumentScore;
use crate::lexical::LexicalModel;
use polysift_base::error::{Error, Result};
use polysift_base::io::{if_there, read};
use polysift_base::panics::lock;
use polysift_config::{Chunks, EncoderConfig, HeadConfig, HeadKind, HeadOutput};
use polysift_encoder::Recipe;
use polysift_tokenizer::Tokenizer;

/// Name of the tensor that holds the compressed `tokenizer.json`.
const TOKENIZER: &str = "tokenizer.json.zst";
/// Maximum size of the decompressed `tokenizer.json`.
const MAX_TOKENIZER_BYTES: u64 = 1 << 28;

/// A head that scores the first chunk of a text by its tokens.
pub type LexicalHead = HeadOf<LexicalScorer>;

/// A network, and the tokenizer that makes its input.
#[derive(Debug, Clone)]
pub struct LexicalScorer {
    network: LexicalModel,
    tokenizer: Arc<HeadTokenizer>,
}

#[derive(Debug)]
pub(crate) struct HeadTokenizer {
    /// The `tokenizer.json`, compressed.
    packed: Vec<u8>,
    tokenizer: Tokenizer,
}

/// Tokenizers in use by digest and settings. One takes tens of megabytes, so that heads share it.
static IN_USE: Mutex<BTreeMap<String, Weak<HeadTokenizer>>> = Mutex::new(BTreeMap::new());

impl HeadTokenizer {
    /// Makes the tokenizer of a `tokenizer.json` and a `recipe`; `origin` names the file in errors.
    pub(crate) fn of_json(json: &[u8], recipe: &Recipe, origin: &Path) -> Result<Arc<Self>> {
        let packed = zstd::encode_all(json, 0).map_err(Error::io(origin, "compress"))?;
        Self::shared(&packed, recipe, origin)
    }

    /// Returns the tokenizer of a compressed `tokenizer.json`, shared with other heads that use it.
    fn shared(packed: &[u8], recipe: &Recipe, origin: &Path) -> Result<Arc<Self>> {
        let Recipe { prompt, max_tokens, max_chars, .. } = recipe;
        let settings = json!([prompt, max_tokens, max_chars]);
        let key = format!("{} {settings}", blake3::hash(packed).to_hex());
        let mut in_use = lock(&IN_USE);
        if let Some(known) = in_use.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let mut bytes = Vec::new();
        let decoder = zstd::Decoder::new(packed).map_err(Error::io(origin, "decompress"))?;
        let mut decoder = decoder.take(MAX_TOKENIZER_BYTES + 1);
        let broken = |e| Error::model(origin, format!("its tokenizer cannot be decompressed: {e}"));
        decoder.read_to_end(&mut bytes).map_err(broken)?;
        if bytes.len() as u64 > MAX_TOKENIZER_BYTES {
            let reason = format!("its tokenizer has more than {MAX_TOKENIZER_BYTES} bytes");
            return Err(Error::model(origin, reason));
        }
        let config = EncoderConfig {
            prompt: Some(prompt.clone()),
            max_tokens: *max_tokens,
            max_chars: *max_chars,
            chunks: Chunks::First,
            ..EncoderConfig::default()
        };
        let tokenizer = Tokenizer::from_bytes(&bytes, origin, &config)?;
        let made = Arc::new(Self { packed: packed.to_vec(), tokenizer });
        in_use.retain(|_, known| known.strong_count() > 0);
        in_use.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    /// Returns the token ids of the first chunk of `text`.
    pub(crate) fn first_chunk(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.tokenizer.chunks(text)?.into_iter().next().unwrap_or_default())
    }
}

impl LexicalHead {
    /// Returns true if `path` is the file of a lexical head.
    ///
    /// # Errors
    /// The errors of reading, also for a link that leads out of the folder.
    pub fn is_file(path: &Path) -> Result<bool> {
        let Some(bytes) = if_there(read(path))? else { return Ok(false) };
        let card = file::with_card(&bytes, |_| String::new()).ok().and_then(|(_, card)| card);
        Ok(card.is_some_and(|card| card.spec.kind == HeadKind::Lexical))
    }

    /// Reads the head called `name` from a file at `path`. Of `config`, only `keep` has an effect.
    ///
    /// # Errors
    /// [`Error::Missing`] without such a file; [`Error::Model`] if it is another or damaged.
    pub fn load(path: &Path, name: &str, config: &HeadConfig) -> Result<Self> {
        let bytes = file::read(path, name)?;
        let fail = |reason: String| Error::model(path, reason);
        let (card, network, packed) = decode(&bytes).map_err(fail)?;
        let recipe = card.provenance.as_ref().and_then(|provenance| provenance.recipe.as_ref());
        let untold = || fail("its card does not say how texts become tokens".to_owned());
        let tokenizer = HeadTokenizer::shared(packed, recipe.ok_or_else(untold)?, path)?;
        let digest = blake3::hash(&bytes).to_hex().to_string();
        let mut head = Self { card, scorer: LexicalScorer { network, tokenizer }, digest };
        head.card.spec.keep = config.keep.unwrap_or(head.card.spec.keep);
        Ok(head)
    }

    /// Makes a head of a trained `network` with one output. Of the spec of `card` it keeps only
    /// output and kept side; the network sets the rest.
    pub(crate) fn trained(
        mut card: ModelCard,
        network: LexicalModel,
        tokenizer: Arc<HeadTokenizer>,
    ) -> Result<Self> {
        card.spec = spec(&network, &card);
        let scorer = LexicalScorer { network, tokenizer };
        let mut head = Self { card, scorer, digest: String::new() };
        head.digest = blake3::hash(&head.to_bytes()?).to_hex().to_string();
        Ok(head)
    }

    /// Returns the file's bytes; equal heads give equal bytes.
    ///
    /// # Errors
    /// [`Error::Shape`], which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let LexicalScorer { network, tokenizer } = &self.scorer;
        network.to_bytes(&[(TOKENIZER, &tokenizer.packed)], Some(self.card.metadata()?))
    }

    /// Scores one text.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::chunks`].
    pub fn score(&self, text: &str) -> Result<DocumentScore> {
        let LexicalScorer { network, tokenizer } = &self.scorer;
        let logit = network.score(&tokenizer.first_chunk(text)?)[0];
        Ok(DocumentScore::new(logit, self.card.spec.output))
    }
}

/// Returns the spec of a head of `network` with the output and the kept side of `card`.
fn spec(network: &LexicalModel, card: &ModelCard) -> HeadSpec {
    HeadSpec {
        kind: HeadKind::Lexical,
        layer_sizes: network.layer_sizes(),
        output: card.spec.output,
        keep: card.spec.keep,
        ..HeadSpec::default()
    }
}

/// Returns card, network and compressed tokenizer of a file; the error text says what is wrong.
fn decode(bytes: &[u8]) -> Result<(ModelCard, LexicalModel, &[u8]), String> {
    let (tensors, card) = file::with_card(bytes, |e| format!("is no safetensors file: {e}"))?;
    let card = card.ok_or("is no lexical head: it has no card")?;
    let network = LexicalModel::of_tensors(&tensors)?;
    let is_output = matches!(card.spec.output, HeadOutput::Sigmoid | HeadOutput::Raw);
    if card.spec != spec(&network, &card) || network.layer_sizes().last() != Some(&1) || !is_output
    {
        return Err("its card and its tensors are not those of a lexical head".to_owned());
    }
    let packed = tensors.tensor(TOKENIZER).map_err(|e| e.to_string())?.data();
    Ok((card, network, packed))
}
