//! `polysift models`: lists recommended encoders, from `models/encoders.toml`.

use serde::{Deserialize, Serialize};

use super::printer::{self, cells, or_dash};
use polysift::{Error, Result};

const TABLE: &str = include_str!("../../models/encoders.toml");

#[derive(Deserialize, Serialize)]
struct ModelTable {
    encoder: Vec<ModelRow>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ModelRow {
    name: String,
    licence: String,
    languages: String,
    /// Size of weights and tokenizer.
    megabytes: u64,
    /// Measured for documents of 512 tokens on two cores in f32.
    cpu_documents_per_sec: f64,
    /// Estimated for documents of 512 tokens on an H200.
    gpu_documents_per_sec: u64,
    /// Mean area under the ROC curve of a linear head, if it was measured.
    auc: Option<f64>,
    heads: String,
    command: String,
}

/// Prints the table of encoders, and below it the heads and the command of each, or all as JSON.
pub(crate) fn print_models(as_json: bool) -> Result<()> {
    let table: ModelTable =
        toml::from_str(TABLE).map_err(|e| Error::config("models/encoders.toml", e.to_string()))?;
    printer::print_value(as_json, &table.encoder, |encoders| print_table_of(encoders));
    Ok(())
}

fn print_table_of(encoders: &[ModelRow]) {
    let titles = ["encoder", "licence", "languages", "MB", "CPU docs/s*", "GPU docs/s**", "AUC"];
    let row = |row: &ModelRow| {
        let ModelRow { name, licence, languages, megabytes, .. } = row;
        let (cpu, gpu) = (&row.cpu_documents_per_sec, &row.gpu_documents_per_sec);
        let auc = or_dash(row.auc.map(|auc| format!("{auc:.3}")));
        cells([name, licence, languages, megabytes, cpu, gpu, &auc])
    };
    printer::print_table(titles, encoders.iter().map(row));
    printer::print_line("*  documents of 512 tokens on two cores of an AMD EPYC (AVX2), in f32");
    printer::print_line("** estimated for an H200 from the rate of the base shape");
    for row in encoders {
        printer::print_line(&format!("\n{}\n  heads: {}\n  {}", row.name, row.heads, row.command));
    }
}
