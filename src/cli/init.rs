//! `polysift init`: looks at data files and writes a settings file for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use glob::Pattern;
use rayon::prelude::*;

use polysift::export::EMBEDDINGS;
use polysift::input::{InputFile, discover, open_rows, parse_class, strings, table_columns};
use polysift::io::is_web;
use polysift::language::{iso_639_3, language_tag};
use polysift::progress::{Stop, bytes_for_people};
use polysift::{Error, Result};

use super::printer::{cells, print_complaint, print_next, print_table};

const ROWS: usize = 200;
const MAX_PATTERNS: usize = 50;
const TEXT_COLUMNS: [&str; 6] = ["text", "content", "raw_content", "document", "body", "passage"];
const ID_COLUMNS: [&str; 5] = ["id", "doc_id", "document_id", "uuid", "url"];
const LANGUAGE_COLUMNS: [&str; 3] = ["language", "lang", "language_code"];
const SCRIPT_COLUMNS: [&str; 2] = ["language_script", "script"];
const LABEL_COLUMN: &str = "label";

const NO_LANGUAGE: &str = r#"# language = "eng_Latn"    # if all documents are in one language
# language = { model = "lid.176.ftz" }    # or a fastText classifier that identifies it"#;
const NO_LABELS: &str = r#"
# No labelled texts with the column `TEXT` were found. A head needs some hundreds for each language:
# [heads.quality]
# train = ["labelled/{lang}.jsonl"]    # columns `TEXT` and `label` (positive, negative)
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

/// A file that was found.
struct FoundFile {
    file: InputFile,
    /// Parts of the path, from the folder of the settings; the last is the name without extension.
    parts: Vec<String>,
    extension: String,
    /// Index of the first part below the folder that was searched.
    below: usize,
    /// Index of the part that names the language.
    language: Option<usize>,
}

/// Files with one pattern, and the columns and labels in the first rows of one of them.
#[derive(Default)]
struct FileGroup {
    files: Vec<FoundFile>,
    /// Patterns of these files and no others.
    patterns: BTreeSet<String>,
    /// Whether the patterns have `{lang}` in them.
    has_lang: bool,
    languages: BTreeSet<String>,
    text: String,
    /// Columns of strings, with the bytes of their values.
    texts: BTreeMap<String, usize>,
    /// Columns of strings and integers; true for unique values.
    ids: BTreeMap<String, bool>,
    has_embeddings: bool,
    labels: BTreeSet<String>,
}

/// Writes the settings file; says which files it leaves out and, unless `quiet`, which it names.
pub(crate) fn run(args: &InitArgs, stop: &Stop, quiet: bool) -> Result<()> {
    let out = std::path::absolute(&args.out).map_err(Error::io(&args.out, "resolve"))?;
    if out.exists() {
        let reason = "exists already; name another file (`--out FILE`)";
        return Err(Error::config(args.out.display().to_string(), reason));
    }
    let base = out.parent().unwrap_or(&out);
    let mut groups = group_files(find_files(&args.folder, base)?, base, stop)?;
    // One text column serves all files: the column of the largest group of documents.
    let documents = groups.iter().filter(|group| group.labels.is_empty());
    let largest = documents.max_by(|a, b| a.bytes().total_cmp(&b.bytes()));
    let Some(text) = largest.map(|group| group.text.clone()) else {
        let reason = "no file of documents could be read (a file with a column `label` holds \
                      labelled texts); if it is of documents, write a settings file by hand";
        return Err(Error::missing(&args.folder, reason));
    };
    for other in groups.extract_if(.., |group| !group.texts.contains_key(&text)) {
        let reason = format!("it has no column `{text}`, the text column of the documents");
        print_complaint(&format!("left out: {}: {reason}", first_five(&other.patterns)));
    }
    let (documents, labelled): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| group.labels.is_empty());
    let content = format_settings(&text, &documents, &labelled);
    let created =
        File::create_new(&args.out).and_then(|mut file| file.write_all(content.as_bytes()));
    created.map_err(Error::io(&args.out, "create"))?;
    if !quiet {
        let row = |kind: &str, group: &FileGroup| {
            let (patterns, size) = (first_five(&group.patterns), bytes_for_people(group.bytes()));
            cells([&patterns, &kind, &group.files.len(), &size, &group.languages.len()])
        };
        let rows = documents.iter().map(|group| row("documents", group));
        let rows = rows.chain(labelled.iter().map(|group| row("labelled texts", group)));
        print_table(["files", "content", "number", "size", "languages by path"], rows);
        print_next("run -c", &args.out, " --dry-run");
    }
    Ok(())
}

