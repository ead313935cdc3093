//! Builds a command's checked [`RunConfig`] from a settings file and flags; flags win.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use toml::{Table, Value};

use polysift::config::{
    Chunks, DEFAULT_MODEL, DeviceChoice, EmbeddingDtype, EncoderPrecision, FirstPass, Layout, Mode,
    NO_MODEL, Pooling, Rate, RunConfig, Weight,
};
use polysift::encoder::HubSettings;
use polysift::input::normalized;
use polysift::io::{is_url, read_text, without_secrets};
use polysift::pii::PiiMode;
use polysift::run::{RunDir, Stage};
use polysift::{Error, Result};

pub(crate) fn stage_parser() -> impl TypedValueParser<Value = Stage> {
    PossibleValuesParser::new(Stage::ALL.map(Stage::name)).try_map(|name| name.parse::<Stage>())
}

#[derive(Debug, Args)]
pub(crate) struct RunDirArgs {
    /// Run directory
    #[arg(value_name = "RUN", required_unless_present = "run")]
    run_directory: Option<PathBuf>,
    /// Run directory, if it is not given by position
    #[arg(long, value_name = "DIR", env = "POLYSIFT_RUN")]
    run: Option<PathBuf>,
}

impl RunDirArgs {
    /// Returns the run directory: the argument by position, else the flag or the variable.
    pub(crate) fn path(&self) -> &Path {
        // clap requires one of them.
        self.run_directory.as_deref().or(self.run.as_deref()).unwrap_or(Path::new(""))
    }
}

#[derive(Debug, Clone, Args, Default)]
pub(crate) struct BaseArgs {
    /// Settings file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run directory; its stored settings are used if there is no --config [run_dir]
    #[arg(long, value_name = "DIR", env = "POLYSIFT_RUN")]
    pub(crate) run: Option<PathBuf>,
    /// Set any key of the settings file, e.g. --set heads.quality.training.epochs=10
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl BaseArgs {
    /// Returns the run directory that `--set`, the flag or the settings name, in this order.
    pub(crate) fn run_dir(&self, config: &RunConfig) -> Option<PathBuf> {
        let is_set = self.set.iter().any(|assignment| assignment.starts_with("run_dir="));
        self.run.clone().filter(|_| !is_set).or_else(|| config.run_dir.clone().map(PathBuf::from))
    }

    /// Takes the only one of `arguments` as the run if it is one; `--run` must not name another.
    pub(crate) fn take_run(&mut self, arguments: &mut Vec<String>) -> Result<()> {
        let [argument] = arguments.as_slice() else { return Ok(()) };
        let path = PathBuf::from(argument);
        if RunDir::open(&path).is_err() {
            return Ok(());
        }
        let of_variable = std::env::var_os("POLYSIFT_RUN").map(PathBuf::from);
        let is_other = |run: &&PathBuf| **run != path && Some(*run) != of_variable.as_ref();
        if let Some(other) = self.run.as_ref().filter(is_other) {
            let reason = format!("names {}, and the argument names {argument}", other.display());
            return Err(Error::config("--run", reason));
        }
        self.run = Some(path);
        arguments.clear();
        Ok(())
    }
}

/// Flags that set the `[encoder]` key of the same name.
#[derive(Debug, Clone, Args, Default, Serialize)]
pub(crate) struct EncoderArgs {
    /// polysift-mini (built in), a Hugging Face directory or hub id, or none [encoder.model]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) model: Option<String>,
    /// Revision of the model on the hub [encoder.revision]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) revision: Option<String>,
    /// How token states become one vector per chunk [encoder.pooling]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) pooling: Option<Pooling>,
    /// Maximum tokens per chunk, including <s> and </s> [encoder.max_tokens]
    #[arg(long, value_name = "TOKENS", help_heading = "Encoder")]
    pub(crate) max_tokens: Option<usize>,
    /// Which chunks are embedded [encoder.chunks]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) chunks: Option<Chunks>,
    /// Text put before every document, e.g. "query: " [encoder.prompt]
    #[arg(long, value_name = "TEXT", help_heading = "Encoder")]
    pub(crate) prompt: Option<String>,
    /// Device: auto, cpu, cuda (all GPUs), or GPUs by number as in cuda:0,2 [encoder.device]
    #[arg(long, env = "POLYSIFT_DEVICE", help_heading = "Encoder")]
    pub(crate) device: Option<DeviceChoice>,
    /// Number format of the encoder's computation [encoder.precision]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) precision: Option<EncoderPrecision>,
    /// Maximum tokens per packed batch [encoder.batch_tokens]
    #[arg(long, value_name = "TOKENS", help_heading = "Encoder")]
    pub(crate) batch_tokens: Option<usize>,
    /// Use only local files, never download from the hub
    #[arg(long, help_heading = "Encoder")]
    #[serde(skip)]
    pub(crate) offline: bool,
}

/// Flags that set keys of `[input]`; each is serialised under its key.
#[derive(Debug, Clone, Args, Default, Serialize)]
pub(crate) struct ColumnArgs {
    /// Language of all documents [input.language]
    #[arg(long, value_name = "CODE", help_heading = "Input")]
    pub(crate) language: Option<String>,
    /// Column with the text [input.text]
    #[arg(long, value_name = "COLUMN", help_heading = "Input")]
    #[serde(rename = "text")]
    pub(crate) text_column: Option<String>,
    /// Column with the id [input.id]
    #[arg(long, value_name = "COLUMN", help_heading = "Input")]
    #[serde(rename = "id")]
    pub(crate) id_column: Option<String>,
}

/// Other flags that set one key each; each is serialised under its key.
#[derive(Debug, Args, Default, Serialize)]
pub(crate) struct KeyArgs {
    /// Random seed [seed]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,

