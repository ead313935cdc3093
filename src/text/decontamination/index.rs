//! Index of the n-grams of benchmark items: its file, mapped into memory, and look-ups in it.
//! All numbers in the file are little-endian:
//!
//! ```text
//! magic           8 bytes, `MAGIC`
//! version         u32, `VERSION`
//! header length   u32
//! header          JSON (`Header`), padded with spaces to a multiple of 8 bytes
//! filter          u64 × filter_words      the Bloom filter (prefilter.rs)
//! hashes          u64 × ngrams            ascending
//! bucket ends     u32 × buckets           hashes of bucket i: those between ends i - 1 and i
//! posting ends    u32 × ngrams            postings of n-gram i: those between ends i - 1 and i
//! postings        u32, u32 × postings     item, number of its token that the n-gram begins with
//! items           u32 × 5 × items         task, n, question tokens, end of tokens, end of id
//! token ends      u32 × tokens            in `text`, behind the space that follows a token
//! text            tokens of all items, each followed by a space
//! ids             ids of all items
//! digest          BLAKE3 of all that is before it, 32 bytes
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::prefilter::place_of_key;
use super::settings::IndexSettings;
use polysift_base::error::{Error, Result};
use polysift_base::io::open;

pub(super) const MAGIC: [u8; 8] = *b"PSDECON\0";
/// Version of the layout and of the rules that turn text into tokens.
pub(super) const VERSION: u32 = 2;
/// Bytes before the header.
const PREAMBLE: usize = 16;
const DIGEST: usize = 32;
/// Average hashes per bucket, so that a search reads only the two cache lines they lie in.
const HASHES_PER_BUCKET: u64 = 8;
const ITEM_NUMBERS: usize = 5;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) settings: IndexSettings,
    /// Names of the sources of the index, by BLAKE3 digest.
    pub(super) inputs: BTreeMap<String, String>,
    pub(super) tasks: Vec<TaskCounts>,
    pub(super) filter_words: u64,
    pub(super) ngrams: u64,
    pub(super) postings: u64,
    pub(super) items: u64,
    pub(super) tokens: u64,
    pub(super) text_bytes: u64,
    pub(super) id_bytes: u64,
}

/// Counts of a task in an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCounts {
    /// Name of the task.
    pub task: String,
    /// Number of items outside the training split.
    pub items: u64,
    /// Items without an n-gram: too short, or without an indexed part.
    pub not_covered: u64,
    /// Distinct n-grams in the index.
    pub ngrams: u64,
    /// Distinct n-grams left out, because the training split or an ignored text has them.
    pub subtracted: u64,
}

/// An occurrence of an n-gram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Posting {
    /// Number of the item.
    pub item: u32,
    /// Number, within the item, of the n-gram's first token.
    pub token: u32,
}

/// An item in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedItem<'a> {
    /// Number of its task in [`Index::tasks`].
    pub task: usize,
    /// Its id; empty if there is none.
    pub id: &'a str,
    /// Position of its first token in the tokens of all items.
    first_token: u32,
    /// Number of tokens of question and answer.
    pub tokens: u32,
    /// Number of tokens per n-gram.
    pub ngram: u32,
}

/// An index file, mapped into memory and shared by the processes that use it.
#[derive(Debug)]
pub struct Index {
    map: Mmap,
    pub(super) header: Header,
    /// Place of each [`Section`] in the file.
    sections: [Range<usize>; SECTIONS],
    /// Distinct numbers of tokens per n-gram: of words, of characters, or both.
    pub(super) lengths: BTreeSet<u32>,
    /// Bits of an n-gram's hash that count: all, except in tests that need collisions.
    pub(super) hash_mask: u64,
}

/// Parts of a file behind the header, in order.
#[derive(Debug, Clone, Copy)]
enum Section {
    Filter,
    Hashes,
    BucketEnds,
    PostingEnds,
    Postings,
    Items,
    TokenEnds,
    Text,
    Ids,
}

pub(super) const SECTIONS: usize = Section::Ids as usize + 1;

impl Header {
    /// Returns the place of each [`Section`]; `None` unless together they fill `start..end`.
    fn sections(&self, start: usize, end: usize) -> Option<[Range<usize>; SECTIONS]> {
        let sizes = [
            (self.filter_words, 8),
            (self.ngrams, 8),
            (num_buckets(self.ngrams), 4),
            (self.ngrams, 4),
            (self.postings, 8),
            (self.items, 4 * ITEM_NUMBERS as u64),
            (self.tokens, 4),
            (self.text_bytes, 1),
            (self.id_bytes, 1),
        ];
        let mut sections = [const { 0..0 }; SECTIONS];
        let mut at = start;
        for (section, (count, size)) in sections.iter_mut().zip(sizes) {
            let bytes = usize::try_from(count.checked_mul(size)?).ok()?;
            *section = at..at.checked_add(bytes)?;
            at = section.end;
        }
        (at == end).then_some(sections)
    }
}

