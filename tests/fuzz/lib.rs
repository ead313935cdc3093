//! What is done to untrusted bytes: each function reads them as a file of one kind and uses what it
//! read. None may panic, or take memory that the bytes do not justify. `true` says that they were read.

use std::io::Result;
use std::path::Path;
use std::sync::OnceLock;

use polysift::config::{EncoderConfig, HeadConfig, InputConfig, RunConfig};
use polysift::decontamination::Index;
use polysift::fasttext::FastTextModel;
use polysift::head::Head;
use polysift::input::{DocumentReader, InputFile, RowReader};
use polysift::pii::{PiiMode, PiiOptions, Redactor};
use polysift::robots::{Agents, DEFAULT_AGENTS, Matching, Robots};
use polysift::run::{RunDir, Stage};
use polysift::tokenize::Tokenizer;

/// Text with what tokenizers treat apart: scripts, white space, marks, control characters.
const TEXT: &str = "A text, ein Text… 一個文本 \u{1f600}\u{301}\r\n\0\u{a0}</s> __label__x";

/// Calls `read` with a file of these bytes that is called `name`.
fn with_file(name: &str, data: &[u8], read: impl FnOnce(&Path) -> bool) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    std::fs::write(&path, data)?;
    Ok(read(&path))
}

/// Reads the documents of a file, and all of its columns.
fn read_input(path: &Path) -> polysift::Result<()> {
    let file = InputFile::at(path, "shard".to_owned(), None)?;
    let config = InputConfig { max_rejects: 3, max_document_bytes: 1 << 20, ..Default::default() };
    let mut documents = DocumentReader::open(&file, &config)?;
    while documents.next_batch(64)?.is_some() {}
    let mut rows = RowReader::open(&file, &config)?;
    while rows.next_batch()?.is_some() {}
    Ok(())
}

/// A Parquet file of documents.
pub fn parquet(data: &[u8]) -> Result<bool> {
    with_file("shard.parquet", data, |path| read_input(path).is_ok())
}

/// A file of JSON lines.
pub fn json_lines(data: &[u8]) -> Result<bool> {
    with_file("shard.jsonl", data, |path| read_input(path).is_ok())
}

/// A head in safetensors.
pub fn safetensors(data: &[u8]) -> Result<bool> {
    with_file("x.safetensors", data, |path| {
        Head::load(path, "quality", &HeadConfig::default()).is_ok()
    })
}

/// A head in a PyTorch state dict: a zip file of a pickle and storages.
pub fn pytorch(data: &[u8]) -> Result<bool> {
    with_file("x.pt", data, |path| Head::load(path, "quality", &HeadConfig::default()).is_ok())
}

/// A fastText model.
pub fn fasttext(data: &[u8]) -> Result<bool> {
    with_file("x.bin", data, |path| {
        FastTextModel::read(path)
            .is_ok_and(|(model, _)| model.predict(TEXT).len() <= model.labels().len())
    })
}

/// A `tokenizer.json`.
pub fn tokenizer(data: &[u8]) -> Result<bool> {
    let tokenizer = Tokenizer::from_bytes(data, Path::new("x.json"), &EncoderConfig::default());
    Ok(tokenizer.is_ok_and(|tokenizer| tokenizer.chunks(TEXT).is_ok()))
}

/// A text, for the bundled tokenizer.
pub fn text(data: &[u8]) -> Result<bool> {
    static TOKENIZER: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let json = include_bytes!("../../models/polysift-mini/tokenizer.json");
        Tokenizer::from_bytes(json, Path::new("x.json"), &EncoderConfig::default()).ok()
    });
    let chunks = |text| tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.chunks(text).is_ok());
    Ok(std::str::from_utf8(data).is_ok_and(chunks))
}

/// A file of a run directory; the first byte says which.
pub fn run_directory(data: &[u8]) -> Result<bool> {
    const FILES: [&str; 5] = [
        "plan.jsonl.zst",
        "frozen/embed.json",
        "state/embed/done/shard.json",
        "state/embed/failed/shard.json",
        "state/embed/finished.jsonl.zst",
    ];
    let Some((which, data)) = data.split_first() else { return Ok(false) };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(FILES[usize::from(*which) % FILES.len()]);
    std::fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
    std::fs::create_dir_all(folder.path().join("frozen"))?;
    std::fs::write(&path, data)?;
    let keys = ["shard".to_owned()];
    let read = || -> polysift::Result<()> {
        let run = RunDir::open(folder.path())?;
        run.frozen_settings(Stage::Embed)?;
        run.failures(Stage::Embed)?;
        run.summaries(Stage::Embed, &keys)?;
        run.shard_marker(Stage::Embed, &keys[0])?;
        if run.has_plan() { run.plan().map(drop) } else { Ok(()) }
    };
    Ok(read().is_ok())
}

/// A settings file.
pub fn settings(data: &[u8]) -> Result<bool> {
    let parsed = |text| RunConfig::from_toml(text, "run.toml").is_ok();
    Ok(std::str::from_utf8(data).is_ok_and(parsed))
}

/// A robots.txt, asked about some paths of its own.
pub fn robots(data: &[u8]) -> Result<bool> {
    for matching in [Matching::Rfc9309, Matching::Protego04, Matching::Protego07] {
        let Ok(agents) = Agents::new(&DEFAULT_AGENTS, matching) else { return Ok(false) };
        let robots = Robots::parse(data, &agents);
        let text = String::from_utf8_lossy(data);
        for path in text.split_whitespace().take(8) {
            robots.blocked(&format!("/{path}"));
            robots.deciding_line(0, path);
        }
    }
    Ok(true)
}

/// An index of benchmark items, searched for its own bytes.
pub fn benchmarks(data: &[u8]) -> Result<bool> {
    with_file("benchmarks.idx", data, |path| {
        let Ok(index) = Index::open(path) else { return false };
        let hits = index.scan(&String::from_utf8_lossy(data), "eng_Latn");
        index.tasks_hit(&hits);
        index.items_hit(&hits);
        true
    })
}

/// A text with personal data.
pub fn pii(data: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(data);
    for mode in [PiiMode::Default, PiiMode::Apertus, PiiMode::Datatrove] {
        Redactor::new(PiiOptions { mode, ..PiiOptions::default() }).redact(&text);
    }
    Ok(true)
}
