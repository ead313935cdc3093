//! Prints the results of commands.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use serde_json::{Value, json};

use polysift::Result;
use polysift::config::{KEPT, NO_TEXT, Rate, RunConfig};
use polysift::corpus::Context;
use polysift::corpus::cascaded::stored_results;
use polysift::corpus::frozen::FrozenEmbeddings;
use polysift::corpus::refinement::Refinement;
use polysift::corpus::select::selections;
use polysift::corpus::training::PlannedHead;
use polysift::encoder::ResolvedSetting;
use polysift::filter::RobotsVerdict;
use polysift::head::LabelCounts;
use polysift::metrics::Metrics;
use polysift::progress::{bytes_for_people, thousands};
use polysift::run::{Encoded, LiveWorker, Stage};
use polysift::selection::{CascadeAudit, Recall, ThresholdKind, ThresholdReport};
use polysift::stages::train::cards;
use polysift::views::estimate::{EncodingEstimate, Estimate};
use polysift::views::inspect::inspect_run;
use polysift::views::report::WrittenReport;
use polysift::views::sampling::LanguageSample;
use polysift::views::status::{RunStatus, status};
use polysift::views::verify::Verified;

use super::printer::{cells, or_dash, print_line, print_table};
use super::progress::{Usage, time_for_people};

/// Prints a description as an outline, each line after `indent`.
pub(crate) fn print_tree(description: &Value, indent: &str) {
    for (name, value) in description.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => {
                print_line(&format!("{indent}{name}:"));
                print_tree(value, &format!("{indent}  "));
            }
            Value::String(text) => print_line(&format!("{indent}{name}: {text}")),
            other => print_line(&format!("{indent}{name}: {other}")),
        }
    }
}

const MAX_SHARDS_SHOWN: usize = 100;
const MAX_FAILURES_SHOWN: usize = 20;

/// Prints the tables at the end of a command that ran stages.
pub(crate) fn print_results(context: Context<'_>, stages: &[Stage]) -> Result<()> {
    if !context.run.has_plan() {
        return Ok(());
    }
    let status = status(context)?;
    if stages.contains(&Stage::Train) {
        print_heads(context)?;
    }
    if stages.contains(&Stage::Threshold) || stages.contains(&Stage::Export) {
        print_thresholds(context)?;
    }
    if context.config.cascade.is_some() {
        print_cascade(context)?;
    }
    print_status(&status);
    if stages.contains(&Stage::Embed) && status.encoded.documents == 0 {
        let bytes = status.input_bytes;
        tracing::warn!("no document with text was read: the input has {bytes} bytes");
    }
    let refines = context.config.selection.refine && stages.contains(&Stage::Refine);
    if refines && status.refinement.is_none() {
        print_line("nothing to refine: the embeddings are in f32");
    }
    print_place(context)?;
    if stages.contains(&Stage::Export) {
        let place = context.config.export.place(context.run.root()).join("export");
        print_line(&format!("selected documents: {}", place.display()));
    }
    Ok(())
}

/// Returns the result of a command that ran stages: the run, its heads, and what the stages took.
pub(crate) fn describe_results(context: Context<'_>, usages: &[Usage]) -> Result<Value> {
    let mut document = inspect_run(context)?;
    let heads = cards(context)?.into_iter().map(|(name, card)| {
        let test = card
            .training
            .map(|training| json!({"metrics": training.test, "linear": training.linear_test}));
        json!({"head": name, "language": card.language, "test": test})
    });
    document["heads"] = heads.collect();
    document["stages"] = json!(usages);
    Ok(document)
}

/// Prints the precision of the embeddings, if there are any, and the run directory.
fn print_place(context: Context<'_>) -> Result<()> {
    if let Some(precision) = FrozenEmbeddings::read(context.run, Stage::Embed)?.precision() {
        print_line(&format!("embeddings were computed in {precision}"));
    }
    print_line(&format!("run directory: {}", context.run.root().display()));
    Ok(())
}

/// Prints what `inspect` shows of a run: place, thresholds and status.
pub(crate) fn print_run(context: Context<'_>) -> Result<()> {
    print_place(context)?;
    print_line("");
    print_thresholds(context)?;
    print_status(&status(context)?);
    Ok(())
}

