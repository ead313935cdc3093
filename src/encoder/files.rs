//! Finds the files of a model: inside the binary, in a directory, or on the hub.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::TensorView;
use serde::Deserialize;

use super::architecture::Architecture;
use super::classifier::Classifier;
use super::encode::EncoderInfo;
use super::families;
use super::output::Output;
use super::recipe::Recipe;
use super::sentence_transformers::SentenceTransformers;
use super::settings::{ResolvedSetting, resolve_encoder};
use super::weights::{Blob, parse_header};
use polysift_base::error::{Error, Result};
use polysift_base::hub::{HubSettings, is_repository_id};
use polysift_base::io::without_byte_order_mark;
use polysift_base::sample::hash_of;
use polysift_config::{DEFAULT_MODEL, EncoderConfig};
use polysift_remote::{RepoType, Repository};
use polysift_tokenizer::Tokenizer;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";

const BUNDLED_CONFIG: &[u8] = include_bytes!("../../models/polysift-mini/config.json");
// build.rs compresses these two.
const BUNDLED_WEIGHTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/model.safetensors"));
const BUNDLED_TOKENIZER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tokenizer.json"));

/// Files of a supported model that were found and opened; the weights are not parsed yet.
#[derive(Debug)]
pub struct ModelFiles {
    /// How the model turns texts into embeddings.
    pub recipe: Recipe,
    /// The resolved settings of the recipe, each with its source.
    pub settings: Vec<ResolvedSetting>,
    pub(super) output: Output,
    pub(super) architecture: Architecture,
    /// Configuration of the head, if this is a sequence classification model.
    pub classifier: Option<Classifier>,
    pub(super) weights: Arc<[Blob]>,
    tokenizer: Blob,
    lower_case: Option<PathBuf>,
}

impl ModelFiles {
    /// Returns names and tensors of the weights, without those that the index places elsewhere.
    pub fn tensors(&self) -> Result<Vec<(String, TensorView<'_>)>> {
        let mut all = Vec::new();
        for blob in self.weights.iter() {
            let own = parse_header(blob)?.tensors().into_iter();
            all.extend(own.filter(|(name, _)| !blob.elsewhere.contains(name)));
        }
        Ok(all)
    }

    /// Returns the width of an embedding.
    pub fn embedding_size(&self) -> usize {
        self.output.embedding_size
    }

    /// Describes an encoder that has these files on `device` and returns pooled states.
    pub(super) fn info(&self, device: String) -> EncoderInfo {
        let config = &self.architecture;
        EncoderInfo {
            hidden_size: config.width,
            embedding_size: config.width,
            linear_flops: config.linear_flops(),
            windows: config.layers.iter().map(|layer| layer.window).collect(),
            vocab_size: config.vocab_size,
            max_tokens: config.max_tokens,
            in_flight: 1,
            batch_tokens: None,
            max_sequences: usize::MAX,
            device,
        }
    }

    /// Builds the tokenizer with the prompt and the length of the recipe. Fails if it gives ids
    /// that the model has not, or does not lower case although the model needs that.
    pub fn tokenizer(&self, config: &EncoderConfig) -> Result<Tokenizer> {
        let path = &self.tokenizer.path;
        let Recipe { prompt, max_tokens, .. } = &self.recipe;
        let prompt = Some(prompt.clone());
        let config = EncoderConfig { prompt, max_tokens: *max_tokens, ..config.clone() };
        let tokenizer = Tokenizer::from_bytes(self.tokenizer.bytes(), path, &config)?;
        if let Some(file) = &self.lower_case
            && tokenizer.tokenize(LETTERS)? != tokenizer.tokenize(&LETTERS.to_lowercase())?
        {
            let reason = "do_lower_case is true, but tokenizer.json does not lower case";
            return Err(Error::model(file, reason));
        }
        let (largest, vocab_size) = (tokenizer.largest_id, self.architecture.vocab_size);
        if largest as usize >= vocab_size {
            let reason = format!(
                "has the token id {largest}, but the model has only {vocab_size} tokens \
                 (`vocab_size` of {}); the two files are not of one model",
                path.with_file_name(CONFIG).display()
            );
            return Err(Error::model(path, reason));
        }
        Ok(tokenizer)
    }
}

/// Text whose tokens reveal whether the tokenizer converts to lower case.
const LETTERS: &str = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z";

