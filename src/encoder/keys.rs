//! Checks every key of a model's configuration: polysift reads it, supports only one value of it,
//! or ignores it because embeddings do not depend on it.
//!
//! Sources: the attributes that transformers 5.24 reads of a configuration while it loads and runs
//! a model of each family and its classes, the keys that older versions and GTE's own code read,
//! and sentence-transformers 6. They ignore all other keys. But if the name of an unknown key
//! contains a part of a transformer, a later version may read the key, so it is refused.

use serde_json::Value;

const BERT: &str = "bert xlm-roberta roberta camembert";
const GTE: &str = "gte new";
const MODERN_BERT: &str = "modernbert";
/// The values of `model_type` that are supported.
pub(super) const ALL: &str = "xlm-roberta roberta camembert bert gte new modernbert";

/// Families, the keys that change their computation, and the only supported value. An empty value
/// means that the key has to be off; a dot leads into an object.
const ONE_VALUE: &[(&str, &str, &str)] = &[
    (BERT, "hidden_act", "gelu"),
    (BERT, "position_embedding_type", "absolute"),
    (GTE, "hidden_act", "gelu"),
    (GTE, "position_embedding_type", "rope"),
    (GTE, "layer_norm_type", "layer_norm"),
    (GTE, "pack_qkv", "true"),
    (GTE, "logn_attention_scale", ""),
    (GTE, "partial_rotary_factor", "1.0"),
    (MODERN_BERT, "hidden_activation", "gelu"),
    (MODERN_BERT, "partial_rotary_factor", "1.0"),
    (
        ALL,
        "add_cross_attention configuration_files decoder fusion_config generator is_causal is_decoder \
         is_encoder_decoder per_layer_config pruned_heads text_config transformers_weights \
         quantization_config.kv_cache_scheme quantization_config.transform_config",
        "",
    ),
    (ALL, "quantization_config.quant_method", "compressed-tensors"),
    (ALL, "quantization_config.format", "pack-quantized"),
    (ALL, "quantization_config.sparsity_config.format", "dense"),
];

/// The only supported values in each group of `quantization_config`.
const GROUP: &[(&str, &str)] = &[
    ("input_activations output_activations", ""),
    ("format", "pack-quantized"),
    ("weights.type", "int"),
    ("weights.symmetric", "true"),
];

/// Keys that contain one of the [`WORDS`] but are read by `families` or do not matter.
const KNOWN: &str = "attention_bias attention_dropout attention_probs_dropout_prob attn_implementation \
    cross_attention_hidden_size decoder_bias decoder_start_token_id deterministic_flash_attn \
    experts_implementation global_attn_every_n_layers global_rope_theta head_dim layer_norm_eps layer_types \
    local_attention local_rope_theta logn_attention_clip1 max_position_embeddings mlp_bias mlp_dropout \
    mlp_layer_types mtp_layer_types norm_bias norm_eps num_attention_heads num_hidden_layers \
    quantization_config rope_parameters rope_scaling rope_theta sliding_window tie_encoder_decoder \
    tie_last_hidden_states use_flash_attention use_flash_attention_2 use_flash_attn \
    use_memory_efficient_attention";

/// Prefixes of keys that concern heads, the initialization for training, or the outputs of a call.
const BEGINNINGS: [&str; 6] =
    ["_", "classifier_", "initializer_", "output_", "pooler_", "summary_"];

/// Words in keys that describe how a transformer computes.
const WORDS: &str = "act activation adapter adapters alibi attention attentions attn bias bidirectional causal \
    conv cross decoder expert experts ffn fusion gate gated geglu glu head heads kv layer layernorm layers lora \
    mlp moe multiplier norm norms ntk parallel position positional positions quantization residual rms rmsnorm \
    rope rotary scale scaling sink sinks sliding softcap softcapping softmax theta window windows yarn";

