//! `polysift sample`: its arguments, and the table that it prints.

use std::path::{Path, PathBuf};

use clap::Args;

use polysift::Result;
use polysift::config::Rate;
use polysift::input::discover;
use polysift::stage::Context;
use polysift::stage::sampling::{
    DEFAULT_FRAME, LanguageSample, Mixture, SampleRequest, Strategy, sample,
};

use super::printer::titled_table;

/// Which documents to choose, and where they go.
#[derive(Debug, Args)]
pub(crate) struct SampleArgs {
    /// The run directory
    pub(crate) run: PathBuf,
    /// JSON lines to write; {lang} stands for the language code. A file that is there is never replaced
    #[arg(long, value_name = "FILE")]
    out: String,
    /// Documents of each language
    #[arg(long, value_name = "N", default_value_t = 500)]
    count: usize,
    /// Only these languages
    #[arg(long, value_name = "CODE")]
    language: Vec<String>,
    /// Shares of the strategies: uniform, scores, near, disagreement, diverse; e.g. uniform=0.5,near=0.5
    #[arg(long, value_name = "SHARES", default_value = "uniform")]
    strategy: Mixture,
    /// Heads that `disagreement` compares; the first is that of `scores` and `near` [default: all of the run]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    head: Vec<String>,
    /// Shares of the documents that lie before the cuts of `near` [default: the thresholds of the run]
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    cut: Vec<Rate>,
    /// Files of earlier rounds, whose ids and texts are left out
    #[arg(long, value_name = "FILES", num_args = 1..)]
    exclude: Vec<String>,
    /// Seed of the choice [default: that of the run]
    #[arg(long)]
    seed: Option<u64>,
    /// Documents of a language to choose from, at most; of more, a uniform sample
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FRAME)]
    frame: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl SampleArgs {
    /// Writes the sample, and says what is in it.
    pub(crate) fn sample(&self, context: Context<'_>) -> Result<Vec<LanguageSample>> {
        let exclude = if self.exclude.is_empty() {
            Vec::new()
        } else {
            discover(&self.exclude, Path::new("."))?
        };
        sample(
            context,
            &SampleRequest {
                count: self.count,
                languages: &self.language,
                mixture: &self.strategy,
                heads: &self.head,
                cuts: &self.cut,
                exclude: &exclude,
                seed: self.seed.unwrap_or(context.config.seed.0),
                frame: self.frame,
                out: &self.out,
            },
        )
    }
}

/// What was drawn of each language.
pub(crate) fn print(samples: &[LanguageSample]) {
    let titles = ["language", "documents", "rows", "copies", "known", "effective size"];
    let titles = titles.into_iter().chain(Strategy::ALL.map(Strategy::name));
    let rows = samples.iter().map(|sample| {
        let of_strategy = |strategy| sample.strategies.get(&strategy).copied().unwrap_or(0);
        let mut row = vec![
            sample.language.clone(),
            sample.documents.to_string(),
            sample.rows.to_string(),
            sample.copies.to_string(),
            (sample.excluded + sample.known_texts).to_string(),
            format!("{:.1}", sample.effective_size),
        ];
        row.extend(Strategy::ALL.map(|strategy| of_strategy(strategy).to_string()));
        row
    });
    titled_table(titles, rows);
}
