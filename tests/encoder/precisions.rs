//! The types that the CPU computes in beside f32.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use arrow::array::AsArray;
use polysift::config::{Chunks, EncoderConfig, EncoderPrecision, Pooling};
use polysift::encoder::{Model, load};
use polysift::progress::Stop;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use super::loading::copy;
use super::{Expected, MODELS, config, distances, embed, golden, offline, worst_distance};
use crate::util::{read_parquet, root};

const PRECISIONS: [EncoderPrecision; 4] =
    [EncoderPrecision::F32, EncoderPrecision::Bf16, EncoderPrecision::F16, EncoderPrecision::Int8];

fn open(model: &Path, pooling: Pooling, precision: EncoderPrecision) -> Result<Model> {
    Ok(load(&EncoderConfig { precision, ..config(model, pooling) }, &offline())?)
}

/// Largest relative L2 distance from transformers' f32. Every product rounds its two factors: a
/// relative error of 2^-9 in bf16 and 2^-12 in f16, in int8 up to 1/254 of the largest of a row, which
/// is some 3 times its root mean square. The errors of a sum are independent, so that of a product is
/// as large, relative to its typical value; so are those of the four products of each of the one or two
/// layers here: sqrt(2 · 4 · 2) = 4 times that of one factor. In f16 each of up to 128 steps of a sum is
/// rounded too, relative to a part that grows like a root: sqrt(128 / 2) = 8 more for each product,
/// sqrt(4 · 2 · (2 + 64)) = 23 in all. Rows are not alike: PyTorch with the factors of its products rounded to bf16
/// is 4e-3 to 8e-3 from its f32 on most, and 1.63e-2 on the worst (packed-4, cls), which is three times the typical.
fn tolerance(precision: EncoderPrecision) -> f64 {
    match precision {
        EncoderPrecision::Bf16 => 3.0 * 4.0 * 2f64.powi(-9),
        EncoderPrecision::F16 => 3.0 * 23.0 * 2f64.powi(-12),
        EncoderPrecision::Int8 => 3.0 * 4.0 * 3.0 / 254.0,
        _ => 1e-5,
    }
}

#[test]
fn golden_embeddings_of_every_precision() -> Result<()> {
    for name in MODELS {
        let directory = golden(name);
        let expected = Expected::read(&directory)?;
        for (precision, pooling) in
            PRECISIONS.iter().flat_map(|&d| [(d, Pooling::Mean), (d, Pooling::Cls)])
        {
            let model = open(&directory, pooling, precision)?;
            let width = model.encoder.info().embedding_size;
            let embeddings = embed(model.encoder.as_ref(), &expected.chunks, 700)?;
            let distance = worst_distance(&embeddings, expected.of(pooling), width);
            ensure!(
                distance <= tolerance(precision),
                "{name} in {precision}, {pooling:?}: {distance:e}"
            );
        }
    }
    Ok(())
}

/// Of the trained encoder on real text. PyTorch with the factors of its products so rounded is 8.5e-3 from f32
/// in the mean, and 2.4e-2 where no mean is subtracted before.
#[test]
fn int8_of_the_bundled_encoder_is_within_a_hundredth_of_f32() -> Result<()> {
    let mut texts = Vec::new();
    for language in ["arb_Arab", "cmn_Hani", "deu_Latn", "eng_Latn", "fra_Latn", "spa_Latn"] {
        let path = root().join(format!("tests/sample/corpus/{language}/000_00000.parquet"));
        let rows = read_parquet(&path).map_err(|error| anyhow!("{error}"))?;
        let column = rows.column_by_name("text").context("no text")?.as_string::<i32>();
        texts.extend(column.iter().flatten().take(8).map(str::to_owned));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let embed = |precision| -> Result<Vec<f32>> {
        let (config, stop) = (EncoderConfig::default(), Stop::default());
        let model = open(Path::new("polysift-mini"), Pooling::Mean, precision)?;
        Ok(model.embed_texts(&texts, Chunks::First, &config, &stop, &mut |_, _| {})?.values)
    };
    let (int8, exact) = (embed(EncoderPrecision::Int8)?, embed(EncoderPrecision::F32)?);
    ensure!(texts.len() == 48 && exact.len() == 48 * 384);
    let mean = distances(&int8, &exact, 384).sum::<f64>() / 48.0;
    ensure!(mean <= 1e-2, "{mean:e}");
    Ok(())
}

#[test]
fn threads_batches_and_order_change_no_bit_in_any_precision() -> Result<()> {
    let pools = [1, 2]
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let lengths = [3usize, 130, 17, 64, 1, 255, 33, 90];
    let chunks: Vec<Vec<u32>> = lengths
        .iter()
        .map(|&length| (0..length).map(|i| 3 + (i * length % 110) as u32).collect())
        .collect();
    let reversed: Vec<Vec<u32>> = chunks.iter().rev().cloned().collect();
    for precision in PRECISIONS {
        let model = open(&golden("head16-prefixed"), Pooling::Mean, precision)?;
        let encoder = model.encoder.as_ref();
        let width = encoder.info().embedding_size;
        let expected = pools[1].install(|| embed(encoder, &chunks, 16_384))?;
        let actual = pools[0].install(|| embed(encoder, &reversed, 300))?;
        for (row, other) in expected.chunks(width).zip(actual.chunks(width).rev()) {
            ensure!(row == other, "{precision}");
        }
    }
    Ok(())
}

/// A copy of a golden model whose feed-forward part has states a million times as large, inside.
fn with_large_states() -> Result<tempfile::TempDir> {
    let directory = copy("head16-prefixed")?;
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let mut scaled = BTreeMap::new();
    for (name, factor) in [("intermediate.dense.weight", 1e6f32), ("output.dense.weight", 1e-6)] {
        let name = format!("roberta.encoder.layer.1.{name}");
        let data = file.tensor(&name)?;
        let values = data.data().as_chunks::<4>().0;
        let values = values.iter().flat_map(|&b| (f32::from_le_bytes(b) * factor).to_le_bytes());
        scaled.insert(name, values.collect::<Vec<u8>>());
    }
    let mut tensors: BTreeMap<_, _> = file.tensors().into_iter().collect();
    for (name, values) in &scaled {
        let before = tensors.get(name).context("no such tensor")?;
        let tensor = TensorView::new(before.dtype(), before.shape().to_vec(), values)?;
        tensors.insert(name.clone(), tensor);
    }
    std::fs::write(&path, safetensors::serialize(tensors, None)?)?;
    Ok(directory)
}

#[test]
fn what_f16_cannot_hold_is_encoded_in_f32() -> Result<()> {
    let directory = with_large_states()?;
    let chunks = Expected::read(&golden("head16-prefixed"))?.chunks;
    let embed = |precision| -> Result<Vec<f32>> {
        let model = open(directory.path(), Pooling::Mean, precision)?;
        embed(model.encoder.as_ref(), &chunks, 700)
    };
    let exact = embed(EncoderPrecision::F32)?;
    ensure!(exact.iter().all(|value| value.is_finite()));
    let repaired = embed(EncoderPrecision::F16)?;
    ensure!(repaired == exact, "the same bits as f32");
    // bf16 and int8 have the range of f32.
    for precision in [EncoderPrecision::Bf16, EncoderPrecision::Int8] {
        let embeddings = embed(precision)?;
        ensure!(
            embeddings != exact && embeddings.iter().all(|value| value.is_finite()),
            "{precision}"
        );
    }
    Ok(())
}
