//! `polysift sample`: its arguments and the table that it prints.

use std::path::Path;

use clap::Args;

use polysift::Result;
use polysift::config::Rate;
use polysift::corpus::Context;
use polysift::input::discover;
use polysift::views::sampling::{DEFAULT_FRAME, LanguageSample, SampleRequest, sample};

use super::printer::{cells, titled_table};
use super::settings::RunDirArgs;

#[derive(Debug, Args)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) run: RunDirArgs,
    /// JSON lines file to write, which must not exist yet; {lang} stands for the language code
    #[arg(long, value_name = "FILE")]
    out: String,
    /// Number of documents per language
    #[arg(long, value_name = "N", default_value_t = 500)]
    count: usize,
    /// Sample only these languages
    #[arg(long, value_name = "CODE")]
    language: Vec<String>,
    /// Share of the documents to draw near a threshold, e.g. 0.4; the rest is uniform
    #[arg(long, value_name = "SHARE")]
    near: Option<Rate>,
    /// Head whose thresholds `--near` samples around, needed if the run has several
    #[arg(long, value_name = "NAME", requires = "near")]
    head: Option<String>,
    /// Rates of the thresholds that `--near` samples around [default: the run's thresholds]
    #[arg(long, value_name = "RATES", value_delimiter = ',', requires = "near")]
    rate: Vec<Rate>,
    /// Files of earlier rounds; documents with the same id or text are left out
    #[arg(long, value_name = "FILES", num_args = 1..)]
    exclude: Vec<String>,
    /// Random seed [default: the seed of the run]
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum documents per language to choose from; a larger language is first sampled uniformly
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FRAME)]
    frame: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl SampleArgs {
    pub(crate) fn sample(&self, context: Context<'_>) -> Result<Vec<LanguageSample>> {
        let is_given = !self.exclude.is_empty();
        let exclude = is_given.then(|| discover(&self.exclude, Path::new("."))).transpose()?;
        let request = SampleRequest {
            count: self.count,
            languages: &self.language,
            near: self.near,
            head: self.head.as_deref(),
            rates: &self.rate,
            exclude: &exclude.unwrap_or_default(),
            seed: self.seed.unwrap_or(context.config.seed.0),
            frame: self.frame,
            out: &self.out,
        };
        sample(context, &request)
    }
}

pub(crate) fn print(samples: &[LanguageSample]) {
    let titles = ["language", "documents", "rows", "copies", "known", "effective size"];
    let rows = samples.iter().map(|sample| {
        let LanguageSample { language, documents, rows, copies, .. } = sample;
        let known = sample.excluded + sample.known_texts;
        cells([language, documents, rows, copies, &known, &format!("{:.1}", sample.effective_size)])
    });
    titled_table(titles, rows);
}
