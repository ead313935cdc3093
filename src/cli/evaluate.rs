//! `polysift evaluate`: its arguments and the tables that it prints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use serde_json::Value;

use polysift::config::{FixedThreshold, HeadConfig, LabelKind, Rate, RunConfig, is_language_code};
use polysift::corpus::Context;
use polysift::corpus::heads::TRAINED_IN_A_RUN;
use polysift::input::{InputFile, SampleColumns, SkippedRows, discover};
use polysift::io::write_json;
use polysift::progress::{Progress, Stop};
use polysift::run::{RunDir, Worker};
use polysift::selection::ThresholdKind;
use polysift::views::evaluate::{
    DEFAULT_SAMPLE, DecisionRule, EVERYTHING, Report, SOURCE, Setup, evaluate, evaluate_run,
};
use polysift::{Error, Result};

use super::printer::{print_line, print_table, print_value};
use super::settings::{BaseArgs, ColumnArgs, EncoderArgs, SettingsArgs, resolve, set_hub};

const RETENTION: &str = "0.1";
const INCLUSION_PROBABILITY: &str = "inclusion_probability";

#[derive(Debug, Args)]
#[command(mut_arg("run", |run| run.help(
    "A run: its heads, encoder and thresholds; without --data its stored scores are compared"
)))]
pub(crate) struct EvaluateArgs {
    /// A run directory, as --run, or head files; {lang} stands for the language code, NAME=PATH
    /// names a head [default: the heads of --run or --config]
    #[arg(value_name = "RUN|HEAD")]
    pub(crate) heads: Vec<String>,
    /// Evaluate only this head of --run or --config, which the labels are for; repeatable
    #[arg(long, value_name = "NAME", requires = "data")]
    head: Vec<String>,
    /// Labelled texts: files, directories or globs; {lang} stands for the language code
    #[arg(long, value_name = "FILES", num_args = 1.., help_heading = "Texts")]
    data: Vec<String>,
    /// Column with the label, a class or a grade; several columns of grades are averaged
    #[arg(long, value_name = "COLUMN", default_value = "label", help_heading = "Texts")]
    label_column: Vec<String>,
    /// Grades above this value are positive [default: halfway between whole grades: 0.5, 1.5, ...]
    #[arg(long, value_name = "GRADES", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(requires = "data", help_heading = "Texts")]
    cut: Vec<f64>,
    /// Column with the weights of texts that were sampled from the documents of --run [default: 1
    /// divided by the column `inclusion_probability`, if there is one]
    #[arg(long, value_name = "COLUMN", requires = "data", help_heading = "Texts")]
    weight_column: Option<String>,
    /// Column with the source of a text [default: `source`, if there is one]
    #[arg(long, value_name = "COLUMN", requires = "data", help_heading = "Texts")]
    source_column: Option<String>,
    /// Column with the language
    #[arg(long, value_name = "COLUMN", conflicts_with = "language", requires = "data")]
    #[arg(value_parser = NonEmptyStringValueParser::new(), help_heading = "Texts")]
    language_column: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,

    #[command(flatten)]
    pub(crate) base: BaseArgs,
    #[command(flatten)]
    encoder: EncoderArgs,

    /// Evaluate at a fixed score threshold, for one head or for all
    #[arg(long, value_name = "[NAME=]SCORE", allow_hyphen_values = true)]
    #[arg(requires = "data", help_heading = "Rules")]
    threshold: Vec<String>,
    /// Evaluate at these retention rates: the best share of the texts of each language is kept
    /// [default without any rule and without --run: 0.1]
    #[arg(long, value_name = "[NAME=]RATES", requires = "data", help_heading = "Rules")]
    retention: Vec<String>,
    /// Evaluate at these removal rates: the worst share of the texts is removed
    #[arg(long, value_name = "[NAME=]RATES", requires = "data", help_heading = "Rules")]
    removal: Vec<String>,
    /// Rates at which to estimate the selection of --run, if the texts have weights
    #[arg(long, value_name = "RATES", value_delimiter = ',', help_heading = "Rules")]
    #[arg(default_value = "0.5,0.33,0.2,0.1,0.05,0.02")]
    rates: Vec<Rate>,
    /// Share of the best documents of each head, for the overlap of two heads
    #[arg(long, value_name = "RATE", default_value = "0.1", help_heading = "Rules")]
    top: Rate,
    /// Maximum documents per language to compare the heads of a run on
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SAMPLE, help_heading = "Rules")]
    sample: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Checks which flags are given together, once it is known whether the argument is a run.
fn check_flags(args: &EvaluateArgs) -> Result<()> {
    if args.data.is_empty() && args.base.run.is_none() {
        return Err(Error::config("--data", "is missing; or name a run (`--run DIR`)"));
    }
    if !args.heads.is_empty() && !args.head.is_empty() {
        return Err(Error::config("--head", "is for the heads of a run, not for head files"));
    }
    if args.weight_column.is_some() && args.base.run.is_none() {
        let reason = "is for texts that were sampled from a run; name the run (`--run DIR`)";
        return Err(Error::config("--weight-column", reason));
    }
    Ok(())
}

