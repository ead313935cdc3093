//! Texts by language, and how fast something goes through them.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;

/// Texts by language.
pub(crate) type Documents = BTreeMap<String, Vec<String>>;

#[derive(serde::Deserialize)]
struct Document {
    text: String,
    language: String,
}

/// Reads the files that the command line names.
pub(crate) fn documents() -> Result<Documents> {
    let mut documents = Documents::new();
    for path in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        for line in std::fs::read_to_string(path)?.lines() {
            let Document { text, language } = serde_json::from_str(line)?;
            documents.entry(language).or_default().push(text);
        }
    }
    Ok(documents)
}

/// Prints the median speed of five passes over each language and over all, and what they found.
pub(crate) fn measure(name: &str, documents: &Documents, rule: impl Fn(&str, &str) -> usize) {
    let (mut all_bytes, mut all_seconds) = (0, 0.0);
    for (language, texts) in documents {
        let bytes: usize = texts.iter().map(String::len).sum();
        let mut seconds = Vec::new();
        let mut found = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            found = texts.iter().map(|text| black_box(rule(text, language))).sum();
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds[ROUNDS / 2];
        let rate = bytes as f64 / median / 1e6;
        println!(
            "{name:16} {language} {:6.2} MB {rate:8.1} MB/s, found {found}",
            bytes as f64 / 1e6
        );
        all_bytes += bytes;
        all_seconds += median;
    }
    let rate = all_bytes as f64 / all_seconds / 1e6;
    println!("{name:16} all      {:6.2} MB {rate:8.1} MB/s", all_bytes as f64 / 1e6);
}
