//! Our tokenizer and the `tokenizers` crate on the same texts, one thread, in turns.
//!
//! `POLYSIFT_TEXTS` is a folder of `.jsonl.zst` files with `text`, of which those named in `SETS`
//! are read; `POLYSIFT_XLMR_TOKENIZER` and `POLYSIFT_GEMMA_TOKENIZER` are `tokenizer.json`s besides the
//! bundled one. Prints medians of the rounds. For the first chunk the crate is timed as it stops at 510 tokens (its truncation) and
//! as it does not, which it takes to count the tokens.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use polysift::config::{Chunks, EncoderConfig};
use polysift::tokenize::Tokenizer;
use tokenizers::TruncationParams;

/// Name of a set of texts, starts of its files' names, documents at most, and bytes that every
/// document is brought to by joining texts (0: as they are).
type Set = (&'static str, &'static [&'static str], usize, usize);

const SETS: &[Set] = &[
    ("web pages, English", &["ewt.eng"], 600, 0),
    ("web pages, French", &["frecore.fra"], 400, 0),
    ("web pages, Swedish", &["swecore.swe"], 400, 0),
    ("web pages, Chinese", &["simchicore.cmn"], 317, 0),
    ("long pages, 15 languages", &["opensource-guide."], 171, 0),
    ("20 KB: English, French, Swedish", &["ewt.eng", "frecore.fra", "swecore.swe"], 200, 20_000),
    ("20 KB: Chinese", &["simchicore.cmn", "cmrc2018.cmn"], 100, 20_000),
    ("20 KB: Japanese", &["jcommonsenseqa.jpn", "ntrex.jpn", "sib200.jpn"], 50, 20_000),
    ("20 KB: Arabic, Greek, Russian", &["sib200.arb", "sib200.ell", "sib200.rus"], 50, 20_000),
];
const ROUNDS: usize = 7;
/// Tokens of a chunk without the special ones.
const CONTENT_TOKENS: usize = 510;
const HEADER: &str = "\
| texts | documents | KB each | first chunk: documents/s | crate, stopping | times | crate | times \
| all: MB/s | crate | times |
|---|---|---|---|---|---|---|---|---|---|---|";

fn main() -> Result<()> {
    let Some(folder) = std::env::var_os("POLYSIFT_TEXTS").map(PathBuf::from) else {
        report("skipped: POLYSIFT_TEXTS is not set (a folder of .jsonl.zst files)");
        return Ok(());
    };
    let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/polysift-mini/tokenizer.json");
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let given = [given("POLYSIFT_XLMR_TOKENIZER"), given("POLYSIFT_GEMMA_TOKENIZER")];
    for file in std::iter::once(mini).chain(given.into_iter().flatten()) {
        let start = Instant::now();
        let tokenizers = Tokenizers::open(&file)?;
        report(&format!("\n{}: {}", file.display(), tokenizers.all.engine()));
        report(&format!("opened in {:.2} s\n\n{HEADER}", start.elapsed().as_secs_f64()));
        for set in SETS {
            tokenizers.compare(&folder, set)?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn report(line: &str) {
    println!("{line}");
}

struct Tokenizers {
    first: Tokenizer,
    all: Tokenizer,
    theirs_first: tokenizers::Tokenizer,
    theirs: tokenizers::Tokenizer,
}

impl Tokenizers {
    fn open(file: &Path) -> Result<Self> {
        let json = std::fs::read(file)?;
        let ours = |chunks| {
            let config = EncoderConfig { chunks, max_tokens: 512, ..EncoderConfig::default() };
            Tokenizer::from_bytes(&json, file, &config)
        };
        let mut theirs = tokenizers::Tokenizer::from_bytes(&json).map_err(anyhow::Error::msg)?;
        theirs.with_truncation(None).map_err(anyhow::Error::msg)?.with_padding(None);
        let truncation = TruncationParams { max_length: CONTENT_TOKENS, ..Default::default() };
        let mut theirs_first = theirs.clone();
        theirs_first.with_truncation(Some(truncation)).map_err(anyhow::Error::msg)?;
        Ok(Self { first: ours(Chunks::First)?, all: ours(Chunks::All)?, theirs_first, theirs })
    }

    fn compare(&self, folder: &Path, set: &Set) -> Result<()> {
        let texts = read(folder, set)?;
        let bytes: usize = texts.iter().map(String::len).sum();
        let crate_len = |tokenizer: &tokenizers::Tokenizer, text: &str| {
            tokenizer.encode_fast(text, false).map(|e| e.len()).map_err(anyhow::Error::msg)
        };
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            times[0].push(time(&texts, |text| Ok(self.first.chunks(text)?[0].len()))?);
            times[1].push(time(&texts, |text| crate_len(&self.theirs_first, text))?);
            times[2].push(time(&texts, |text| Ok(self.all.tokenize(text)?.num_tokens as usize))?);
            times[3].push(time(&texts, |text| crate_len(&self.theirs, text))?);
        }
        let [first, theirs_first, all, theirs] = times.map(median);
        let (documents, megabytes) = (texts.len() as f64, bytes as f64 / 1e6);
        report(&format!(
            "| {} | {documents} | {:.1} | {:.0} | {:.0} | {:.1} | {:.0} | {:.1} | {:.1} | {:.2} | {:.1} |",
            set.0,
            megabytes * 1e3 / documents,
            documents / first,
            documents / theirs_first,
            theirs_first / first,
            documents / theirs,
            theirs / first,
            megabytes / all,
            megabytes / theirs,
            theirs / all
        ));
        Ok(())
    }
}

/// Seconds for all texts.
fn time(texts: &[String], mut tokenize: impl FnMut(&str) -> Result<usize>) -> Result<f64> {
    let start = Instant::now();
    for text in texts {
        std::hint::black_box(tokenize(std::hint::black_box(text))?);
    }
    Ok(start.elapsed().max(Duration::from_nanos(1)).as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn read(folder: &Path, &(name, starts, documents, size): &Set) -> Result<Vec<String>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if starts.iter().any(|start| file.starts_with(start)) {
            sources.push(path);
        }
    }
    sources.sort();
    let mut texts: Vec<String> = Vec::new();
    let mut readers = Vec::new();
    for path in &sources {
        readers.push(BufReader::new(zstd::Decoder::new(std::fs::File::open(path)?)?).lines());
    }
    // One line of each file in turn, so that joined documents mix them.
    while !readers.is_empty() && texts.len() <= documents {
        let mut still = Vec::new();
        for mut lines in readers {
            let Some(line) = lines.next() else { continue };
            let line: serde_json::Value = serde_json::from_str(&line?)?;
            let text = line["text"].as_str().context("text")?;
            match texts.last_mut().filter(|last| last.len() < size) {
                Some(last) => {
                    last.push('\n');
                    last.push_str(text);
                }
                None => texts.push(text.to_owned()),
            }
            still.push(lines);
        }
        readers = still;
    }
    texts.truncate(documents);
    ensure!(!texts.is_empty(), "{name}: no such files in {}", folder.display());
    Ok(texts)
}