    /// Files, directories or globs; {lang} stands for the language code [input.files]
    #[arg(value_name = "INPUT", help_heading = "Input")]
    #[serde(rename = "input.files", skip_serializing_if = "Vec::is_empty")]
    pub(crate) input: Vec<String>,
    /// Maximum malformed rows per file to set aside before the file fails [input.max_rejects]
    #[arg(long, value_name = "N", help_heading = "Input")]
    #[serde(rename = "input.max_rejects")]
    pub(crate) max_rejects: Option<u64>,

    /// Number format of stored embeddings [parts.embeddings]
    #[arg(long, value_name = "DTYPE", help_heading = "Encoder")]
    #[serde(rename = "parts.embeddings")]
    pub(crate) embeddings: Option<EmbeddingDtype>,

    /// Unit that rates and budgets count [selection.weight]
    #[arg(long, help_heading = "Heads and thresholds")]
    #[serde(rename = "selection.weight")]
    pub(crate) weight: Option<Weight>,
    /// How thresholds are found [selection.mode]
    #[arg(long, help_heading = "Heads and thresholds")]
    #[serde(rename = "selection.mode")]
    pub(crate) mode: Option<Mode>,
    /// Encode in a fast type, then rescore documents near a threshold in f32 (fp8: in bf16), so
    /// that the selection is what f32 (bf16) would select [selection.refine]
    #[arg(long, help_heading = "Heads and thresholds")]
    #[serde(rename = "selection.refine", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) refine: bool,

    /// Before encoding, drop documents that a cheap first pass predicts would not be kept: auto,
    /// bundled, or prefix:N tokens [cascade.first_pass]
    #[arg(long, value_name = "FIRST_PASS", help_heading = "Heads and thresholds")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    #[serde(rename = "cascade.first_pass")]
    pub(crate) cascade: Option<FirstPass>,
    /// Encode more documents until the audit proves the cascade's recall [cascade.repair]
    #[arg(long, help_heading = "Heads and thresholds")]
    #[serde(rename = "cascade.repair", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cascade_repair: bool,