pub(crate) fn print_robots(verdicts: &[RobotsVerdict]) {
    for RobotsVerdict { url, has_robots_file, agents } in verdicts {
        let (blocked, all) = (agents.iter().filter(|agent| agent.is_blocked).count(), agents.len());
        let file = if *has_robots_file { "" } else { ", no robots.txt of its host" };
        print_line(&format!("{url}: {blocked} of {all} agents blocked{file}"));
        for agent in agents {
            let word = if agent.is_blocked { "blocked" } else { "allowed" };
            let decided = agent.line.as_ref().map_or(String::new(), |line| format!(" by {line}"));
            print_line(&format!("  {:<30} {word}{decided}", agent.agent));
        }
    }
}

/// Prints time and memory of stages, and the share of the time in which each activity was busy.
pub(crate) fn print_usages(usages: &[Usage]) {
    let rows = usages.iter().map(|usage| {
        let Usage { stage, seconds, peak_bytes, busy_seconds } = usage;
        let share = |time: &Value| 100.0 * time.as_f64().unwrap_or(0.0) / seconds.max(1e-9);
        let busy = busy_seconds.iter().map(|(name, time)| format!("{name} {:.0}%", share(time)));
        let (busy, peak) = (busy.collect::<Vec<_>>().join(", "), peak_bytes.map(|b| b / 1_000_000));
        cells([&stage.name(), &format!("{seconds:.1}"), &or_dash(peak), &busy])
    });
    print_line("");
    print_table(["stage", "seconds", "peak MB", "busy"], rows);
}

/// Formats with four digits after the point; `-` without a value.
fn four_digits(value: Option<f64>) -> String {
    or_dash(value.map(|number| format!("{number:.4}")))
}

/// Prints held-out metrics of the trained heads: accuracy and ROC-AUC, or mean error and Spearman.
fn print_heads(context: Context<'_>) -> Result<()> {
    let (mut of_classes, mut of_grades) = (Vec::new(), Vec::new());
    for (name, card) in cards(context)? {
        let Some(training) = &card.training else { continue };
        let is_graded = training.samples.values().any(|s| matches!(s, LabelCounts::Grades { .. }));
        let samples: usize = training.samples.values().map(LabelCounts::num_samples).sum();
        let half = training.learning_curve.iter().rev().nth(1).map(|half| half.test);
        let test = training.test.unwrap_or_default();
        let order = |test: Metrics| if is_graded { test.spearman } else { test.roc_auc };
        let (table, distance, interval) = if is_graded {
            (&mut of_grades, test.mean_absolute_error, test.spearman_interval)
        } else {
            (&mut of_classes, test.accuracy, test.roc_auc_interval)
        };
        let interval = or_dash(interval.map(|[low, high]| format!("{low:.2} to {high:.2}")));
        let language = card.language.clone().unwrap_or_default();
        let [ordered, half, linear] = [training.test, half, training.linear_test]
            .map(|test| four_digits(test.and_then(order)));
        let (tested, error) = (test.num_samples, four_digits(distance));
        table.push(cells([
            &name, &language, &samples, &tested, &error, &ordered, &interval, &half, &linear,
        ]));
    }
    for (rows, distance, order) in [
        (of_classes, "test accuracy", "test ROC-AUC"),
        (of_grades, "test mean error", "test Spearman"),
    ] {
        if !rows.is_empty() {
            let head = ["head", "language", "samples", "tested"];
            let test = [distance, order, "95% interval", "with half", "linear"];
            print_table([&head[..], &test].concat(), rows);
            print_line("");
        }
    }
    Ok(())
}

/// Prints each threshold of each language that has some, sorted by head; nothing without any.
fn print_thresholds(context: Context<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for (language, selection) in selections(context.run)? {
        for ThresholdReport { threshold, scored, dropped, outcomes, .. } in &selection.thresholds {
            for outcome in outcomes {
                let share = |rate: &Rate| rate.as_f64().to_string();
                let (kind, rate) = match &threshold.kind {
                    ThresholdKind::Retain(_) => ("retention", outcome.retentions.last().map(share)),
                    ThresholdKind::Remove(rate) => ("removal", Some(share(rate))),
                    ThresholdKind::Fixed(_) => ("threshold", None),
                    ThresholdKind::Budget(_) => {
                        ("budget", Some(format!("{:.4}", outcome.realised_rate)))
                    }
                };
                let (head, rate) = (format!("{} {kind}", threshold.head_name), or_dash(rate));
                let documents = scored.num_documents + dropped.num_documents;
                let (at, kept) = (four_digits(outcome.threshold_score), outcome.kept.num_documents);
                rows.push(cells([&head, &language, &documents, &rate, &at, &kept]));
            }
        }
    }
    rows.sort_by(|a: &Vec<String>, b| a[..2].cmp(&b[..2]));
    if !rows.is_empty() {
        print_table(["head", "language", "documents", "rate", "threshold", "kept"], rows);
        print_line("");
    }
    Ok(())
}

