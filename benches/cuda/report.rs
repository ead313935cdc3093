//! All results of a folder in one table, each beside the baseline of its workload.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::measure::{Run, line, write_json};

/// What the others are compared with: the published pipeline's way.
const BASELINE: &str = "pytorch-padded";

impl Run {
    /// One row of the table.
    pub(crate) fn describe(&self) -> String {
        let settings: Vec<String> = self.settings.as_object().map_or_else(Vec::new, |map| {
            map.iter().map(|(key, value)| format!("{key} {value}").replace('"', "")).collect()
        });
        format!(
            "{:<16} {:<4} {:>12.0} tokens/s {:>9.0} documents/s {:>7.1} TFLOP/s  {}",
            self.engine,
            self.workload,
            self.tokens_per_second,
            self.documents_per_second,
            self.tflops,
            settings.join(", "),
        )
    }
}

/// Prints the runs of every JSON file in `results`, best first, and writes `report.json`.
pub(crate) fn print(results: &Path) -> Result<()> {
    let mut runs: Vec<Run> = Vec::new();
    let mut matrix_tflops = Value::Null;
    let entries = std::fs::read_dir(results)
        .with_context(|| format!("{} cannot be read", results.display()))?;
    for entry in entries {
        let path = entry?.path();
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        if !is_json || path.file_name().is_some_and(|name| name == "report.json") {
            continue;
        }
        let mut value: Value = serde_json::from_slice(&std::fs::read(&path)?)
            .with_context(|| format!("{} is no JSON", path.display()))?;
        if !value["matrix_tflops"].is_null() {
            matrix_tflops = value["matrix_tflops"].take();
        }
        if let Some(array) = value.get_mut("runs") {
            runs.extend(serde_json::from_value::<Vec<Run>>(array.take())?);
        }
    }
    runs.sort_by(|a, b| b.tokens_per_second.total_cmp(&a.tokens_per_second));
    let mut rows = Vec::new();
    for workload in ["W1", "W2", "corpus"] {
        let of_workload = || runs.iter().filter(|run| run.workload == workload);
        let best = |engine| of_workload().find(|run| run.engine == engine);
        let baseline = best(BASELINE).map(|run| run.tokens_per_second);
        for run in of_workload() {
            let ratio = baseline.map(|rate| run.tokens_per_second / rate);
            let share = matrix_tflops.as_f64().map(|rate| run.tflops / rate);
            let show = |name: &str, value: Option<f64>| {
                value.map_or_else(String::new, |v| format!("  {name} {v:.2}"))
            };
            let ratio_text = show("x baseline", ratio);
            let share_text = show("of matrix rate", share);
            line(&format!("{}{ratio_text}{share_text}", run.describe()))?;
            rows.push(json!({"run": run, "times_baseline": ratio, "share_of_matrix_rate": share}));
        }
    }
    let report = json!({"baseline": BASELINE, "matrix_tflops": matrix_tflops, "rows": rows});
    write_json(&results.join("report.json"), &report)
}
