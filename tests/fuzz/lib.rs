//! What is done to untrusted bytes: each function reads them as a file of one kind and uses what it
//! read. None may panic, or take memory that the bytes do not justify. `true` says that they were
//! read.

use std::cmp::Ordering;
use std::io::Result;
use std::path::Path;
use std::sync::OnceLock;

use polysift::config::{
    DeviceChoice, EncoderConfig, HeadConfig, HeadOutput, InputConfig, Keep, Mode, RunConfig,
};
use polysift::decontamination::Index;
use polysift::encoder::{HubSettings, load};
use polysift::fasttext::{FastTextModel, TextScratch};
use polysift::head::{AnyHead, DocumentScore, FastTextHead, Head};
use polysift::input::{
    ColumnKind, ColumnRequest, DocumentReader, InputFile, RowReader, TableRow, read_table,
    table_columns,
};
use polysift::parts::{read_embeddings, read_scores, read_verdicts};
use polysift::pii::{PiiConfig, PiiMode};
use polysift::progress::Stop;
use polysift::robots::{Agents, DEFAULT_AGENTS, Matching, Robots};
use polysift::rules::{AllowList, WordList};
use polysift::run::{RunDir, Stage, Worker};
use polysift::selection::{
    Corpus, Decision, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument, Threshold,
    ThresholdKind, select,
};
use polysift::tokenize::Tokenizer;
use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, gemm,
};

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

/// A table in CSV, as those of data sets and lists of domains are.
pub fn table(data: &[u8]) -> Result<bool> {
    with_file("table.csv", data, |path| {
        let read = || -> polysift::Result<()> {
            let file = InputFile::at(path, "table".to_owned(), None)?;
            let columns: Vec<_> = table_columns(&file)?
                .into_iter()
                .map(|name| ColumnRequest::new(name, ColumnKind::Text, false))
                .collect();
            let mut each = |row: TableRow<'_>| row.required_text("text").map(drop);
            read_table(&file, &columns, Some(3), &Stop::default(), &mut each).map(drop)
        };
        read().is_ok()
    })
}

/// A file of an encoder, the others being right; the first byte says which.
pub fn encoder(data: &[u8]) -> Result<bool> {
    const FILES: [(&str, &[u8]); 3] = [
        ("config.json", include_bytes!("../golden/encoder/head16-prefixed/config.json")),
        (
            "model.safetensors",
            include_bytes!("../golden/encoder/head16-prefixed/model.safetensors"),
        ),
        ("tokenizer.json", include_bytes!("../golden/encoder/head16-prefixed/tokenizer.json")),
    ];
    let Some((which, data)) = data.split_first() else { return Ok(false) };
    let folder = tempfile::tempdir()?;
    for (place, (name, right)) in FILES.into_iter().enumerate() {
        let is_changed = place == usize::from(*which) % FILES.len();
        std::fs::write(folder.path().join(name), if is_changed { data } else { right })?;
    }
    let model = folder.path().display().to_string();
    let config = EncoderConfig { model, device: DeviceChoice::Cpu, ..EncoderConfig::default() };
    Ok(load(&config, &HubSettings::from_env(|_| None)).is_ok())
}

/// A stored part; the first byte says of what.
pub fn part(data: &[u8]) -> Result<bool> {
    let Some((which, data)) = data.split_first() else { return Ok(false) };
    with_file("part-00000.parquet", data, |path| match which % 3 {
        0 => read_embeddings(path).is_ok(),
        1 => read_scores(path).is_ok(),
        _ => read_verdicts(path)
            .is_ok_and(|rows| (0..4).all(|row| rows.of_row(row).len() < usize::MAX)),
    })
}

/// A list that users write: of domains that are allowed, or of words.
pub fn lists(data: &[u8]) -> Result<bool> {
    let Ok(text) = std::str::from_utf8(data) else { return Ok(false) };
    let words = WordList::new(text.lines());
    let found = words.as_ref().is_ok_and(|words| words.share(TEXT).share() <= 1.0);
    Ok(found | AllowList::parse(text).is_ok())
}

/// A head in safetensors.
pub fn safetensors(data: &[u8]) -> Result<bool> {
    with_file("x.safetensors", data, |path| {
        AnyHead::load(path, "quality", &HeadConfig::default(), "eng_Latn").is_ok()
    })
}

/// A head in a PyTorch state dict: a zip file of a pickle and storages.
pub fn pytorch(data: &[u8]) -> Result<bool> {
    with_file("x.pt", data, |path| Head::load(path, "quality", &HeadConfig::default()).is_ok())
}

/// A fastText model.
pub fn fasttext(data: &[u8]) -> Result<bool> {
    with_file("x.bin", data, |path| {
        FastTextModel::read(path).is_ok_and(|(model, _)| {
            let best = model.best(TEXT, &mut TextScratch::default());
            best.is_none_or(|(label, _)| label < model.labels().len())
        })
    })
}

/// The card beside a fastText model.
pub fn card(data: &[u8]) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let model = folder.path().join("x.bin");
    std::fs::write(&model, include_bytes!("../golden/fasttext/words.bin"))?;
    std::fs::write(FastTextHead::card_path(&model), data)?;
    let config = HeadConfig::default();
    Ok(FastTextHead::load(&model, "quality", &config, "eng_Latn")
        .is_ok_and(|head| head.score(&[Some(TEXT)]).len() == 1))
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
    const FILES: [&str; 7] = [
        "plan.jsonl.zst",
        "frozen/embed.json",
        "state/embed/done/shard.json",
        "state/embed/failed/shard.json",
        "state/embed/finished.jsonl.zst",
        "state/workers/host-1.0",
        "format.json",
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
        Worker::observer(&run).live()?;
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
    for matching in [Matching::Rfc9309, Matching::Protego04] {
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
        let ngrams = index.scan(&String::from_utf8_lossy(data), "eng_Latn").ngrams();
        index.tasks_hit(&ngrams);
        index.items_hit(&ngrams);
        true
    })
}

