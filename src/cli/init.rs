//! `polysift init`: looks at data files and writes a settings file for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;

use polysift::config::is_language_code;
use polysift::input::{InputFile, RowsRequest, discover, row_values};
use polysift::language::{iso_639_3, language_tag};
use polysift::progress::{Stop, bytes_for_people};
use polysift::{Error, Result};

use super::printer::{cells, complaint, next, quoted_path, titled_table};

const ROWS: usize = 200;
const TEXT_COLUMNS: [&str; 6] = ["text", "content", "raw_content", "document", "body", "passage"];
const ID_COLUMNS: [&str; 5] = ["id", "doc_id", "document_id", "uuid", "url"];
const LANGUAGE_COLUMNS: [&str; 3] = ["language", "lang", "language_code"];
const SCRIPT_COLUMNS: [&str; 2] = ["language_script", "script"];
const LABEL_COLUMN: &str = "label";

const NO_LABELS: &str = r#"
# No labelled texts were found. A head needs some hundreds of them for each language:
# [heads.quality]
# train = ["labelled/{lang}.jsonl"]    # columns `text` and `label` (positive, negative)
#
# [languages._default]
# retention = { quality = [0.1] }    # keep the best 10% of each language"#;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder with Parquet or JSON lines files: documents, and labelled texts with a column `label`
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Settings file to write, which must not exist yet
    #[arg(long, value_name = "FILE", default_value = "run.toml")]
    out: PathBuf,
}

/// Files with one pattern, and the columns and labels in the first rows of one of them.
#[derive(Default)]
struct Group {
    files: Vec<PathBuf>,
    bytes: f64,
    languages: BTreeSet<String>,
    text: Option<String>,
    id: Option<String>,
    /// Language column, with the script column if there is one.
    language: Option<(String, Option<String>)>,
    labels: BTreeSet<String>,
}

pub(crate) fn run(args: &InitArgs, stop: &Stop, quiet: bool) -> Result<()> {
    let out = std::path::absolute(&args.out).map_err(Error::io(&args.out, "resolve"))?;
    if out.exists() {
        let reason = "exists already; name another file (`--out FILE`)";
        return Err(Error::config(args.out.display().to_string(), reason));
    }
    let base = out.parent().unwrap_or(&out);
    let folder = args.folder.display().to_string();
    let files = discover(std::slice::from_ref(&folder), Path::new("."))?;
    let mut groups = groups(&files, base);
    groups.retain(|pattern, group| {
        let read = group.read(stop);
        if let Err(error) = &read {
            complaint(&format!("left out: {pattern}: {error}"));
        }
        read.is_ok()
    });
    let (labelled, mut documents): (Vec<_>, Vec<_>) =
        groups.iter().partition(|(_, group)| !group.labels.is_empty());
    // One text column serves all documents: that of the largest group.
    let largest = documents.iter().max_by(|(_, a), (_, b)| a.bytes.total_cmp(&b.bytes));
    let text = largest.and_then(|(_, group)| group.text.clone());
    let Some(text) = text else {
        let labelled: Vec<&str> = labelled.iter().map(|(pattern, _)| pattern.as_str()).collect();
        let reason = format!(
            "documents to select from are missing: all files have a column `{LABEL_COLUMN}` ({}), so they are \
             labelled texts; if they are documents, write a settings file by hand",
            labelled.join(", ")
        );
        return Err(Error::missing(&args.folder, reason));
    };
    documents.retain(|(pattern, group)| {
        let is_alike = group.text.as_ref() == Some(&text);
        if !is_alike {
            complaint(&format!("left out: {pattern}: it has no column `{text}`"));
        }
        is_alike
    });
    let content = settings(&text, &documents, &labelled);
    let created =
        File::create_new(&args.out).and_then(|mut file| file.write_all(content.as_bytes()));
    created.map_err(Error::io(&args.out, "create"))?;
    if !quiet {
        let row = |kind: &str, (pattern, group): &(&String, &Group)| {
            let (count, languages) = (group.files.len(), group.languages.len());
            cells([pattern, &kind, &count, &bytes_for_people(group.bytes), &languages])
        };
        let rows = documents.iter().map(|group| row("documents", group));
        let rows = rows.chain(labelled.iter().map(|group| row("labelled texts", group)));
        titled_table(["files", "content", "number", "size", "languages by path"], rows);
        next(&format!("polysift run -c {} --dry-run", quoted_path(&args.out)));
    }
    Ok(())
}

