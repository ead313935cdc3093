//! What `polysift evaluate` prints for people: the tables of its report.

use std::collections::BTreeSet;

use polysift::evaluate::{EVERYTHING, Report, StoredReport, TextGroup};
use serde::Serialize;
use serde_json::Value;

use super::printer::{line, table};

/// Prints rows under a title and the names of their fields; nothing without rows.
fn section<T: Serialize>(title: &str, rows: impl Iterator<Item = T>) {
    let objects: Vec<_> = rows
        .filter_map(|row| match serde_json::to_value(row) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        })
        .collect();
    let Some(first) = objects.first() else { return };
    line(&format!("\n{title}"));
    let names: Vec<String> = first.keys().map(|name| name.replace('_', " ")).collect();
    let cells = objects.iter().map(|fields| fields.values().map(cell).collect());
    table(&std::iter::once(names).chain(cells).collect::<Vec<_>>());
}

/// A fraction to four digits; `-` for what is not defined.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.4}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// Heads on labelled texts: all texts of every language, sources and lengths over the languages.
pub(crate) fn print_report(report: &Report) {
    line(&format!("{} labelled texts, {} rows without text", report.texts, report.skipped));
    if let Some(encoder) = &report.encoder {
        let (model, device, precision) = (&encoder.model, &encoder.device, &encoder.precision);
        line(&format!("embedded by {model} on {device} in {precision}"));
    }
    let of_several: BTreeSet<&str> = (report.measures.iter())
        .filter(|row| row.group.language == EVERYTHING)
        .map(|row| row.group.head.as_str())
        .collect();
    let is_overall = |group: &TextGroup| {
        group.language == EVERYTHING || !of_several.contains(group.head.as_str())
    };
    let is_whole = |group: &TextGroup| group.texts == EVERYTHING;
    let measures = report.measures.iter();
    let shown = measures.filter(|row| is_whole(&row.group) || is_overall(&row.group));
    section("Separation of the classes", shown);
    section("Decisions", report.decisions.iter().filter(|row| is_whole(&row.group)));
    let bins = report.calibration.iter();
    let bins = bins.filter(|row| is_overall(&row.group) && row.bin.documents > 0);
    section("Reliability of the probabilities", bins);
    section("Agreement of the heads", report.agreement.iter());
    for note in &report.notes {
        line(&format!("\nnote: {note}"));
    }
}

/// The heads of a run on its stored scores.
pub(crate) fn print_stored(report: &StoredReport) {
    line(&format!("stored scores of {}", report.run));
    section("Scores", report.scores.iter());
    section("Agreement of the heads", report.agreement.iter());
}
