//! Place and columns of an export, from the settings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;

use polysift_base::error::{Error, Result};
use polysift_base::io::{is_url, read, write_atomic, write_new};
use polysift_config::{DEFAULT_LANGUAGE, FilterAction, RunConfig};
use polysift_corpus::Context;
use polysift_data::export::{EMBEDDINGS, ExportSpec, PII_COUNT};
use polysift_remote::{self as remote, Location};

pub(super) const CARD: &str = "README.md";

/// Returns the folder or URL below which all files are written.
pub(super) fn place_of(context: Context<'_>) -> PathBuf {
    context.config.export.place(context.run.root())
}

/// Returns the folder or URL below which the files of shards are made: for a hub it is in the run
/// directory, because the digest of a file is announced before its bytes.
pub(super) fn workplace_of(context: Context<'_>) -> PathBuf {
    if context.config.export.is_to_hub() {
        return context.run.path("state/export/uploads");
    }
    place_of(context)
}

/// Returns true if the file or object `path` exists, or if it is not known whether it does.
pub(super) fn exists(path: &Path) -> bool {
    let url = path.to_string_lossy();
    if is_url(&url) {
        !matches!(remote::stat(&url), Err(Error::Missing { .. }))
    } else {
        path.try_exists().unwrap_or(true)
    }
}

/// Describes files at the place of the export that the run would write over, if there are any.
pub(super) fn taken(context: Context<'_>) -> Result<Option<String>> {
    let (export, place) = (&context.config.export, place_of(context));
    for name in ["export", "removed"] {
        let folder = place.join(name);
        let url = folder.to_string_lossy();
        let holds_any = if is_url(&url) {
            let objects = Location::parse(&format!("{url}/"))?;
            !remote::list(&objects, &|_| true, &|_| true)?.is_empty()
        } else {
            std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some())
        };
        if holds_any {
            return Ok(Some(format!("{name}: holds files")));
        }
    }
    let has_card = export.card && export.is_to_hub() && exists(&place.join(CARD));
    Ok(has_card.then(|| format!("{CARD}: is a file")))
}

/// Writes the small file or object `path` with `content`. Returns the content of an existing one,
/// which is replaced only if `replaces`.
pub(super) fn put(path: &Path, content: &str, replaces: bool) -> Result<Option<Vec<u8>>> {
    let url = path.to_string_lossy();
    match (is_url(&url), replaces) {
        (true, _) => Ok(remote::put(&url, content, replaces)?.map(Into::into)),
        (false, true) => write_atomic(path, content.as_bytes()).map(|_| None),
        (false, false) if write_new(path, content.as_bytes())? => Ok(None),
        (false, false) => read(path).map(Some),
    }
}

/// Returns the heads with a retention in any language.
pub(super) fn retention_heads(config: &RunConfig) -> BTreeSet<String> {
    let languages = config.languages.keys().map(String::as_str).chain([DEFAULT_LANGUAGE]);
    languages.flat_map(|l| config.thresholds(l).retention.into_keys()).collect()
}

/// Lists the new columns but the embeddings, columns of numbers first: name, type and meaning.
pub(super) fn new_columns(config: &RunConfig) -> Vec<(String, DataType, String)> {
    let mut columns = Vec::new();
    let mut add = |name: &str, kind, meaning| columns.push((name.to_owned(), kind, meaning));
    for (name, head) in &config.heads {
        add(&head.column(name), DataType::Float64, format!("score of the head `{name}`"));
    }
    for name in retention_heads(config) {
        let Some(head) = config.heads.get(&name) else { continue };
        let meaning = format!("smallest rate of `{name}` at which the document is kept");
        add(&head.retention_column(&name), DataType::Float64, meaning);
    }
    if let Some(name) = config.input.language.new_column() {
        add(name, DataType::Utf8, "language that a classifier identified, or `und`".to_owned());
    }
    for (name, _) in config.filters.iter().filter(|(_, f)| f.action == FilterAction::Flag) {
        let meaning = format!("why the filter `{name}` found the document; null if it did not");
        add(name, DataType::Utf8, meaning);
    }
    if config.pii.is_some() {
        let meaning = "how often personal data was replaced in the text";
        add(PII_COUNT, DataType::Int32, meaning.to_owned());
    }
    columns
}

/// Returns the columns and layout of exported files.
pub(super) fn spec(config: &RunConfig) -> ExportSpec {
    let (export, new) = (&config.export, new_columns(config).into_iter());
    let cuts = config.filters.values().any(|filter| filter.action == FilterAction::Cut);
    let own_name = config.input.embeddings.as_deref().and_then(|it| it.rsplit('.').next());
    ExportSpec {
        layout: export.layout,
        embeddings: (export.with_embeddings && config.has_embeddings())
            .then(|| export.embeddings.unwrap_or(config.parts.embeddings)),
        text: config.input.text.clone(),
        id: config.input.id.clone(),
        replace_embeddings: own_name == Some(EMBEDDINGS),
        new_columns: new.map(|(name, kind, _)| (name, kind)).collect(),
        replaces_texts: config.pii.is_some() || cuts,
    }
}