    /// Export to a folder, s3://bucket/prefix, gs://, az:// or hf://datasets/OWNER/NAME instead of
    /// the run directory [export.to]
    #[arg(long, value_name = "PLACE", help_heading = "Export")]
    #[serde(rename = "export.to")]
    pub(crate) export_to: Option<String>,
    /// Columns of the export [export.layout]
    #[arg(long, help_heading = "Export")]
    #[serde(rename = "export.layout")]
    pub(crate) layout: Option<Layout>,
    /// Start a new file after this many megabytes [export.max_file_mb]
    #[arg(long, value_name = "MB", help_heading = "Export")]
    #[serde(rename = "export.max_file_mb")]
    pub(crate) max_file_mb: Option<usize>,
    /// Replace e-mail addresses, IP addresses and IBANs in exported texts [pii.mode]
    #[arg(long, value_name = "MODE", help_heading = "Export")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "default")]
    #[serde(rename = "pii.mode")]
    pub(crate) pii: Option<PiiMode>,
    /// Also write the documents that were not selected, by reason [export.keep_removed]
    #[arg(long, help_heading = "Export")]
    #[serde(rename = "export.keep_removed", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keep_removed: bool,
}

/// Settings of a stage; each flag names the key that it overrides.
#[derive(Debug, Args, Default)]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) base: BaseArgs,
    /// Discard the outputs of this stage and of the stages that depend on it, then run them again
    #[arg(long, value_name = "STAGE", value_parser = stage_parser())]
    pub(crate) redo: Option<Stage>,
    /// Index of this task among the tasks of the stage, counted from 0; the task begins with its
    /// own share of the shards. `auto` takes the index from Slurm, Kubernetes or AWS Batch
    /// [default: POLYSIFT_TASK; auto in a run begun with `polysift plan`]
    #[arg(long, value_name = "I", help_heading = "Many machines")]
    pub(crate) task: Option<String>,
    /// Number of tasks; may vary by attempt [default: POLYSIFT_NUM_TASKS or the scheduler's number]
    #[arg(long, value_name = "N", help_heading = "Many machines")]
    pub(crate) num_tasks: Option<u32>,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) columns: ColumnArgs,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,

    /// Load a head, e.g. quality=heads/{lang}.safetensors [heads.NAME.path]
    #[arg(long, value_name = "NAME=PATH", help_heading = "Heads and thresholds")]
    pub(crate) head: Vec<String>,
    /// Train a head on labelled samples, e.g. quality=samples/{lang}.jsonl [heads.NAME.train]
    #[arg(long, value_name = "NAME=PATH", help_heading = "Heads and thresholds")]
    pub(crate) train_on: Vec<String>,
    /// Take scores from a column of the input, e.g. edu=int_score [heads.NAME.score]
    #[arg(long, value_name = "NAME=COLUMN", help_heading = "Heads and thresholds")]
    pub(crate) score_column: Vec<String>,
    /// Shares of documents to keep, e.g. quality=0.1,0.33 [languages._default.retention]
    #[arg(long, value_name = "NAME=RATES", help_heading = "Heads and thresholds")]
    pub(crate) retention: Vec<String>,
    /// Share of documents to remove, e.g. toxicity=0.05 [languages._default.removal]
    #[arg(long, value_name = "NAME=RATE", help_heading = "Heads and thresholds")]
    pub(crate) removal: Vec<String>,
    /// Export without embeddings [export.with_embeddings]
    #[arg(long, help_heading = "Export")]
    pub(crate) no_embeddings: bool,

    /// Print the result as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help with the flags of all stages
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub(crate) help_all: Option<bool>,
}

impl SettingsArgs {
    /// Takes the argument as the run if it is one, as it must be without `--run` and input.
    pub(crate) fn take_run(&mut self, reads_input: bool) -> Result<()> {
        self.base.take_run(&mut self.keys.input)?;
        if let ([argument], false, None) = (&self.keys.input[..], reads_input, &self.base.run) {
            RunDir::open(Path::new(argument))?;
        }
        Ok(())
    }
}

