//! Which model files are taken, and what is said about the others.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use polysift::config::{EncoderConfig, Pooling};
use polysift::encoder::{load, resolve};
use polysift::tokenize::Tokenizer;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{config, embed, golden, offline, open};

#[test]
fn the_default_model_needs_no_files() -> Result<()> {
    let model = load(&EncoderConfig::default(), &offline())?;
    let info = model.encoder.info();
    assert!(info.max_tokens >= EncoderConfig::default().max_tokens);
    let tokenized = model.tokenizer.tokenize("What is inside the binary works.")?;
    let embedding = embed(model.encoder.as_ref(), &tokenized.chunks, 512)?;
    assert_eq!(embedding.len(), info.embedding_size);
    Ok(())
}

/// A copy of a golden model to damage.
pub(super) fn copy(name: &str) -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    for entry in std::fs::read_dir(golden(name))? {
        let entry = entry?;
        std::fs::copy(entry.path(), directory.path().join(entry.file_name()))?;
    }
    Ok(directory)
}

fn refusal(directory: &Path) -> Result<String> {
    let error = open(directory, Pooling::Mean).err().context("accepted")?;
    assert_eq!(error.exit_code(), 65, "{error}");
    Ok(error.to_string())
}

#[test]
fn a_damaged_weight_file_is_refused_whole() -> Result<()> {
    let directory = copy("head16-prefixed")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    for length in [0, 7, 1000, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length])?;
        let message = refusal(directory.path())?;
        assert!(
            message.contains("model.safetensors: is not a whole safetensors file"),
            "{message}"
        );
    }
    Ok(())
}

#[test]
fn a_tensor_that_does_not_serve_is_named() -> Result<()> {
    let directory = copy("head16-prefixed")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let name = "roberta.encoder.layer.1.output.dense.bias";
    let values = [0u8; 48 * 8];
    let view = |dtype, shape, size| TensorView::new(dtype, shape, &values[..size]);
    for (replacement, expected) in [
        (None, format!("there is no tensor `{name}`")),
        (Some(view(Dtype::F32, vec![47], 188)?), format!("tensor `{name}` is [47], not [48]")),
        (Some(view(Dtype::I64, vec![48], 384)?), format!("tensor `{name}` is I64")),
    ] {
        let mut tensors: BTreeMap<_, _> = file.tensors().into_iter().collect();
        tensors.remove(name);
        if let Some(tensor) = replacement {
            tensors.insert(name.into(), tensor);
        }
        std::fs::write(&path, safetensors::serialize(tensors, None)?)?;
        let message = refusal(directory.path())?;
        assert!(message.contains(&expected), "{message}");
    }
    Ok(())
}

#[test]
fn packed_weights_that_cannot_be_unpacked_are_an_error() -> Result<()> {
    let directory = copy("packed-4")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let name = "encoder.layer.1.attention.self.key.weight";
    let zeros = [0u8; 64 * 64];
    let view =
        |dtype, shape: [usize; 2], size| TensorView::new(dtype, shape.into(), &zeros[..size]);
    for (suffix, replacement, expected) in [
        ("scale", None, "there is no tensor"),
        ("scale", Some(view(Dtype::F16, [64, 3], 384)?), "a row of 64 has 3 scales"),
        ("scale", Some(view(Dtype::I16, [64, 2], 256)?), "_scale` is I16"),
        ("scale", Some(view(Dtype::F16, [32, 2], 128)?), "its scales are [32, 2]"),
        ("packed", Some(view(Dtype::I32, [64, 4], 1024)?), "I32 [64, 4] are no 4 or 8 bits"),
        ("packed", Some(view(Dtype::I32, [32, 8], 1024)?), "I32 [32, 8] are no 4 or 8 bits"),
        ("packed", Some(view(Dtype::F16, [64, 8], 1024)?), "F16 [64, 8] are no 4 or 8 bits"),
        ("zero_point", Some(view(Dtype::I32, [8, 2], 64)?), "with `zero_point`"),
    ] {
        let mut tensors: BTreeMap<_, _> = file.tensors().into_iter().collect();
        let changed = format!("{name}_{suffix}");
        tensors.remove(&changed);
        tensors.extend(replacement.map(|tensor| (changed, tensor)));
        std::fs::write(&path, safetensors::serialize(tensors, None)?)?;
        let message = refusal(directory.path())?;
        assert!(message.contains(expected) && message.contains(name), "{message}");
    }
    Ok(())
}

