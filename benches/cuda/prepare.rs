//! What is measured: a model, token ids. The same seeds give the same bytes on every machine.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use polysift::config::EncoderConfig;
use polysift::encoder::{HubSettings, resolve};

use crate::corpus::Documents;
use crate::measure::line;
use crate::model::{Family, Shape, write_model};
use crate::workload::{Lengths, Workload};

/// Tokenizer of the model unless another one is named; the encoder alone does not use it.
const TOKENIZER: &[u8] =
    include_bytes!("../../tests/golden/encoder/head16-prefixed/tokenizer.json");

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShapeName {
    Tiny,
    Base,
    Large,
    /// gte-multilingual-base
    Gte,
    /// mmBERT-base
    Mmbert,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder to fill
    data: PathBuf,
    #[arg(long, value_enum, default_value = "base")]
    shape: ShapeName,
    /// Documents of W2 (web-like lengths); W1 (all of 512 tokens) has half as many
    #[arg(long, default_value_t = 8192)]
    documents: usize,
    /// Documents of SEL, on which selections are compared
    #[arg(long, default_value_t = 20_480)]
    selection_documents: usize,
    /// A tokenizer.json for the model [default: a small one of the tests]
    #[arg(long)]
    tokenizer: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TextOptions {
    /// Folder to fill
    data: PathBuf,
    /// Directory of a trained model
    #[arg(long)]
    model: PathBuf,
    /// Folder of Parquet files whose texts are cut up for the documents
    #[arg(long)]
    texts: PathBuf,
    /// Documents of SEL
    #[arg(long, default_value_t = 20_480)]
    selection_documents: usize,
}

impl ShapeName {
    fn shape(self) -> Shape {
        match self {
            Self::Tiny => Shape {
                name: "tiny",
                family: Family::XlmRoberta,
                hidden_size: 64,
                num_hidden_layers: 2,
                num_attention_heads: 2,
                intermediate_size: 256,
                vocab_size: 1000,
            },
            Self::Base => Shape::BASE,
            Self::Large => Shape {
                name: "large",
                family: Family::XlmRoberta,
                hidden_size: 1024,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                intermediate_size: 4096,
                vocab_size: 250_002,
            },
            Self::Gte => {
                Shape { name: "gte", family: Family::Gte, vocab_size: 250_048, ..Shape::BASE }
            }
            Self::Mmbert => Shape {
                name: "mmbert",
                family: Family::ModernBert,
                num_hidden_layers: 22,
                intermediate_size: 1152,
                vocab_size: 256_000,
                ..Shape::BASE
            },
        }
    }
}

/// Makes what is not there yet.
pub(crate) fn prepare(options: &Options) -> Result<()> {
    let shape = options.shape.shape();
    let model = options.data.join("model");
    if model.join("model.safetensors").is_file() {
        line(&format!("{}: is there, kept", model.display()))?;
        return Ok(());
    }
    std::fs::create_dir_all(&model)?;
    let (documents, vocab_size) = (options.documents, shape.vocab_size);
    for workload in [
        Workload::draw("W1", Lengths::Full, documents.div_ceil(2), vocab_size, 1),
        Workload::draw("W2", Lengths::Web, documents, vocab_size, 2),
        Workload::draw("SEL", Lengths::Web, options.selection_documents, vocab_size, 3),
    ] {
        workload.write(&options.data)?;
        let tokens: usize = workload.sequences.iter().map(Vec::len).sum();
        let documents = workload.sequences.len();
        line(&format!("{}: {documents} documents, {tokens} tokens", workload.name))?;
    }
    let tokenizer = match &options.tokenizer {
        Some(path) => {
            std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?
        }
        None => TOKENIZER.to_vec(),
    };
    write_model(&shape, &tokenizer, &model)?;
    line(&format!("{}: random weights of the {} shape", model.display(), shape.name))
}

/// A trained model and SEL from real text, as its tokenizer cuts it.
pub(crate) fn prepare_text(options: &TextOptions) -> Result<()> {
    let model = options.data.join("model");
    std::fs::create_dir_all(&model)?;
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let from = options.model.join(file);
        std::fs::copy(&from, model.join(file))
            .with_context(|| format!("{} cannot be copied", from.display()))?;
    }
    let config = EncoderConfig { model: model.display().to_string(), ..EncoderConfig::default() };
    let files = resolve(&config, &HubSettings::from_env(|_| None))?;
    let documents = Documents::of(&options.texts)?.draw(options.selection_documents);
    let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
    let tokenized = files.tokenizer(&config)?.chunks_all(&texts)?;
    let sequences = tokenized.into_iter().filter_map(|chunks| chunks.into_iter().next()).collect();
    let workload = Workload { name: "SEL".into(), sequences };
    workload.write(&options.data)?;
    line(&format!("SEL: {} documents of text", workload.sequences.len()))
}
