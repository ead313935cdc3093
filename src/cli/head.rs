//! `polysift head`: imports heads from other software.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use polysift::config::{LANGUAGE_CODE, is_language_code};
use polysift::head::{HEAD_EXTENSIONS, Head, ImportRequest, import, is_classifier};
use polysift::io::{list, write_atomic};
use polysift::{Error, Result};

use super::printer::{self, cells, or_dash};
use super::settings::set_hub;

#[derive(Debug, Subcommand)]
pub(crate) enum HeadCommand {
    /// Convert published heads (PyTorch .pt, .pth and .ckpt, safetensors, models for
    /// classification) into head files with a card
    Import {
        /// Files (.pt, .pth, .ckpt, .safetensors), directories of them, and models for sequence
        /// classification (directories with a config.json, hub ids)
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// A .safetensors file for one head, or a directory that receives {lang}.safetensors of
        /// each
        #[arg(long, value_name = "FILE|DIR")]
        out: PathBuf,
        #[command(flatten)]
        request: ImportRequest,
    },
}

/// Converts all heads, then writes them and, unless `quiet`, prints what they are.
pub(crate) fn run(command: &HeadCommand, quiet: bool) -> Result<()> {
    let HeadCommand::Import { files, out, request } = command;
    // All files are read before a head is written, so that one bad file leaves nothing behind.
    let (files, hub) = (list_head_files(files)?, set_hub(false));
    let one_file = out.extension().is_some_and(|e| e == "safetensors");
    if files.len() > 1 && (one_file || request.language.is_some()) {
        let (name, reason) = if one_file {
            ("--out", "is a file; give a directory for several heads")
        } else {
            ("--language", "is the language of one head, but several heads are given")
        };
        return Err(Error::config(name, reason));
    }
    if let Some(code) = request.language.as_deref().filter(|code| !is_language_code(code)) {
        return Err(Error::config("--language", format!("`{code}` is not {LANGUAGE_CODE}")));
    }
    let mut heads: BTreeMap<PathBuf, (&Path, Head)> = BTreeMap::new();
    for file in &files {
        let head = import(file, request, &hub)?;
        let path = if one_file { out.clone() } else { head_path(out, file, &head)? };
        if let Some((other, _)) = heads.insert(path, (file, head)) {
            let reason =
                format!("{} and {} have the same language", other.display(), file.display());
            return Err(Error::config("FILE", reason));
        }
    }
    for (path, (_, head)) in &heads {
        write_atomic(path, &head.to_bytes()?)?;
    }
    if !quiet {
        let titles = ["file", "head", "language", "layers", "output", "chunk", "written"];
        let rows = heads.iter().map(|(path, (file, head))| {
            let (spec, card) = (&head.card.spec, &head.card);
            let (file, path, language) =
                (file.display(), path.display(), or_dash(card.language.as_ref()));
            let (layers, chunk) =
                (spec.layers_in_words(), format!("{:?}", spec.chunk).to_lowercase());
            cells([&file, &card.head, &language, &layers, &spec.output, &chunk, &path])
        });
        printer::print_table(titles, rows);
    }
    Ok(())
}

/// Lists the heads that `paths` name: files, and directories with a model for classification. Files
/// of other directories are sorted by name.
fn list_head_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() || is_classifier(path) {
            files.push(path.clone());
            continue;
        }
        let mut found: Vec<PathBuf> = list(path)?.iter().map(DirEntry::path).collect();
        found.retain(|path| {
            let extension = path.extension().and_then(|e| e.to_str());
            path.is_file() && extension.is_some_and(|e| HEAD_EXTENSIONS.contains(&e))
        });
        if found.is_empty() {
            let reason = format!("no file there ends in .{}", HEAD_EXTENSIONS.join(" or ."));
            return Err(Error::missing(path, reason));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// Returns the path of `head` in the folder `out`: its language, without which there is an error.
fn head_path(out: &Path, file: &Path, head: &Head) -> Result<PathBuf> {
    let language = head.card.language.as_deref().ok_or_else(|| {
        let reason = format!("{}: its name has no language", file.display());
        Error::config("--language", reason)
    })?;
    Ok(out.join(format!("{language}.safetensors")))
}
