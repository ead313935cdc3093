//! Words and labels of a model, and how a line of text becomes rows of its input matrix.
//!
//! White space, hashes and n-grams follow fastText. Words are bytes, since files state no encoding.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::settings::ModelSettings;
use super::source::{ModelReader, broken};
use polysift_config::LABEL_PREFIX;

/// The word that ends every line; a line also ends where a text contains it.
pub(super) const END_OF_LINE: &[u8] = b"</s>";
const NGRAM_FACTOR: u64 = 116_049_371;
const EMPTY: u32 = u32::MAX;
/// Minimum bytes of an entry in a file: the zero after its text, its count and its type.
const ENTRY_BYTES: usize = 10;

/// Words, then labels.
#[derive(Debug, Clone)]
pub struct Dictionary {
    text: Vec<u8>,
    /// End of each entry's text.
    ends: Vec<usize>,
    /// Number of times that each entry occurs in the training samples.
    pub(super) counts: Vec<i64>,
    /// Number of words with their own vector.
    pub num_words: usize,
    /// Number of tokens in which words and labels were counted.
    num_tokens: i64,
    /// Rows of the n-grams that a quantised model kept, counted after the words, by bucket.
    pub(super) pruned: Option<BTreeMap<u32, u32>>,
    /// Entries by the hash of their text; collisions go to the next free slot.
    table: Vec<u32>,
}

/// Rows and tokens of a line, in reusable memory.
#[derive(Debug, Default)]
pub(super) struct LineRows {
    pub(super) rows: Vec<u32>,
    /// Number of tokens, including the end of the line.
    pub(super) num_tokens: u64,
    hashes: Vec<u32>,
    word: Vec<u8>,
}

/// fastText's FNV-1a (C++ `Dictionary::hash`), which takes bytes as signed.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(2_166_136_261, |hash: u32, &byte| {
        (hash ^ i32::from(byte.cast_signed()).cast_unsigned()).wrapping_mul(16_777_619)
    })
}

/// Splits a line into words like fastText (C++ `Dictionary::readWord`); the last is its end.
pub(super) fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c | 0);
    let words = line.split(is_space).filter(|word| !word.is_empty());
    let mut ended = false;
    words.chain([END_OF_LINE]).take_while(move |word| {
        let is_before_end = !ended;
        ended |= *word == END_OF_LINE;
        is_before_end
    })
}

impl Dictionary {
    pub(super) fn new(words: &[(&[u8], i64)], labels: &[(&[u8], i64)], num_tokens: i64) -> Self {
        let (mut text, mut ends, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, count) in words.iter().chain(labels) {
            text.extend_from_slice(entry);
            ends.push(text.len());
            counts.push(*count);
        }
        let num_words = words.len();
        Self { text, ends, counts, num_words, num_tokens, pruned: None, table: Vec::new() }
            .with_table()
    }

    /// Builds the hash table of the entries.
    fn with_table(mut self) -> Self {
        // The table is as full as fastText's and has a free slot, so that a search ends.
        self.table = vec![EMPTY; self.ends.len() * 10 / 7 + 1];
        for entry in 0..self.ends.len() {
            let slot = self.find_slot(self.entry_text(entry), hash(self.entry_text(entry)));
            self.table[slot] = entry as u32;
        }
        self
    }

    /// Returns the slot of `text`, or the free one for it (C++ `Dictionary::find`).
    fn find_slot(&self, text: &[u8], hash: u32) -> usize {
        let mut slot = hash as usize % self.table.len();
        while self.table[slot] != EMPTY && self.entry_text(self.table[slot] as usize) != text {
            slot = (slot + 1) % self.table.len();
        }
        slot
    }

    fn entry_text(&self, entry: usize) -> &[u8] {
        let start = if entry == 0 { 0 } else { self.ends[entry - 1] };
        &self.text[start..self.ends[entry]]
    }

    pub(super) fn num_labels(&self) -> usize {
        self.ends.len() - self.num_words
    }

    pub(super) fn label(&self, label: usize) -> &[u8] {
        self.entry_text(self.num_words + label)
    }

    /// Returns the number of rows of the input matrix; `None` if pruned n-grams lie outside of it.
    pub(super) fn num_rows(&self, settings: &ModelSettings) -> Option<usize> {
        let Some(pruned) = &self.pruned else { return Some(self.num_words + settings.buckets) };
        let in_place = pruned.values().all(|&row| (row as usize) < pruned.len());
        in_place.then_some(self.num_words + pruned.len())
    }

    /// Finds the rows of the input matrix for `text` and puts them into `line`: known words,
    /// character n-grams of all words, and n-grams of words (C++ `Dictionary::getLine`).
    pub(super) fn find_rows(&self, settings: &ModelSettings, text: &[u8], line: &mut LineRows) {
        line.rows.clear();
        line.hashes.clear();
        line.num_tokens = 0;
        for token in tokens(text) {
            line.num_tokens += 1;
            let hash = hash(token);
            let found = self.table[self.find_slot(token, hash)];
            let is_label = match found {
                EMPTY => token.starts_with(LABEL_PREFIX.as_bytes()),
                entry => entry as usize >= self.num_words,
            };
            if is_label {
                continue;
            }
            line.hashes.push(hash);
            if found != EMPTY {
                line.rows.push(found);
            }
            if settings.longest_subword > 0 && token != END_OF_LINE {
                self.push_subwords(settings, token, line);
            }
        }
        self.push_ngrams(settings, line);
    }

