//! Builds an index of benchmark items. The same items in the same order give the same bytes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use smart_default::SmartDefault;
use twox_hash::XxHash3_64;

use super::hash::ngram_hashes;
use super::index::{Header, MAGIC, SECTIONS, TaskCounts, VERSION, num_buckets};
use super::prefilter::{self, place_of_key};
use super::settings::{IndexSettings, ItemPart};
use super::tokens::{Tokens, for_each_token};
use polysift_base::error::{Error, Result};
use polysift_base::io::AtomicFile;

/// Training split, which has its n-grams subtracted from the other splits of a task.
const TRAIN: &str = "train";

/// An item of a benchmark.
#[derive(Debug, Clone, Copy, Default)]
pub struct BenchmarkItem<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// Split of the task; the n-grams of `train` are subtracted from those of the others.
    pub split: &'a str,
    /// The question with its choices; may be empty.
    pub question: &'a str,
    /// The right answer; may be empty.
    pub answer: &'a str,
    /// Id within task and split; empty if there is none.
    pub id: &'a str,
    /// Code of the language (`deu_Latn`); empty if unknown.
    pub language: &'a str,
}

/// Collects items, and texts with n-grams that are not evidence of contamination.
#[derive(Debug, SmartDefault)]
pub struct IndexBuilder {
    settings: IndexSettings,
    tasks: Vec<TaskCounts>,
    task_numbers: HashMap<String, u32>,
    texts: Vec<TokenizedText>,
    /// Number of the text with each task, and language, split and id.
    texts_by_id: HashMap<(u32, [String; 3]), usize>,
    /// Tokens of all texts.
    tokens: Tokens,
    occurrences: Vec<Occurrence>,
    /// Bits of an n-gram's hash that count: all, except in tests that need collisions.
    #[default(u64::MAX)]
    pub(super) hash_mask: u64,
}

#[derive(Debug)]
struct TokenizedText {
    source: Source,
    id: String,
    /// Numbers of its tokens in the builder.
    tokens: Range<usize>,
    question_tokens: usize,
    ngram: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// An item of this task to search for.
    Item(u32),
    /// An item of the training split of this task.
    Train(u32),
    /// An ignored text, which may be common.
    Ignored,
}

/// An n-gram at its place in a text.
#[derive(Debug, Clone, Copy)]
struct Occurrence {
    hash: u64,
    text: u32,
    /// Number of its first token within the text.
    token: u32,
}

impl IndexBuilder {
    /// Returns a builder without items.
    ///
    /// # Errors
    /// Returns [`Error::Config`] for invalid settings.
    pub fn new(settings: IndexSettings) -> Result<Self> {
        settings.check()?;
        Ok(Self { settings, ..Self::default() })
    }

