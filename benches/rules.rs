//! The rules that need no model on one thread: MB of text a second.
//!
//! ```sh
//! cargo bench --bench rules -- FILE.jsonl ...    # rows with `text` and `language`
//! ```
//!
//! Of each language the median of five passes is printed. The words are a thousand at most,
//! every tenth that the texts hold, so the first documents have many.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

mod documents;

use std::collections::BTreeSet;

use polysift::rules::{AllowList, LicenseConfig, LicenseRule, Repetition, WordList, base64_ranges};

use self::documents::{Result, documents, measure};

const NUM_WORDS: usize = 1000;

fn main() -> Result<()> {
    let documents = documents()?;
    let words = documents.values().flatten().flat_map(|text| text.split_whitespace()).step_by(10);
    let words: BTreeSet<&str> = words.take(NUM_WORDS).collect();
    let words = WordList::new(words)?;
    let license = LicenseRule::new(AllowList::published()?, &LicenseConfig::default())?;
    // A source that is allowed, so that terms are looked for.
    let source = Some("https://docs.python.org/3/tutorial/index.html");
    measure("license", &documents, |text, _| {
        usize::from(license.judge(source, Some(text)).is_ok())
    });
    measure("license, no text", &documents, |_, _| {
        usize::from(license.judge(source, None).is_ok())
    });
    measure("words", &documents, |text, _| words.share(text).hits);
    measure("repetition", &documents, |text, _| Repetition::of(text).repeated);
    measure("base64", &documents, |text, _| base64_ranges(text).len());
    Ok(())
}