/// Returns true if `words`, which white space separates, contain `word`.
pub(super) fn is_in(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Refuses a key that makes (or might make) a model of `family` compute something unsupported.
pub(crate) fn check_config(config: &Value, family: &str) -> Result<(), String> {
    for (_, keys, one) in ONE_VALUE.iter().filter(|row| is_in(row.0, family)) {
        check_values("", config, &[(keys, one)])?;
    }
    let groups = &config["quantization_config"]["config_groups"];
    for (name, group) in groups.as_object().into_iter().flatten() {
        check_values(&format!("quantization_config.config_groups.{name}."), group, GROUP)?;
    }
    let is_free = |key: &str| {
        is_in(KNOWN, key)
            || ONE_VALUE.iter().any(|row| is_in(row.1, key))
            || BEGINNINGS.iter().any(|beginning| key.starts_with(beginning))
            || !key.split('_').any(|word| is_in(WORDS, word))
    };
    let mut keys = config.as_object().into_iter().flatten();
    keys.find(|(key, value)| !is_free(key) && !is_off(value)).map_or(Ok(()), |(key, value)| {
        Err(format!(
            "{} is {}; for {family} transformers 5.24 has no such key, which seems to change what is computed; \
             take it away if it does not",
            key.escape_debug(),
            quote_start(value)
        ))
    })
}

/// Checks lists of keys of `config` like [`check_value`]. Messages put `before` in front of a key;
/// a dot leads into an object.
pub(super) fn check_values(
    before: &str,
    config: &Value,
    rows: &[(&str, &str)],
) -> Result<(), String> {
    let keys =
        rows.iter().flat_map(|(keys, one)| keys.split_whitespace().map(move |key| (key, one)));
    keys.into_iter().try_for_each(|(key, one)| {
        let value = config.pointer(&format!("/{}", key.replace('.', "/")));
        check_value(&format!("{before}{key}"), value.unwrap_or(&Value::Null), one)
    })
}

/// Refuses a value of `key` that is none of the words in `one`. Null counts as absent; an empty
/// `one` accepts every value that is off.
pub(super) fn check_value(key: &str, value: &Value, one: &str) -> Result<(), String> {
    let is_one = match value {
        Value::Null => true,
        Value::String(text) => is_in(one, text),
        Value::Number(number) => one.parse::<f64>().is_ok_and(|one| number.as_f64() == Some(one)),
        Value::Bool(is_on) => one.parse() == Ok(*is_on),
        _ => false,
    };
    let right = if one.is_empty() { "none".to_owned() } else { one.replace(' ', ", ") };
    let reason = || format!("{} is {}; supported: {right}", key.escape_debug(), quote_start(value));
    (is_one || one.is_empty() && is_off(value)).then_some(()).ok_or_else(reason)
}

/// Returns true if a value turns its option off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_on) => !is_on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => is_empty(value),
    }
}

/// Returns true if a value holds only null, empty lists and empty objects.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().all(is_empty),
        Value::Object(values) => values.values().all(is_empty),
        _ => false,
    }
}