/// Returns the hub settings of the environment and `--offline`, and sets them for all hub URLs.
pub(crate) fn set_hub(offline: bool) -> HubSettings {
    let mut hub = HubSettings::from_env(|name| std::env::var(name).ok());
    hub.offline |= offline;
    polysift::remote::set_hub(&hub);
    hub
}

/// Reads the settings that the run directory `run` holds; [`Error::Missing`] if it is not planned.
pub(crate) fn read_run_settings(run: &Path) -> Result<RunConfig> {
    if !run.join("config.toml").is_file() {
        let reason = "has no config.toml: it is not planned (`polysift plan --run DIR ...`), or its \
                      settings are lost";
        return Err(Error::missing(run, reason));
    }
    let base = BaseArgs { run: Some(run.to_owned()), ..BaseArgs::default() };
    resolve(&SettingsArgs { base, ..SettingsArgs::default() })
}

/// Reads the settings file (or the run directory's own), applies the flags, checks the result,
/// in which all paths are absolute.
pub(crate) fn resolve(args: &SettingsArgs) -> Result<RunConfig> {
    set_hub(args.encoder.offline); // hub URLs are looked up with these settings
    let (file, origin) = read_base(&args.base)?;
    let overrides = list_overrides(args)?;
    let mut table = file.clone();
    for (key, value) in &overrides {
        set_key(&mut table, key, value.clone())?;
    }
    // `--head` and `--train-on` replace each other's keys of the file.
    let of_training = "train label weight hidden references negatives languages center";
    for (assignments, replaced) in [(&args.head, of_training), (&args.train_on, "path")] {
        for name in assignments.iter().filter_map(|a| a.split_once('=')).map(|(name, _)| name) {
            let head = table.get_mut("heads").and_then(|heads| heads.get_mut(name));
            if let Some(head) = head.and_then(Value::as_table_mut) {
                head.retain(|key, _| replaced.split(' ').all(|other| other != key));
            }
        }
    }
    let mut config = RunConfig::from_table(table).map_err(|reason| {
        find_wrong_override(file, &overrides).unwrap_or(Error::config(origin, reason))
    })?;
    config.check()?;
    if let Some(to) = config.export.to.as_ref().filter(|to| is_url(to)) {
        let wrong = |error: Error| Error::config("export.to", error.to_string());
        polysift::remote::check_destination(to).map_err(wrong)?;
    }
    // The settings are stored and printed, so secrets are removed from their URLs.
    let heads = config.heads.values_mut().flat_map(|head| head.train.iter_mut());
    let except = config.pii.iter_mut().flat_map(|pii| pii.except.iter_mut());
    let all = config.input.files.iter_mut().chain(heads).chain(except);
    for pattern in all.filter(|text| is_url(text)) {
        *pattern = without_secrets(pattern)?;
    }
    Ok(config)
}

/// Returns an error that names the first of `overrides` which makes the valid `file` invalid.
fn find_wrong_override(mut file: Table, overrides: &Overrides) -> Option<Error> {
    overrides.iter().find_map(|(key, value)| {
        set_key(&mut file, key, value.clone()).ok()?;
        let reason = RunConfig::from_table(file.clone()).err()?;
        Some(Error::config(format!("--set {key}"), reason))
    })
}

/// Reads the file that the flags are applied to: `--config`, else the run's own, if there is one.
/// Returns its table, with absolute paths, and its name for error messages.
fn read_base(args: &BaseArgs) -> Result<(Table, String)> {
    let stored = args.run.as_ref().map(|run| run.join("config.toml")).filter(|p| p.is_file());
    let Some(path) = args.config.clone().or(stored) else {
        return Ok((Table::new(), "arguments".to_owned()));
    };
    let origin = path.display().to_string();
    let text = read_text(&path)?;
    // Parsing the file alone first makes its errors (unknown keys, wrong types) name its lines.
    RunConfig::parse(&text, &origin)?;
    let mut table: Table =
        text.parse().map_err(|e: toml::de::Error| Error::config(&origin, e.to_string()))?;
    let file = std::path::absolute(&path).map_err(Error::io(&path, "resolve"))?;
    make_absolute(&mut table, file.parent().unwrap_or(&file));
    Ok((table, origin))
}