/// Prints how much of each language its cascade encodes, and the recall that the audit proves.
fn print_cascade(context: Context<'_>) -> Result<()> {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let (mut rows, mut whole) = (Vec::new(), Vec::new());
    let selections = selections(context.run)?;
    for (language, result) in stored_results(context.run, context.config)? {
        let Some(pass) = result.first_pass else {
            whole.push(format!("{language}: {}", result.reason.unwrap_or_default()));
            continue;
        };
        // The run's own figures if thresholds were found, otherwise the pilot's estimate.
        let done = selections.get(&language).and_then(|selection| selection.cascade.as_ref());
        let pilot =
            result.candidate().map_or((1.0, 1.0), |pilot| (pilot.encoded_share, pilot.cost));
        let (encoded, cost) = done.map_or(pilot, |audit| {
            (1.0 - audit.dropped as f64 / audit.documents as f64, audit.cost)
        });
        rows.push(cells([&language, &pass, &result.pilot, &percent(encoded), &percent(cost)]));
    }
    if !rows.is_empty() {
        print_table(["language", "first pass", "pilot", "encoded", "cost of the full run"], rows);
        print_line("");
    }
    for (language, selection) in selections {
        let Some(audit) = selection.cascade else { continue };
        let CascadeAudit { documents, dropped, audited, tokens_saved, gpu_hours_saved, .. } = audit;
        print_line(&format!(
            "{language}: {dropped} of {documents} documents not encoded, some {tokens_saved} tokens, {gpu_hours_saved:.2} hours of an H200 (roughly); {audited} audited"
        ));
        for Recall { head, rate, lower_bound, is_proved, .. } in audit.recalls {
            let rate = rate.map_or(String::new(), |rate| format!(" at {rate}"));
            let word = if is_proved { "proved" } else { "not proved" };
            print_line(&format!(
                "{language}: {head}{rate} has a recall of at least {lower_bound:.4}: {word}"
            ));
        }
    }
    for language in whole {
        print_line(&format!("encoded in full: {language}"));
    }
    print_line("");
    Ok(())
}

/// Formats the counts of an export: `80 kept; removed: 151 by quality, 6 without text`.
fn format_export_counts(counts: &BTreeMap<String, u64>) -> String {
    let kept = counts.get(KEPT).map(|count| format!("{} kept", thousands(*count)));
    let reasons = counts.iter().filter(|(name, count)| *name != KEPT && **count > 0);
    let reasons: Vec<String> = reasons
        .map(|(name, count)| match name.as_str() {
            NO_TEXT => format!("{} without text", thousands(*count)),
            name => format!("{} by {name}", thousands(*count)),
        })
        .collect();
    let removed = (!reasons.is_empty()).then(|| format!("removed: {}", reasons.join(", ")));
    kept.into_iter().chain(removed).collect::<Vec<_>>().join("; ")
}

/// Prints a table of the stages, then failures, processes at work and the refinement.
pub(crate) fn print_status(status: &RunStatus) {
    let rows = status.stages.iter().map(|stage| {
        let total = stage.total.map(|t| format!("/{t}")).unwrap_or_default();
        let counts = if stage.stage == Stage::Embed {
            let Encoded { documents, rejects, dropped, without_embedding, .. } = status.encoded;
            let others = [(dropped, "dropped"), (without_embedding, "without an embedding")];
            let others = others.iter().filter(|(rows, _)| *rows > 0);
            let all = [(documents, "with text"), (rejects, "rejects")];
            let all = all.iter().chain(others).map(|(rows, what)| format!("{rows} {what}"));
            all.collect::<Vec<_>>().join(", ")
        } else if stage.stage == Stage::Export {
            format_export_counts(&stage.counts)
        } else {
            let counts = stage.counts.iter().map(|(name, count)| format!("{count} {name}"));
            counts.collect::<Vec<_>>().join(", ")
        };
        let (name, done) = (stage.stage.name(), format!("{}{total}", stage.done));
        cells([&name, &done, &stage.leased, &stage.failed.len(), &stage.rows, &counts])
    });
    print_table(["stage", "done", "in work", "failed", "rows", "of which"], rows);
    for stage in &status.stages {
        for (key, failure) in stage.failed.iter().take(MAX_FAILURES_SHOWN) {
            print_line(&format!("{} failed: {key}: {}", stage.stage.name(), failure.error));
        }
        let more = stage.failed.len().saturating_sub(MAX_FAILURES_SHOWN);
        if more > 0 {
            print_line(&format!("{} failed: {more} more", stage.stage.name()));
        }
    }
    let embed = status.stages.iter().find(|stage| stage.stage == Stage::Embed);
    if embed.is_some_and(|embed| embed.total.is_some_and(|total| embed.done < total)) {
        print_line(&format!("{:.1}% of the input is embedded", 100.0 * status.embedded_share));
    }
    for LiveWorker { host, pid, is_alive, progress } in &status.workers {
        let how = if *is_alive { "at work" } else { "at work at its last heartbeat" };
        let progress = progress.as_ref().and_then(|progress| progress["line"].as_str());
        let progress = progress.map(|line| format!("; {line}")).unwrap_or_default();
        print_line(&format!("process {pid} on {host}: {how}{progress}"));
    }
    if let Some(refinement) = &status.refinement {
        print_line("");
        print_refinement(refinement);
    }
}

