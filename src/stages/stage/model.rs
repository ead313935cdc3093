//! The encoder of a run: how it is loaded, and the settings that say which one made the embeddings.

use serde_json::{Value, json};

use super::context::Context;
use polysift_base::error::{Error, Result};
use polysift_config::{DeviceChoice, EncoderConfig, EncoderPrecision, NO_MODEL, RunConfig};
use polysift_encoder::{self as encoder, Model, Placement, Recipe};
use polysift_runs::run::{RunDir, Stage};

/// Floating-point operations per second of one GPU, in bf16: what an H200 reached with an encoder of the base
/// shape (`benches/runs/2026-11-26-h200.md`), 2.65 million tokens in sequences of 512.
pub(crate) const GPU_FLOPS_PER_SEC: f64 = 2.65e6 * 188.7e6;

/// Loads the model for `stage`. Where the settings leave open in what it computes, it continues as
/// the run was begun.
pub(crate) fn load_model(context: Context<'_>, stage: Stage) -> Result<Model> {
    let mut config = context.config.encoder.clone();
    let refine = context.config.selection.refine;
    if refine && stage == Stage::Train {
        return load_precise(context); // the selection is that of heads trained so
    }
    let discarded = |begun: Stage| {
        let goes = begun == stage || begun.depends_on(stage);
        context.redo == Some(stage) && goes || refine && begun == Stage::Train
    };
    for begun in
        [Stage::Embed, Stage::Cascade, Stage::Train].into_iter().filter(|begun| !discarded(*begun))
    {
        let frozen = context.run.frozen_settings(begun)?.unwrap_or_default();
        if let Ok(precision) = serde_json::from_value(frozen["encoder"]["precision"].clone()) {
            config.resume_in(precision);
        }
    }
    encoder::load(&config, context.hub)
}

/// Loads the model to compute in the type of [`refined_precision`].
pub(crate) fn load_precise(context: Context<'_>) -> Result<Model> {
    encoder::load(&precise_settings(context)?, context.hub)
}

/// The type whose selection is wanted where the run computes in `precision`: bf16 for fp8, f32 for all
/// others.
pub(crate) fn refined_precision(precision: EncoderPrecision) -> EncoderPrecision {
    if precision == EncoderPrecision::Fp8 { EncoderPrecision::Bf16 } else { EncoderPrecision::F32 }
}

/// The settings of an encoder that computes what the run's does, in the [`refined_precision`] type.
pub(crate) fn precise_settings(context: Context<'_>) -> Result<EncoderConfig> {
    let config = &context.config.encoder;
    let embed = context.run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    let begun = serde_json::from_value(embed["encoder"]["precision"].clone());
    Ok(match refined_precision(begun.unwrap_or(config.precision)) {
        EncoderPrecision::Bf16 => {
            EncoderConfig { precision: EncoderPrecision::Bf16, ..config.clone() }
        }
        precision => EncoderConfig { precision, device: DeviceChoice::Cpu, ..config.clone() },
    })
}

/// Whether the embeddings of `run` are in f32 already.
pub(crate) fn is_precise(run: &RunDir) -> Result<bool> {
    let embed = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    Ok(embed["encoder"]["precision"] == EncoderPrecision::F32.name())
}

/// What an embedding depends on besides its text; samples and corpus have to agree on it. The type
/// that the device computes in is part of it, which device that is is not.
pub(crate) fn encoder_settings(config: &RunConfig, model: Option<&Model>) -> Value {
    let Some(model) = model else {
        let digest = if config.has_embeddings() { FOREIGN_ENCODER } else { NO_MODEL };
        return json!({"digest": digest});
    };
    let mut settings = json!(model.recipe);
    settings["precision"] = model.placement.precision.name().into();
    settings
}

/// Freezes the settings of a stage that ran `model`; where the type that it computes in is to blame
/// for a difference, the error says how to ask for the right one.
pub(crate) fn freeze_encoded(
    context: Context<'_>,
    stage: Stage,
    settings: &Value,
    model: Option<&Model>,
) -> Result<()> {
    let frozen = context.run.frozen_settings(stage)?.unwrap_or_default();
    let (Some(begun), Some(model)) = (frozen["encoder"]["precision"].as_str(), model) else {
        return context.freeze(stage, settings);
    };
    let Placement { gpus, precision } = &model.placement;
    if precision.name() == begun {
        return context.freeze(stage, settings);
    }
    // What GPUs do not compute in takes another device.
    let flag = if !gpus.is_empty() && !["bf16", "fp8"].contains(&begun) {
        "--device cpu".to_owned()
    } else {
        format!("--precision {begun}")
    };
    context.freeze(stage, settings).map_err(|error| match error {
        Error::Mismatch { path, difference, hint } => Error::Mismatch {
            path,
            difference,
            hint: format!("give `{flag}`, as when this run was begun; or {hint}"),
        },
        other => other,
    })
}

/// Digest of the encoder that made the embeddings of `run`.
pub(crate) fn encoder_digest(run: &RunDir) -> Result<String> {
    let frozen = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    Ok(frozen["encoder"]["digest"].as_str().unwrap_or_default().to_owned())
}

/// How the embeddings of `run` were made, but for those that the input brought.
pub(crate) fn recipe(run: &RunDir) -> Result<Recipe> {
    let frozen = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    serde_json::from_value(frozen["encoder"].clone()).map_err(|e| {
        Error::corrupt(run.root(), format!("frozen/embed.json has no recipe of embeddings: {e}"))
    })
}

/// Digest that stands for the encoder where the input brings its own embeddings.
pub(crate) const FOREIGN_ENCODER: &str = "embeddings from the input";
