//! `polysift dataset`: labelled samples from published sources.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use polysift::config::{InputConfig, Mode, is_language_code};
use polysift::dataset::mkc::{DEFAULT_MAX_POSITIVES, PUBLISHED_MAX_POSITIVES};
use polysift::dataset::{
    self, DatasetCard, LanguageTable, MkcRequest, MkcVariant, ToxicityFormat, ToxicityRequest,
    build_mkc, build_toxicity,
};
use polysift::input::discover;
use polysift::progress::{Progress, Stop};
use polysift::{Error, Result};

use super::printer::{line, table};
use super::settings::hub;

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Build MKC or MKC+: knowledge-rich positives against a sample of the corpus
    Mkc(MkcArgs),
    /// Build balanced samples of toxic and other texts
    Toxicity(ToxicityArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MkcArgs {
    /// Directory with the folders mmmlu, include, oasst2, aya_dataset and aya_collection
    #[arg(long, value_name = "DIR", required_unless_present = "download")]
    sources: Option<PathBuf>,
    /// Download the sources that are not in --sources from the Hugging Face hub, into its cache
    #[arg(long)]
    download: bool,
    /// Use only downloads that are already here, never the hub
    #[arg(long, requires = "download")]
    offline: bool,
    /// Files, directories or globs of the corpus; {lang} stands for the language code
    #[arg(long, value_name = "PATTERN", required = true, num_args = 1..)]
    corpus: Vec<String>,
    /// Directory of the result, which gets a folder per language
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Languages, by FineWeb-2 code [default: all of the table that have a corpus]
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    languages: Vec<String>,
    /// With (mkc+) or without (mkc) the Aya Collection
    #[arg(long, value_enum, default_value = "mkc+")]
    variant: MkcVariant,
    /// Most positives of a language [default: 80000; in the mode published 100000]
    #[arg(long, value_name = "N")]
    max_positives: Option<usize>,
    /// TOML file with more rows of the table of languages, which win over the built-in ones
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Column of the text in the corpus
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    text_column: String,
    /// Column of the id in the corpus
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    id_column: String,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ToxicityArgs {
    /// Parquet, CSV or JSON lines files, or directories of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Language of all texts, by FineWeb-2 code
    #[arg(long, value_name = "CODE")]
    language: String,
    /// Directory of the result, which gets a folder of the language
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What the columns mean [default: told by their names]
    #[arg(long, value_enum)]
    format: Option<ToxicityFormat>,
    /// Column of the text, for other files than those of a known format
    #[arg(long, value_name = "COLUMN", conflicts_with = "format")]
    text_column: Option<String>,
    /// Column of the label, for other files than those of a known format
    #[arg(long, value_name = "COLUMN", conflicts_with = "format")]
    label_column: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// default, or published: what the published scripts do, their mistakes included
    #[arg(long, value_enum, default_value = "default")]
    mode: Mode,
    /// Seed of all choices
    #[arg(long, default_value_t = dataset::DEFAULT_SEED)]
    seed: u64,
    /// Rows that cannot be used, per file, before the file fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_rejects: u64,
}

/// Builds a dataset and prints what it was made of.
pub(crate) fn run(
    command: &DatasetCommand,
    stop: &Stop,
    progress: &dyn Progress,
    quiet: bool,
) -> Result<()> {
    let (cards, out) = match command {
        DatasetCommand::Mkc(args) => (build_mkc(&mkc_request(args)?, stop, progress)?, &args.out),
        DatasetCommand::Toxicity(args) => {
            (vec![build_toxicity(&toxicity_request(args)?, stop)?], &args.out)
        }
    };
    if !quiet {
        print(&cards, out);
    }
    Ok(())
}

fn mkc_request(args: &MkcArgs) -> Result<MkcRequest> {
    let mode = args.common.mode;
    let mut table = LanguageTable::of_mode(mode)?;
    if let Some(path) = &args.table {
        table.add_file(path)?;
    }
    let most = match mode {
        Mode::Default => DEFAULT_MAX_POSITIVES,
        Mode::Published => PUBLISHED_MAX_POSITIVES,
    };
    Ok(MkcRequest {
        sources: args.sources.clone(),
        download: args.download.then(|| hub(args.offline)),
        corpus: discover(&args.corpus, Path::new("."))?,
        input: InputConfig {
            text: args.text_column.clone(),
            id: args.id_column.clone(),
            max_rejects: args.common.max_rejects,
            ..InputConfig::default()
        },
        out: args.out.clone(),
        languages: args.languages.clone(),
        variant: args.variant,
        mode,
        max_positives: args.max_positives.unwrap_or(most),
        table,
        seed: args.common.seed,
    })
}

fn toxicity_request(args: &ToxicityArgs) -> Result<ToxicityRequest> {
    if !is_language_code(&args.language) {
        let reason = format!("`{}` is not {}", args.language, polysift::config::LANGUAGE_CODE);
        return Err(Error::config("--language", reason));
    }
    let named = args.text_column.is_some() || args.label_column.is_some();
    let column =
        |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.to_owned());
    let plain = || ToxicityFormat::Plain {
        text: column(&args.text_column, "text"),
        label: column(&args.label_column, "label"),
    };
    Ok(ToxicityRequest {
        files: args.files.clone(),
        out: args.out.clone(),
        language: args.language.clone(),
        format: args.format.clone().or_else(|| named.then(plain)),
        mode: args.common.mode,
        max_rejects: args.common.max_rejects,
        seed: args.common.seed,
    })
}

/// A table of the sources and one of the files.
fn print(cards: &[DatasetCard], out: &Path) {
    let mut sources =
        vec![["language", "source", "rows", "kept", "dropped"].map(str::to_owned).to_vec()];
    let mut files = vec![["language", "file", "positive", "negative"].map(str::to_owned).to_vec()];
    for card in cards {
        for (name, source) in &card.sources {
            let dropped = source.dropped.iter().map(|(reason, n)| format!("{n} {reason}"));
            sources.push(vec![
                card.language.clone(),
                name.clone(),
                source.rows.to_string(),
                source.kept.to_string(),
                dropped.collect::<Vec<_>>().join(", "),
            ]);
        }
        for (name, sizes) in &card.samples {
            let (positive, negative) = (sizes.positive.to_string(), sizes.negative.to_string());
            files.push(vec![card.language.clone(), name.clone(), positive, negative]);
        }
    }
    table(&sources);
    line("");
    table(&files);
    line(&format!("\nsamples and cards: {}", out.display()));
}
