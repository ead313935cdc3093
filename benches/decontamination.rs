//! Documents against an index of n-grams, on one thread: MB of text a second.
//!
//! ```sh
//! cargo bench --bench decontamination -- FILE.jsonl ...    # rows with `text` and `language`
//! ```
//!
//! The items of the index are numbers in words (`NGRAMS` n-grams, 10 million if not set), so no document
//! hits one. Of each language the median of five passes is printed.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use polysift::decontamination::{BenchmarkItem, Index, IndexBuilder, IndexSettings};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const NGRAMS_PER_ITEM: u64 = 10;

#[derive(serde::Deserialize)]
struct Document {
    text: String,
    language: String,
}

/// The next number of a fixed sequence (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn index(num_ngrams: u64, settings: IndexSettings) -> Result<Index> {
    let words = u64::from(settings.ngram) + NGRAMS_PER_ITEM - 1;
    let mut builder = IndexBuilder::new(settings)?;
    let mut state = 42;
    let mut answer = String::new();
    for _ in 0..num_ngrams.div_ceil(NGRAMS_PER_ITEM) {
        answer.clear();
        for _ in 0..words {
            write!(answer, "w{} ", next(&mut state) % 50_000)?;
        }
        builder.add(&BenchmarkItem {
            task: "task",
            answer: &answer,
            ..BenchmarkItem::default()
        })?;
    }
    let file = tempfile::NamedTempFile::new()?;
    builder.build(BTreeMap::new())?.write(file.as_file())?;
    Ok(Index::open(file.path())?)
}

/// A line of /proc/self/status, such as `VmRSS`.
fn memory(name: &str) -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name));
    Ok(line.unwrap_or_default().to_owned())
}

fn main() -> Result<()> {
    let num_ngrams = std::env::var("NGRAMS").map_or(Ok(10_000_000), |value| value.parse())?;
    let settings = match std::env::var("MODE").as_deref() {
        Ok("datatrove") => IndexSettings::datatrove(),
        _ => IndexSettings::default(),
    };
    let mut documents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        for line in std::fs::read_to_string(path)?.lines() {
            let Document { text, language } = serde_json::from_str(line)?;
            documents.entry(language).or_default().push(text);
        }
    }
    let start = Instant::now();
    let index = index(num_ngrams, settings)?;
    println!("index of {} n-grams made in {:.1?}", index.num_ngrams(), start.elapsed());
    let (mut all_bytes, mut all_seconds) = (0, 0.0);
    for (language, texts) in &documents {
        let bytes: usize = texts.iter().map(String::len).sum();
        let mut seconds = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let hits = texts.iter().filter(|text| !index.scan(text, language).is_empty()).count();
            seconds.push(start.elapsed().as_secs_f64());
            if hits > 0 {
                println!("{language}: {hits} documents hit");
            }
        }
        seconds.sort_by(f64::total_cmp);
        let rate = bytes as f64 / seconds[2] / 1e6;
        println!("{language} {:8.2} MB {rate:7.1} MB/s", bytes as f64 / 1e6);
        all_bytes += bytes;
        all_seconds += seconds[2];
    }
    println!(
        "all {:8.2} MB {:7.1} MB/s",
        all_bytes as f64 / 1e6,
        all_bytes as f64 / all_seconds / 1e6
    );
    for name in ["VmRSS", "RssAnon", "RssFile", "VmHWM"] {
        println!("{}", memory(name)?);
    }
    Ok(())
}
