//! `polysift report`: its arguments, and the table that it prints.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use polysift::config::RunConfig;
use polysift::evaluate::{DEFAULT_SAMPLE, Pair, evaluate_run};
use polysift::run::RunDir;
use polysift::stage::Context;
use polysift::stage::report::{ReportRequest, WrittenReport, report};
use polysift::{Error, Result};

use super::printer::{line, titled_table};
use super::settings::settings_of;

/// Rate at which the tops of two heads are compared.
const TOP: &str = "0.1";

/// What to report, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The run directory
    pub(crate) run: PathBuf,
    /// Folder of report.json and index.html [default: RUN/report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Documents to read at the ends of each head's order and on both sides of each cut; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 10)]
    examples: usize,
    /// Documents of each language in the sample that the page computes other rates from; fewer with many languages
    #[arg(long, value_name = "N", default_value_t = 2000)]
    sample: usize,
    /// Ids to compare with: a run directory, or lists (text with an id a line, Parquet, JSON lines with a column `id`)
    #[arg(long, value_name = "IDS|RUN")]
    compare: Option<String>,
    /// Do not read the input: no lengths in words, no texts, no domains
    #[arg(long)]
    no_texts: bool,
    /// Print JSON: what was written, the counts of each language
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReportArgs {
    /// Writes the report of this `version` of the program, and says what is in it.
    pub(crate) fn report(&self, context: Context<'_>, version: &str) -> Result<WrittenReport> {
        let out = self.out.clone().unwrap_or_else(|| context.run.path("report"));
        let is_run = |path: &&String| RunDir::open(Path::new(path)).is_ok();
        let other = self.compare.as_ref().filter(is_run);
        let other: Option<RunConfig> =
            other.map(|path| settings_of(Path::new(path))).transpose()?;
        report(
            context,
            &ReportRequest {
                out: &out,
                examples: self.examples,
                sample: self.sample,
                texts: !self.no_texts,
                compare: self.compare.as_deref().map(|path| (path, other.as_ref())),
                agreement: &|| agreement(context),
                version,
            },
        )
    }
}

/// How far the heads of the run agree.
fn agreement(context: Context<'_>) -> Result<Vec<Value>> {
    if context.config.heads.len() < 2 {
        return Ok(Vec::new());
    }
    let top = TOP.parse().map_err(|reason: String| Error::config("report", reason))?;
    let shown = |pair: Pair| {
        let either = 2 * pair.top - pair.shared;
        let jaccard = (either > 0).then(|| pair.shared as f64 / either as f64);
        json!({
            "language": pair.language,
            "heads": [pair.a, pair.b],
            "documents": pair.documents,
            "spearman": pair.spearman,
            "overlap": {"rate": top, "jaccard": jaccard},
        })
    };
    Ok(evaluate_run(context, top, DEFAULT_SAMPLE)?.into_iter().map(shown).collect())
}

/// What each selection keeps, and where the report is.
pub(crate) fn print(written: &WrittenReport) {
    let rows = written.languages.iter().flat_map(|language| {
        language.selected.iter().map(|(name, kept)| {
            let numbers = [language.documents.to_string(), kept.to_string()];
            [vec![name.clone(), language.language.clone()], numbers.to_vec()].concat()
        })
    });
    titled_table(["selection", "language", "documents", "kept"], rows);
    for note in &written.notes {
        line(&format!("note: {note}"));
    }
    line(&format!("{}", written.page.display()));
    line(&format!("{}", written.report.display()));
}