/// Finds the data files of `folder`, and which part of their paths names the language.
fn find_files(folder: &Path, base: &Path) -> Result<Vec<FoundFile>> {
    let root = std::path::absolute(folder).map_err(Error::io(folder, "resolve"))?;
    let root = root.parent().filter(|_| !root.is_dir()).unwrap_or(&root);
    let mut files = Vec::new();
    for file in discover(&[folder.display().to_string()], Path::new("."))? {
        let path = file.path.strip_prefix(base).unwrap_or(&file.path);
        let mut parts: Vec<_> = path.to_string_lossy().split('/').map(str::to_owned).collect();
        let name = parts.pop().unwrap_or_default();
        let (stem, extension) = name.split_at(name.find('.').unwrap_or(name.len()));
        parts.push(stem.to_owned());
        let length = file.path.strip_prefix(root).unwrap_or(path).iter().count();
        let (below, extension) = (parts.len().saturating_sub(length), extension.to_owned());
        files.push(FoundFile { file, parts, extension, below, language: None });
    }
    // A web server cannot be searched, so `{lang}` is no pattern there.
    if !folder.to_str().is_some_and(is_web) {
        find_languages(&mut files);
    }
    Ok(files)
}

/// Finds the part of each path that names the language: a code with a script, else one without
/// if several files differ in nothing but it.
fn find_languages(files: &mut [FoundFile]) {
    let depth = files.iter().map(|found| found.parts.len()).max().unwrap_or(0);
    // Short names such as `lab`, `new` and `raw`, which are rare languages too, name folders.
    let is_rare = |code: &String| language_tag(code).is_none_or(|tag| tag.len() != 2);
    let mut patterns = BTreeSet::new();
    for (at, has_script) in (0..2 * depth).map(|turn| (turn % depth, turn < depth)) {
        let mut places: BTreeMap<String, Vec<&mut FoundFile>> = BTreeMap::new();
        for found in &mut *files {
            // The searched folder may have the name of a language with a script, but none above it.
            let is_below = at + usize::from(has_script) >= found.below;
            let code = found.parts.get(at).filter(|part| is_language(part, has_script));
            if found.language.is_none() && is_below && code.is_some() {
                places.entry(found.pattern(Some(at), 0)).or_default().push(found);
            }
        }
        for (pattern, named) in places {
            let codes: BTreeSet<&String> = named.iter().map(|found| &found.parts[at]).collect();
            let is_place = codes.len() > 1 && !codes.into_iter().all(is_rare);
            if patterns.insert(pattern) && is_place || has_script {
                for found in named {
                    found.language = Some(at);
                }
            }
        }
    }
}

/// Returns true for a code such as `deu` or `de`, or one with a script such as `deu_Latn`.
fn is_language(name: &str, has_script: bool) -> bool {
    let shapes = if has_script { ["aa_Aaaa", "aaa_Aaaa"] } else { ["aa", "aaa"] };
    let shape = name.replace(|c: char| c.is_ascii_lowercase(), "a");
    let shape = shape.replace(|c: char| c.is_ascii_uppercase(), "A");
    shapes.contains(&shape.as_str()) && iso_639_3(name).is_some()
}

/// Groups the files that can be read, by their patterns and by whether they have labels; the others
/// are reported.
fn group_files(files: Vec<FoundFile>, base: &Path, stop: &Stop) -> Result<Vec<FileGroup>> {
    let read = |found: &FoundFile| stop.check().and_then(|()| table_columns(&found.file));
    let columns: Vec<Result<Vec<String>>> = files.par_iter().map(read).collect();
    let mut groups: BTreeMap<(String, bool), FileGroup> = BTreeMap::new();
    let mut empty = BTreeSet::new();
    let mut left_out: BTreeMap<String, (Error, usize)> = BTreeMap::new();
    for (found, columns) in files.into_iter().zip(columns) {
        let pattern = found.pattern(found.language, 0);
        match columns {
            Err(error) => left_out.entry(pattern).or_insert((error, 0)).1 += 1,
            Ok(columns) if columns.is_empty() => drop(empty.insert(found.file.path)),
            Ok(columns) => {
                let has_label = columns.iter().any(|name| name == LABEL_COLUMN);
                groups.entry((pattern, has_label)).or_default().files.push(found);
            }
        }
    }
    let mut kept = Vec::new();
    for ((pattern, _), mut group) in groups {
        match group.read_columns(stop).map(|()| group.choose_patterns(base, &empty)) {
            Ok(()) => kept.push(group),
            Err(error) => left_out.entry(pattern).or_insert((error, 0)).1 += group.files.len(),
        }
    }
    stop.check()?;
    for (pattern, (error, number)) in left_out {
        print_complaint(&format!("left out: {pattern} (files: {number}): {error}"));
    }
    Ok(kept)
}