/// Prints the counts of the refine stage and the margins that it used.
fn print_refinement(refinement: &Refinement) {
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let Refinement { precision, rounds, documents, refined, tokens, refined_tokens, .. } =
        *refinement;
    print_line(&format!(
        "refined in {precision}: {rounds} rounds, {refined} documents ({:.2}%), {refined_tokens} tokens ({:.2}%)",
        share(refined, documents),
        share(refined_tokens, tokens)
    ));
    let rows = refinement.heads.iter().map(|found| {
        let logits = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.6}")));
        let (largest, margin) = (logits(found.largest_difference), logits(found.margin));
        cells([&found.head, &found.language, &found.refined, &largest, &margin])
    });
    print_table(["head", "language", "refined", "largest difference", "margin"], rows);
    let rows = refinement.languages.iter().map(|found| {
        let share = |share: f64| format!("{:.0}% of the margin", 100.0 * share);
        let (farthest, wrong) =
            (found.farthest_change.map(share), four_digits(found.expected_wrong));
        cells([&found.language, &found.changed, &or_dash(farthest), &wrong])
    });
    print_table(["language", "changed", "farthest change", "wrong beyond (expected)"], rows);
}

pub(crate) fn print_verified(verified: &Verified) {
    let Verified { files, rows, languages, problems } = verified;
    for problem in problems {
        print_line(&format!("wrong: {problem}"));
    }
    let outcome = match problems.len() {
        0 => "all right".to_owned(),
        some => format!("{some} problem(s)"),
    };
    print_line(&format!("{files} files, {rows} rows, {languages} languages checked: {outcome}"));
}

pub(crate) fn print_samples(samples: &[LanguageSample]) {
    let titles = ["language", "documents", "rows", "copies", "known", "effective size"];
    let rows = samples.iter().map(|sample| {
        let LanguageSample { language, documents, rows, copies, .. } = sample;
        let known = sample.excluded + sample.known_texts;
        cells([language, documents, rows, copies, &known, &format!("{:.1}", sample.effective_size)])
    });
    print_table(titles, rows);
}

/// Prints what each selection keeps, notes, and the paths of the page and the report.
pub(crate) fn print_report(written: &WrittenReport) {
    let rows = written.languages.iter().flat_map(|language| {
        let selected = language.selected.iter();
        selected.map(|(name, kept)| cells([name, &language.language, &language.documents, kept]))
    });
    print_table(["selection", "language", "documents", "kept"], rows);
    for note in &written.notes {
        print_line(&format!("note: {note}"));
    }
    print_line(&written.page.display().to_string());
    print_line(&written.report.display().to_string());
}

/// Prints a line of a list of names and values.
fn print_field(name: &str, value: impl Display) {
    print_line(&format!("{name:<18} {value}"));
}