/// Groups files by their patterns, relative to the folder `base` where they are below it.
fn groups(files: &[InputFile], base: &Path) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut plain = Vec::new();
    for file in files {
        let path = file.path.strip_prefix(base).unwrap_or(&file.path);
        let (pattern, language) = pattern(path, is_language);
        let group = groups.entry(pattern).or_default();
        group.add(file);
        group.languages.extend(language);
        plain.push((file, path));
    }
    // Short names such as `lab`, `new` and `raw`, which are rare languages too, name folders.
    let is_rare =
        |code: &String| !code.contains('_') && language_tag(code).is_none_or(|tag| tag.len() != 2);
    let is_folder = |group: &Group| {
        let is_alone = group.languages.len() == 1;
        group.languages.iter().all(|code| is_rare(code) || is_alone && !code.contains('_'))
    };
    groups.retain(|_, group| !is_folder(group));
    let kept: BTreeSet<PathBuf> = groups.values().flat_map(|group| group.files.clone()).collect();
    for (file, path) in plain.into_iter().filter(|(file, _)| !kept.contains(&file.path)) {
        groups.entry(pattern(path, |_| false).0).or_default().add(file);
    }
    groups
}

/// Returns the pattern that matches `name` alone.
fn escaped(name: &str) -> String {
    let is_special = |c: char| "[]*?".contains(c);
    name.chars().map(|c| if is_special(c) { format!("[{c}]") } else { c.to_string() }).collect()
}

/// Returns the pattern of a path and the language in it, a component or the name of the file.
fn pattern(path: &Path, is_language: impl Fn(&str) -> bool) -> (String, Option<String>) {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extension) = file.split_once('.').unwrap_or((&file, ""));
    let mut pattern = PathBuf::new();
    let mut language = None;
    for component in path.parent().unwrap_or(path).components() {
        match component {
            Component::Normal(name)
                if language.is_none() && is_language(&name.to_string_lossy()) =>
            {
                language = Some(name.to_string_lossy().into_owned());
                pattern.push("{lang}");
            }
            Component::Normal(name) => pattern.push(escaped(&name.to_string_lossy())),
            other => pattern.push(other),
        }
    }
    if language.is_none() && is_language(stem) {
        language = Some(stem.to_owned());
        pattern.push(format!("{{lang}}.{extension}"));
    } else {
        pattern.push(format!("*.{extension}"));
    }
    (pattern.to_string_lossy().into_owned(), language)
}

/// Returns true for a code such as `deu_Latn`, `deu` or `de`.
fn is_language(name: &str) -> bool {
    let code = name.split('_').next().unwrap_or_default();
    is_language_code(name)
        && (2..=3).contains(&code.len())
        && (name.len() == code.len() || name.len() == code.len() + 5)
        && code.bytes().all(|b| b.is_ascii_lowercase())
        && iso_639_3(name).is_some()
}

impl Group {
    fn add(&mut self, file: &InputFile) {
        self.files.push(file.path.clone());
        self.bytes += file.bytes as f64;
    }

    fn read(&mut self, stop: &Stop) -> Result<()> {
        let request = RowsRequest { count: ROWS, sort_by: None, ascending: false };
        let mut rows = Vec::new();
        for file in self.files.chunks(1) {
            rows = row_values(file, request, stop)?;
            if !rows.is_empty() {
                break;
            }
        }
        let rows: Vec<&Value> = rows.iter().map(|row| &row["columns"]).collect();
        let has_text = |name: &str| rows.iter().any(|row| row[name].is_string());
        let known = |names: &[&str]| {
            names.iter().find(|name| has_text(name)).map(|name| (*name).to_owned())
        };
        self.text = known(&TEXT_COLUMNS).or_else(|| longest(&rows));
        self.id = known(&ID_COLUMNS).filter(|name| {
            let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row[name].as_str()).collect();
            ids.len() == rows.len()
        });
        if self.languages.is_empty() {
            self.language = known(&LANGUAGE_COLUMNS).map(|name| (name, known(&SCRIPT_COLUMNS)));
        }
        let labels = rows.iter().map(|row| &row[LABEL_COLUMN]).filter(|label| !label.is_null());
        self.labels = labels.map(|label| label.to_string().replace('"', "")).collect();
        if self.text.is_none() {
            return Err(Error::schema(&self.files[0], TEXT_COLUMNS[0], "no column holds text"));
        }
        Ok(())
    }
}

