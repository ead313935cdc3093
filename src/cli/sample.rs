//! `polysift sample`: its arguments and the table that it prints.

use clap::Args;

use polysift::views::sampling::{LanguageSample, SampleRequest};

use super::printer::{cells, titled_table};
use super::settings::RunDirArgs;

#[derive(Debug, Args)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) run: RunDirArgs,
    #[command(flatten)]
    pub(crate) request: SampleRequest,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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