impl FoundFile {
    /// Returns a pattern with `{lang}` for the part `language` and `length` characters of the name.
    fn pattern(&self, language: Option<usize>, length: usize) -> String {
        let url = self.file.path.to_string_lossy();
        if is_web(&url) {
            return url.into_owned();
        }
        let part = |(at, part): (usize, &String)| match part.char_indices().nth(length) {
            _ if language == Some(at) => "{lang}".to_owned(),
            Some((end, _)) if at + 1 == self.parts.len() => Pattern::escape(&part[..end]) + "*",
            _ => Pattern::escape(part),
        };
        let stem: Vec<String> = self.parts.iter().enumerate().map(part).collect();
        // The number in `part.0001.jsonl` is no part of the format.
        let is_number = |part: &str| length == 0 && part.contains(|c: char| c.is_ascii_digit());
        let plain = |part| if is_number(part) { "*".to_owned() } else { Pattern::escape(part) };
        let extension: Vec<String> = self.extension.split('.').map(plain).collect();
        stem.join("/") + &extension.join(".")
    }
}

impl FileGroup {
    fn bytes(&self) -> f64 {
        self.files.iter().map(|found| found.file.bytes as f64).sum()
    }

    /// Reads the first rows of the first file that has any, and chooses the column of the text.
    fn read_columns(&mut self, stop: &Stop) -> Result<()> {
        for found in &self.files {
            stop.check()?;
            let rows = open_rows(&found.file.path)?.1.next_batch()?;
            let Some(rows) = rows.filter(|rows| !rows.rows.is_empty()) else { continue };
            let batch = rows.batch.slice(0, ROWS.min(rows.rows.len()));
            let batch = batch.normalize(".", None).unwrap_or(batch);
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                let (name, kind) = (field.name(), field.data_type());
                self.has_embeddings |= name == EMBEDDINGS && kind.is_nested();
                let Ok(values) = strings(column) else { continue };
                let distinct: BTreeSet<&str> = values.iter().flatten().collect();
                if kind.is_string() {
                    self.texts.insert(name.clone(), values.iter().flatten().map(str::len).sum());
                }
                if kind.is_string() || kind.is_integer() {
                    self.ids.insert(name.clone(), distinct.len() == batch.num_rows());
                }
                if name == LABEL_COLUMN {
                    self.labels = distinct.into_iter().map(ToOwned::to_owned).collect();
                }
            }
            break;
        }
        let bytes = |name: &&str| self.texts.get(*name).copied().unwrap_or(0);
        let known = TEXT_COLUMNS.into_iter().find(|name| bytes(name) > 0);
        let longest = || self.texts.keys().map(String::as_str).max_by_key(bytes);
        let missing = || Error::schema(&self.files[0].file.path, "text", "no column holds text");
        self.text =
            known.or_else(longest).filter(|name| bytes(name) > 0).ok_or_else(missing)?.into();
        Ok(())
    }

    /// Takes the most general patterns that select these files and no others except `empty` ones.
    fn choose_patterns(&mut self, base: &Path, empty: &BTreeSet<PathBuf>) {
        let paths: BTreeSet<&PathBuf> = self.files.iter().map(|found| &found.file.path).collect();
        let lengths = [0, usize::MAX, 1, 4, usize::MAX];
        let turns = [true, false].into_iter().flat_map(|kind| lengths.map(|length| (kind, length)));
        for (has_lang, length) in turns {
            let language = |found: &FoundFile| found.language.filter(|_| has_lang);
            let patterns = self.files.iter().map(|found| found.pattern(language(found), length));
            (self.patterns, self.has_lang) = (patterns.collect(), has_lang);
            let patterns: Vec<String> = self.patterns.iter().cloned().collect();
            if patterns.len() > MAX_PATTERNS {
                continue;
            }
            let selected = discover(&patterns, base).unwrap_or_default();
            let selected = selected.iter().map(|file| &file.path);
            if selected.filter(|path| !empty.contains(*path)).collect::<BTreeSet<_>>() == paths {
                break;
            }
        }
        let code = |found: &FoundFile| Some(found.parts[found.language?].clone());
        self.languages = self.files.iter().filter_map(code).collect();
        // Without `{lang}` the settings can tell only one.
        let is_told = self.has_lang || self.languages.len() == 1;
        self.languages.retain(|_| is_told);
    }
}

