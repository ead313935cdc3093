//! What `polysift evaluate` prints for people.

use polysift::evaluate::{Agreement, Decision, Group, HeadReport, Measures, Report, StoredReport};

use super::printer::{line, table};

/// What an undefined value is printed as.
const UNDEFINED: &str = "-";

/// A value to four digits.
fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| UNDEFINED.to_owned(), |value| format!("{value:.4}"))
}

/// Prints `rows` under a title and column names; nothing without rows.
fn section(title: &str, columns: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    line(&format!("\n{title}"));
    let columns = columns.iter().map(|&name| name.to_owned()).collect();
    table(&[vec![columns], rows].concat());
}

/// Heads on labelled texts.
pub(crate) fn print_report(report: &Report) {
    line(&format!("{} labelled texts, {} rows without text", report.texts, report.skipped));
    if let Some(encoder) = &report.encoder {
        let (model, device, precision) = (&encoder.model, &encoder.device, &encoder.precision);
        line(&format!("embedded by {model} on {device} in {precision}"));
    }
    print_measures(report);
    print_decisions(report);
    print_groups(report);
    print_calibration(report);
    print_agreement(&report.agreement);
    print_notes(report);
}

/// Every language of a head, then all together where there are several.
fn blocks(head: &HeadReport) -> Vec<(&str, &Measures)> {
    let languages = head.languages.iter().map(|(name, report)| (name.as_str(), &report.measures));
    let pooled = (head.languages.len() > 1).then_some(("pooled", &head.pooled));
    languages.chain(pooled).collect()
}

fn print_measures(report: &Report) {
    let columns = [
        "head",
        "language",
        "texts",
        "positive",
        "NaN",
        "ROC-AUC",
        "95% from",
        "to",
        "PR-AUC",
        "Brier",
        "log loss",
        "calibration error",
    ];
    let mut rows = Vec::new();
    for (name, head) in &report.heads {
        for (language, measures) in blocks(head) {
            let Group { scored, positive, roc_auc, average_precision, .. } = &measures.documents;
            let [low, high] = measures.roc_auc_interval.map_or([None; 2], |ends| ends.map(Some));
            let calibration = measures.calibration.as_ref();
            rows.push(vec![
                name.clone(),
                language.to_owned(),
                scored.to_string(),
                positive.to_string(),
                measures.nan.to_string(),
                figure(*roc_auc),
                figure(low),
                figure(high),
                figure(*average_precision),
                figure(calibration.and_then(|c| c.brier)),
                figure(calibration.and_then(|c| c.log_loss)),
                figure(calibration.and_then(|c| c.expected_error)),
            ]);
        }
        if head.mean.languages > 1 {
            let mean = &head.mean;
            let mut row = vec![UNDEFINED.to_owned(); columns.len()];
            row[0].clone_from(name);
            "mean".clone_into(&mut row[1]);
            row[5] = figure(mean.roc_auc);
            row[8] = figure(mean.average_precision);
            row[9] = figure(mean.brier);
            row[11] = figure(mean.expected_calibration_error);
            rows.push(row);
        }
    }
    section("Separation of the classes", &columns, rows);
}

fn print_decisions(report: &Report) {
    let columns = [
        "head",
        "language",
        "called positive",
        "threshold",
        "texts",
        "TP",
        "FP",
        "TN",
        "FN",
        "accuracy",
        "precision",
        "recall",
        "F1",
        "MCC",
    ];
    let mut rows = Vec::new();
    for (name, head) in &report.heads {
        for (language, measures) in blocks(head) {
            for decision in &measures.documents.decisions {
                let counts = &decision.confusion;
                let mut row = vec![name.clone(), language.to_owned(), decision.rule.clone()];
                row.push(figure(decision.threshold));
                row.extend(
                    [
                        decision.called_positive,
                        counts.true_positives,
                        counts.false_positives,
                        counts.true_negatives,
                        counts.false_negatives,
                    ]
                    .map(|count| count.to_string()),
                );
                row.extend(shares(decision).map(figure));
                rows.push(row);
            }
        }
    }
    section("Decisions", &columns, rows);
}

fn shares(decision: &Decision) -> [Option<f64>; 5] {
    [decision.accuracy, decision.precision, decision.recall, decision.f1, decision.mcc]
}