/// Finds, or downloads, the files of the model in `config`, and checks all but the weights.
pub fn resolve(config: &EncoderConfig, hub: &HubSettings) -> Result<ModelFiles> {
    let (json, weights, tokenizer, said) = find_and_read(config, hub)?;
    let weight_bytes = weights.iter().map(|blob| blob.bytes().len() as u64).sum();
    let text = without_byte_order_mark(json.bytes());
    let parsed = families::parse(text, &json.path, weight_bytes);
    // A truncated file of weights is the error to report, not the sizes in the configuration.
    let broken = || weights.iter().find_map(|blob| parse_header(blob).err());
    let architecture = parsed.map_err(|error| broken().unwrap_or(error))?;
    let blobs = [&json].into_iter().chain(&weights).chain([&tokenizer]);
    let digest = hash_of(blobs.map(Blob::bytes)).to_hex().to_string();
    let classifier = Classifier::parse(text);
    let classifier = classifier.map_err(|reason| Error::model(&json.path, reason))?;
    let lower_case = said.lower_case.clone();
    let of_head = classifier.as_ref().map(|classifier| (classifier.pooling, json.path.clone()));
    let (output, recipe, settings) =
        resolve_encoder(config, (said, of_head), &digest, architecture.width)?;
    let (wanted, limit) = (recipe.max_tokens, architecture.max_tokens);
    if wanted > limit {
        let reason = format!("is {wanted}; `{}` takes at most {limit}", config.model);
        return Err(Error::config("encoder.max_tokens", reason));
    }
    Ok(ModelFiles {
        recipe,
        settings,
        output,
        architecture,
        classifier,
        weights: weights.into(),
        tokenizer,
        lower_case,
    })
}

/// Configuration, weights, tokenizer and sentence-transformers settings of a model.
type Blobs = (Blob, Vec<Blob>, Blob, SentenceTransformers);

/// Reads the bundled model, a directory, or a repository, which is read again if its files are not
/// of one commit. Weights in files are mapped into memory.
fn find_and_read(config: &EncoderConfig, hub: &HubSettings) -> Result<Blobs> {
    let name = config.model.as_str();
    if name == DEFAULT_MODEL {
        let unpacked = |file: &str, packed: &[u8]| {
            let path = Path::new(name).join(file);
            let bytes = zstd::decode_all(packed).map_err(Error::io(&path, "decompress"))?;
            Ok::<_, Error>(Blob::new(path, bytes))
        };
        return Ok((
            Blob::new(Path::new(name).join(CONFIG), BUNDLED_CONFIG),
            vec![unpacked(WEIGHTS, BUNDLED_WEIGHTS)?],
            unpacked(TOKENIZER, BUNDLED_TOKENIZER)?,
            SentenceTransformers::default(),
        ));
    }
    let directory = Path::new(name);
    if directory.is_dir() {
        if config.revision.is_some() {
            let reason = "is for models of a hub; the model is a directory";
            return Err(Error::config("encoder.revision", reason));
        }
        let find = |file: &str| -> Result<Option<PathBuf>> {
            Ok(Some(directory.join(file)).filter(|path| path.is_file()))
        };
        return read_blobs(&find, &|file| missing_in(directory, file));
    }
    if !is_repository_id(name) || directory.exists() {
        let reason = format!(
            "`{name}` is neither `{DEFAULT_MODEL}`, nor a directory, nor a hub id such as \
             `FacebookAI/xlm-roberta-base`"
        );
        return Err(Error::config("encoder.model", reason));
    }
    let repository = Repository::new(RepoType::Model, name, config.revision.as_deref(), hub)?;
    // The folders of the commits of the files that are found.
    let snapshots: RefCell<BTreeSet<PathBuf>> = RefCell::default();
    let find = |file: &str| -> Result<Option<PathBuf>> {
        let path = repository.get(file)?;
        let depth = Path::new(file).iter().count();
        let folder = path.as_ref().and_then(|path| path.ancestors().nth(depth));
        snapshots.borrow_mut().extend(folder.map(Path::to_owned));
        Ok(path)
    };
    let read_all = || read_blobs(&find, &|file| repository.missing_error(file));
    let blobs = read_all()?;
    // If the branch has moved since the cache was filled, the cache now knows the new commit.
    if snapshots.borrow().len() == 1 { Ok(blobs) } else { read_all() }
}