/// Evaluates heads on labelled texts or, without any, compares the heads of a run; prints a report.
pub(crate) fn run(args: &EvaluateArgs, stop: &Stop, progress: &dyn Progress) -> Result<()> {
    check_flags(args)?;
    let heads = name_heads(&args.heads)?;
    let settings = SettingsArgs {
        base: args.base.clone(),
        head: heads.iter().map(|(name, path)| format!("{name}={path}")).collect(),
        columns: args.columns.clone(),
        encoder: args.encoder.clone(),
        ..SettingsArgs::default()
    };
    let config = resolve(&settings)?;
    let run = args.base.run.as_deref().map(RunDir::open).transpose()?;
    let hub = set_hub(args.encoder.offline);
    if let (Some(run), true) = (&run, args.data.is_empty()) {
        if !heads.is_empty() {
            let reason = "labelled texts are needed to evaluate it; a run without --data is about the \
                          scores that it stores";
            return Err(Error::config("HEAD", reason));
        }
        let worker = Worker::observer(run);
        let context = Context::observing(&config, run, &hub, stop, progress, &worker);
        let agreement = evaluate_run(context, args.top, args.sample)?;
        let mut report = Report { agreement, ..Report::default() };
        if report.agreement.is_empty() {
            let note = "there is nothing to show: without labelled texts (`--data`), the heads of a run \
                        are compared with each other, which takes two";
            report.notes.push(note.to_owned());
        }
        return write_and_print(args, &report);
    }
    let chosen = choose_heads(args, &heads, &config, run.is_some())?;
    let mut report = evaluate(&Setup {
        config: &config,
        heads: &chosen,
        run: run.as_ref(),
        files: &find_files(args)?,
        columns: SampleColumns {
            labels: args.label_column.iter().map(String::as_str).collect(),
            kind: LabelKind::Any,
            weight: args.weight_column.as_deref(),
            inclusion_probability: Some(INCLUSION_PROBABILITY),
            source: Some(args.source_column.as_deref().unwrap_or(SOURCE)),
            language: args.language_column.as_deref(),
            scores: chosen.values().filter_map(|head| head.score.as_deref()).collect(),
        },
        cuts: &args.cut,
        chunks_of_heads: args.encoder.chunks.is_none()
            && run.is_none()
            && args.base.config.is_none(),
        rules: &parse_rules(args, &chosen)?,
        rates: &args.rates,
        top: args.top,
        hub: &hub,
        stop,
        progress,
    })?;
    if chosen.len() > 1 && heads.is_empty() && args.head.is_empty() {
        let names = chosen.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        report.notes.push(format!(
            "all heads ({names}) are judged by the same labels; name its head with --head NAME"
        ));
    }
    write_and_print(args, &report)
}

fn write_and_print(args: &EvaluateArgs, report: &Report) -> Result<()> {
    if let Some(path) = &args.out {
        write_json(path, report)?;
    }
    print_value(args.json, report, print_report);
    Ok(())
}

/// Prints the report as tables; sources are shown only if all texts have one language.
fn print_report(report: &Report) {
    if report.texts > 0 {
        let SkippedRows { without_text, without_label, malformed } = report.skipped;
        print_line(&format!(
            "{} labelled texts; left out: {without_text} rows without text, {without_label} without a label, \
             {malformed} malformed",
            report.texts
        ));
    }
    if let Some(encoder) = &report.encoder {
        let (model, device, precision) = (&encoder.model, &encoder.device, &encoder.precision);
        print_line(&format!("embedded by {model} on {device} in {precision}"));
    }
    let has_one_language = report.heads.windows(2).all(|two| two[0].language == two[1].language);
    let is_shown = |texts: &str| has_one_language || texts == EVERYTHING;
    let measures = report.measures.iter().filter(|row| is_shown(&row.group.texts));
    print_section("Separation of the classes", measures);
    print_section("Grades", report.grades.iter().filter(|row| is_shown(&row.group.texts)));
    print_section("Decisions", report.decisions.iter().filter(|row| row.group.texts == EVERYTHING));
    print_section("Selections, estimated for the documents of the run", report.selections.iter());
    print_section("Agreement of the heads", report.agreement.iter());
    for note in &report.notes {
        print_line(&format!("\nnote: {note}"));
    }
}

/// Prints rows as a table under `title` and the field names; prints nothing without rows.
fn print_section<T: Serialize>(title: &str, rows: impl Iterator<Item = T>) {
    let fields = |row: T| {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(row) else { return None };
        fields.retain(|_, value| !value.is_array()); // tables of their own, in the JSON only
        Some(fields)
    };
    let objects: Vec<_> = rows.filter_map(fields).collect();
    let Some(first) = objects.first() else { return };
    print_line(&format!("\n{title}"));
    let names = first.keys().map(|name| name.replace('_', " "));
    print_table(names, objects.iter().map(|fields| fields.values().map(format_cell).collect()));
}

