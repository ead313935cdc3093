//! `polysift report`: its arguments and the table that it prints.

use std::path::Path;

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
    #[command(flatten)]
    request: ReportRequest,
    /// Print JSON: the paths written and the counts of each language
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReportArgs {
    pub(crate) fn report(&self, context: Context<'_>) -> Result<WrittenReport> {
        let other = self.request.compare.as_deref().map(Path::new);
        let other = other.filter(|path| RunDir::open(path).is_ok()).map(settings_of).transpose()?;
        report(context, &self.request, other.as_ref(), VERSION)
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
