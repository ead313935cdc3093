//! `polysift mix`: its arguments and the table that it prints.

use std::path::PathBuf;

use clap::Args;

use polysift::io::read_text;
use polysift::mix::{MixConfig, MixReport, MixRequest, mix};
use polysift::progress::Stop;
use polysift::{Error, Result};

use super::printer::{cells, print_line, print_table, print_value};
use super::progress::Display;
use super::settings::set_hub;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct MixArgs {
    /// Settings file of the mixture
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Folder that the mixture is written to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Count tokens and print what would be drawn; write no mixture
    #[arg(long)]
    dry_run: bool,
    /// Remove what was mixed in the folder, and mix again; counts are kept
    #[arg(long)]
    redo: bool,
    /// Use only the hub's local cache for the tokenizer, never download
    #[arg(long)]
    offline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Mixes, and prints the report unless `display` is quiet; JSON is always printed.
pub(crate) fn run(args: &MixArgs, stop: &Stop, display: &Display) -> Result<()> {
    let path = &args.config;
    let text = read_text(path)?;
    let file = std::path::absolute(path).map_err(Error::io(path, "resolve"))?;
    let report = mix(&MixRequest {
        config: &MixConfig::from_toml(&text, &path.display().to_string())?,
        base: file.parent().unwrap_or(&file),
        out: &args.out,
        hub: &set_hub(args.offline),
        stop,
        progress: display,
        redo: args.redo,
        dry_run: args.dry_run,
    })?;
    if !display.quiet || args.json {
        print_value(args.json, &report, print_mixture);
    }
    Ok(())
}

fn print_mixture(report: &MixReport) {
    let titles = ["source", "language", "documents", "drawn", "rows", "tokens", "epochs"];
    let languages = report.sources.iter().flat_map(|source| {
        source.languages.iter().map(move |(language, counts)| {
            let (drawn, epochs) = (counts.drawn_documents, format!("{:.3}", counts.epochs));
            let (documents, rows, tokens) = (counts.documents, counts.rows, counts.tokens);
            cells([&source.name, language, &documents, &drawn, &rows, &tokens, &epochs])
        })
    });
    print_table(titles, languages);
    let (rows, tokens, files) = (report.rows, report.tokens, report.files.len());
    let of = if files == 0 { String::new() } else { format!(" of {files} files") };
    print_line(&format!("{tokens} tokens in {rows} rows{of}"));
    if !report.left_out.is_empty() {
        let names = report.left_out.join(", ");
        print_line(&format!("left out, as not all inputs have them in one type: {names}"));
    }
}
