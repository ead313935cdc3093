//! One schema for the exported JSON lines of a language, so that they load as one data set.
//!
//! A JSON-lines file does not declare column types: whichever process comes first reads each file
//! to its end, and the result stays in `state/export/columns` until the next export.

use std::collections::BTreeMap;

use polysift_base::error::{Error, Result};
use polysift_base::io::read_json;
use polysift_corpus::Context;
use polysift_data::input::JsonColumns;
use polysift_runs::run::{Plan, Shard};

/// Columns of the JSON-lines files by the language of their paths, for languages with several.
pub(super) type LanguageColumns = BTreeMap<Option<String>, JsonColumns>;

/// Infers the columns of `plan`, together with the other processes of the stage. Returns the
/// errors of reading, except bad data, which the export of the file reports.
pub(super) fn infer_columns(context: Context<'_>, plan: &Plan) -> Result<LanguageColumns> {
    let Context { config, run, stop, .. } = context;
    let mut by_language: BTreeMap<Option<String>, Vec<&Shard>> = BTreeMap::new();
    for shard in &plan.shards {
        // The plan knows the number of rows of Parquet files only.
        if shard.num_rows.is_none() {
            by_language.entry(shard.language.clone()).or_default().push(shard);
        }
    }
    by_language.retain(|_, shards| shards.len() > 1);
    let shards: Vec<&Shard> = by_language.values().flatten().copied().collect();
    if shards.is_empty() {
        return Ok(LanguageColumns::new());
    }
    let names: Vec<String> = shards.iter().map(|shard| shard.name.clone()).collect();
    // Redoing the export removes these files.
    let paths = |shard: &Shard| {
        ["columns", "column-digests"]
            .map(|kind| run.path(format!("state/export/{kind}/{}.json", shard.name)))
    };
    let is_done = |place: usize| Ok(paths(shards[place]).iter().all(|path| path.is_file()));
    let infer = |place: usize| {
        let shard = shards[place];
        let columns = match shard.input().and_then(|file| JsonColumns::infer(&file, &config.input))
        {
            Err(error) if error.exit_code() == 65 => JsonColumns::default(),
            columns => columns?,
        };
        let [path, digest] = paths(shard);
        let file = run.write_json(&path, &columns)?;
        run.write_json(&digest, &file).map(|_| context.progress.advance(1, 0))
    };
    context.progress.begin("schema", Some(names.len() as u64), "files");
    let shared = context.worker.share(stop, &names, rayon::current_num_threads(), is_done, infer);
    context.progress.end();
    shared?;
    let merged = by_language.into_iter().map(|(language, shards)| {
        let mut all = JsonColumns::default();
        for shard in shards {
            let [path, digest] = paths(shard);
            let lost = || Error::missing(&path, "is gone; export again (`--redo export`)");
            run.check_file(&read_json(&digest, "digest of columns")?.ok_or_else(lost)?)?;
            all.merge(read_json(&path, "columns")?.ok_or_else(lost)?);
        }
        Ok((language, all))
    });
    merged.collect()
}
