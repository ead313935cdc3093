//! The families beside XLM-R against transformers (goldens made by `golden/families.py`).

use std::path::Path;

use anyhow::{Result, ensure};
use polysift::config::{EncoderConfig, EncoderPrecision, Pooling};
use polysift::encoder::load;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};

use super::loading::copy;
use super::{Expected, TOLERANCE, config, embed, golden, offline, open, worst_distance};

const FAMILIES: [&str; 7] = [
    "bert",
    "gte",
    "gte-typeless",
    "gte-long",
    "modernbert",
    "modernbert-biases",
    "modernbert-long",
];

/// The embeddings of `chunks` by the model in `directory`, and their width.
fn embedded(directory: &Path, pooling: Pooling, chunks: &[Vec<u32>]) -> Result<(Vec<f32>, usize)> {
    let most = chunks.iter().map(Vec::len).max().unwrap_or(1);
    let config = EncoderConfig { max_tokens: most, ..config(directory, pooling) };
    let model = load(&config, &offline())?;
    let embeddings = embed(model.encoder.as_ref(), chunks, most.max(700))?;
    Ok((embeddings, model.encoder.info().embedding_size))
}

#[test]
fn golden_embeddings_of_the_families() -> Result<()> {
    for name in FAMILIES {
        let expected = Expected::read(&golden(name))?;
        // Sums over 8,192 keys and an angle of 8,192 rounded to f32 (2^-12 apart) double the bound.
        let tolerance = if name.ends_with("long") { 2.0 * TOLERANCE } else { TOLERANCE };
        for pooling in [Pooling::Mean, Pooling::Cls] {
            let (embeddings, width) = embedded(&golden(name), pooling, &expected.chunks)?;
            let distance = worst_distance(&embeddings, expected.of(pooling), width);
            ensure!(distance <= tolerance, "{name}, {pooling:?}: {distance:e}");
        }
    }
    Ok(())
}

/// Changes the settings of the model in `directory`.
fn set(directory: &Path, change: impl FnOnce(&mut Value)) -> Result<()> {
    let path = directory.join("config.json");
    let mut settings = serde_json::from_slice(&std::fs::read(&path)?)?;
    change(&mut settings);
    Ok(std::fs::write(path, serde_json::to_vec(&settings)?)?)
}

/// A case of `golden/odd_configs.py`.
#[derive(serde::Deserialize)]
struct OddConfig {
    model: String,
    removed: Vec<String>,
    settings: serde_json::Map<String, Value>,
    key: Option<String>,
}

#[test]
fn odd_configurations_are_computed_as_transformers_does_or_refused_by_name() -> Result<()> {
    let odd: Value = serde_json::from_slice(&std::fs::read(golden("odd.json"))?)?;
    let cases: Vec<OddConfig> = serde_json::from_value(odd["cases"].clone())?;
    let bytes = std::fs::read(golden("odd.safetensors"))?;
    let expected = SafeTensors::deserialize(&bytes)?;
    for (i, OddConfig { model, removed, settings, key }) in cases.iter().enumerate() {
        let directory = copy(model)?;
        set(directory.path(), |config| {
            if let Value::Object(config) = config {
                config.retain(|key, _| !removed.contains(key));
                config.extend(settings.clone());
            }
        })?;
        let chunks = Expected::read(&golden(model))?.chunks;
        for (pooling, name) in [(Pooling::Mean, "mean"), (Pooling::Cls, "cls")] {
            let outcome = embedded(directory.path(), pooling, &chunks);
            let Some(key) = key else {
                let (embeddings, width) = outcome?;
                let rows = expected.tensor(&format!("{i}.{name}"))?.data().as_chunks().0;
                let rows: Vec<f32> = rows.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
                let distance = worst_distance(&embeddings, &rows, width);
                ensure!(distance <= TOLERANCE, "{model} {settings:?}, {name}: {distance:e}");
                continue;
            };
            let message = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(message.contains(&format!("{key} ")), "{model} {settings:?}: {message}");
        }
    }
    ensure!(cases.iter().filter(|case| case.key.is_none()).count() >= 13);
    Ok(())
}

