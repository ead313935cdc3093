//! Reads what sentence-transformers stores beside an encoder with a `modules.json`: the pooling and
//! the modules after it, prompts, and the maximum length.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::keys;
use super::output::Dense;
use super::weights::{Blob, parse_header, read_floats};
use polysift_base::error::{Error, Result};
use polysift_config::Pooling;

const WEIGHTS: &str = "model.safetensors";
/// The configuration of the Transformer is `sentence_bert_config.json`; older ones name the family.
const LIMITS: [&str; 4] = ["bert", "roberta", "camembert", "xlm-roberta"];

/// A value and the file that states it, or `None` if no file does.
pub(super) type Said<T> = Option<(T, PathBuf)>;

/// The files of sentence-transformers, parsed; nothing is set without a `modules.json`.
#[derive(Debug, Default)]
pub(super) struct SentenceTransformers {
    /// Path of `modules.json`, if it exists.
    pub(super) modules: Option<PathBuf>,
    pooling: Said<PoolingConfig>,
    pub(super) dense: Vec<(Dense, PathBuf)>,
    pub(super) normalize: bool,
    prompts: Said<PromptConfig>,
    pub(super) max_seq_length: Said<usize>,
    /// The file that asks for lower-cased texts.
    pub(super) lower_case: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct PoolingConfig {
    pooling_mode: Option<Modes>,
    include_prompt: Option<bool>,
    /// Keys of older versions, which have one for each mode.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Modes {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct DenseConfig {
    in_features: usize,
    out_features: usize,
    bias: Option<bool>,
    activation_function: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PromptConfig {
    #[serde(default)]
    prompts: BTreeMap<String, Option<String>>,
    default_prompt_name: Option<String>,
    truncate_dim: Option<usize>,
}

#[derive(Deserialize)]
struct Limits {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

/// The file in which newer versions store `max_seq_length`.
#[derive(Deserialize)]
struct TokenizerConfig {
    /// 1e30 means no limit.
    model_max_length: Option<f64>,
}

/// Keys of modules after the pooling, each with its only supported value; empty means off.
const AFTER_POOLING: &[(&str, &str)] =
    &[("module_input_name module_output_name", "sentence_embedding"), ("use_residual", "")];

/// The only supported values of keys of the Transformer.
const OF_TRANSFORMER: &[(&str, &str)] = &[
    ("transformer_task", "feature-extraction"),
    ("module_output_name", "token_embeddings"),
    ("modality_config.text.method", "forward"),
    ("modality_config.text.method_output_name", "last_hidden_state"),
];

/// Keys of the Transformer and of its options that are read, or change no embedding without a task.
const FREE_KEYS: &str = "add_pooling_layer attn_implementation clean_up_tokenization_spaces device_map \
    do_lower_case document_length dtype low_cpu_mem_usage max_seq_length modality_config module_output_name \
    padding_side query_expansion query_length torch_dtype transformer_task trust_remote_code unpad_inputs \
    use_cache use_fast use_memory_efficient_attention use_safetensors";
const OPTIONS: &str =
    "model_args model_kwargs config_args config_kwargs tokenizer_args processor_kwargs";

const POOLINGS: [(&str, Pooling); 3] =
    [("mean", Pooling::Mean), ("cls", Pooling::Cls), ("lasttoken", Pooling::Last)];

impl SentenceTransformers {
    /// Reads the files that `find` returns for names relative to the directory of the model.
    /// Refuses modules and keys that would change embeddings in a way that is not supported.
    pub(super) fn read(find: Find<'_>) -> Result<Self> {
        let mut this = Self::default();
        let Some(modules) = find("modules.json")? else { return Ok(this) };
        let mut before = "";
        let listed: Vec<Module> = parse(&modules)?;
        for (i, module) in listed.iter().enumerate() {
            let fail =
                |reason: String| Err(Error::model(&modules.path, format!("module {i} {reason}")));
            let is_theirs = module.kind.starts_with("sentence_transformers.");
            let kind = module.kind.rsplit('.').next().filter(|_| is_theirs).unwrap_or(&module.kind);
            let part = |name| require_in_folder(find, &modules, &module.path, name);
            match (before, kind) {
                (_, "Dropout") => continue,
                ("", "Transformer") if module.path.is_empty() => {}
                ("", "Transformer") => {
                    let reason = "is in a folder of its own; save the model again with \
                                  sentence-transformers";
                    return fail(reason.into());
                }
                ("Transformer", "Pooling") => {
                    let config = part("config.json")?;
                    this.pooling = Some((parse(&config)?, config.path));
                }
                ("Pooling" | "Dense", "Dense") => {
                    let config = part("config.json")?;
                    this.dense.push((read_dense(&config, &part(WEIGHTS)?)?, config.path));
                }
                ("Pooling" | "Dense", "Normalize") => {
                    if let Some(config) =
                        find_in_folder(find, &modules, &module.path, "config.json")?
                    {
                        check_keys(&config, AFTER_POOLING)?;
                    }
                    this.normalize = true;
                }
                _ => {
                    let run = "Transformer, Pooling, Dense and Normalize are run, in this order";
                    return fail(format!("is `{kind}`; {run}"));
                }
            }
            before = kind;
        }
        if this.pooling.is_none() {
            return Err(Error::model(&modules.path, "has no Pooling"));
        }
        if let Some(file) = find("config_sentence_transformers.json")? {
            check_keys(&file, &[("model_type", "SentenceTransformer")])?;
            this.prompts = Some((parse(&file)?, file.path));
        }
        this.modules = Some(modules.path);
        let limits = |name: &&str| find(&format!("sentence_{name}_config.json")).transpose();
        if let Some(file) = LIMITS.iter().find_map(limits).transpose()? {
            check_transformer(&file)?;
            let Limits { max_seq_length, do_lower_case } = parse(&file)?;
            this.lower_case = do_lower_case.then(|| file.path.clone());
            this.max_seq_length = max_seq_length.map(|length| (length, file.path));
        }
        if let Some(file) = find("tokenizer_config.json")? {
            check_keys(&file, &[("truncation_side", "right")])?;
            let TokenizerConfig { model_max_length } = parse(&file)?;
            let length = model_max_length.filter(|&length| length < 1e9);
            let said = length.map(|length| (length as usize, file.path));
            this.max_seq_length = this.max_seq_length.or(said);
        }
        Ok(this)
    }

    /// Returns the pooling of the Pooling module; `mean` if its keys name none. Several poolings,
    /// and unknown keys that are on, are errors.
    pub(super) fn pooling(&self) -> Result<Said<Pooling>> {
        let Some((config, path)) = &self.pooling else { return Ok(None) };
        let dimension = "embedding_dimension word_embedding_dimension";
        let is_known = |key: &str| mode_of(key).is_some() || keys::is_in(dimension, key);
        if let Some((key, value)) = config.others.iter().find(|(key, _)| !is_known(key)) {
            keys::check_value(key, value, "").map_err(|reason| Error::model(path, reason))?;
        }
        let modes = match &config.pooling_mode {
            Some(Modes::One(mode)) => vec![mode.as_str()],
            Some(Modes::Several(modes)) => modes.iter().map(String::as_str).collect(),
            None => {
                let on = config
                    .others
                    .iter()
                    .filter(|(_, value)| keys::check_value("", value, "").is_err());
                on.filter_map(|(key, _)| mode_of(key)).collect()
            }
        };
        let pooling = match modes[..] {
            [] if config.pooling_mode.is_none() => Pooling::Mean,
            [mode] => {
                let known = POOLINGS.iter().find(|(name, _)| *name == mode);
                let reason = || format!("pooling is `{mode}`; supported: mean, cls, lasttoken");
                known.ok_or_else(|| Error::model(path, reason()))?.1
            }
            _ => {
                let number = if modes.len() == 2 { "two".into() } else { modes.len().to_string() };
                let reason = format!(
                    "{number} poolings ({}) side by side are not supported",
                    modes.join(", ")
                );
                return Err(Error::model(path, reason));
            }
        };
        Ok(Some((pooling, path.clone())))
    }

    /// Returns [`Error::Model`] if the pooling has to leave out the tokens of `prompt`.
    pub(super) fn check_prompt(&self, prompt: &str) -> Result<()> {
        match &self.pooling {
            Some((config, path)) if config.include_prompt == Some(false) && !prompt.is_empty() => {
                let reason = "include_prompt is false: prompt tokens would be pooled; set \
                              encoder.prompt = \"\"";
                Err(Error::model(path, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns the prompt called `name`, or without a name the default one, if any; unknown names
    /// are errors.
    pub(super) fn prompt(&self, name: Option<&str>) -> Result<Said<String>> {
        let said = self.prompts.as_ref();
        let default = said.and_then(|(said, _)| said.default_prompt_name.as_deref());
        let Some(wanted) = name.or(default) else { return Ok(None) };
        let found = said.and_then(|(said, path)| Some((said.prompts.get(wanted)?, path)));
        if let Some((prompt, path)) = found {
            return Ok(Some((prompt.clone().unwrap_or_default(), path.clone())));
        }
        let names = said.iter().flat_map(|(said, _)| said.prompts.keys().map(String::as_str));
        let names: Vec<&str> = names.collect();
        let known =
            if names.is_empty() { " none".into() } else { format!(": {}", names.join(", ")) };
        let reason = format!("`{wanted}` is no prompt of this model; it has{known}");
        Err(match said.filter(|_| name.is_none()) {
            Some((_, path)) => Error::model(path, format!("default_prompt_name: {reason}")),
            None => Error::config("encoder.prompt_name", reason),
        })
    }

    /// Returns the number of leading values that are kept of an embedding.
    pub(super) fn truncate_dim(&self) -> Said<usize> {
        let (said, path) = self.prompts.as_ref()?;
        Some((said.truncate_dim?, path.clone()))
    }
}

/// Returns the mode of an older key of a Pooling, such as `mean` of `pooling_mode_mean_tokens`.
fn mode_of(key: &str) -> Option<&str> {
    let mode = key.strip_prefix("pooling_mode_")?;
    Some(mode.strip_suffix("_tokens").or(mode.strip_suffix("_token")).unwrap_or(mode))
}

type Find<'a> = &'a dyn Fn(&str) -> Result<Option<Blob>>;

/// Finds the file `name` of a module in `folder`, which must be a plain name.
fn find_in_folder(
    find: Find<'_>,
    modules: &Blob,
    folder: &str,
    name: &str,
) -> Result<Option<Blob>> {
    if folder.is_empty() || folder.contains(['/', '\\']) || folder.starts_with('.') {
        let reason = format!("names the folder `{folder}`, which is no plain name");
        return Err(Error::model(&modules.path, reason));
    }
    find(&format!("{folder}/{name}"))
}

/// Finds a file like [`find_in_folder`], and fails if it does not exist.
fn require_in_folder(find: Find<'_>, modules: &Blob, folder: &str, name: &str) -> Result<Blob> {
    find_in_folder(find, modules, folder, name)?.ok_or_else(|| {
        let hint = match name {
            WEIGHTS => "; a .bin checkpoint must be saved again as safetensors first",
            _ => "",
        };
        let reason = format!("names the folder {folder}, which has no {name}{hint}");
        Error::model(&modules.path, reason)
    })
}

/// Parses a JSON file; the error names the file.
fn parse<T: DeserializeOwned>(file: &Blob) -> Result<T> {
    let wrong = |e| format!("is not what sentence-transformers writes: {e}");
    serde_json::from_slice(file.bytes()).map_err(|e| Error::model(&file.path, wrong(e)))
}

/// Fails for a key of `file` with another value than the supported one.
fn check_keys(file: &Blob, keys: &[(&str, &str)]) -> Result<()> {
    keys::check_values("", &parse(file)?, keys).map_err(|reason| Error::model(&file.path, reason))
}

/// Checks the Transformer's configuration, in which unknown keys are refused unless they are off.
fn check_transformer(file: &Blob) -> Result<()> {
    check_keys(file, OF_TRANSFORMER)?;
    let config: Map<String, Value> = parse(file)?;
    let check = |name: &str, (key, value): (&String, &Value)| {
        let checked = keys::is_in(FREE_KEYS, key).then_some(Ok(()));
        let checked = checked.unwrap_or_else(|| keys::check_value(name, value, ""));
        checked.map_err(|reason| Error::model(&file.path, reason))
    };
    config.iter().try_for_each(|(key, value)| match value.as_object() {
        Some(options) if keys::is_in(OPTIONS, key) => {
            options.iter().try_for_each(|entry| check(&format!("{key}.{}", entry.0), entry))
        }
        _ => check(key, (key, value)),
    })
}

/// Reads a Dense module with tanh or no activation after it; all values must be finite.
fn read_dense(config: &Blob, weights: &Blob) -> Result<Dense> {
    let parsed: DenseConfig = parse(config)?;
    check_keys(config, AFTER_POOLING)?;
    let fail = |reason: String| Err(Error::model(&config.path, reason));
    let function = parsed.activation_function.as_deref().unwrap_or("torch.nn.Tanh");
    let tanh = match function.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => false,
        Some("Tanh") => true,
        _ => return fail(format!("activation `{function}` after pooling is not supported")),
    };
    let (inputs, outputs) = (parsed.in_features, parsed.out_features);
    if inputs == 0 || outputs == 0 {
        return fail(format!("is a map of {inputs} values to {outputs}"));
    }
    let file = parse_header(weights)?;
    let wrong = |reason: String| Error::model(&weights.path, reason);
    let tensor = |name: &str, shape: &[usize]| {
        let view = file.tensor(name).map_err(|_| wrong(format!("there is no tensor `{name}`")))?;
        read_floats(&view, shape).map_err(|reason| wrong(format!("tensor `{name}` {reason}")))
    };
    let weight = tensor("linear.weight", &[outputs, inputs])?;
    let has_bias = parsed.bias.unwrap_or(true);
    let bias = if has_bias { tensor("linear.bias", &[outputs])? } else { vec![0.0; outputs] };
    if file.len() != 1 + usize::from(has_bias) {
        return Err(wrong(format!("has {:?}, not the tensors of one linear map", file.names())));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(weights.bytes()).update(&[u8::from(tanh)]);
    Ok(Dense::new(hasher.finalize().to_hex().to_string(), &weight, bias, tanh))
}
