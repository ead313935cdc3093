//! Documents against an index of n-grams, on one thread: MB of text a second.
//!
//! ```sh
//! cargo bench --bench decontamination -- FILE.jsonl ...    # rows with `text` and `language`
//! ```
//!
//! The items of the index are numbers in words (`NGRAMS` n-grams, 10 million if not set), so no document
//! hits one. Of each language the median of five passes is printed.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

mod documents;
mod splitmix;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use polysift::decontamination::{BenchmarkItem, Index, IndexBuilder, IndexSettings};

use self::documents::{Result, documents, measure};
use self::splitmix::splitmix64;

const NGRAMS_PER_ITEM: u64 = 10;

fn index(num_ngrams: u64, settings: IndexSettings) -> Result<Index> {
    let words = u64::from(settings.ngram) + NGRAMS_PER_ITEM - 1;
    let mut builder = IndexBuilder::new(settings)?;
    let mut answer = String::new();
    for item in 0..num_ngrams.div_ceil(NGRAMS_PER_ITEM) {
        answer.clear();
        for word in item * words..(item + 1) * words {
            write!(answer, "w{} ", splitmix64(word) % 50_000)?;
        }
        builder.add(&BenchmarkItem {
            task: "task",
            answer: &answer,
            ..BenchmarkItem::default()
        })?;
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("benchmarks.idx");
    builder.build(BTreeMap::new(), &path)?;
    Ok(Index::open(&path)?)
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
    let documents = documents()?;
    let start = Instant::now();
    let index = index(num_ngrams, settings)?;
    println!("index of {} n-grams made in {:.1?}", index.num_ngrams(), start.elapsed());
    measure("decontamination", &documents, |text, language| {
        usize::from(!index.scan(text, language).is_empty())
    });
    for name in ["VmRSS", "RssAnon", "RssFile", "VmHWM"] {
        println!("{}", memory(name)?);
    }
    Ok(())
}
