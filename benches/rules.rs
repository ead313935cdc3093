//! The rules that need no model on one thread: MB of text a second.
//!
//! ```sh
//! cargo bench --bench rules -- FILE.jsonl ...    # rows with `text` and `language`
//! ```
//!
//! Of each language the median of five passes is printed. The words are a thousand at most,
//! every tenth that the texts hold, so the first documents have many.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::Instant;

use polysift::rules::{
    LicenseOptions, LicenseRule, Repetition, WordList, base64_ranges, published_allow_list,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Rule<'a> = (&'a str, Box<dyn Fn(&str) -> usize + 'a>);

const ROUNDS: usize = 5;
const NUM_WORDS: usize = 1000;

#[derive(serde::Deserialize)]
struct Document {
    text: String,
    language: String,
}

fn main() -> Result<()> {
    let mut documents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        for line in std::fs::read_to_string(path)?.lines() {
            let Document { text, language } = serde_json::from_str(line)?;
            documents.entry(language).or_default().push(text);
        }
    }
    let words = documents.values().flatten().flat_map(|text| text.split_whitespace()).step_by(10);
    let words: BTreeSet<&str> = words.take(NUM_WORDS).collect();
    let words = WordList::new(words)?;
    let license = LicenseRule::new(published_allow_list()?, &LicenseOptions::default())?;
    // A source that is allowed, so that terms are looked for.
    let source = Some("https://docs.python.org/3/tutorial/index.html");
    let rules: [Rule<'_>; 5] = [
        ("license", Box::new(|text| usize::from(license.judge(source, Some(text)).is_ok()))),
        ("license, no text", Box::new(|_| usize::from(license.judge(source, None).is_ok()))),
        ("words", Box::new(|text| words.share(text).hits)),
        ("repetition", Box::new(|text| Repetition::of(text).repeated)),
        ("base64", Box::new(|text| base64_ranges(text).len())),
    ];
    for (name, rule) in &rules {
        let (mut all_bytes, mut all_seconds) = (0, 0.0);
        for (language, texts) in &documents {
            let bytes: usize = texts.iter().map(String::len).sum();
            let mut seconds = Vec::new();
            let mut found = 0;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                found = texts.iter().map(|text| black_box(rule(text))).sum();
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
    Ok(())
}
