//! The encoder of a run: how it is loaded, and the settings that identify it.

use serde_json::{Value, json};

use crate::context::Context;
use crate::frozen::{FrozenEmbeddings, FrozenEncoder};
use polysift_base::error::{Error, Result};
use polysift_config::{DeviceChoice, EncoderConfig, EncoderPrecision};
use polysift_encoder::{self as encoder, Model};
use polysift_runs::run::{RunDir, Stage, difference};

/// Floating-point operations per second of an H200 in bf16: 2.65 million tokens per second in
/// sequences of 512, with an encoder of the base shape (`benches/runs/2026-11-26-h200.md`).
pub const GPU_FLOPS_PER_SEC: f64 = 2.65e6 * 188.7e6;

/// Loads the model for `stage`, in the precision of the run so far if the settings leave it open.
pub fn load_model(context: Context<'_>, stage: Stage) -> Result<Model> {
    let mut config = context.config.encoder.clone();
    let refine = context.config.selection.refine;
    // With `refine`, heads are trained, and texts outside the corpus scored, in that precision.
    if refine && matches!(stage, Stage::Train | Stage::Score) {
        return encoder::load(&precise_settings(context)?, context.hub);
    }
    let discarded = |begun: Stage| {
        let goes = begun == stage || begun.depends_on(stage);
        context.redo == Some(stage) && goes || refine && begun == Stage::Train
    };
    for begun in
        [Stage::Embed, Stage::Cascade, Stage::Train].into_iter().filter(|begun| !discarded(*begun))
    {
        if let Some(precision) = FrozenEmbeddings::read(context.run, begun)?.precision() {
            config.resume_in(precision);
        }
    }
    encoder::load(&config, context.hub)
}

/// Returns the precision to refine scores in for a run in `precision`: bf16 for fp8, else f32.
pub fn refined_precision(precision: EncoderPrecision) -> EncoderPrecision {
    if precision == EncoderPrecision::Fp8 { EncoderPrecision::Bf16 } else { EncoderPrecision::F32 }
}

/// Returns the settings of the run's encoder in its [`refined_precision`].
pub fn precise_settings(context: Context<'_>) -> Result<EncoderConfig> {
    let config = &context.config.encoder;
    let begun = FrozenEmbeddings::read(context.run, Stage::Embed)?.precision();
    let precision = refined_precision(begun.unwrap_or(config.precision));
    let needs_cpu = precision == EncoderPrecision::F32;
    let device = if needs_cpu { DeviceChoice::Cpu } else { config.device.clone() };
    Ok(EncoderConfig { precision, device, ..config.clone() })
}

/// Returns true if the embeddings of `run` are already in f32.
pub fn is_precise(run: &RunDir) -> Result<bool> {
    let precision = FrozenEmbeddings::read(run, Stage::Embed)?.precision();
    Ok(precision == Some(EncoderPrecision::F32))
}

/// Freezes the settings of a stage; if the precision differs, the error names the flag to give.
pub fn freeze_encoded(
    context: Context<'_>,
    stage: Stage,
    settings: &Value,
    model: Option<&Model>,
) -> Result<()> {
    let begun = FrozenEmbeddings::read(context.run, stage)?.precision();
    // With `refine`, the precision of the heads' training differs from the embeddings' precision.
    let embedded = FrozenEmbeddings::read(context.run, Stage::Embed)?.precision();
    let refined = embedded.filter(|_| stage == Stage::Train).and_then(|embedded| {
        Some(refined_precision(embedded)).filter(|refined| *refined != embedded)
    });
    let other = begun.zip(model).filter(|(begun, model)| {
        let now = model.placement.precision;
        now != *begun && ![now, *begun].map(Some).contains(&refined)
    });
    // GPUs compute only in bf16 and fp8; other precisions need the CPU.
    let flag = other.map(|(begun, model)| match begun {
        EncoderPrecision::Bf16 | EncoderPrecision::Fp8 => format!("--precision {begun}"),
        _ if model.placement.gpus.is_empty() => format!("--precision {begun}"),
        _ => "--device cpu".to_owned(),
    });
    context.freeze(stage, settings).map_err(|error| match (error, flag) {
        (Error::Mismatch { path, difference, hint }, Some(flag)) => {
            let hint = format!("give `{flag}`, as when this run was begun; or {hint}");
            Error::Mismatch { path, difference, hint }
        }
        (error, _) => error,
    })
}

/// Returns the digest of the encoder of the embeddings of `run`; empty before the embed stage.
pub fn encoder_digest(run: &RunDir) -> Result<String> {
    let encoder = FrozenEmbeddings::read(run, Stage::Embed)?.encoder;
    Ok(encoder.map_or_else(String::new, |encoder| encoder.digest().to_owned()))
}

/// Returns [`Error::Mismatch`] if the embeddings of `run` were made with another encoder or recipe
/// than that of `model`. Embeddings from the input say nothing of theirs.
pub fn check_encoder(run: &RunDir, model: &Model) -> Result<()> {
    let frozen = FrozenEmbeddings::read(run, Stage::Embed)?.encoder;
    let Some(FrozenEncoder::Run { recipe, .. }) = frozen else { return Ok(()) };
    if recipe == model.recipe {
        return Ok(());
    }
    let difference = difference("encoder", &json!(recipe), &json!(model.recipe));
    let hint = "give the encoder and the settings that the run was made with".to_owned();
    Err(Error::Mismatch { path: run.root().to_owned(), difference, hint })
}