/// Prints the heads of a plan, the cost of training them, the rates and the filters.
fn print_heads_of_plan(estimate: &Estimate, config: &RunConfig) {
    for (name, head) in &config.heads {
        let trained: Vec<&PlannedHead> =
            estimate.training.iter().filter(|planned| planned.head == *name).collect();
        let samples: u64 = trained.iter().map(|head| head.samples).sum();
        let negatives: u64 = trained.iter().map(|head| head.negatives).sum();
        let languages: Vec<&str> = trained.iter().map(|head| head.language.as_str()).collect();
        let how = match (&head.path, &head.score) {
            (Some(path), _) => format!("from {path}"),
            (None, Some(column)) => format!("from the column `{column}`"),
            (None, None) if head.train.is_empty() => "drawn by the id".to_owned(),
            (None, None) if trained.is_empty() => "nothing is left to train".to_owned(),
            (None, None) => {
                let drawn = match negatives {
                    0 => String::new(),
                    some => format!(" and {} documents of the corpus", thousands(some)),
                };
                let (samples, languages) = (thousands(samples), languages.join(", "));
                format!("trained on {samples} samples{drawn} for {languages}")
            }
        };
        print_field("head", format!("{name}: {how}"));
    }
    let encoding = estimate.encoding.as_ref().filter(|encoding| encoding.training_tokens > 0.0);
    if let Some(EncodingEstimate { training_tokens: tokens, training_secs, .. }) = encoding {
        let time = time_for_people(*training_secs);
        let cost = format!("{time} to encode the samples (roughly), some {tokens:.0} tokens");
        print_field("training", cost);
    }
    for (language, rates) in &config.languages {
        if let Ok(Value::Object(rates)) = serde_json::to_value(rates) {
            let rates = rates.iter().filter(|(_, rate)| !rate.is_null());
            let rates: Vec<String> = rates.map(|(kind, rate)| format!("{kind} {rate}")).collect();
            print_field("rates", format!("{language}: {}", rates.join(", ")));
        }
    }
    for name in config.filters.keys() {
        print_field("filter", name);
    }
}

pub(crate) fn print_estimate(estimate: &Estimate, config: &RunConfig, run_dir: Option<&Path>) {
    let Estimate { shards, input_bytes, .. } = estimate;
    let languages = estimate.languages.iter().map(|(l, n)| format!("{l} ({n})"));
    let how = if estimate.rows_counted { "counted" } else { "estimated" };
    print_field("run directory", run_dir.map_or("(none named)".into(), Path::to_string_lossy));
    print_field("input", format!("{shards} shards, {input_bytes} bytes"));
    print_field("languages", languages.collect::<Vec<_>>().join(", "));
    print_field("documents", format!("{} ({how})", estimate.rows));
    match &estimate.encoding {
        Some(encoding) => {
            let EncodingEstimate { tokens, tokens_per_document: mean, encode_secs, .. } = encoding;
            print_field("tokens", format!("{tokens:.0} ({mean:.1} a document, from a sample)"));
            print_field("encoder", &encoding.model);
            print_field("encoder digest", &encoding.encoder_digest);
            print_field("tokenizer", &encoding.tokenizer);
            for ResolvedSetting { name, value, source } in &encoding.encoder_settings {
                print_field(name, format!("{value} ({source})"));
            }
            print_field("device", format!("{}, in {}", encoding.device, encoding.precision));
            let (time, speed) = (time_for_people(*encode_secs), encoding.tokens_per_sec);
            let how = if encoding.speed_measured {
                "on this machine"
            } else {
                "(roughly: what an H200 reached, not measured here)"
            };
            print_field("encoding", format!("{time} at {speed:.0} tokens/s {how}"));
        }
        None if config.has_embeddings() => print_field("encoder", "the input has embeddings"),
        None => print_field("encoder", "none"),
    }
    print_heads_of_plan(estimate, config);
    let [scores, export] = [estimate.scores_bytes, estimate.export_bytes].map(bytes_for_people);
    let mut disk = format!("scores {scores}, export {export}");
    if let Some(EncodingEstimate { gpu_hours, embeddings_bytes, .. }) = &estimate.encoding {
        print_field("on an H200", format!("{gpu_hours:.2} hours of one GPU (roughly)"));
        disk = format!("embeddings {}, {disk}", bytes_for_people(*embeddings_bytes));
    }
    print_field("disk (roughly)", disk);
    for name in estimate.fingerprints.keys().take(MAX_SHARDS_SHOWN) {
        print_field("shard", name);
    }
    let more = estimate.fingerprints.len().saturating_sub(MAX_SHARDS_SHOWN);
    if more > 0 {
        print_field("", format!("and {more} more (plan.jsonl.zst has them all)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_says_what_was_kept_and_why_the_rest_was_removed() {
        let counts =
            |of: &[(&str, u64)]| of.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        assert_eq!(
            format_export_counts(&counts(&[("kept", 734), ("no_text", 6), ("quality", 1_381)])),
            "734 kept; removed: 6 without text, 1,381 by quality"
        );
        assert_eq!(format_export_counts(&counts(&[("kept", 1_000_000)])), "1,000,000 kept");
        assert_eq!(format_export_counts(&counts(&[])), "");
    }
}