    /// Adds an item; one with the task, language, split, id and text of another counts once.
    ///
    /// # Errors
    /// Returns the reason why this item is left out; the others are not affected.
    pub fn add(&mut self, item: &BenchmarkItem<'_>) -> Result<(), &'static str> {
        if item.task.is_empty() {
            return Err("has no task");
        }
        if item.question.is_empty() && item.answer.is_empty() {
            return Err("has no text");
        }
        let task = *self.task_numbers.entry(item.task.to_owned()).or_insert_with(|| {
            self.tasks.push(TaskCounts { task: item.task.to_owned(), ..TaskCounts::default() });
            self.tasks.len() as u32 - 1
        });
        let source = if item.split == TRAIN { Source::Train(task) } else { Source::Item(task) };
        let text = self.tokenize(source, item);
        if !item.id.is_empty() {
            // Parallel benchmarks use an id once in each language.
            let key = (task, [item.language, item.split, item.id].map(str::to_owned));
            let same = *self.texts_by_id.entry(key).or_insert(self.texts.len());
            if let Some(same) = self.texts.get(same) {
                let bytes = |text: &TokenizedText| self.tokens.bytes(text.tokens.clone());
                let is_equal =
                    bytes(same) == bytes(&text) && same.question_tokens == text.question_tokens;
                self.tokens.truncate(text.tokens.start);
                return is_equal
                    .then_some(())
                    .ok_or("has the id of another item with another text");
            }
        }
        let is_covered = self.record(text);
        if matches!(source, Source::Item(_)) {
            let counts = &mut self.tasks[task as usize];
            counts.items += 1;
            counts.not_covered += u64::from(!is_covered);
        }
        Ok(())
    }

    /// Adds a text in `language` with n-grams that are not evidence of contamination.
    pub fn ignore(&mut self, text: &str, language: &str) {
        let item = BenchmarkItem { question: text, language, ..BenchmarkItem::default() };
        let text = self.tokenize(Source::Ignored, &item);
        self.record(text);
    }

    /// Appends the tokens of `item` to those of all texts; [`IndexBuilder::record`] adds the text.
    fn tokenize(&mut self, source: Source, item: &BenchmarkItem<'_>) -> TokenizedText {
        let start = self.tokens.ends.len();
        let mut question_tokens = 0;
        for text in [item.question, item.answer] {
            question_tokens = self.tokens.ends.len() - start;
            let take = |token: &[u8], _| self.tokens.push(token);
            for_each_token(&self.settings, item.language, text, take);
        }
        TokenizedText {
            source,
            id: item.id.to_owned(),
            tokens: start..self.tokens.ends.len(),
            question_tokens,
            ngram: self.settings.ngram_for(item.language, || [item.question, item.answer].concat()),
        }
    }

    /// Adds a text with its n-grams to index or to subtract, and returns whether it has any.
    fn record(&mut self, text: TokenizedText) -> bool {
        let hashes: Vec<u64> = text
            .tokens
            .clone()
            .map(|token| self.tokens.bytes(token..token + 1))
            .map(|token| XxHash3_64::oneshot(&token[..token.len() - 1]))
            .collect();
        let before = self.occurrences.len();
        for (token, hash) in ngram_hashes(&hashes, text.ngram, self.hash_mask).enumerate() {
            let part = if token >= text.question_tokens {
                ItemPart::Answer
            } else if token + text.ngram as usize <= text.question_tokens {
                ItemPart::Question
            } else {
                ItemPart::Straddle
            };
            // N-grams to subtract are recorded from any part.
            if !matches!(text.source, Source::Item(_)) || self.settings.parts.contains(&part) {
                let number = self.texts.len() as u32;
                self.occurrences.push(Occurrence { hash, text: number, token: token as u32 });
            }
        }
        self.texts.push(text);
        self.occurrences.len() > before
    }

    /// Returns the tokens of an occurrence, each followed by a space.
    fn ngram_bytes(&self, occurrence: &Occurrence) -> &[u8] {
        let text = &self.texts[occurrence.text as usize];
        let start = text.tokens.start + occurrence.token as usize;
        self.tokens.bytes(start..start + text.ngram as usize)
    }

    /// Writes the index to the file `out`, and returns the counts of each task. `inputs` are the
    /// names of its sources, by BLAKE3 digest.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if no n-gram is left, or if there are more than a file can hold,
    /// and [`Error::Io`].
    pub fn build(
        mut self,
        inputs: BTreeMap<String, String>,
        out: &Path,
    ) -> Result<Vec<TaskCounts>> {
        let mut occurrences = std::mem::take(&mut self.occurrences);
        occurrences.sort_unstable_by(|a, b| {
            let by_text = || self.ngram_bytes(a).cmp(self.ngram_bytes(b));
            let by_place = || (a.text, a.token).cmp(&(b.text, b.token));
            a.hash.cmp(&b.hash).then_with(by_text).then_with(by_place)
        });
        let (mut header, mut sections, numbers) = self.lay_out_items(inputs)?;
        let [filter, hash_bytes, bucket_ends, posting_ends, postings, ..] = &mut sections;
        let mut hashes = Vec::new();
        let same = |a: &Occurrence, b: &Occurrence| {
            a.hash == b.hash && self.ngram_bytes(a) == self.ngram_bytes(b)
        };
        for places in occurrences.chunk_by(same) {
            let source = |place: &Occurrence| self.texts[place.text as usize].source;
            let sources: BTreeSet<Source> = places.iter().map(source).collect();
            let is_subtracted =
                |task| sources.contains(&Source::Ignored) || sources.contains(&Source::Train(task));
            for source in &sources {
                let Source::Item(task) = *source else { continue };
                let counts = &mut header.tasks[task as usize];
                if is_subtracted(task) {
                    counts.subtracted += 1;
                } else {
                    counts.ngrams += 1;
                }
            }
            let before = header.postings;
            for place in places {
                if matches!(source(place), Source::Item(task) if !is_subtracted(task)) {
                    postings.extend(numbers[place.text as usize].to_le_bytes());
                    postings.extend(place.token.to_le_bytes());
                    header.postings += 1;
                }
            }
            if header.postings > before {
                hashes.push(places[0].hash);
                posting_ends.extend((header.postings as u32).to_le_bytes());
            }
        }
        if hashes.is_empty() {
            return Err(Error::config("items", "have no n-grams to look for"));
        }
        let words = prefilter::build_words(&hashes);
        header.filter_words = words.len() as u64;
        header.ngrams = hashes.len() as u64;
        filter.extend(words.into_iter().flat_map(u64::to_le_bytes));
        let buckets = num_buckets(header.ngrams) as usize;
        for bucket in 0..buckets {
            let end = hashes.partition_point(|hash| place_of_key(*hash, buckets) <= bucket);
            bucket_ends.extend((end as u32).to_le_bytes());
        }
        hash_bytes.extend(hashes.into_iter().flat_map(u64::to_le_bytes));
        let mut file = AtomicFile::create(out)?;
        write_file(&header, &sections, &mut file).map_err(Error::io(out, "write"))?;
        file.commit()?;
        Ok(header.tasks)
    }

    /// Returns the header (with the tasks, which move there) and the sections of a file with the
    /// items and no n-grams, and the item number of each text, `u32::MAX` if it is none.
    fn lay_out_items(
        &mut self,
        inputs: BTreeMap<String, String>,
    ) -> Result<(Header, [Vec<u8>; SECTIONS], Vec<u32>)> {
        let mut numbers = Vec::with_capacity(self.texts.len());
        let mut sections: [Vec<u8>; SECTIONS] = Default::default();
        let [.., items, token_ends, text, ids] = &mut sections;
        let (mut num_items, mut num_tokens) = (0, 0);
        for item in &self.texts {
            let Source::Item(task) = item.source else {
                numbers.push(u32::MAX);
                continue;
            };
            numbers.push(num_items as u32);
            // Ends of its tokens move by as much as its text.
            let start = self.tokens.bytes(0..item.tokens.start).len();
            for end in &self.tokens.ends[item.tokens.clone()] {
                token_ends.extend(((end - start + text.len()) as u32).to_le_bytes());
            }
            text.extend_from_slice(self.tokens.bytes(item.tokens.clone()));
            ids.extend_from_slice(item.id.as_bytes());
            num_items += 1;
            num_tokens += item.tokens.len() as u64;
            let ends = [num_tokens as u32, ids.len() as u32];
            let item = [task, item.ngram, item.question_tokens as u32, ends[0], ends[1]];
            items.extend(item.into_iter().flat_map(u32::to_le_bytes));
        }
        // A token has at least two bytes and at most one posting.
        let sizes = [text.len(), ids.len(), self.texts.len()];
        if sizes.iter().any(|n| u32::try_from(*n).is_err()) {
            return Err(Error::config("items", "are more than 4 GiB of tokens, or of ids"));
        }
        let header = Header {
            settings: self.settings.clone(),
            inputs,
            tasks: std::mem::take(&mut self.tasks),
            items: num_items,
            tokens: num_tokens,
            text_bytes: text.len() as u64,
            id_bytes: ids.len() as u64,
            ..Header::default()
        };
        Ok((header, sections, numbers))
    }
}

/// Writes the file that [`Index::open`](super::Index::open) reads.
fn write_file(header: &Header, sections: &[Vec<u8>], file: &mut AtomicFile) -> io::Result<()> {
    let mut header = serde_json::to_vec(header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes();
    let before = [&MAGIC[..], &VERSION.to_le_bytes(), &length, &header].concat();
    let mut hasher = blake3::Hasher::new();
    for part in [&before].into_iter().chain(sections) {
        hasher.update(part);
        file.write_all(part)?;
    }
    file.write_all(hasher.finalize().as_bytes())
}