    /// Adds the n-grams of the characters of `<token>` (C++ `Dictionary::computeSubwords`).
    fn push_subwords(&self, settings: &ModelSettings, token: &[u8], line: &mut LineRows) {
        let mut word = std::mem::take(&mut line.word);
        word.clear();
        word.extend_from_slice(b"<");
        word.extend_from_slice(token);
        word.extend_from_slice(b">");
        let begins = |at: usize| word[at] & 0xc0 != 0x80;
        for start in (0..word.len()).filter(|&at| begins(at)) {
            let mut end = start;
            for length in 1..=settings.longest_subword {
                if end == word.len() {
                    break;
                }
                end += 1;
                while end < word.len() && !begins(end) {
                    end += 1;
                }
                // A marker alone carries no information.
                let is_marker = length == 1 && (start == 0 || end == word.len());
                if length >= settings.shortest_subword && !is_marker {
                    let bucket = u64::from(hash(&word[start..end]));
                    self.push_bucket(settings, bucket, &mut line.rows);
                }
            }
        }
        line.word = word;
    }

    /// Adds the n-grams of two or more words (C++ `Dictionary::addWordNgrams`).
    fn push_ngrams(&self, settings: &ModelSettings, line: &mut LineRows) {
        let LineRows { rows, hashes, .. } = line;
        // fastText stores the hashes as signed 32-bit integers.
        let signed = |hash: u32| i64::from(hash.cast_signed()).cast_unsigned();
        for start in 0..hashes.len() {
            let mut ngram = signed(hashes[start]);
            for &next in hashes[start + 1..].iter().take(settings.word_ngrams.saturating_sub(1)) {
                ngram = ngram.wrapping_mul(NGRAM_FACTOR).wrapping_add(signed(next));
                self.push_bucket(settings, ngram, rows);
            }
        }
    }

    /// Adds the row of an n-gram with this hash, if it has one (C++ `Dictionary::pushHash`).
    fn push_bucket(&self, settings: &ModelSettings, hash: u64, rows: &mut Vec<u32>) {
        if settings.buckets == 0 {
            return;
        }
        let bucket = (hash % settings.buckets as u64) as u32;
        let place = match &self.pruned {
            None => Some(bucket),
            Some(pruned) => pruned.get(&bucket).copied(),
        };
        rows.extend(place.map(|place| self.num_words as u32 + place));
    }

    /// Reads a dictionary (C++ `Dictionary::load`).
    pub(super) fn read(source: &mut ModelReader<impl Read>) -> io::Result<Self> {
        let (size, num_words, num_labels) =
            (source.read_i32()?, source.read_i32()?, source.read_i32()?);
        let (num_tokens, num_pruned) = (source.read_i64()?, source.read_i64()?);
        let adds_up =
            num_words >= 0 && num_labels >= 0 && num_words.checked_add(num_labels) == Some(size);
        if !adds_up {
            return broken(format!(
                "has {size} entries, {num_words} words and {num_labels} labels"
            ));
        }
        let (size, num_words) = (size as usize, num_words as usize);
        source.check_left(size, ENTRY_BYTES, "words and labels")?;
        let mut text = Vec::new();
        let (mut ends, mut counts) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for entry in 0..size {
            source.read_text(&mut text)?;
            ends.push(text.len());
            counts.push(source.read_i64()?);
            let is_label = source.read_bool()?;
            if is_label != (entry >= num_words) {
                return broken(format!("has a label or a word out of place, as entry {entry}"));
            }
        }
        let mut pruned = None;
        if let Ok(len) = usize::try_from(num_pruned) {
            source.check_left(len, 8, "pruned n-grams")?;
            let number = |value: i32| {
                u32::try_from(value).or_else(|_| broken(format!("has an n-gram {value}")))
            };
            let pairs =
                (0..len).map(|_| Ok((number(source.read_i32()?)?, number(source.read_i32()?)?)));
            pruned = Some(pairs.collect::<io::Result<BTreeMap<_, _>>>()?);
        }
        Ok(Self { text, ends, counts, num_words, num_tokens, pruned, table: Vec::new() }
            .with_table())
    }

    /// Writes the dictionary (C++ `Dictionary::save`).
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        for number in [self.ends.len(), self.num_words, self.num_labels()] {
            let number = i32::try_from(number).map_err(io::Error::other)?;
            file.write_all(&number.to_le_bytes())?;
        }
        file.write_all(&self.num_tokens.to_le_bytes())?;
        file.write_all(&(-1i64).to_le_bytes())?; // written models have no pruned n-grams
        for (entry, count) in self.counts.iter().enumerate() {
            file.write_all(self.entry_text(entry))?;
            file.write_all(&[0])?;
            file.write_all(&count.to_le_bytes())?;
            file.write_all(&[u8::from(entry >= self.num_words)])?;
        }
        Ok(())
    }
}
