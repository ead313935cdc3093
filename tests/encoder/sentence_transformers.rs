//! Directories of sentence-transformers against that library (goldens made by
//! `golden/sentence_transformers.py`), and what is refused of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use polysift::config::{Chunks, EncoderConfig, Pooling};
use polysift::encoder::{Model, ResolvedSetting, load, resolve};
use polysift::progress::Stop;
use serde_json::{Value, json};

use super::{TOLERANCE, config, offline, worst_distance};
use crate::util::root;

fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/sentence_transformers").join(name)
}

/// Settings that leave all to the files of `directory`, but for those of `settings`.
fn settings(directory: &Path, settings: &Value) -> Result<EncoderConfig> {
    let base = EncoderConfig {
        pooling: None,
        max_tokens: EncoderConfig::default().max_tokens,
        ..config(directory, Pooling::Mean)
    };
    let mut all = serde_json::to_value(base)?;
    for (key, value) in settings.as_object().context("no object")? {
        all[key] = value.clone();
    }
    Ok(serde_json::from_value(all)?)
}

/// First chunks of `texts`, `[texts, D]`.
fn embedded(model: &Model, config: &EncoderConfig, texts: &[&str]) -> Result<Vec<f32>> {
    let embedded =
        model.embed_texts(texts, Chunks::First, config, &Stop::default(), &mut |_, _| {})?;
    Ok(embedded.values)
}

#[test]
fn golden_embeddings_of_sentence_transformers() -> Result<()> {
    for name in ["mean", "cls", "dense", "legacy"] {
        let directory = golden(name);
        let expected: Value =
            serde_json::from_slice(&std::fs::read(directory.join("expected.json"))?)?;
        let texts: Vec<String> = serde_json::from_value(expected["texts"].clone())?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let cases = expected["cases"].as_array().context("no cases")?;
        for case in cases {
            let config = settings(&directory, &case["settings"])?;
            let model = load(&config, &offline())?;
            let rows: Vec<Vec<f32>> = serde_json::from_value(case["embeddings"].clone())?;
            let width = model.encoder.info().embedding_size;
            ensure!(rows.iter().all(|row| row.len() == width), "{name}: {width}");
            let values = embedded(&model, &config, &texts)?;
            let distance = worst_distance(&values, &rows.concat(), width);
            ensure!(distance <= TOLERANCE, "{name}, {}: {distance:e}", case["settings"]);
        }
        ensure!(!cases.is_empty());
    }
    Ok(())
}

#[test]
fn each_setting_names_what_says_so_and_settings_win() -> Result<()> {
    let directory = golden("cls");
    let resolved = |given: Value| -> Result<Vec<(String, String)>> {
        let found = resolve(&settings(&directory, &given)?, &offline())?.settings;
        let short = |ResolvedSetting { value, source, .. }| -> (String, String) {
            (value, source.rsplit('/').next().unwrap_or_default().to_owned())
        };
        Ok(found.into_iter().map(short).collect())
    };
    let pairs = |pairs: [(&str, &str); 6]| pairs.map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(
        resolved(json!({}))?,
        pairs([
            ("cls", "config.json"),
            ("[]", "default"),
            ("24", "default"),
            ("true", "modules.json"),
            ("\"query: \"", "config_sentence_transformers.json"),
            ("68", "tokenizer_config.json"),
        ])
    );
    let given = json!({
        "pooling": "last", "dimensions": 24, "normalize": false, "prompt": "", "max_tokens": 20
    });
    assert_eq!(
        resolved(given)?,
        pairs([
            ("last", "settings"),
            ("[]", "default"),
            ("24", "settings"),
            ("false", "settings"),
            ("\"\"", "settings"),
            ("20", "settings"),
        ])
    );
    Ok(())
}

#[test]
fn a_recipe_has_the_digest_of_what_it_says() -> Result<()> {
    let recipe = |name: &str, given: Value| -> Result<_> {
        Ok(resolve(&settings(&golden(name), &given)?, &offline())?.recipe)
    };
    let cls = recipe("cls", json!({}))?;
    assert_eq!(cls.digest(), recipe("cls", json!({"prompt_name": "query"}))?.digest());
    assert_ne!(cls.digest(), recipe("cls", json!({"prompt_name": "document"}))?.digest());
    let dense = recipe("dense", json!({}))?;
    assert_eq!((dense.dense.len(), dense.dimensions), (2, Some(12)));
    Ok(())
}

/// `golden(name)` in a temporary directory, in which `change` rewrites the JSON of `file`.
fn changed(name: &str, file: &str, change: impl Fn(&mut Value)) -> Result<tempfile::TempDir> {
    let copy = tempfile::tempdir()?;
    for entry in walk(&golden(name))? {
        let to = copy.path().join(entry.strip_prefix(golden(name))?);
        std::fs::create_dir_all(to.parent().context("no parent")?)?;
        std::fs::copy(&entry, to)?;
    }
    let path = copy.path().join(file);
    let mut json = std::fs::read(&path).map_or(Ok(json!({})), |b| serde_json::from_slice(&b))?;
    change(&mut json);
    std::fs::write(path, json.to_string())?;
    Ok(copy)
}