#[test]
fn weights_that_are_not_numbers_are_an_error() -> Result<()> {
    let directory = copy("head16-prefixed")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let nan = vec![0xFFu8; 48 * 4];
    let mut tensors: BTreeMap<_, _> = file.tensors().into_iter().collect();
    let name = "roberta.encoder.layer.0.output.LayerNorm.bias".to_owned();
    tensors.insert(name, TensorView::new(Dtype::F32, vec![48], &nan)?);
    std::fs::write(&path, safetensors::serialize(tensors, None)?)?;
    let message = refusal(directory.path())?;
    assert!(message.contains("not finite"), "{message}");
    Ok(())
}

#[test]
fn sizes_that_the_weights_do_not_have_take_no_memory() -> Result<()> {
    let began = std::time::Instant::now();
    for (model, key, size, expected) in [
        ("bert", "num_hidden_layers", 1u64 << 31, "num_hidden_layers 2147483648"),
        ("modernbert", "num_hidden_layers", 100_000_000, "num_hidden_layers 100000000"),
        ("gte", "num_hidden_layers", u64::MAX, "num_hidden_layers 18446744073709551615"),
        ("gte", "num_hidden_layers", 1000, "more than 512904 bytes of weights"),
        ("bert", "hidden_size", 3 << 40, "hidden_size 3298534883328"),
        ("gte", "intermediate_size", 1 << 40, "intermediate_size 1099511627776"),
        ("modernbert", "vocab_size", u64::MAX, "vocab_size 18446744073709551615"),
        ("head20-sharded", "vocab_size", 1 << 40, "vocab_size 1099511627776"),
        (
            "gte",
            "max_position_embeddings",
            u64::from(u32::MAX),
            "max_position_embeddings is 4294967295",
        ),
        ("modernbert", "max_position_embeddings", 1 << 18, "max_position_embeddings is 262144"),
        (
            "bert",
            "max_position_embeddings",
            u64::from(u32::MAX),
            "is [130, 60], not [4294967295, 60]",
        ),
        ("bert", "type_vocab_size", 1 << 50, "is [3, 60], not [1125899906842624, 60]"),
    ] {
        let directory = copy(model)?;
        let path = directory.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        config[key] = size.into();
        config["layer_types"] = serde_json::Value::Null;
        std::fs::write(&path, config.to_string())?;
        let message = refusal(directory.path())?;
        assert!(message.contains(expected), "{message}");
    }
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn an_id_far_beyond_the_others_takes_no_memory() -> Result<()> {
    let path = golden("tokenizer").join("gemma.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let vocabulary = json["model"]["vocab"].as_object_mut().context("no vocabulary")?;
    vocabulary.insert("far".into(), (u32::MAX - 1).into());
    let (json, settings) = (json.to_string(), EncoderConfig::default());
    let tokenizer = Tokenizer::from_bytes(json.as_bytes(), &path, &settings)?;
    assert_eq!(tokenizer.largest_id, u32::MAX - 1);
    let before = Tokenizer::from_bytes(&std::fs::read(&path)?, &path, &settings)?;
    for text in ["Hello  brave new world", "狐狸跳过懒狗。", ""] {
        assert_eq!(tokenizer.tokenize(text)?, before.tokenize(text)?);
    }
    let directory = copy("head16-prefixed")?;
    std::fs::write(directory.path().join("tokenizer.json"), json)?;
    let message = refusal(directory.path())?;
    assert!(
        message.contains("has the token id 4294967294, but the model has only 120"),
        "{message}"
    );
    Ok(())
}

#[test]
fn a_tokenizer_of_more_tokens_than_the_model_has_names_both_files() -> Result<()> {
    let directory = copy("head16-prefixed")?;
    let path = directory.path().join("tokenizer.json");
    let whole = std::fs::read_to_string(&path)?;
    // The model has 120 tokens, the tokenizer 6; so 120 further ones are 6 too many.
    let further: Vec<String> = (0..120).map(|i| format!(", [\"t{i}\", -3.0]")).collect();
    let further = further.concat();
    let longer = whole.replace("[\"a\", -2.0]", &format!("[\"a\", -2.0]{further}"));
    // A special token alone may be one that the model lacks.
    let special = whole.replace("\"ids\": [2]", "\"ids\": [120]");
    for (content, id) in [(longer, 125), (special, 120)] {
        assert_ne!(content, whole);
        std::fs::write(&path, content)?;
        let message = refusal(directory.path())?;
        let expected = format!("tokenizer.json: has the token id {id}, but the model has only 120");
        assert!(message.contains(&expected) && message.contains("config.json"), "{message}");
    }
    Ok(())
}

#[test]
fn a_directory_that_lacks_a_file_says_which() -> Result<()> {
    for (file, expected) in [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("model.safetensors.index.json", "has neither model.safetensors nor"),
        (
            "model-00002-of-00003.safetensors",
            "names model-00002-of-00003.safetensors, which is not",
        ),
    ] {
        let directory = copy("head20-sharded")?;
        std::fs::remove_file(directory.path().join(file))?;
        let message = refusal(directory.path())?;
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}

#[test]
fn a_shard_outside_the_directory_is_refused() -> Result<()> {
    let directory = copy("head20-sharded")?;
    let index = r#"{"weight_map": {"a": "../elsewhere.safetensors"}}"#;
    std::fs::write(directory.path().join("model.safetensors.index.json"), index)?;
    assert!(refusal(directory.path())?.contains("`../elsewhere.safetensors`, which is no plain"));
    Ok(())
}

/// The first shard also holds zeros under the name of a tensor that the index places in the third.
#[test]
fn tensors_are_taken_from_the_shard_that_the_index_names() -> Result<()> {
    let text = "one text";
    let of = |directory: &Path| -> Result<Vec<f32>> {
        let model = load(&config(directory, Pooling::Mean), &offline())?;
        embed(model.encoder.as_ref(), &model.tokenizer.tokenize(text)?.chunks, 512)
    };
    let directory = copy("head20-sharded")?;
    let [first, third] =
        [1, 3].map(|i| directory.path().join(format!("model-0000{i}-of-00003.safetensors")));
    let (bytes, others) = (std::fs::read(&first)?, std::fs::read(third)?);
    let name = "encoder.layer.1.output.dense.bias";
    let moved = SafeTensors::deserialize(&others)?;
    let moved = moved.tensor(name)?;
    let zeros = vec![0u8; moved.data().len()];
    let zeros = TensorView::new(moved.dtype(), moved.shape().to_vec(), &zeros)?;
    let mut tensors: BTreeMap<_, _> =
        SafeTensors::deserialize(&bytes)?.tensors().into_iter().collect();
    assert!(tensors.insert(name.into(), zeros).is_none() && moved.data().iter().any(|b| *b != 0));
    std::fs::write(&first, safetensors::serialize(&tensors, None)?)?;
    assert_eq!(of(directory.path())?, of(&golden("head20-sharded"))?);
    Ok(())
}

#[test]
fn a_name_that_is_no_model_and_a_length_that_is_too_long_are_settings_errors() -> Result<()> {
    for (model, max_tokens, expected) in [
        ("no/such/model", 100, "encoder.model: `no/such/model` is neither"),
        ("../no-such-model", 100, "encoder.model: `../no-such-model` is neither"),
        (&golden("head20-sharded").display().to_string(), 130, "takes at most 129"),
    ] {
        let config = EncoderConfig { model: model.into(), max_tokens, ..EncoderConfig::default() };
        let error = load(&config, &offline()).err().context("accepted")?;
        assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn the_digest_sees_every_file() -> Result<()> {
    let directory = copy("head32-bf16")?;
    let digest = || {
        let files = resolve(&config(directory.path(), Pooling::Mean), &offline())?;
        Ok::<_, anyhow::Error>(files.recipe.model_digest)
    };
    let mut digests = vec![digest()?];
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let path = directory.path().join(file);
        let mut bytes = std::fs::read(&path)?;
        bytes.push(b' ');
        std::fs::write(&path, bytes)?;
        digests.push(digest()?);
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 4);
    Ok(())
}

/// Names of tensors as BERT's first checkpoints, `DataParallel` and `torch.compile` have them, and a configuration
/// with a byte order mark.
#[test]
fn checkpoints_with_other_names_of_tensors_are_the_same_model() -> Result<()> {
    let text = "one text";
    let of = |directory: &Path| -> Result<Vec<f32>> {
        let model = load(&config(directory, Pooling::Mean), &offline())?;
        embed(model.encoder.as_ref(), &model.tokenizer.tokenize(text)?.chunks, 512)
    };
    let expected = of(&golden("head16-prefixed"))?;
    for prefix in ["", "module.", "_orig_mod.", "module._orig_mod."] {
        let directory = copy("head16-prefixed")?;
        let path = directory.path().join("model.safetensors");
        let bytes = std::fs::read(&path)?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let mut renamed = 0;
        let named = tensors.tensors().into_iter().map(|(name, view)| {
            let old = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            let old = old.replace("LayerNorm.bias", "LayerNorm.beta");
            renamed += usize::from(old != name);
            (format!("{prefix}{old}"), view)
        });
        let named: BTreeMap<String, TensorView<'_>> = named.collect();
        std::fs::write(&path, safetensors::serialize(&named, None)?)?;
        assert!(renamed > 0, "the model has no such names");
        let path = directory.path().join("config.json");
        let json = std::fs::read_to_string(&path)?;
        std::fs::write(&path, format!("\u{feff}{json}"))?;
        assert_eq!(of(directory.path())?, expected, "{prefix}");
    }
    Ok(())
}