/// Returns the first 60 characters of a value in backquotes, for a message.
fn quote_start(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), |s| s.escape_debug().to_string());
    format!("`{text:.60}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ODD: &str = include_str!("../../tests/golden/encoder/odd.json");

    /// Configurations from the hub as published, without the sizes.
    fn published() -> [(&'static str, Value); 9] {
        let xlmr = json!({"_name_or_path": "intfloat/multilingual-e5-large", "architectures":
            ["XLMRobertaModel"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
            "classifier_dropout": null, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
            "initializer_range": 0.02, "layer_norm_eps": 1e-5, "model_type": "xlm-roberta", "output_past": true,
            "pad_token_id": 1, "position_embedding_type": "absolute", "torch_dtype": "float32",
            "transformers_version": "4.30.2", "type_vocab_size": 1, "use_cache": true, "vocab_size": 250_002});
        let bert = json!({"directionality": "bidi", "gradient_checkpointing": false, "hidden_act": "gelu",
            "id2label": {"0": "LABEL_0"}, "pad_token_id": 0, "pooler_fc_size": 768, "pooler_num_attention_heads":
            12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
            "position_embedding_type": "absolute", "problem_type": "regression", "torch_dtype": "bfloat16",
            "use_cache": true, "sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}});
        let old = json!({"output_attentions": true, "pruned_heads": {}, "is_decoder": false, "torchscript":
            false, "use_bfloat16": false, "finetuning_task": "ner", "num_labels": 9, "adapters": {"adapters":
            {}, "config_map": {}}, "max_length": 20, "num_beams": 1, "repetition_penalty": 1.0, "xla_device": true,
            "bad_words_ids": null, "encoder_no_repeat_ngram_size": 0, "cross_attention_hidden_size": null,
            "chunk_size_feed_forward": 0, "tie_encoder_decoder": false, "is_encoder_decoder": false});
        let new = json!({"architectures": ["NewModel"], "auto_map": {"AutoModel":
            "Alibaba-NLP/new-impl--modeling.NewModel"}, "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu",
            "layer_norm_type": "layer_norm", "logn_attention_clip1": false, "logn_attention_scale": false,
            "pack_qkv": true, "position_embedding_type": "rope", "rope_scaling": {"factor": 8.0, "type": "ntk"},
            "rope_theta": 20000, "torch_dtype": "float16", "type_vocab_size": 1, "unpad_inputs": false,
            "use_memory_efficient_attention": false, "label2id": {"LABEL_0": 0}});
        let gte = json!({"architectures": ["GteModel"], "auto_map": {"AutoConfig":
            "configuration_hf_alibaba_nlp_gte.GteConfig"}, "hidden_act": "gelu", "layer_norm_type": "layer_norm",
            "logn_attention_clip1": false, "logn_attention_scale": false, "pack_qkv": true, "rope_scaling": null,
            "position_embedding_type": "rope", "rope_theta": 160_000, "unpad_inputs": "true",
            "use_memory_efficient_attention": "true", "matryoshka_dimensions": [256]});
        let modern = json!({"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 50281,
            "classifier_activation": "gelu", "classifier_bias": false, "classifier_pooling": "mean",
            "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0,
            "global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "gradient_checkpointing": false,
            "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "layer_norm_eps": 1e-5,
            "local_attention": 128, "local_rope_theta": 10_000.0, "mlp_bias": false, "mlp_dropout": 0.0,
            "norm_bias": false, "norm_eps": 1e-5, "position_embedding_type": "absolute", "reference_compile":
            null, "repad_logits_with_grad": false, "sparse_pred_ignore_index": -100, "sparse_prediction": false,
            "tie_word_embeddings": true});
        let mut multilingual = modern.clone();
        multilingual["position_embedding_type"] = "sans_pos".into();
        multilingual["mask_token_id"] = 4.into();
        let own = json!({"_commit_hash": "0", "custom_metadata": {"by": "us", "runs": [1, 2]}, "license": "mit",
            "languages": ["deu"], "training_loss": 0.5, "num_epochs": 3, "adapters": []});
        [
            ("xlm-roberta", xlmr),
            ("bert", bert),
            ("bert", old.clone()),
            ("camembert", old),
            ("new", new),
            ("gte", gte),
            ("modernbert", modern),
            ("modernbert", multilingual),
            ("bert", own),
        ]
    }

    #[test]
    fn published_configurations_and_the_defaults_of_the_classes_pass() {
        let odd: Value = serde_json::from_str(ODD).unwrap_or_default();
        let classes = odd["classes"].as_array().cloned().unwrap_or_default();
        assert_eq!(classes.len(), 6);
        let classes = classes
            .into_iter()
            .map(|class| (class["model_type"].as_str().unwrap_or_default().to_owned(), class));
        let published = published().into_iter().map(|(family, config)| (family.to_owned(), config));
        for (family, config) in classes.chain(published) {
            assert!(config.is_object());
            assert_eq!(check_config(&config, &family), Ok(()), "{family}");
        }
    }

    #[test]
    fn keys_that_change_what_is_computed_are_refused_by_name_with_their_value() {
        for (family, key, value, expected) in [
            ("bert", "is_decoder", json!(true), "is_decoder is `true`; supported: none"),
            ("gte", "is_causal", json!(true), "is_causal is `true`"),
            ("roberta", "add_cross_attention", json!(true), "add_cross_attention is `true`"),
            ("bert", "hidden_act", json!("relu"), "hidden_act is `relu`; supported: gelu"),
            ("modernbert", "hidden_activation", json!("silu"), "`silu`; supported: gelu"),
            ("bert", "position_embedding_type", json!("alibi"), "supported: absolute"),
            ("gte", "position_embedding_type", json!("absolute"), "supported: rope"),
            ("new", "layer_norm_type", json!("rms_norm"), "supported: layer_norm"),
            ("new", "pack_qkv", json!(false), "pack_qkv is `false`; supported: true"),
            ("new", "logn_attention_scale", json!(true), "logn_attention_scale is `true`"),
            ("gte", "partial_rotary_factor", json!(0.5), "is `0.5`; supported: 1.0"),
            ("bert", "pruned_heads", json!({"0": [1]}), "pruned_heads is `{\"0\":[1]}`"),
            (
                "camembert",
                "per_layer_config",
                json!({"0": {"num_attention_heads": 2}}),
                "per_layer",
            ),
            ("bert", "transformers_weights", json!("other.safetensors"), "transformers_weights"),
            ("bert", "configuration_files", json!(["config.4.0.0.json"]), "configuration_files"),
            // Keys of other transformers, of remote code and of future versions.
            (
                "bert",
                "attn_logit_softcapping",
                json!(50.0),
                "attn_logit_softcapping is `50.0`; for bert",
            ),
            ("bert", "num_key_value_heads", json!(1), "num_key_value_heads"),
            ("bert", "feed_forward_type_glu", json!("geglu"), "feed_forward_type_glu"),
            ("xlm-roberta", "rotary_emb_base", json!(10_000.0), "rotary_emb_base"),
            ("xlm-roberta", "lora_adaptations", json!(["retrieval"]), "lora_adaptations"),
            ("gte", "dilated_attention", json!(64), "dilated_attention is `64`; for gte"),
            ("modernbert", "num_experts", json!(8), "num_experts"),
            ("bert", "adapters", json!({"adapters": {"x": "y"}}), "adapters is"),
            (
                "bert",
                "quantization_config",
                json!({"quant_method": "fp8"}),
                "quant_method is `fp8`",
            ),
        ] {
            let reason = check_config(&json!({key: value}), family).err().unwrap_or_default();
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }

    #[test]
    fn packed_integers_are_the_only_quantization() {
        let config = |change: &str, value: Value| {
            let mut config: Value =
                serde_json::from_str(include_str!("../../models/polysift-mini/config.json"))
                    .unwrap_or_default();
            let (parent, key) = change.rsplit_once('/').unwrap_or_default();
            if let Some(place) = config["quantization_config"].pointer_mut(parent) {
                place[key] = value;
            }
            config
        };
        assert_eq!(check_config(&config("/ignore", json!([])), "xlm-roberta"), Ok(()));
        for (change, value) in [
            ("/format", json!("float-quantized")),
            ("/kv_cache_scheme", json!({"num_bits": 8})),
            ("/transform_config", json!({"config_groups": {"R1": {"type": "hadamard"}}})),
            ("/config_groups/group_0/input_activations", json!({"num_bits": 8, "dynamic": true})),
            ("/config_groups/group_0/weights/symmetric", json!(false)),
            ("/config_groups/group_0/weights/type", json!("float")),
        ] {
            let reason =
                check_config(&config(change, value), "xlm-roberta").err().unwrap_or_default();
            let key = format!("quantization_config{}", change.replace('/', "."));
            assert!(reason.starts_with(&key), "{key}: {reason}");
        }
    }
}