fn walk(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(walk(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_we_cannot_run_is_refused_with_the_file_first() -> Result<()> {
    const PROMPTS: &str = "config_sentence_transformers.json";
    const BERT: &str = "sentence_bert_config.json";
    const NORMALIZE: &str = "4_Normalize/config.json";
    let cases: [(&str, &str, Value, &str); 37] = [
        (
            "modules.json",
            "/1/type",
            json!("sentence_transformers.models.WordWeights"),
            "module 1 is `WordWeights`; Transformer, Pooling, Dense and Normalize are run",
        ),
        (
            "modules.json",
            "/2/type",
            json!("sentence_transformers.models.Normalize"),
            "module 3 is `Dense`; Transformer, Pooling",
        ),
        ("modules.json", "/0/path", json!("0_T"), "module 0 is in a folder of its own"),
        ("modules.json", "/1/path", json!("../x"), "names the folder `../x`"),
        ("modules.json", "/1/path", json!("1_P"), "names the folder 1_P, which has no config.json"),
        ("modules.json", "", json!([]), "has no Pooling"),
        ("modules.json", "", json!(7), "is not what sentence-transformers writes"),
        (
            "1_Pooling/config.json",
            "/pooling_mode",
            json!("max"),
            "pooling is `max`; supported: mean, cls, lasttoken",
        ),
        (
            "1_Pooling/config.json",
            "/pooling_mode",
            json!(["cls", "mean"]),
            "two poolings (cls, mean) side by side are not supported",
        ),
        (
            "2_Dense/config.json",
            "/activation_function",
            json!("torch.nn.modules.activation.ReLU"),
            "activation `torch.nn.modules.activation.ReLU` after pooling is not supported",
        ),
        ("2_Dense/config.json", "/use_residual", json!(true), "use_residual is `true`"),
        (
            "2_Dense/config.json",
            "/module_input_name",
            json!("token_embeddings"),
            "module_input_name is `token_embeddings`; supported: sentence_embedding",
        ),
        (
            "2_Dense/config.json",
            "/out_features",
            json!(39),
            "tensor `linear.weight` is [40, 24], not [39, 24]",
        ),
        ("3_Dense/config.json", "/out_features", json!(0), "is a map of 40 values to 0"),
        (
            PROMPTS,
            "/default_prompt_name",
            json!("q"),
            "default_prompt_name: `q` is no prompt of this model; it has: document, query",
        ),
        (
            "modules.json",
            "/4/type",
            json!("own.code.Normalize"),
            "module 4 is `own.code.Normalize`",
        ),
        (
            NORMALIZE,
            "/module_input_name",
            json!("token_embeddings"),
            "module_input_name is `token_em",
        ),
        (NORMALIZE, "/module_output_name", json!("normal"), "module_output_name is `normal`"),
        ("2_Dense/config.json", "/activation_function", json!("own.Tanh"), "activation `own.Tanh`"),
        ("3_Dense/config.json", "/bias", json!(true), "no tensor `linear.bias`"),
        ("2_Dense/config.json", "/bias", json!(false), "not the tensors of one linear map"),
        ("1_Pooling/config.json", "/pooling_mode", json!([]), "0 poolings"),
        ("1_Pooling/config.json", "/layer_weights", json!([1]), "layer_weights is `[1]`"),
        (
            BERT,
            "/transformer_task",
            json!("fill-mask"),
            "transformer_task is `fill-mask`; supported",
        ),
        (BERT, "/module_output_name", json!("scores"), "supported: token_embeddings"),
        (
            BERT,
            "/modality_config/text/method_output_name",
            json!("pooler_output"),
            "last_hidden_state",
        ),
        (BERT, "/processing_kwargs", json!({"text": {"max_length": 9}}), "processing_kwargs is"),
        (
            BERT,
            "/processing_kwargs",
            json!({"text": {"add_special_tokens": false}}),
            "processing_kw",
        ),
        (BERT, "/tokenizer_name_or_path", json!("other"), "tokenizer_name_or_path is `other`"),
        (BERT, "/config_args", json!({"is_decoder": true}), "config_args.is_decoder is `true`"),
        (BERT, "/model_kwargs", json!({"position_embedding_type": "x"}), "model_kwargs.position"),
        (BERT, "/processor_kwargs", json!({"model_max_length": 9}), "processor_kwargs.model_max"),
        (BERT, "/own_key", json!(7), "own_key is `7`"),
        (
            PROMPTS,
            "/model_type",
            json!("SparseEncoder"),
            "model_type is `SparseEncoder`; supported",
        ),
        (
            "tokenizer_config.json",
            "/truncation_side",
            json!("left"),
            "truncation_side is `left`; supported: right",
        ),
        ("adapter_config.json", "", json!({}), "merge the adapter into its model first"),
        (
            "tokenizer_config.json",
            "/model_max_length",
            json!("x"),
            "is not what sentence-transformers writes",
        ),
    ];
    for (file, pointer, value, reason) in cases {
        let directory = changed("dense", file, |json| match json.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => json[&pointer[1..]] = value.clone(),
        })?;
        let config = settings(directory.path(), &json!({}))?;
        let error = resolve(&config, &offline()).err().with_context(|| reason.to_owned())?;
        let text = error.to_string();
        ensure!(error.exit_code() == 65, "{text}");
        let starts = text.starts_with(&directory.path().display().to_string());
        ensure!(starts && text.contains(reason), "{text} instead of {reason}");
    }
    Ok(())
}

#[test]
fn keys_that_change_no_embedding_are_left_alone() -> Result<()> {
    let given = settings(&golden("dense"), &json!({}))?;
    let expected = resolve(&given, &offline())?.recipe;
    for (file, keys) in [
        (
            "sentence_bert_config.json",
            json!({"unpad_inputs": null, "query_length": 32, "max_seq_length": 68, "model_args":
                {"attn_implementation": "sdpa", "torch_dtype": "float16"}, "config_kwargs": {}}),
        ),
        (
            "1_Pooling/config.json",
            json!({"pooling_mode_max_tokens": true, "word_embedding_dimension": 24}),
        ),
        ("4_Normalize/config.json", json!({"module_output_name": null, "own_key": 3})),
        (
            "config_sentence_transformers.json",
            json!({"similarity_fn_name": "dot", "requirements": ["x"]}),
        ),
        (
            "2_Dense/config.json",
            json!({"own_key": 1, "use_residual": false, "module_input_name": null}),
        ),
    ] {
        let directory = changed("dense", file, |json| {
            let keys = keys.as_object().into_iter().flatten();
            keys.for_each(|(key, value)| json[key] = value.clone());
        })?;
        let found = resolve(&settings(directory.path(), &json!({}))?, &offline())?.recipe;
        assert_eq!((&found.dense, found.pooling), (&expected.dense, expected.pooling), "{file}");
        assert!(found.normalize, "{file}");
    }
    // A classifier's pooling does not replace that of the modules.
    let classifier = changed("dense", "config.json", |json| {
        json["architectures"] = json!(["BertForSequenceClassification"]);
    })?;
    let recipe = resolve(&settings(classifier.path(), &json!({}))?, &offline())?.recipe;
    ensure!(recipe.pooling == expected.pooling, "{recipe:?}");
    Ok(())
}

#[test]
fn what_files_say_of_prompts_and_case_is_held_against_the_rest() -> Result<()> {
    let pooling = "1_Pooling/config.json";
    let directory = changed("cls", pooling, |json| json["include_prompt"] = false.into())?;
    let error = resolve(&settings(directory.path(), &json!({}))?, &offline()).err();
    let text = error.context("accepted")?.to_string();
    ensure!(text.contains("set encoder.prompt = \"\""), "{text}");
    resolve(&settings(directory.path(), &json!({"prompt": ""}))?, &offline())?;

    let wanted = |json: &mut Value| *json = json!({"max_seq_length": 9, "do_lower_case": true});
    let directory = changed("cls", "sentence_bert_config.json", wanted)?;
    let config = settings(directory.path(), &json!({}))?;
    let files = resolve(&config, &offline())?;
    assert_eq!(files.recipe.max_tokens, 9);
    files.tokenizer(&config)?;
    let tokenizer = directory.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&tokenizer)?)?;
    json["normalizer"] = Value::Null;
    json["model"]["vocab"]["B"] = json["model"]["vocab"]["cat"].clone();
    std::fs::write(&tokenizer, json.to_string())?;
    let error = resolve(&config, &offline())?.tokenizer(&config).err();
    let text = error.context("accepted")?.to_string();
    ensure!(text.contains("do_lower_case is true, but tokenizer.json does not"), "{text}");

    for (given, reason) in [
        (json!({"prompt_name": "x"}), "`x` is no prompt of this model; it has: document, query"),
        (json!({"prompt_name": "query", "prompt": "a"}), "and encoder.prompt are both set"),
        (
            json!({"dimensions": 8}),
            "nothing says that this model was trained to be cut to 8 values",
        ),
        (json!({"dimensions": 25}), "the embeddings of this model have 24 values"),
    ] {
        let error = resolve(&settings(&golden("cls"), &given)?, &offline()).err();
        let error = error.with_context(|| reason.to_owned())?;
        ensure!(error.exit_code() == 2 && error.to_string().contains(reason), "{error}");
    }
    let plain = root().join("tests/golden/encoder/head16-prefixed");
    let given = settings(&plain, &json!({"prompt_name": "x", "max_tokens": 60}))?;
    let error = resolve(&given, &offline()).err().context("accepted")?.to_string();
    ensure!(error.contains("it has none"), "{error}");
    Ok(())
}
