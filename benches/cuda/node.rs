//! `embed` from Parquet to Parquet with simulated GPUs that take no time: what the processors of a
//! node have to do. Eight GPUs embed 87,000 documents of 400 tokens a second in fp8.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use polysift::batch::PackedBatch;
use polysift::config::{LanguageSource, RunConfig};
use polysift::corpus::{Context, plan};
use polysift::encoder::{self, Encoder, EncoderInfo, HubSettings, Model};
use polysift::progress::{Silent, Stop};
use polysift::run::{RunDir, Worker};
use polysift::stages::embed;

use crate::corpus::{parquet_files, write_corpus};
use crate::cpu_seconds::cpu_seconds;
use crate::measure::line;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder for corpus and runs
    data: PathBuf,
    /// Folder of Parquet files whose texts are cut up for the corpus
    #[arg(long, default_value = "tests/sample/corpus")]
    texts: PathBuf,
    /// Number of documents
    #[arg(long, default_value_t = 100_000)]
    documents: usize,
    /// Numbers of GPUs to simulate, one after another
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    gpus: Vec<usize>,
    /// Times that each number is measured, in turn
    #[arg(long, default_value_t = 3)]
    turns: usize,
}

/// Embeddings of the base width that follow from the tokens; two batches a GPU in flight.
struct InstantGpus {
    info: EncoderInfo,
}

impl Encoder for InstantGpus {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(
        &self,
        batch: &PackedBatch,
        embeddings: &mut [f32],
        _: &Stop,
    ) -> polysift::Result<()> {
        for (i, row) in embeddings.chunks_exact_mut(self.info.embedding_size).enumerate() {
            let ids = batch.sequence(i);
            let mut state =
                ids.iter().fold(1, |sum: u64, id| sum.wrapping_mul(31) + u64::from(*id));
            for value in row {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *value = (state >> 40) as f32 / 8_388_608.0 - 1.0;
            }
        }
        Ok(())
    }
}

pub(crate) fn measure(options: &Options) -> Result<()> {
    let corpus = options.data.join("corpus");
    if !corpus.exists() {
        write_corpus(&options.texts, options.documents, &corpus)?;
    }
    let mut config = RunConfig::default();
    config.input.files = vec![corpus.display().to_string()];
    config.input.language = LanguageSource::Fixed("und".into());
    let hub = HubSettings::from_env(|_| None);
    for _ in 0..options.turns {
        for &count in &options.gpus {
            let mut model = encoder::load(&config.encoder, &hub)?;
            let info = EncoderInfo {
                hidden_size: 768,
                embedding_size: 768,
                in_flight: 2 * count,
                batch_tokens: Some(67_584),
                ..model.encoder.info().clone()
            };
            model.encoder = Arc::new(InstantGpus { info });
            model.placement.gpus = (0..count).collect();
            let root = options.data.join(format!("run-{count}"));
            embed_once(&config, &hub, &model, &root)?;
        }
    }
    let parts = |count: &usize| {
        let root = options.data.join(format!("run-{count}/embeddings"));
        let paths = parquet_files(&root)?;
        let read =
            |path: &PathBuf| Ok((path.strip_prefix(&root)?.to_owned(), std::fs::read(path)?));
        paths.iter().map(read).collect::<Result<Vec<_>>>()
    };
    let (first, others) = options.gpus.split_first().context("no number of GPUs")?;
    let expected = parts(first)?;
    for count in others {
        ensure!(parts(count)? == expected, "{count} GPUs give other bytes than {first}");
    }
    line(&format!("the bytes of {} parts are equal for {:?} GPUs", expected.len(), options.gpus))
}

fn embed_once(config: &RunConfig, hub: &HubSettings, model: &Model, root: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    let run = RunDir::create(root)?;
    let stop = Stop::default();
    let worker = Worker::join(&run, &stop)?;
    let context = Context::observing(config, &run, hub, &stop, &Silent, &worker);
    let plan = plan::plan(config)?;
    let (began, before) = (Instant::now(), cpu_seconds()?);
    embed::embed(context, &plan, Some(model))?;
    let (wall, after) = (began.elapsed().as_secs_f64(), cpu_seconds()?);
    let processor = after.0 + after.1 - before.0 - before.1;
    let markers = plan.shards.iter().map(|shard| run.part_markers(shard));
    let markers = markers.collect::<polysift::Result<Vec<_>>>()?.concat();
    let (documents, tokens) = markers.iter().fold((0, 0), |(documents, tokens), part| {
        (documents + part.encoded.documents, tokens + part.encoded.tokens)
    });
    let gpus = model.placement.gpus.len();
    line(&format!(
        "{gpus} GPUs: {documents} documents of {:.0} tokens in {wall:.1} s, {processor:.1} processor seconds: \
         {:.0} documents/s, {:.0} a core",
        tokens as f64 / documents as f64,
        documents as f64 / wall,
        documents as f64 / processor,
    ))
}