/// Returns the content of the settings file; `text` is the column of the text in all files.
fn format_settings(text: &str, documents: &[FileGroup], labelled: &[FileGroup]) -> String {
    let mut lines = vec![
        "# Written by `polysift init`. docs/settings.md describes all settings.".to_owned(),
        "run_dir = \"run\"".into(),
        "\n[input]\nfiles = [".into(),
    ];
    for group in documents {
        let (count, size) = (group.files.len(), bytes_for_people(group.bytes()));
        let languages = Some(first_five(&group.languages)).filter(|codes| !codes.is_empty());
        let languages = languages.map_or(String::new(), |codes| format!("; {codes}"));
        let patterns: Vec<_> = group.patterns.iter().map(|pattern| quoted(pattern)).collect();
        let patterns = patterns.join(",\n    ");
        lines.push(format!("    {patterns},    # files: {count}, {size}{languages}"));
    }
    lines.push(format!("]\ntext = {}", quoted(text)));
    let is_unique = |name: &str| {
        documents.iter().filter_map(|group| group.ids.get(name)).copied().reduce(|a, b| a && b)
    };
    let comment = match is_unique("id") {
        Some(_) => "ids come from the column `id`, where some repeat or are missing",
        None => "without a column of unique ids, an id is FILE/ROW",
    };
    let id = ID_COLUMNS.iter().find(|name| is_unique(name) == Some(true));
    let no_id = format!("# id = \"...\"    # {comment}");
    lines.push(id.map_or(no_id, |name| format!("id = {}", quoted(name))));
    if documents.iter().all(|group| group.has_embeddings) {
        lines.push(format!("embeddings = {EMBEDDINGS:?}    # made by the model of `[encoder]`"));
    }
    lines.extend(language_line(documents, labelled));
    let comment = "# built in, for 21 languages; `polysift models` lists larger ones";
    lines.push(format!("\n[encoder]\nmodel = \"polysift-mini\"    {comment}"));
    lines.extend(head_lines(text, labelled));
    lines.join("\n") + "\n"
}

/// Returns the line that says where languages come from; `None` if `{lang}` does.
fn language_line(documents: &[FileGroup], labelled: &[FileGroup]) -> Option<String> {
    let languages: BTreeSet<_> = documents.iter().flat_map(|group| &group.languages).collect();
    let is_lost = |group: &FileGroup| !group.has_lang && !group.languages.is_empty();
    let known = |names: &[&str]| {
        let in_all = |name: &&&str| documents.iter().all(|group| group.texts.contains_key(**name));
        names.iter().find(in_all).map(|name| quoted(name))
    };
    if documents.iter().all(|group| !group.languages.is_empty()) {
        let is_lost = languages.len() == 1 && documents.iter().chain(labelled).any(is_lost);
        let code = languages.first().filter(|_| is_lost);
        return code.map(|code| format!("language = {}", quoted(code)));
    }
    let Some(column) = known(&LANGUAGE_COLUMNS).filter(|_| languages.is_empty()) else {
        return Some(NO_LANGUAGE.to_owned());
    };
    let script = known(&SCRIPT_COLUMNS).map(|name| format!(", script_column = {name}"));
    Some(format!("language = {{ column = {column}{} }}", script.unwrap_or_default()))
}

/// Returns the lines that define a head for each kind of labelled texts, and the rates.
fn head_lines(text: &str, labelled: &[FileGroup]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rates = Vec::new();
    for (name, rate) in [
        ("toxicity", "removal = { toxicity = 0.05 }    # first drop the worst 5%"),
        ("quality", "retention = { quality = [0.1] }    # keep the best 10% of each language"),
    ] {
        let groups = labelled.iter().filter(|group| {
            let is_named = group.patterns.iter().any(|pattern| pattern.contains("toxic"));
            (is_named || group.labels.contains("toxic")) == (name == "toxicity")
        });
        let groups: Vec<_> = groups.collect();
        if groups.is_empty() {
            continue;
        }
        let train = groups.iter().flat_map(|group| &group.patterns);
        let train: Vec<_> = train.map(|pattern| quoted(pattern)).collect();
        let labels = groups.iter().flat_map(|group| group.labels.clone()).collect();
        let comment = format!("# columns `{text}` and `label` ({})", first_five(&labels));
        let comment = comment.replace(char::is_control, " ");
        lines.push(format!("\n[heads.{name}]\ntrain = [{}]    {comment}", train.join(", ")));
        let is_number = |label: &String| label.parse::<f64>().is_ok();
        if labels.iter().all(is_number) && labels.iter().any(|label| parse_class(label).is_none()) {
            lines.push("kind = \"ridge\"    # the labels are grades".into());
        }
        rates.push(rate);
    }
    let next = if rates.is_empty() { NO_LABELS } else { "\n[languages._default]" };
    lines.push(next.replace("TEXT", &text.replace(char::is_control, " ")));
    lines.into_iter().chain(rates.into_iter().map(str::to_owned)).collect()
}

/// Joins the first five of `names`, with `...` for more.
fn first_five(names: &BTreeSet<String>) -> String {
    let more = if names.len() > 5 { ", ..." } else { "" };
    names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