/// Keys whose values are paths; `*` stands for every name.
const PATHS: &str = "run_dir input.files input.language.model heads.*.path heads.*.train \
                     filters.*.lists filters.*.index filters.*.allow filters.*.sources.ids \
                     filters.*.sources.domains filters.*.sources.robots export.to card.template";

/// Makes the paths of a settings file absolute; they are relative to its directory `base`.
fn make_absolute(table: &mut Table, base: &Path) {
    for key in PATHS.split(' ') {
        make_key_absolute(table, key, base);
    }
    let globs = table.get_mut("pii").and_then(|t| t.get_mut("except"));
    for glob in globs.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::String(glob) = glob {
            *glob = join_glob(base, glob);
        }
    }
    if let Some(model) = table.get_mut("encoder").and_then(|t| t.get_mut("model")) {
        // A model is a path only if such a directory exists; otherwise it is a name or a hub id.
        let is_name = |name: &str| ["", DEFAULT_MODEL, NO_MODEL].contains(&name);
        if model.as_str().is_some_and(|name| !is_name(name) && base.join(name).is_dir()) {
            make_value_absolute(model, "", base);
        }
    }
}

fn make_key_absolute(table: &mut Table, key: &str, base: &Path) {
    let (name, rest) = key.split_once('.').unwrap_or((key, ""));
    for (_, value) in table.iter_mut().filter(|(own, _)| [own.as_str(), "*"].contains(&name)) {
        make_value_absolute(value, rest, base);
    }
}

/// Joins the relative paths in `value`, or at the dotted key `rest` below it, to `base`. URLs stay,
/// and so do empty paths and `~`, which [`RunConfig::check`] refuses.
fn make_value_absolute(value: &mut Value, rest: &str, base: &Path) {
    match value {
        Value::String(path) if path.is_empty() || path.split('/').next() == Some("~") => {}
        Value::String(path) if rest.is_empty() => *path = join_path(base, path),
        Value::Table(table) if !rest.is_empty() => make_key_absolute(table, rest, base),
        Value::Array(all) => all.iter_mut().for_each(|one| make_value_absolute(one, rest, base)),
        _ => {}
    }
}

/// Joins `path` to `base`, with `..` resolved so that messages are readable; URLs stay.
fn join_path(base: &Path, path: &str) -> String {
    if is_url(path) {
        return path.to_owned();
    }
    normalized(&base.join(path)).to_string_lossy().into_owned()
}

/// Joins a relative `glob` of `pii.except` to `base`. `/./` stays between them if the glob does not
/// leave `base`, because it then is also one of shards and URLs.
fn join_glob(base: &Path, glob: &str) -> String {
    if is_url(glob) || glob.starts_with('/') {
        return glob.to_owned();
    }
    let base = PathBuf::from(glob::Pattern::escape(&join_path(base, "")));
    let joined = join_path(&base, glob);
    match Path::new(&joined).strip_prefix(&base) {
        Ok(below) => base.join(".").join(below).to_string_lossy().into_owned(),
        Err(_) => joined,
    }
}

type Overrides = Vec<(String, Value)>;

/// Sets the list `key`, or adds `items` to it if an earlier flag did.
fn add_items(overrides: &mut Overrides, key: String, items: Vec<Value>) {
    match overrides.iter_mut().find(|(other, _)| *other == key) {
        Some((_, Value::Array(before))) => before.extend(items),
        _ => overrides.push((key, items.into())),
    }
}