fn longest(rows: &[&Value]) -> Option<String> {
    let columns = rows.first()?.as_object()?;
    let bytes = |name: &&String| -> usize {
        rows.iter().filter_map(|row| row[name.as_str()].as_str()).map(str::len).sum()
    };
    columns.keys().max_by_key(bytes).filter(|name| bytes(name) > 0).cloned()
}

fn settings(text: &str, documents: &[(&String, &Group)], labelled: &[(&String, &Group)]) -> String {
    let mut lines = vec![
        "# Written by `polysift init`. docs/settings.md describes all settings.".to_owned(),
        "run_dir = \"run\"".into(),
        "\n[input]\nfiles = [".into(),
    ];
    for (pattern, group) in documents {
        let (count, size) = (group.files.len(), bytes_for_people(group.bytes));
        let languages = if group.languages.is_empty() {
            String::new()
        } else {
            format!("; {}", listed(&group.languages))
        };
        lines.push(format!("    {},    # files: {count}, {size}{languages}", quoted(pattern)));
    }
    lines.push(format!("]\ntext = {}", quoted(text)));
    let id = documents.iter().find_map(|(_, group)| group.id.as_deref());
    let no_id = "# id = \"...\"    # without a column of unique ids, an id is FILE/ROW";
    lines.push(id.map_or_else(|| no_id.to_owned(), |id| format!("id = {}", quoted(id))));
    let has_path = |(_, group): &(&String, &Group)| !group.languages.is_empty();
    let language = documents[0].1.language.as_ref();
    if let Some((column, script)) = language
        && documents.iter().all(|(_, group)| group.language.as_ref() == language)
    {
        let script = script.as_ref().map(|name| format!(", script_column = {}", quoted(name)));
        let script = script.unwrap_or_default();
        lines.push(format!("language = {{ column = {}{script} }}", quoted(column)));
    } else if !documents.iter().all(has_path) {
        let comment = "# the language of all documents, if you know it";
        lines.push(format!("# language = \"eng_Latn\"    {comment}"));
        let comment = "# or a fastText classifier that identifies it";
        lines.push(format!("# language = {{ model = \"lid.176.ftz\" }}    {comment}"));
    }
    lines.push("\n[encoder]".into());
    let comment = "# built in, for 21 languages; `polysift models` lists larger ones";
    lines.push(format!("model = \"polysift-mini\"    {comment}"));
    lines.extend(heads(labelled));
    lines.join("\n") + "\n"
}

/// Returns the lines that define a head for each kind of labelled texts, and the rates.
fn heads(labelled: &[(&String, &Group)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rates = Vec::new();
    for (name, rate) in [
        ("toxicity", "removal = { toxicity = 0.05 }    # first drop the worst 5%"),
        ("quality", "retention = { quality = [0.1] }    # keep the best 10% of each language"),
    ] {
        let groups = labelled.iter().filter(|(pattern, group)| {
            (pattern.contains("toxic") || group.labels.contains("toxic")) == (name == "toxicity")
        });
        let groups: Vec<_> = groups.collect();
        if groups.is_empty() {
            continue;
        }
        let train: Vec<String> = groups.iter().map(|(pattern, _)| quoted(pattern)).collect();
        let labels = groups.iter().flat_map(|(_, group)| group.labels.clone()).collect();
        let comment = format!("# columns `text` and `label` ({})", listed(&labels));
        lines.push(format!("\n[heads.{name}]\ntrain = [{}]    {comment}", train.join(", ")));
        rates.push(rate);
    }
    let next = if rates.is_empty() { NO_LABELS } else { "\n[languages._default]" };
    lines.push(next.to_owned());
    lines.into_iter().chain(rates.into_iter().map(str::to_owned)).collect()
}

fn listed(names: &BTreeSet<String>) -> String {
    let more = if names.len() > 5 { ", ..." } else { "" };
    names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
