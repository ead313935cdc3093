//! The head file: what is read back, what is refused.

use std::path::PathBuf;

use anyhow::{Context, Result};
use polysift::Error;
use polysift::config::{ChunkRule, HeadConfig, HeadKind, HeadOutput, Keep};
use polysift::head::Head;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use super::{golden, training, with_output};

/// Name, shape and values of a tensor.
type Named<'a> = (&'a str, &'a [usize], Vec<f32>);

/// Writes a safetensors file of f32 tensors.
fn file(dir: &TempDir, tensors: &[Named<'_>]) -> Result<PathBuf> {
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(.., values)| values.iter().flat_map(|v| v.to_le_bytes()).collect())
        .collect();
    let mut views = Vec::new();
    for ((name, shape, _), data) in tensors.iter().zip(&data) {
        views.push((*name, TensorView::new(Dtype::F32, shape.to_vec(), data)?));
    }
    let path = dir.path().join("head.safetensors");
    std::fs::write(&path, safetensors::serialize(views, None)?)?;
    Ok(path)
}

/// Message of the [`Error::Model`] that loading a file of these tensors must give.
fn refusal(tensors: &[Named<'_>]) -> Result<String> {
    let dir = TempDir::new()?;
    let path = file(&dir, tensors)?;
    let error = Head::load(&path, "quality", &HeadConfig::default());
    let error = error.err().context("the file was accepted")?;
    assert!(matches!(error, Error::Model { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("head.safetensors"), "{message}");
    Ok(message)
}

#[test]
fn a_saved_head_reads_back_as_it_was() -> Result<()> {
    let dir = TempDir::new()?;
    let path = dir.path().join("head.safetensors");
    for kind in [HeadKind::Mlp, HeadKind::Cosine] {
        let head = training::small_head(kind)?;
        let bytes = head.to_bytes()?;
        std::fs::write(&path, &bytes)?;
        let read = Head::load(&path, "quality", &HeadConfig::default())?;
        assert_eq!(read.card.spec, head.card.spec);
        assert_eq!(read.card, head.card);
        assert_eq!(read.digest, head.digest);
        assert_eq!(read.digest, blake3::hash(&bytes).to_hex().as_str());
        assert!(read.to_bytes()? == bytes);
        let chunks = vec![0.25; head.hidden_size()];
        assert_eq!(read.score(&chunks, &[0, 1])?, head.score(&chunks, &[0, 1])?);
    }
    Ok(())
}

#[test]
fn tensors_are_named_as_published() -> Result<()> {
    let bytes = training::small_head(HeadKind::Mlp)?.to_bytes()?;
    let tensors = safetensors::SafeTensors::deserialize(&bytes)?;
    let mut names = tensors.names();
    names.sort_unstable();
    assert_eq!(
        names,
        ["classifier.0.bias", "classifier.0.weight", "classifier.3.bias", "classifier.3.weight"]
    );
    Ok(())
}

#[test]
fn only_explicit_settings_override_the_card() -> Result<()> {
    let dir = TempDir::new()?;
    let path = dir.path().join("head.safetensors");
    let head = training::small_head(HeadKind::Mlp)?;
    std::fs::write(&path, head.to_bytes()?)?;
    // The name alone would choose another preset for a foreign file.
    let same = Head::load(&path, "toxicity", &HeadConfig::default())?;
    assert_eq!(same.card.spec, head.card.spec);
    let config = HeadConfig {
        chunk: Some(ChunkRule::Mean),
        keep: Some(Keep::Below),
        ..with_output(HeadOutput::Raw)
    };
    let other = Head::load(&path, "toxicity", &config)?;
    assert_eq!(other.card.spec.output, HeadOutput::Raw);
    assert_eq!((other.card.spec.chunk, other.card.spec.keep), (ChunkRule::Mean, Keep::Below));
    assert_eq!(other.digest, head.digest);
    Ok(())
}

#[test]
fn a_damaged_file_is_refused_at_every_length() -> Result<()> {
    let dir = TempDir::new()?;
    let path = dir.path().join("head.safetensors");
    let bytes = training::small_head(HeadKind::Mlp)?.to_bytes()?;
    for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        std::fs::write(&path, &bytes[..length])?;
        let error = Head::load(&path, "quality", &HeadConfig::default());
        assert!(matches!(error, Err(Error::Model { .. })), "{length}: {error:?}");
    }
    for at in (0..bytes.len()).step_by(13) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x80;
        std::fs::write(&path, &changed)?;
        // Most changes of a weight are another head; none may panic.
        let _ = Head::load(&path, "quality", &HeadConfig::default());
    }
    Ok(())
}

#[test]
fn tensors_that_make_no_head_are_named() -> Result<()> {
    let weight = || ("0.weight", &[2, 3][..], vec![0.5; 6]);
    let bias = || ("0.bias", &[2][..], vec![0.5; 2]);
    let outputs = || ("3.weight", &[1, 2][..], vec![0.5; 2]);
    let norm = |name: &'static str| -> Named<'static> { (name, &[5], vec![0.5; 5]) };
    let references = || ("references", &[1, 2][..], vec![0.5; 2]);
    let cases: [(Vec<Named<'_>>, &str); 16] = [
        (vec![], "no tensors"),
        (vec![norm("0.weight")], "last layer is not linear"),
        (vec![weight(), norm("1.weight")], "`1.weight` takes 5 inputs, the layer before gives 2"),
        (vec![("0.weight", &[], vec![0.5])], "`0.weight` has the shape []"),
        (vec![bias()], "`0.weight` is missing"),
        (vec![("0.weight", &[6], vec![0.5; 6]), bias()], "`0.bias` has the shape [2]"),
        (vec![weight(), ("0.bias", &[3], vec![0.5; 3])], "`0.bias` has the shape [3]"),
        (vec![("0.weight", &[2, 3], vec![f32::NAN; 6]), bias()], "`0.weight`: value 0 is NaN"),
        (
            vec![
                weight(),
                bias(),
                ("3.weight", &[1, 5], vec![0.5; 5]),
                ("3.bias", &[1], vec![0.0]),
            ],
            "`3.weight` takes 5 inputs, the layer before gives 2",
        ),
        (vec![weight(), bias(), ("other.bias", &[1], vec![0.5])], "`other.bias`"),
        (vec![weight(), bias(), ("a.3.bias", &[1], vec![0.5]), outputs()], "different prefixes"),
        (vec![weight(), bias()], "`sigmoid` does not fit 2 output(s)"),
        (vec![("references", &[1, 2], vec![0.0; 2])], "all references are zero"),
        (vec![references(), weight()], "other tensors besides `references`"),
        (
            vec![references(), ("mean", &[3], vec![0.5; 3])],
            "`mean` has the shape [3]; expected [2]",
        ),
        (vec![references(), ("mean", &[2], vec![f32::NAN; 2])], "`mean`: value 0 is NaN"),
    ];
    for (tensors, expected) in cases {
        let message = refusal(&tensors)?;
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}

#[test]
fn foreign_references_are_normalised_and_zero_ones_counted() -> Result<()> {
    let dir = TempDir::new()?;
    let path = file(&dir, &[("references", &[3, 2], vec![0.0, 0.0, 3.0, 4.0, 0.0, -2.0])])?;
    let head = Head::load(&path, "likeness", &HeadConfig::default())?;
    let counts = head.card.references.context("no counts")?;
    assert_eq!((counts.requested, counts.available, counts.zero_norm), (3, 2, 1));
    let score = head.score(&[30.0, 40.0], &[0, 1])?[0].context("no score")?;
    // 0.6² + 0.8² of numbers rounded to f32, each within 6e-8.
    assert!((score.score - 1.0).abs() < 2e-7, "{score:?}");
    Ok(())
}

#[test]
fn a_head_of_another_width_or_kind_is_refused() -> Result<()> {
    let path = golden("quality.safetensors");
    let head = Head::load(&path, "quality", &HeadConfig::default())?;
    head.check_hidden_size(&path, 768)?;
    let message = head.check_hidden_size(&path, 384).err().map(|e| e.to_string());
    let message = message.context("another width was accepted")?;
    assert!(message.contains("quality.safetensors") && message.contains("768"), "{message}");
    assert!(message.contains("384"), "{message}");
    let cosine = HeadConfig { kind: HeadKind::Cosine, ..HeadConfig::default() };
    assert!(matches!(Head::load(&path, "quality", &cosine), Err(Error::Model { .. })));
    let missing = Head::load(&golden("nowhere"), "quality", &HeadConfig::default());
    assert!(matches!(missing, Err(Error::Missing { .. })));
    Ok(())
}