/// Returns every given flag as the key it sets; paths are made absolute from the current directory.
fn list_overrides(args: &SettingsArgs) -> Result<Overrides> {
    let mut all = Overrides::new();
    for (section, flags) in [
        ("", Table::try_from(&args.keys)),
        ("input.", Table::try_from(&args.columns)),
        ("encoder.", Table::try_from(&args.encoder)),
    ] {
        let flags = flags.map_err(|error| Error::config("arguments", error.to_string()))?;
        all.extend(flags.into_iter().map(|(key, value)| (format!("{section}{key}"), value)));
    }
    if args.no_embeddings {
        all.push(("export.with_embeddings".into(), false.into()));
    }
    for (name, path) in split_all("--head", &args.head)? {
        all.push((format!("heads.{name}.path"), path.into()));
    }
    for (name, path) in split_all("--train-on", &args.train_on)? {
        add_items(&mut all, format!("heads.{name}.train"), vec![path.into()]);
    }
    for (name, column) in split_all("--score-column", &args.score_column)? {
        all.push((format!("heads.{name}.kind"), "column".into()));
        all.push((format!("heads.{name}.score"), column.into()));
    }
    for (name, rates) in split_all("--retention", &args.retention)? {
        let rates = rates.split(',').map(|rate| check_rate("--retention", rate));
        let rates: Vec<Value> = rates.collect::<Result<_>>()?;
        add_items(&mut all, format!("languages._default.retention.{name}"), rates);
    }
    for (name, rate) in split_all("--removal", &args.removal)? {
        all.push((format!("languages._default.removal.{name}"), check_rate("--removal", rate)?));
    }
    let set_keys = split_all("--set", &args.base.set)?.into_iter();
    all.extend(set_keys.map(|(key, value)| (key.to_owned(), parse_value(value))));
    let here = std::env::current_dir().map_err(Error::io(Path::new("."), "resolve"))?;
    for (key, value) in &mut all {
        let mut table = Table::new();
        set_key(&mut table, key, value.clone())?;
        make_absolute(&mut table, &here);
        let table = Value::Table(table);
        let changed = key.split('.').try_fold(&table, |table, name| table.get(name));
        *value = changed.ok_or_else(|| Error::config(key.as_str(), "is no key"))?.clone();
    }
    Ok(all)
}

/// Splits `NAME=VALUE` at the first `=`; the error for text without one names `flag`.
fn split_all<'a>(flag: &str, assignments: &'a [String]) -> Result<Vec<(&'a str, &'a str)>> {
    let pair = |text: &'a String| {
        let wrong = || Error::config(flag, format!("`{text}` is not of the form NAME=VALUE"));
        text.split_once('=').ok_or_else(wrong)
    };
    assignments.iter().map(pair).collect()
}

/// Checks a rate here, so that the error names the flag, and returns its text.
fn check_rate(flag: &str, text: &str) -> Result<Value> {
    text.parse::<Rate>().map_err(|reason| Error::config(flag, reason))?;
    Ok(Value::String(text.to_owned()))
}

