//! The encoder alone, on token ids.

use anyhow::{Context, Result};
use clap::Args;
use polysift::batch::PackedBatch;
use polysift::config::EncoderConfig;
use polysift::encoder::{Encoder, EncoderInfo, HubSettings, Model, embed_chunks, load};
use polysift::progress::Stop;
use serde_json::{Value, json};

use crate::Common;
use crate::expected;
use crate::measure::{Run, Sizes, line, repeat, write_json};
use crate::workload::{Workload, write_embeddings};

/// What SEL is embedded with: the default of a GPU.
const DEFAULT_BATCH_TOKENS: usize = 16_896;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tokens of a batch, each measured
    #[arg(long, value_delimiter = ',', default_value = "4224,8448,16896,33792,67584")]
    batch_tokens: Vec<usize>,
    /// W1, W2
    #[arg(long, value_delimiter = ',', default_value = "W2,W1")]
    workloads: Vec<String>,
    #[command(flatten)]
    form: Form,
}

/// What the encoder computes, where it is not the default.
#[derive(Debug, Args)]
pub(crate) struct Form {
    /// As `polysift --precision`
    #[arg(long)]
    precision: Option<String>,
}

impl Form {
    /// The settings that are given, by name.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.precision.as_deref().map(|precision| ("precision", precision)).into_iter()
    }

    /// With the settings that are given.
    fn put_into(&self, settings: &mut Value) {
        self.settings().for_each(|(name, value)| settings[name] = value.into());
    }
}

/// Loads the model in the data folder on the device, with room for batches of `batch_tokens`.
pub(crate) fn open(common: &Common, form: &Form, batch_tokens: usize) -> Result<Model> {
    let directory = common.data.join("model");
    let mut config = json!({
        "model": directory.display().to_string(), "batch_tokens": batch_tokens,
    });
    form.put_into(&mut config);
    if common.device != "cpu" {
        config["device"] = common.device.clone().into();
    }
    let config: EncoderConfig = serde_json::from_value(config)?;
    load(&config, &HubSettings::from_env(|_| None))
        .with_context(|| format!("the model cannot be loaded for {}", common.device))
}

/// An encoder that says that one caller is enough: no two batches are in work at a time.
struct OneCaller<'a>(&'a dyn Encoder, EncoderInfo);

impl Encoder for OneCaller<'_> {
    fn info(&self) -> &EncoderInfo {
        &self.1
    }

    fn encode(
        &self,
        batch: &PackedBatch,
        embeddings: &mut [f32],
        stop: &Stop,
    ) -> polysift::Result<()> {
        self.0.encode(batch, embeddings, stop)
    }
}

/// Embeds `chunks` in packed batches.
pub(crate) fn embed(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    batch_tokens: usize,
) -> Result<Vec<f32>> {
    Ok(embed_chunks(encoder, chunks, batch_tokens, &Stop::default(), &mut |_, _| {})?)
}

/// Measures every workload at every bucket size, one batch at a time and several.
pub(crate) fn measure(common: &Common, options: &Options) -> Result<()> {
    let sizes = Sizes::read(&common.data.join("model"))?;
    let mut workloads = Vec::new();
    for name in &options.workloads {
        workloads.push(Workload::read(&common.data, name)?);
    }
    let (mut runs, mut device) = (Vec::new(), String::new());
    for &batch_tokens in &options.batch_tokens {
        let model = open(common, &options.form, batch_tokens)?;
        let encoder = model.encoder.as_ref();
        device.clone_from(&encoder.info().device);
        for workload in &workloads {
            let chunks = workload.chunks();
            let info = EncoderInfo { in_flight: 1, ..encoder.info().clone() };
            let one = OneCaller(encoder, info);
            let callers: [(&str, &dyn Encoder); 2] = [("one", &one), ("all", encoder)];
            for (callers, encoder) in callers {
                let (seconds, _) =
                    repeat(common.repetitions, || embed(encoder, &chunks, batch_tokens))?;
                let mut settings =
                    json!({"batch_tokens": batch_tokens, "batches_at_once": callers});
                options.form.put_into(&mut settings);
                let expected = expected::rate(&sizes, &workload.name, &settings);
                let run =
                    Run::new(("polysift", &workload.name, settings), &chunks, &sizes, seconds);
                line(&format!("{}{expected}", run.describe()))?;
                runs.push(run);
                // Every row as it comes: a run that is cut short has what it measured.
                write_json(&common.out, &json!({"device": device, "runs": runs}))?;
            }
        }
    }
    Ok(())
}

/// Writes the embeddings of SEL.
pub(crate) fn embeddings(common: &Common, form: &Form) -> Result<()> {
    let workload = Workload::read(&common.data, "SEL")?;
    let model = open(common, form, DEFAULT_BATCH_TOKENS)?;
    let embeddings = embed(model.encoder.as_ref(), &workload.chunks(), DEFAULT_BATCH_TOKENS)?;
    write_embeddings(&common.out, &embeddings, model.encoder.info().embedding_size)?;
    let documents = workload.sequences.len();
    line(&format!("{}: {documents} embeddings from {}", common.out.display(), common.device))
}
