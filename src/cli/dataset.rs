//! `polysift dataset`: builds labelled samples from published sources.

use std::path::Path;

use clap::Subcommand;

use polysift::Result;
use polysift::dataset::{
    BenchmarksRequest, DatasetCard, MkcRequest, ToxicityRequest, build_benchmarks, build_mkc,
    build_toxicity,
};
use polysift::decontamination::TaskCounts;
use polysift::progress::Stop;

use super::printer::{cells, print_line, print_table};
use super::progress::Display;
use super::settings::set_hub;

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Build MKC or MKC+: knowledge-rich positives against a sample of the corpus
    Mkc(MkcRequest),
    /// Build balanced samples of toxic and other texts
    Toxicity(ToxicityRequest),
    /// Build an index of benchmark items for filters of `kind = "decontamination"`
    Benchmarks(BenchmarksRequest),
}

pub(crate) fn run(command: &DatasetCommand, stop: &Stop, display: &Display) -> Result<()> {
    let (cards, out) = match command {
        DatasetCommand::Mkc(request) => {
            (build_mkc(request, &set_hub(request.offline), stop, display)?, &request.out)
        }
        DatasetCommand::Toxicity(request) => (vec![build_toxicity(request, stop)?], &request.out),
        DatasetCommand::Benchmarks(request) => {
            let tasks = build_benchmarks(request, stop)?;
            if !display.quiet {
                print_tasks(&tasks, &request.out);
            }
            return Ok(());
        }
    };
    if !display.quiet {
        print_cards(&cards, out);
    }
    Ok(())
}

fn print_tasks(tasks: &[TaskCounts], out: &Path) {
    let titles = ["task", "items", "not covered", "n-grams", "subtracted"];
    let row = |task: &TaskCounts| {
        cells([&task.task, &task.items, &task.not_covered, &task.ngrams, &task.subtracted])
    };
    print_table(titles, tasks.iter().map(row));
    print_line(&format!("\nindex: {}", out.display()));
}

fn print_cards(cards: &[DatasetCard], out: &Path) {
    let sources = cards.iter().flat_map(|card| {
        card.sources.iter().map(|(name, source)| {
            let dropped = source.dropped.iter().map(|(reason, n)| format!("{n} {reason}"));
            let dropped = dropped.collect::<Vec<_>>().join(", ");
            cells([&card.language, name, &source.rows, &source.kept, &dropped])
        })
    });
    print_table(["language", "source", "rows", "kept", "dropped"], sources);
    print_line("");
    let files = cards.iter().flat_map(|card| {
        card.samples
            .iter()
            .map(|(name, sizes)| cells([&card.language, name, &sizes.positive, &sizes.negative]))
    });
    print_table(["language", "file", "positive", "negative"], files);
    print_line(&format!("\nsamples and cards: {}", out.display()));
}