/// A text with personal data.
pub fn pii(data: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(data);
    for mode in [PiiMode::Default, PiiMode::Apertus, PiiMode::Datatrove] {
        PiiConfig { mode, ..PiiConfig::default() }.redact(&text);
    }
    Ok(true)
}

/// Logits of a head, and a rate: the selection beside a full sort. Of documents with equal logits
/// either may be kept, so what is checked is their number, and that no logit left out is better
/// than one kept.
pub fn selection(data: &[u8]) -> Result<bool> {
    let [rate, per_shard, keep, bytes @ ..] = data else { return Ok(false) };
    let logits: Vec<f32> =
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let per_mille = 3 * usize::from(*rate) + 1;
    let Ok(rate) = format!("0.{per_mille:03}").parse() else { return Ok(false) };
    let (keep, is_high) = if keep & 1 == 0 { (Keep::Above, true) } else { (Keep::Below, false) };
    let threshold = Threshold {
        head: Some(0),
        head_name: "quality".to_owned(),
        keep,
        kind: ThresholdKind::Retain(vec![rate]),
        output: HeadOutput::Raw,
    };
    let corpus = Logits { logits: &logits, per_shard: usize::from(*per_shard).max(1) };
    let Ok(selected) = select(&corpus, &[threshold], Mode::Default) else { return Ok(false) };
    let is_kept = |ordinal: usize| {
        let scores = &[Some(DocumentScore::new(logits[ordinal], HeadOutput::Raw))];
        let (id, ordinal) = (IDS[ordinal % IDS.len()], ordinal as u64);
        let document = ScoredDocument { id, ordinal, scores };
        matches!(selected.decide(&document), Decision::Kept { .. })
    };
    let ranked = |logit: f32| if is_high { logit } else { -logit };
    let scored = || (0..logits.len()).filter(|&ordinal| !logits[ordinal].is_nan());
    let mut sorted: Vec<f32> = scored().map(|ordinal| ranked(logits[ordinal])).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut kept: Vec<f32> =
        scored().filter(|&o| is_kept(o)).map(|ordinal| ranked(logits[ordinal])).collect();
    kept.sort_by(|a, b| b.total_cmp(a));
    assert_eq!(
        kept.len(),
        (per_mille * sorted.len()).div_ceil(1000),
        "of {} documents",
        sorted.len()
    );
    for (kept, best) in kept.iter().zip(&sorted) {
        assert!(
            kept.partial_cmp(best) == Some(Ordering::Equal),
            "{kept} is kept and {best} is not"
        );
    }
    Ok(true)
}

const IDS: [&str; 4] = ["a", "b", "", "\u{1f600}"];

struct Logits<'a> {
    logits: &'a [f32],
    per_shard: usize,
}

impl Corpus for Logits<'_> {
    fn num_shards(&self) -> usize {
        self.logits.len().div_ceil(self.per_shard)
    }

    fn scan(
        &self,
        shard: usize,
        _request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> polysift::Result<()>,
    ) -> polysift::Result<()> {
        let first = shard * self.per_shard;
        let end = self.logits.len().min(first + self.per_shard);
        let logits = &self.logits[first..end];
        let ids: Vec<&str> = (first..end).map(|ordinal| IDS[ordinal % IDS.len()]).collect();
        let ordinals: Vec<u64> = (first as u64..end as u64).collect();
        let heads = [HeadColumn { logits, scores: logits, present: None }];
        visit(&ScoreBatch {
            len: logits.len(),
            ids: &ids,
            ordinals: &ordinals,
            heads: &heads,
            ..ScoreBatch::default()
        })
    }
}

/// A product in f32 on every instruction set beside one in f64: shapes, then values of any size.
pub fn products(data: &[u8]) -> Result<bool> {
    let [m, n, k, bytes @ ..] = data else { return Ok(false) };
    let (m, n, k) = (usize::from(m % 35) + 1, usize::from(n % 70) + 1, usize::from(*k) + 1);
    let numbers: Vec<f32> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        // No sum of 256 products of these overflows.
        .filter(|value| value.abs() < 1e17)
        .collect();
    if numbers.is_empty() {
        return Ok(false);
    }
    let mut numbers = numbers.into_iter().cycle();
    let x: Vec<f32> = numbers.by_ref().take(m * k).collect();
    let w: Vec<f32> = numbers.take(n * k).collect();
    for isa in Isa::available() {
        let packed = PackedMatrix::new(isa, Precision::F32, Matrix::new(&w, n, k, k));
        let mut y = vec![f32::NAN; m * n];
        let mut out = MatrixMut::new(&mut y, m, n, n);
        let x_rows = Matrix::new(&x, m, k, k);
        gemm(isa, x_rows, &packed, Epilogue::None, &mut out, &mut GemmScratch::default());
        for (at, y) in y.iter().enumerate() {
            let (x, w) = (&x[at / n * k..][..k], &w[at % n * k..][..k]);
            let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            // Each of k fused steps and of the sums of chains rounds once, by 2^-24 of no more than
            // `size` or, below the normal numbers, by 2^-150; doubled for the growth of the bound
            // and f64's own rounding.
            let steps = 2.0 * (k + 2) as f64;
            let bound = steps * (size * 2f64.powi(-24) + 2f64.powi(-150));
            let error = (f64::from(*y) - sum).abs();
            assert!(error <= bound, "{isa:?} {m}x{n}x{k}: {y} for {sum}, {error:e} > {bound:e}");
        }
    }
    Ok(true)
}