/// Formats a value: fractions with four digits, `-` for an undefined value.
fn format_cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.4}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// Returns names and paths of the heads `typed`, in order; two heads of one name are an error.
fn name_heads(typed: &[String]) -> Result<Vec<(String, String)>> {
    let mut heads: Vec<(String, String)> = Vec::new();
    for text in typed {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if is_language_code(name) => (name.to_owned(), path),
            _ => (head_name_of(Path::new(text)), text.as_str()),
        };
        if heads.iter().any(|(known, _)| *known == name) {
            let reason = format!("two heads are called `{name}`; name them (NAME=PATH)");
            return Err(Error::config("HEAD", reason));
        }
        heads.push((name, path.to_owned()));
    }
    Ok(heads)
}

/// Returns the name of a head's file, or of its folder as in `heads/quality/fra_Latn.safetensors`.
fn head_name_of(path: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let stem = text(path.file_stem());
    let is_language = stem == "{lang}" || stem == polysift::corpus::languages::ALL_LANGUAGES || {
        let (language, script) = stem.split_once('_').unwrap_or_default();
        language.len() == 3 && script.len() == 4 && is_language_code(&stem)
    };
    let folder = text(path.parent().and_then(Path::file_name));
    let name = if is_language && !folder.is_empty() { folder } else { stem };
    // Names become keys of settings and reports.
    name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-', "_")
}

/// Returns the heads to evaluate: the arguments, else the heads of `--head`, else all heads.
/// Without a run, a head that only a run can provide is an error.
fn choose_heads(
    args: &EvaluateArgs,
    typed: &[(String, String)],
    config: &RunConfig,
    has_run: bool,
) -> Result<BTreeMap<String, HeadConfig>> {
    if let Some(name) = args.head.iter().find(|name| !config.heads.contains_key(*name)) {
        return Err(no_such_head("--head", name, &config.heads));
    }
    let is_typed = |name: &String| typed.is_empty() || typed.iter().any(|(typed, _)| typed == name);
    let mut chosen = config.heads.clone();
    chosen.retain(|name, _| is_typed(name) && (args.head.is_empty() || args.head.contains(name)));
    if chosen.is_empty() {
        return Err(Error::config("HEAD", "no head is named"));
    }
    match chosen.iter().find(|(_, head)| head.path.is_none() && !head.kind.is_of_rows()) {
        Some((name, _)) if !has_run => {
            Err(Error::config(format!("heads.{name}"), TRAINED_IN_A_RUN))
        }
        _ => Ok(chosen),
    }
}

/// Finds the files of labelled texts; it is an error if there are none or `--out` is one of them.
fn find_files(args: &EvaluateArgs) -> Result<Vec<InputFile>> {
    let files = discover(&args.data, Path::new("."))?;
    if files.is_empty() {
        return Err(Error::config("--data", "matches no file"));
    }
    let canonical = |path: &Path| path.canonicalize().ok();
    if let Some(out) = args.out.as_deref().and_then(canonical)
        && files.iter().any(|file| canonical(&file.path).as_ref() == Some(&out))
    {
        return Err(Error::config("--out", "is a file of labelled texts, which it would replace"));
    }
    Ok(files)
}

/// Returns the rules of the flags; without flags and without a run, the default retention.
fn parse_rules(
    args: &EvaluateArgs,
    heads: &BTreeMap<String, HeadConfig>,
) -> Result<Vec<DecisionRule>> {
    let rates = |flag: &str, text: &str| -> Result<Vec<Rate>> {
        let rate = |rate: &str| rate.parse().map_err(|reason: String| Error::config(flag, reason));
        text.split(',').map(rate).collect()
    };
    let beyond = |value: &str| {
        let score: Option<f64> = value.parse().ok().filter(|score: &f64| score.is_finite());
        let wrong = || Error::config("--threshold", format!("`{value}` is not a number"));
        score.map(FixedThreshold::Beyond).ok_or_else(wrong)
    };
    let mut rules = Vec::new();
    for (flag, texts) in [
        ("--threshold", &args.threshold),
        ("--retention", &args.retention),
        ("--removal", &args.removal),
    ] {
        for text in texts {
            // A value without a name is for all heads.
            let (head, value) = match text.split_once('=') {
                None => (None, text.as_str()),
                Some((name, value)) if heads.contains_key(name) => (Some(name.to_owned()), value),
                Some((name, _)) => return Err(no_such_head(flag, name, heads)),
            };
            let kinds = match flag {
                "--threshold" => vec![ThresholdKind::Fixed(beyond(value)?)],
                "--retention" => vec![ThresholdKind::Retain(rates(flag, value)?)],
                _ => rates(flag, value)?.into_iter().map(ThresholdKind::Remove).collect(),
            };
            rules.extend(kinds.into_iter().map(|kind| DecisionRule { head: head.clone(), kind }));
        }
    }
    if rules.is_empty() && args.base.run.is_none() {
        let kind = ThresholdKind::Retain(rates("--retention", RETENTION)?);
        rules.push(DecisionRule { head: None, kind });
    }
    Ok(rules)
}

fn no_such_head(flag: &str, name: &str, heads: &BTreeMap<String, HeadConfig>) -> Error {
    let known: Vec<&str> = heads.keys().map(String::as_str).collect();
    Error::config(flag, format!("there is no head `{name}`; the heads are {}", known.join(", ")))
}