/// Sources and lengths, over all languages.
fn print_groups(report: &Report) {
    let row = |name: &str, group_name: String, group: &Group| {
        let first = group.decisions.first();
        vec![
            name.to_owned(),
            group_name,
            group.scored.to_string(),
            group.positive.to_string(),
            figure(group.mean_score),
            figure(group.roc_auc),
            figure(group.average_precision),
            first.map_or(UNDEFINED.to_owned(), |decision| decision.rule.clone()),
            first.map_or(UNDEFINED.to_owned(), |decision| decision.called_positive.to_string()),
            figure(first.and_then(|decision| decision.accuracy)),
        ]
    };
    let columns = |group| {
        [
            "head",
            group,
            "texts",
            "positive",
            "mean score",
            "ROC-AUC",
            "PR-AUC",
            "rule",
            "called positive",
            "accuracy",
        ]
    };
    let mut sources = Vec::new();
    let mut lengths = Vec::new();
    for (name, head) in &report.heads {
        for (source, group) in &head.pooled.sources {
            sources.push(row(name, source.clone(), group));
        }
        for group in &head.pooled.lengths {
            let to = group.to.map_or_else(String::new, |to| (to - 1).to_string());
            lengths.push(row(name, format!("{}-{to}", group.from), &group.documents));
        }
    }
    section("By source", &columns("source"), sources);
    section("By length", &columns("characters"), lengths);
}

/// The reliability tables over all languages.
fn print_calibration(report: &Report) {
    let columns = ["head", "from", "to", "texts", "mean score", "positive"];
    let mut rows = Vec::new();
    for (name, head) in &report.heads {
        let calibration = head.pooled.calibration.iter();
        for bin in calibration.flat_map(|c| &c.bins).filter(|bin| bin.documents > 0) {
            rows.push(vec![
                name.clone(),
                format!("{:.2}", bin.low),
                format!("{:.2}", bin.high),
                bin.documents.to_string(),
                figure(bin.mean_score),
                figure(bin.positive_share),
            ]);
        }
    }
    section("Reliability of the probabilities", &columns, rows);
}

/// A matrix per measure, means over the languages.
fn print_agreement(agreement: &Agreement) {
    let mut names: Vec<&str> = Vec::new();
    for pair in &agreement.mean {
        for name in [&pair.a, &pair.b] {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let columns: Vec<&str> = std::iter::once("head").chain(names.iter().copied()).collect();
    let matrix = |cell: &dyn Fn(&str, &str) -> String| -> Vec<Vec<String>> {
        let row = |&a: &&str| {
            let cells = names.iter().map(|&b| if a == b { "1".to_owned() } else { cell(a, b) });
            std::iter::once(a.to_owned()).chain(cells).collect()
        };
        names.iter().map(row).collect()
    };
    let found = |a: &str, b: &str| {
        let is_pair =
            |p: &&polysift::evaluate::MeanPair| (p.a == a && p.b == b) || (p.a == b && p.b == a);
        agreement.mean.iter().find(is_pair)
    };
    let spearman = |a: &str, b: &str| figure(found(a, b).and_then(|pair| pair.spearman));
    let overlap = |a: &str, b: &str| figure(found(a, b).and_then(|pair| pair.overlap));
    section("Rank correlation (Spearman, mean of the languages)", &columns, matrix(&spearman));
    let rate = agreement.top_rate;
    let title = format!("Share in common of the top {rate} (mean of the languages)");
    section(&title, &columns, matrix(&overlap));
}

fn print_notes(report: &Report) {
    let mut notes = Vec::new();
    for (name, head) in &report.heads {
        if !head.gives_probabilities {
            notes.push(format!(
                "the scores of `{name}` are not probabilities: they have no calibration"
            ));
        }
        if !head.without_head.is_empty() {
            notes.push(format!("there is no `{name}` for {}", head.without_head.join(", ")));
        }
        let trained = head.languages.iter().filter(|(_, report)| report.trained_on_this_data);
        let trained: Vec<&str> = trained.map(|(language, _)| language.as_str()).collect();
        if !trained.is_empty() {
            let languages = trained.join(", ");
            notes.push(format!(
                "`{name}` was trained on texts of these files ({languages}): the figures are not \
                 those of unseen text"
            ));
        }
    }
    if !notes.is_empty() {
        line("");
        for note in notes {
            line(&format!("note: {note}"));
        }
    }
}

/// The heads of a run on its stored scores.
pub(crate) fn print_stored(report: &StoredReport) {
    let columns = [
        "head",
        "language",
        "documents",
        "scored",
        "NaN",
        "sampled",
        "least",
        "5%",
        "25%",
        "median",
        "75%",
        "95%",
        "largest",
    ];
    let mut rows = Vec::new();
    for (language, found) in &report.languages {
        for (name, head) in &found.heads {
            let mut row = vec![name.clone(), language.clone()];
            row.extend(
                [found.documents, head.scored, head.nan, found.sampled].map(|n| n.to_string()),
            );
            let quantiles = ["0", "0.05", "0.25", "0.5", "0.75", "0.95", "1"];
            row.extend(quantiles.map(|q| figure(head.quantiles.get(q).copied().map(f64::from))));
            rows.push(row);
        }
    }
    line(&format!("stored scores of {}", report.run));
    section("Scores", &columns, rows);
    print_agreement(&report.agreement);
}
