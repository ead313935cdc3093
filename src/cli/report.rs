//! `polysift report`: its arguments and the table that it prints.

use std::path::{Path, PathBuf};

use clap::Args;

use polysift::Result;
use polysift::corpus::Context;
use polysift::run::RunDir;
use polysift::views::report::{ReportRequest, WrittenReport, report};

use super::printer::{VERSION, cells, line, titled_table};
use super::settings::{RunDirArgs, settings_of};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) run: RunDirArgs,
    /// Folder for report.json and index.html [default: RUN/report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Examples per end of a head's ranking and per side of a threshold; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 10)]
    examples: usize,
    /// Documents sampled per language to compute other rates on the page; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 2000)]
    sample: usize,
    /// Ids to compare with: a run directory, or lists (text with one id per line, or Parquet or
    /// JSON lines with a column `id`)
    #[arg(long, value_name = "IDS|RUN")]
    compare: Option<String>,
    /// Do not read the input: the report has no lengths in words, no texts and no domains
    #[arg(long)]
    no_texts: bool,
    /// Print JSON: the paths written and the counts of each language
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReportArgs {
    pub(crate) fn report(&self, context: Context<'_>) -> Result<WrittenReport> {
        let out = self.out.clone().unwrap_or_else(|| context.run.path("report"));
        let other = self.compare.as_deref().map(Path::new);
        let other = other.filter(|path| RunDir::open(path).is_ok()).map(settings_of).transpose()?;
        let request = ReportRequest {
            out: &out,
            examples: self.examples,
            sample: self.sample,
            texts: !self.no_texts,
            compare: self.compare.as_deref().map(|path| (path, other.as_ref())),
            version: VERSION,
        };
        report(context, &request)
    }
}

pub(crate) fn print(written: &WrittenReport) {
    let rows = written.languages.iter().flat_map(|language| {
        let row = |(name, kept): (&String, &u64)| {
            cells([name, &language.language, &language.documents, kept])
        };
        language.selected.iter().map(row)
    });
    titled_table(["selection", "language", "documents", "kept"], rows);
    for note in &written.notes {
        line(&format!("note: {note}"));
    }
    line(&written.page.display().to_string());
    line(&written.report.display().to_string());
}