impl Index {
    /// Opens an index file, and checks all of it, so that later reads find what they refer to.
    ///
    /// # Errors
    /// Returns [`Error::Io`], [`Error::Mismatch`] for another version, and [`Error::Corrupt`] for a
    /// file that is not an index, or is truncated or changed.
    pub fn open(path: &Path) -> Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata().map_err(Error::io(path, "read"))?.len();
        if bytes < (PREAMBLE + DIGEST) as u64 {
            return Err(Error::corrupt(path, "is too short for an index of n-grams"));
        }
        // SAFETY: a map is sound as long as nobody changes the file. Index files appear whole,
        // under their name, and are only read afterwards.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
        if map[..8] != MAGIC {
            return Err(Error::corrupt(path, "is not an index of n-grams"));
        }
        let version = u32_at(&map, 2);
        if version != VERSION {
            return Err(Error::Mismatch {
                path: path.to_owned(),
                difference: format!("version of the index: {version}, not {VERSION}"),
                hint: "make the index again from its items".to_owned(),
            });
        }
        Self::from_map(map).map_err(|reason| Error::corrupt(path, reason))
    }

    /// Checks and reads a mapped file, whose magic and version are known; says what is wrong.
    fn from_map(map: Mmap) -> Result<Self, String> {
        let (content, digest) = map.split_at(map.len() - DIGEST);
        if blake3::hash(content) != *digest {
            return Err("is cut off or changed: its digest is another".to_owned());
        }
        let header_end = PREAMBLE + u32_at(content, 3) as usize;
        let header = content.get(PREAMBLE..header_end).ok_or("has no header")?;
        let header: Header =
            serde_json::from_slice(header).map_err(|error| format!("has a bad header: {error}"))?;
        let sections = header
            .sections(header_end, content.len())
            .ok_or("does not have the length that its header says")?;
        let lengths = BTreeSet::new();
        let mut index = Self { map, header, sections, lengths, hash_mask: u64::MAX };
        index.check()?;
        index.lengths = (0..index.num_items()).map(|item| index.item(item).ngram).collect();
        Ok(index)
    }

    /// Checks that all references within the file are valid.
    fn check(&self) -> Result<(), String> {
        let header = &self.header;
        header.settings.check().map_err(|error| format!("has bad settings: {error}"))?;
        let counts =
            [header.ngrams, header.postings, header.items, header.tokens, header.text_bytes];
        let is_whole = |is_whole: bool, part: &str| {
            if is_whole { Ok(()) } else { Err(format!("is damaged: {part}")) }
        };
        let is_numbered = counts.into_iter().all(|count| u32::try_from(count).is_ok());
        is_whole(is_numbered, "it has more of something than can be numbered")?;
        let text = str::from_utf8(self.section(Section::Text)).map_err(|_| "text is not UTF-8")?;
        let ids = str::from_utf8(self.section(Section::Ids)).map_err(|_| "ids are not UTF-8")?;
        let is_token_end = |end: u32| text.as_bytes().get(end as usize - 1) == Some(&b' ');
        let tokens = self.last_of_ascending(Section::TokenEnds, u32::lt).is_some()
            && self.numbers(Section::TokenEnds).all(is_token_end);
        is_whole(tokens, "tokens")?;
        is_whole(self.has_whole_items(ids), "items")?;
        let hashes = self.section(Section::Hashes).as_chunks().0;
        is_whole(hashes.is_sorted_by_key(|hash| u64::from_le_bytes(*hash)), "hashes")?;
        let buckets = self.last_of_ascending(Section::BucketEnds, u32::le);
        is_whole(buckets.map(u64::from) == Some(header.ngrams), "buckets")?;
        let postings = self.last_of_ascending(Section::PostingEnds, u32::lt);
        is_whole(postings.map(u64::from) == Some(header.postings), "postings")?;
        let has_ngram = |Posting { item, token }| {
            item < self.num_items() && {
                let item = self.item(item);
                token.checked_add(item.ngram).is_some_and(|end| end <= item.tokens)
            }
        };
        let mut postings = (0..header.postings as usize).map(|place| self.posting(place));
        is_whole(postings.all(has_ngram), "postings")
    }

    /// Returns true if what the items refer to exists: tasks, tokens and parts of `ids`.
    fn has_whole_items(&self, ids: &str) -> bool {
        let Header { settings, tasks, tokens, .. } = &self.header;
        let mut ends = (0, 0);
        (0..self.num_items()).all(|item| {
            let [task, ngram, question, token_end, id_end] = self.item_numbers(item);
            let (token_start, id_start) = std::mem::replace(&mut ends, (token_end, id_end));
            (task as usize) < tasks.len()
                && [settings.ngram, settings.ngram_chars].contains(&ngram)
                && u64::from(token_end) <= *tokens
                && token_end.checked_sub(token_start).is_some_and(|tokens| question <= tokens)
                && ids.get(id_start as usize..id_end as usize).is_some()
        })
    }

    /// Returns the last number of a section (0 if empty) if each is a step up, the first from 0.
    fn last_of_ascending(&self, section: Section, is_step: fn(&u32, &u32) -> bool) -> Option<u32> {
        self.numbers(section).try_fold(0, |last, next| is_step(&last, &next).then_some(next))
    }

    fn section(&self, section: Section) -> &[u8] {
        &self.map[self.sections[section as usize].clone()]
    }

    /// Returns the tasks, in the order of their first items.
    pub fn tasks(&self) -> &[TaskCounts] {
        &self.header.tasks
    }

    /// Returns the number of distinct n-grams, which are numbered from 0.
    pub fn num_ngrams(&self) -> u32 {
        self.header.ngrams as u32
    }

    /// Returns the number of items, training splits excluded; they are numbered from 0 as added.
    pub fn num_items(&self) -> u32 {
        self.header.items as u32
    }

    /// Returns item number `item`, below [`Index::num_items`].
    pub fn item(&self, item: u32) -> IndexedItem<'_> {
        let [task, ngram, _, token_end, id_end] = self.item_numbers(item);
        let before = item.checked_sub(1).map(|before| self.item_numbers(before));
        let [.., first_token, id_start] = before.unwrap_or_default();
        let id = &self.section(Section::Ids)[id_start as usize..id_end as usize];
        IndexedItem {
            task: task as usize,
            id: str::from_utf8(id).unwrap_or_default(), // checked on opening
            first_token,
            tokens: token_end - first_token,
            ngram,
        }
    }

    /// Returns the postings of n-gram `ngram`, below [`Index::num_ngrams`]; there is at least one.
    pub fn postings(&self, ngram: u32) -> impl Iterator<Item = Posting> {
        let ends = self.section(Section::PostingEnds);
        let end = u32_at(ends, ngram as usize);
        let start = ngram.checked_sub(1).map_or(0, |before| u32_at(ends, before as usize));
        (start..end).map(|place| self.posting(place as usize))
    }

    /// Returns the tokens of n-gram number `ngram`, separated by spaces.
    pub fn ngram_text(&self, ngram: u32) -> &str {
        str::from_utf8(self.ngram_bytes(ngram)).unwrap_or_default() // checked on opening
    }

    /// Returns the tokens of n-gram number `ngram`, without the space behind the last.
    pub(super) fn ngram_bytes(&self, ngram: u32) -> &[u8] {
        let Some(Posting { item, token }) = self.postings(ngram).next() else { return &[] };
        let (item, ends) = (self.item(item), self.section(Section::TokenEnds));
        let first = (item.first_token + token) as usize;
        let last = first + item.ngram as usize - 1;
        let start = first.checked_sub(1).map_or(0, |before| u32_at(ends, before));
        &self.section(Section::Text)[start as usize..u32_at(ends, last) as usize - 1]
    }

    pub(super) fn filter_words(&self) -> &[[u8; 8]] {
        self.section(Section::Filter).as_chunks().0
    }

    /// Returns the numbers of the n-grams with this hash, which may be of other tokens.
    pub(super) fn ngrams_with_hash(&self, hash: u64) -> Range<u32> {
        let ends = self.section(Section::BucketEnds);
        let bucket = place_of_key(hash, ends.len() / 4);
        let start = bucket.checked_sub(1).map_or(0, |before| u32_at(ends, before));
        let end = u32_at(ends, bucket);
        let hashes = &self.section(Section::Hashes).as_chunks().0[start as usize..end as usize];
        let before = hashes.partition_point(|other| u64::from_le_bytes(*other) < hash);
        let same = hashes[before..].iter().take_while(|other| **other == hash.to_le_bytes());
        let first = start + before as u32;
        first..first + same.count() as u32
    }

    fn posting(&self, place: usize) -> Posting {
        let postings = self.section(Section::Postings);
        Posting { item: u32_at(postings, 2 * place), token: u32_at(postings, 2 * place + 1) }
    }

    /// Returns task, n, question tokens, end of tokens and end of id.
    fn item_numbers(&self, item: u32) -> [u32; ITEM_NUMBERS] {
        let items = self.section(Section::Items);
        std::array::from_fn(|index| u32_at(items, item as usize * ITEM_NUMBERS + index))
    }

    /// Returns a section as the u32 numbers that it consists of.
    fn numbers(&self, section: Section) -> impl Iterator<Item = u32> {
        self.section(section).as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Returns the number of buckets of `ngrams` hashes.
pub(super) fn num_buckets(ngrams: u64) -> u64 {
    ngrams.div_ceil(HASHES_PER_BUCKET)
}

/// Reads little-endian number `index`, from 0; the caller has checked that it exists.
fn u32_at(bytes: &[u8], index: usize) -> u32 {
    bytes.as_chunks().0.get(index).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::build::{BenchmarkItem, IndexBuilder};
    use super::*;

    fn file() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let mut builder =
            IndexBuilder::new(IndexSettings { ngram: 2, ..IndexSettings::default() })?;
        for (task, question, id) in [("one", "a b c d", "x"), ("two", "b c d e", "y")] {
            let item = BenchmarkItem { task, question, id, ..BenchmarkItem::default() };
            builder.add(&item)?;
        }
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("benchmarks.idx");
        builder.build(BTreeMap::new(), &path)?;
        Ok(std::fs::read(path)?)
    }

    fn open(bytes: &[u8]) -> Result<Index, Box<dyn std::error::Error>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), bytes)?;
        Ok(Index::open(file.path())?)
    }

    /// Uses every method of an index.
    fn use_all(index: &Index) {
        let ngrams = index.scan("A b c d e f g", "").ngrams();
        index.items_hit(&ngrams);
        index.tasks_hit(&ngrams);
        for item in 0..index.num_items() {
            index.item(item);
        }
        for ngram in 0..index.num_ngrams() {
            assert!(!index.ngram_text(ngram).is_empty());
            assert!(index.postings(ngram).all(|posting| posting.item < index.num_items()));
        }
    }

    fn is_corrupt(result: &Result<Index, Box<dyn std::error::Error>>) -> bool {
        matches!(
            result.as_ref().map_err(|error| error.downcast_ref()),
            Err(Some(Error::Corrupt { .. }))
        )
    }

    #[test]
    fn places_are_those_of_the_items() -> Result<(), Box<dyn std::error::Error>> {
        let index = open(&file()?)?;
        use_all(&index);
        let mut found: Vec<(&str, Vec<(&str, u32)>)> = (0..index.num_ngrams())
            .map(|ngram| {
                let places = index.postings(ngram).map(|p| (index.item(p.item).id, p.token));
                (index.ngram_text(ngram), places.collect())
            })
            .collect();
        found.sort_unstable();
        let expected = [
            ("a b", vec![("x", 0)]),
            ("b c", vec![("x", 1), ("y", 0)]),
            ("c d", vec![("x", 2), ("y", 1)]),
            ("d e", vec![("y", 2)]),
        ];
        assert_eq!(found, expected);
        Ok(())
    }

    #[test]
    fn another_version_is_told_from_damage() -> Result<(), Box<dyn std::error::Error>> {
        let mut bytes = file()?;
        bytes[8] += 1;
        let error = open(&bytes).err().and_then(|error| error.downcast::<Error>().ok());
        assert!(matches!(error.as_deref(), Some(Error::Mismatch { .. })));
        assert!(is_corrupt(&open(b"")));
        assert!(is_corrupt(&open(&[0; 100])));
        assert!(is_corrupt(&open(&file()?[..100])));
        Ok(())
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(place: prop::sample::Index, bit in 0..8) {
            let mut bytes = file().map_err(|error| TestCaseError::fail(error.to_string()))?;
            let place = place.index(bytes.len());
            bytes[place] ^= 1_u8 << bit;
            let opened = open(&bytes);
            prop_assert!(opened.is_err());
            prop_assert!(is_corrupt(&opened) || (8..12).contains(&place));
        }

        #[test]
        fn a_hostile_file_is_refused_or_harmless(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = file().map_err(|error| TestCaseError::fail(error.to_string()))?;
            bytes.truncate(bytes.len() - DIGEST);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
            bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
            if let Ok(index) = open(&bytes) {
                use_all(&index);
            }
        }
    }
}