#[test]
fn bert_is_xlm_roberta_with_its_positions_moved() -> Result<()> {
    let directory = copy("bert")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let name = "bert.embeddings.position_embeddings.weight";
    let positions = file.tensor(name)?;
    let (rows, width) = (positions.shape()[0], positions.shape()[1]);
    let moved = [vec![0; 2 * width * 4], positions.data().to_vec()].concat();
    let mut tensors: Vec<_> = file.tensors().into_iter().filter(|(n, _)| n != name).collect();
    tensors.push((name.into(), TensorView::new(Dtype::F32, vec![rows + 2, width], &moved)?));
    std::fs::write(&path, safetensors::serialize(tensors, None)?)?;
    set(directory.path(), |settings| {
        settings["model_type"] = "xlm-roberta".into();
        settings["max_position_embeddings"] = (rows + 2).into();
        settings["pad_token_id"] = 1.into();
    })?;
    let mut chunks = Expected::read(&golden("bert"))?.chunks;
    for id in chunks.iter_mut().flatten().filter(|id| **id == 1) {
        *id = 3;
    }
    let moved = embedded(directory.path(), Pooling::Mean, &chunks)?;
    assert_eq!(moved, embedded(&golden("bert"), Pooling::Mean, &chunks)?);
    Ok(())
}

/// Puts `prefix` before the names of all tensors of the model in `directory`.
fn rename(directory: &Path, prefix: &str) -> Result<()> {
    let path = directory.join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let tensors = SafeTensors::deserialize(&bytes)?.tensors();
    let renamed = tensors.into_iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor));
    Ok(std::fs::write(&path, safetensors::serialize(renamed, None)?)?)
}

#[test]
fn older_files_of_a_family_give_the_same_bits() -> Result<()> {
    let ntk = json!({"model_type": "new", "position_embedding_type": "rope", "pack_qkv": true,
        "rope_theta": 20_000.0, "rope_scaling": {"type": "ntk", "factor": 8.0}});
    let by_number = json!({"position_embedding_type": "sans_pos", "global_attn_every_n_layers": 3,
        "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0});
    for (name, prefix, older) in [("gte", "new.", ntk), ("modernbert", "model.", by_number)] {
        let directory = copy(name)?;
        rename(directory.path(), prefix)?;
        set(directory.path(), |settings| {
            if let (Value::Object(settings), Value::Object(older)) = (settings, older) {
                settings.retain(|key, _| key != "rope_parameters" && key != "layer_types");
                settings.extend(older);
            }
        })?;
        let chunks = Expected::read(&golden(name))?.chunks;
        let embeddings = embedded(directory.path(), Pooling::Mean, &chunks)?;
        assert_eq!(embeddings, embedded(&golden(name), Pooling::Mean, &chunks)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_window_of_the_whole_text_is_none() -> Result<()> {
    let chunks = Expected::read(&golden("modernbert"))?.chunks;
    let same = json!({"rope_type": "default", "rope_theta": 160_000.0});
    let with = |layer_types: Option<&str>, local_attention: usize| -> Result<_> {
        let directory = copy("modernbert")?;
        set(directory.path(), |settings| {
            settings["rope_parameters"] =
                json!({"full_attention": same, "sliding_attention": same});
            settings["local_attention"] = local_attention.into();
            if let Some(kind) = layer_types {
                settings["layer_types"] = vec![kind; 5].into();
            }
        })?;
        embedded(directory.path(), Pooling::Mean, &chunks)
    };
    let all = with(Some("full_attention"), 16)?;
    assert_eq!(with(None, 398)?, all);
    assert_ne!(with(None, 396)?, all);
    Ok(())
}

#[test]
fn families_run_in_two_bytes() -> Result<()> {
    // Not those of `ModernBERT` with weights so large that softmax picks single keys, which raises errors.
    for name in ["bert", "gte", "modernbert-long"] {
        let expected = Expected::read(&golden(name))?;
        for (precision, unit) in [(EncoderPrecision::Bf16, 9), (EncoderPrecision::F16, 12)] {
            let settings = EncoderConfig { precision, ..config(&golden(name), Pooling::Mean) };
            let model = load(&settings, &offline())?;
            let width = model.encoder.info().embedding_size;
            let embeddings = embed(model.encoder.as_ref(), &expected.chunks, 700)?;
            let distance = worst_distance(&embeddings, &expected.mean, width);
            // As in `precisions`, with half as many products more for a gated unit, whose two factors
            // each carry the error of their product: 2^0.5 of it.
            let factor = if precision == EncoderPrecision::F16 { 23.0 } else { 4.0 };
            let tolerance = 2.0 * 2f64.sqrt() * factor * 2f64.powi(-unit);
            ensure!(distance <= tolerance, "{name} in {precision}: {distance:e}");
        }
    }
    Ok(())
}

#[test]
fn a_tensor_of_another_family_is_named() -> Result<()> {
    let directory = copy("gte")?;
    set(directory.path(), |settings| {
        settings["model_type"] = "modernbert".into();
        settings["rope_parameters"] = Value::Null;
    })?;
    let error = open(directory.path(), Pooling::Mean).err().map(|e| e.to_string());
    assert!(
        error.as_ref().is_some_and(|e| e.contains("no tensor `embeddings.tok_embeddings.weight`")),
        "{error:?}"
    );
    Ok(())
}
