//! Heads of other software: every form that PyTorch writes, scored as PyTorch does; export and back.
//! The golden files are written by `tests/golden/heads_import.py`.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use polysift::Error;
use polysift::config::{ChunkRule, HeadConfig, HeadOutput, Keep, Pooling, Preset};
use polysift::head::{Head, ImportRequest, PublishedRecipe};
use tempfile::TempDir;

use super::{import, values};
use crate::util::root;

/// Files that hold a head, with its preset.
const FORMS: [&str; 13] = [
    "deu_Latn.pt",
    "german_cls.pth",
    "module_f64.pt",
    "head_f16.pt",
    "model_classifier_bf16.pt",
    "state_dict.pt",
    "model_state_dict.pt",
    "parameters.pt",
    "transposed.pt",
    "views.pt",
    "full_model.pth",
    "protocol3.pt",
    "net.safetensors",
];

/// A golden file.
pub(super) fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/heads_import").join(name)
}

/// PyTorch's inputs and outputs.
fn expected() -> Result<HashMap<String, Tensor>> {
    Ok(candle_core::safetensors::load(golden("expected.safetensors"), &Device::Cpu)?)
}

/// Imports a golden file of which only the name is known.
fn imported(name: &str) -> polysift::Result<Head> {
    import(&golden(name), &ImportRequest::default())
}

/// Asserts that `head` scores `chunks` as PyTorch did. Tolerance 1e-6 (contract): logits of size
/// ten in f32 on both sides differ by some 1e-6, and a probability changes by at most a quarter of
/// that.
fn assert_scores(head: &Head, chunks: &Tensor, offsets: &[usize], torch: &Tensor) -> Result<()> {
    let scores = head.score(&values::<f32>(chunks)?, offsets)?;
    let torch = values::<f32>(torch)?;
    assert_eq!(scores.len(), torch.len());
    for (score, torch) in scores.into_iter().zip(torch) {
        let score = score.context("no score")?.score;
        assert!((score - torch).abs() < 1e-6, "{}: {score} {torch}", head.card.head);
    }
    Ok(())
}

#[test]
fn every_form_of_file_scores_as_in_pytorch() -> Result<()> {
    let expected = expected()?;
    for name in FORMS {
        let imported = imported(name)?;
        let preset =
            if imported.card.spec.layer_sizes.ends_with(&[2]) { "toxicity" } else { "quality" };
        let loaded = Head::load(&golden(name), preset, &HeadConfig::default())?;
        let chunks = &expected[&format!("{name}.embeddings")];
        let offsets: Vec<usize> = (0..=chunks.dims()[0]).collect();
        for head in [&imported, &loaded] {
            assert_scores(head, chunks, &offsets, &expected[&format!("{name}.scores")])
                .context(name)?;
        }
        assert_eq!(imported.card.spec, loaded.card.spec, "{name}");
    }
    Ok(())
}

#[test]
fn every_chunk_rule_scores_documents_as_in_pytorch() -> Result<()> {
    let expected = expected()?;
    let offsets: Vec<usize> =
        values::<i64>(&expected["chunks.offsets"])?.into_iter().map(|at| at as usize).collect();
    for (chunk, name) in
        [(ChunkRule::First, "first"), (ChunkRule::Max, "max"), (ChunkRule::Mean, "mean")]
    {
        let request = ImportRequest { chunk: Some(chunk), ..ImportRequest::default() };
        let head = import(&golden("german_cls.pth"), &request)?;
        let torch = &expected[&format!("chunks.{name}")];
        assert_scores(&head, &expected["chunks.embeddings"], &offsets, torch).context(name)?;
    }
    Ok(())
}

#[test]
fn the_card_of_an_import_tells_where_it_is_from() -> Result<()> {
    let head = imported("german_cls.pth")?;
    let card = &head.card;
    assert_eq!((card.head.as_str(), card.language.as_deref()), ("toxicity", Some("deu_Latn")));
    assert_eq!((card.spec.chunk, card.spec.keep), (ChunkRule::Max, Keep::Below));
    let source = card.source.as_ref().context("no source")?;
    let digest = blake3::hash(&std::fs::read(golden("german_cls.pth"))?).to_hex().to_string();
    assert_eq!((source.file.as_str(), &source.blake3), ("german_cls.pth", &digest));
    assert!(card.provenance.is_none() && card.training.is_none());

    let request = ImportRequest {
        name: Some("insult".into()),
        language: Some("gsw_Latn".into()),
        preset: Some(Preset::Toxicity),
        keep: Some(Keep::Above),
        ..ImportRequest::default()
    };
    let head = import(&golden("german_cls.pth"), &request)?;
    assert_eq!((head.card.head.as_str(), head.card.spec.keep), ("insult", Keep::Above));
    assert_eq!(head.card.language.as_deref(), Some("gsw_Latn"));
    Ok(())
}

#[test]
fn the_recipe_of_published_heads_is_on_their_cards() -> Result<()> {
    let import = |name: &str, recipe: PublishedRecipe| {
        import(&golden(name), &ImportRequest { recipe: Some(recipe), ..ImportRequest::default() })
    };
    let head = import("deu_Latn.pt", PublishedRecipe::Jql)?;
    let provenance = head.card.provenance.clone().context("no provenance")?;
    let recipe = provenance.recipe.context("no recipe")?;
    assert_eq!((recipe.pooling, recipe.normalize, recipe.max_tokens), (Pooling::Cls, true, 8192));
    assert_eq!(recipe.dimensions, Some(head.hidden_size()));
    assert_eq!((recipe.model_digest.as_str(), provenance.recipe_digest.as_str()), ("", ""));
    assert_eq!((head.card.spec.output, head.card.spec.chunk), (HeadOutput::Raw, ChunkRule::First));
    let source = head.card.source.as_ref().context("no source")?;
    assert_eq!(source.assumed_encoder, "Snowflake/snowflake-arctic-embed-m-v2.0");

    assert_eq!(recipe.max_chars, None);

    let head = import("deu_Latn.pt", PublishedRecipe::Finepdfs)?;
    let provenance = head.card.provenance.clone().context("no provenance")?;
    let recipe = provenance.recipe.context("no recipe")?;
    assert_eq!((recipe.max_tokens, recipe.max_chars), (2048, Some(10_000)));

    let head = import("german_cls.pth", PublishedRecipe::Apertus)?;
    assert_eq!(
        (head.card.spec.output, head.card.spec.chunk),
        (HeadOutput::Class(1), ChunkRule::Max)
    );
    Ok(())
}

#[test]
fn an_imported_head_reads_back_as_it_was_and_is_not_imported_again() -> Result<()> {
    let dir = TempDir::new()?;
    let path = dir.path().join("deu_Latn.safetensors");
    let head = imported("deu_Latn.pt")?;
    std::fs::write(&path, head.to_bytes()?)?;
    let read = Head::load(&path, "quality", &HeadConfig::default())?;
    assert_eq!((&read.card, &read.digest), (&head.card, &head.digest));
    let again = import(&path, &ImportRequest::default());
    assert!(matches!(again, Err(Error::Model { .. })), "{again:?}");
    Ok(())
}

#[test]
fn a_preset_that_does_not_fit_the_outputs_is_refused() -> Result<()> {
    let request = ImportRequest { preset: Some(Preset::Quality), ..ImportRequest::default() };
    let error = import(&golden("german_cls.pth"), &request).err().context("imported")?;
    assert!(error.to_string().contains("`sigmoid` does not fit 2 output(s)"), "{error}");
    Ok(())
}