/// Parses a TOML value; anything else is a string, so that quotes are rarely needed.
fn parse_value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok();
    parsed.and_then(|mut t| t.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets a dotted key, creating tables as needed; fails if a part of it is set to another value.
fn set_key(table: &mut Table, key: &str, value: Value) -> Result<()> {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    match table.entry(first).or_insert_with(|| Table::new().into()) {
        Value::Table(inner) => set_key(inner, rest, value),
        _ => Err(Error::config("--set", format!("`{first}` of `…{key}` is not a table"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_set_by_flag_are_below_the_current_directory() -> Result<()> {
        let set = [
            "input.files=['a/*', 's3://b/c']",
            "heads.q.path=q.pt",
            "input.text=t",
            "card.template=./t.j",
            "pii.except=['./a/*', '**/b', '../c', '/d/./e', 's3://f/**']",
        ];
        let base = BaseArgs { set: set.map(Into::into).to_vec(), ..BaseArgs::default() };
        let config = resolve(&SettingsArgs { base, ..SettingsArgs::default() })?;
        let here = std::env::current_dir().map_err(Error::io(Path::new("."), "resolve"))?;
        let below = |path: &str| here.join(path).display().to_string();
        assert_eq!(config.input.files, [below("a/*"), "s3://b/c".to_owned()]);
        assert_eq!(config.heads["q"].path, Some(below("q.pt")));
        assert_eq!(config.input.text, "t");
        assert_eq!(config.card.template, Some(below("t.j")));
        let above = here.parent().unwrap_or(&here).join("c").display().to_string();
        let except = [below("./a/*"), below("./**/b"), above, "/d/./e".into(), "s3://f/**".into()];
        assert_eq!(config.pii.map(|pii| pii.except), Some(except.to_vec()));
        Ok(())
    }

    #[test]
    fn names_that_are_refused_are_not_taken_for_paths() {
        for (set, key) in [
            ("export.to=", "export.to: is empty"),
            ("run_dir=~/run", "run_dir: begins with `~`"),
            ("input.files=['a', '']", "input.files: is empty"),
        ] {
            let base = BaseArgs { set: vec![set.to_owned()], ..BaseArgs::default() };
            let refused = resolve(&SettingsArgs { base, ..SettingsArgs::default() });
            let refused = refused.map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|told| told.starts_with(key)), "{refused:?}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_reach_nested_keys() -> Result<()> {
        let args = SettingsArgs {
            head: vec!["quality=q.safetensors".into()],
            score_column: vec!["edu=int_score".into()],
            retention: vec!["quality=0.1,0.33".into()],
            base: BaseArgs { set: vec!["heads.quality.chunk=max".into()], ..BaseArgs::default() },
            encoder: EncoderArgs {
                max_tokens: Some(128),
                pooling: Some(Pooling::Cls),
                ..EncoderArgs::default()
            },
            columns: ColumnArgs { text_column: Some("t".into()), ..ColumnArgs::default() },
            keys: KeyArgs {
                seed: Some(7),
                input: vec!["a.jsonl".into()],
                embeddings: Some(EmbeddingDtype::Bf16InF32),
                ..KeyArgs::default()
            },
            no_embeddings: true,
            ..SettingsArgs::default()
        };
        let config = resolve(&args)?;
        assert_eq!((config.encoder.max_tokens, config.encoder.pooling), (128, Some(Pooling::Cls)));
        assert_eq!(config.parts.embeddings, EmbeddingDtype::Bf16InF32);
        assert_eq!((config.seed, config.input.files.len()), (7, 1));
        assert_eq!(config.input.text, "t");
        assert!(!config.export.with_embeddings && !config.selection.refine);
        assert_eq!(config.heads["edu"].score.as_deref(), Some("int_score"));
        let rates = &config.thresholds("deu_Latn").retention["quality"];
        assert_eq!(rates.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.1", "0.33"]);
        Ok(())
    }

    #[test]
    fn a_rate_for_an_unknown_head_names_the_key_and_the_heads() {
        for (key, heads, known) in [
            ("retention", vec![], "there are: none"),
            ("removal", vec!["quality=q.safetensors".to_owned()], "there are: quality"),
        ] {
            let rates = vec!["foo=0.5".to_owned()];
            let (retention, removal) =
                if key == "removal" { (vec![], rates) } else { (rates, vec![]) };
            let args = SettingsArgs { head: heads, retention, removal, ..SettingsArgs::default() };
            let error = resolve(&args).map(drop).map_err(|e| (e.exit_code(), e.to_string()));
            let named = |(code, text): (u8, String)| {
                code == 2
                    && text.starts_with(&format!("languages._default.{key}: names"))
                    && text.contains("`foo`")
                    && text.contains(known)
            };
            assert!(error.is_err_and(named), "{key}");
        }
    }

    #[test]
    fn an_unknown_key_in_set_is_refused() {
        let base = BaseArgs { set: vec!["encoder.modle=x".into()], ..BaseArgs::default() };
        let args = SettingsArgs { base, ..SettingsArgs::default() };
        assert!(resolve(&args).is_err_and(|e| e.exit_code() == 2));
    }
}