/// Vocabulary files of tokenizers without a `tokenizer.json`.
const VOCABULARIES: [&str; 5] =
    ["sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "vocab.txt", "vocab.json"];

/// Returns the error for a directory without `file`, which is needed; it says what to do.
fn missing_in(directory: &Path, file: &str) -> Error {
    let reason = match file {
        CONFIG if directory.join("0_Transformer").is_dir() => format!(
            "has no {CONFIG}: its transformer is in a folder of its own (`0_Transformer`), as \
             sentence-transformers wrote before 2020; save the model again with a newer one"
        ),
        TOKENIZER if VOCABULARIES.iter().any(|name| directory.join(name).is_file()) => format!(
            "has no {TOKENIZER}, only an older vocabulary; make one with transformers: \
             `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)`"
        ),
        CONFIG | TOKENIZER => format!("has no {file}"),
        WEIGHTS => format!(
            "has neither {WEIGHTS} nor {WEIGHTS_INDEX}; a .bin checkpoint must be saved \
             again with `save_pretrained` of transformers first"
        ),
        shard => format!("{WEIGHTS_INDEX} names {shard}, which is not there"),
    };
    Error::model(directory, reason)
}

/// Reads the files that `find` returns; `missing` makes the error for one that has to be there.
fn read_blobs(
    find: &dyn Fn(&str) -> Result<Option<PathBuf>>,
    missing: &dyn Fn(&str) -> Error,
) -> Result<Blobs> {
    let required = |file: &str| find(file)?.ok_or_else(|| missing(file));
    let config = find(CONFIG)?;
    if let Some(path) = find("adapter_config.json")? {
        let reason = "is that of an adapter; merge the adapter into its model first";
        return Err(Error::model(&path, reason));
    }
    let config = Blob::read(config.ok_or_else(|| missing(CONFIG))?)?;
    let tokenizer = Blob::read(required(TOKENIZER)?)?;
    let weights = if let Some(path) = find(WEIGHTS)? {
        vec![Blob::map(path)?]
    } else {
        let index = find(WEIGHTS_INDEX)?.ok_or_else(|| missing(WEIGHTS))?;
        let map = parse_weight_map(&Blob::read(index)?)?;
        let shards: BTreeSet<&String> = map.values().collect();
        let shard = |shard: &String| {
            let others = map.iter().filter(|(_, file)| *file != shard);
            let mut blob = Blob::map(required(shard)?)?;
            blob.elsewhere = others.map(|(name, _)| name.clone()).collect();
            Ok(blob)
        };
        shards.into_iter().map(shard).collect::<Result<_>>()?
    };
    let said = SentenceTransformers::read(&|file| find(file)?.map(Blob::read).transpose())?;
    Ok((config, weights, tokenizer, said))
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Parses the index of a sharded checkpoint: returns the file name of the shard of each tensor.
fn parse_weight_map(index: &Blob) -> Result<BTreeMap<String, String>> {
    let Index { weight_map: map } = serde_json::from_slice(index.bytes())
        .map_err(|e| Error::model(&index.path, format!("is not a weight index: {e}")))?;
    if let Some(bad) = map.values().find(|s| s.contains(['/', '\\']) || s.starts_with('.')) {
        let reason = format!("names the shard `{bad}`, which is no plain file name");
        return Err(Error::model(&index.path, reason));
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected MFLOP per token, at lengths 512, 2,048 and 8,192, are computed by hand.
    #[test]
    fn work_of_a_token_of_known_encoders() -> Result<()> {
        let of = |family, layers, width, heads, inner: usize| -> Result<[f64; 3]> {
            let positions = if family == "xlm-roberta" { 8194 } else { 8192 };
            let config = format!(
                r#"{{"model_type":"{family}","num_hidden_layers":{layers},"hidden_size":{width},
                "num_attention_heads":{heads},"intermediate_size":{inner},"vocab_size":99,
                "max_position_embeddings":{positions},"local_attention":128,"hidden_activation":"gelu"}}"#
            );
            let files = ModelFiles {
                architecture: families::parse(
                    config.as_bytes(),
                    Path::new("m/config.json"),
                    u64::MAX,
                )?,
                weights: Arc::new([]),
                classifier: None,
                tokenizer: Blob::new(PathBuf::new(), Vec::<u8>::new()),
                recipe: Recipe::default(),
                settings: Vec::new(),
                output: Output::default(),
                lower_case: None,
            };
            let info = files.info(String::new());
            Ok([512.0, 2048.0, 8192.0].map(|length| info.flops_per_token(length) / 1e6))
        };
        for (found, expected) in [
            (of("bert", 12, 384, 12, 1536)?, [51.9, 80.2, 193.5]),
            (of("modernbert", 22, 384, 6, 1152)?, [93.2, 112.2, 187.8]),
            (of("xlm-roberta", 12, 768, 12, 3072)?, [188.7, 245.4, 471.9]),
            (of("modernbert", 22, 768, 12, 1152)?, [238.4, 276.4, 427.4]),
            (of("gte", 12, 768, 12, 3072)?, [245.4, 302.0, 528.5]),
            (of("xlm-roberta", 24, 1024, 16, 4096)?, [654.3, 805.3, 1409.3]),
            (of("modernbert", 28, 1024, 16, 2624)?, [716.2, 779.5, 1031.3]),
        ] {
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 0.06, "{found} {expected}");
            }
        }
        Ok(())
    }
}
