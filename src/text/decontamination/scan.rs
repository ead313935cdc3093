//! Finds the n-grams of an index in a document.

use std::ops::Range;

use twox_hash::XxHash3_64;

use super::hash::ngram_hashes;
use super::index::Index;
use super::prefilter;
use super::settings::Normalisation;
use super::tokens::{Tokens, for_each_token};

/// Approximate bytes of text per token, for the initial capacity of hashes.
const BYTES_PER_TOKEN: usize = 5;

/// An n-gram of the index at its place in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Number of the n-gram in the index.
    pub ngram: u32,
    /// Place in the text, in bytes.
    pub range: Range<usize>,
}

/// Hits of an index in a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    /// All n-grams of the index in the document, in the order of the text.
    pub hits: Vec<Hit>,
    /// Number of distinct n-grams of the document, of the lengths that were hit; 0 without hits.
    pub distinct_ngrams: usize,
}

impl Hits {
    /// Returns true if there are no hits.
    pub fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    /// Returns the distinct n-grams of the index that were hit, ascending.
    pub fn ngrams(&self) -> Vec<u32> {
        sorted_distinct(self.hits.iter().map(|hit| hit.ngram).collect())
    }

    /// Returns the places of the hits, in bytes and in order; overlapping ones are merged.
    pub fn spans(&self) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        for Hit { range, .. } in &self.hits {
            match spans.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => spans.push(range.clone()),
            }
        }
        spans
    }
}

fn sorted_distinct<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}

/// A text without the hyphens that break words at the ends of lines.
struct JoinedLines {
    text: String,
    /// For each break, its place in `text` and the bytes that are left out up to there.
    breaks: Vec<(usize, usize)>,
}

impl JoinedLines {
    /// Joins the words that hyphens break in `text`; `None` if there are none.
    fn join(text: &str) -> Option<Self> {
        let mut joined = Self { text: String::new(), breaks: Vec::new() };
        let mut kept = 0;
        for (at, _) in text.match_indices('\n') {
            // Without earlier lines, so that a text of empty lines takes linear time.
            let line = text[..at].trim_end_matches(|c: char| c.is_whitespace() && c != '\n');
            let Some(before) = line.strip_suffix(['-', '\u{2010}', '\u{AD}']) else { continue };
            let behind = text[at..].trim_start();
            let is_broken = before.ends_with(char::is_alphabetic)
                && behind.starts_with(char::is_alphabetic)
                && before.len() > kept;
            if is_broken {
                joined.text.push_str(&text[kept..before.len()]);
                kept = text.len() - behind.len();
                joined.breaks.push((joined.text.len(), kept - joined.text.len()));
            }
        }
        joined.text.push_str(&text[kept..]);
        (kept > 0).then_some(joined)
    }

    /// Returns the place in the document of `range` of the joined text, if a break is inside.
    fn place_across_a_break(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let before = self.breaks.partition_point(|(place, _)| *place <= range.start);
        let inside = self.breaks.partition_point(|(place, _)| *place < range.end);
        let left_out = |breaks: usize| breaks.checked_sub(1).map_or(0, |last| self.breaks[last].1);
        let place = range.start + left_out(before)..range.end + left_out(inside);
        (before < inside).then_some(place)
    }
}

impl Index {
    /// Searches a text in `language` (`deu_Latn`; empty if unknown) for n-grams in any language.
    /// Words that a hyphen breaks at the end of a line are searched for as they stand and joined,
    /// but not in the normal form of datatrove.
    pub fn scan(&self, text: &str, language: &str) -> Hits {
        let mut hits = self.scan_as_written(text, language);
        if self.header.settings.normalisation != Normalisation::Default {
            return hits;
        }
        let Some(joined) = JoinedLines::join(text) else { return hits };
        let found = self.scan_as_written(&joined.text, language);
        let before = hits.hits.len();
        // The other hits are in the text as it stands too.
        hits.hits.extend(found.hits.into_iter().filter_map(|hit| {
            let range = joined.place_across_a_break(&hit.range)?;
            Some(Hit { range, ..hit })
        }));
        if hits.hits.len() > before {
            hits.hits.sort_by_key(|hit| hit.range.start);
            hits.distinct_ngrams = hits.distinct_ngrams.max(found.distinct_ngrams);
        }
        hits
    }

    /// Searches a text without joining broken words; texts without a hit are tokenized only once.
    fn scan_as_written(&self, text: &str, language: &str) -> Hits {
        let mut tokens = Vec::with_capacity(text.len() / BYTES_PER_TOKEN);
        let hash = |token: &[u8], _| tokens.push(XxHash3_64::oneshot(token));
        for_each_token(&self.header.settings, language, text, hash);
        // One loop queries the filter for all n-grams, so that memory accesses overlap.
        let filter = self.filter_words();
        let is_candidate =
            |hash| prefilter::may_contain(filter, hash) && !self.ngrams_with_hash(hash).is_empty();
        let has_candidate = |n: &u32| ngram_hashes(&tokens, *n, self.hash_mask).any(is_candidate);
        let lengths: Vec<u32> = self.lengths.iter().copied().filter(has_candidate).collect();
        if lengths.is_empty() {
            return Hits::default();
        }
        self.compare(text, language, (&tokens, &lengths))
    }

    /// Finds the hits of n-grams with these lengths by comparing their tokens.
    fn compare(&self, text: &str, language: &str, (hashes, lengths): (&[u64], &[u32])) -> Hits {
        let (mut tokens, mut places) = (Tokens::default(), Vec::new());
        for_each_token(&self.header.settings, language, text, |token, place| {
            tokens.push(token);
            places.push(place);
        });
        let mut hits = Hits::default();
        for &n in lengths {
            let mut ngrams = Vec::with_capacity(hashes.len());
            let before = hits.hits.len();
            for (first, hash) in ngram_hashes(hashes, n, self.hash_mask).enumerate() {
                let end = first + n as usize;
                let ngram = tokens.bytes(first..end).trim_ascii_end();
                ngrams.push((hash, ngram));
                if !prefilter::may_contain(self.filter_words(), hash) {
                    continue;
                }
                if let Some(found) =
                    self.ngrams_with_hash(hash).find(|found| self.ngram_bytes(*found) == ngram)
                {
                    let range = places[first].start..places[end - 1].end;
                    hits.hits.push(Hit { ngram: found, range });
                }
            }
            if hits.hits.len() > before {
                hits.distinct_ngrams += sorted_distinct(ngrams).len();
            }
        }
        hits.hits.sort_by_key(|hit| hit.range.start);
        hits
    }

    /// Returns the tasks with one of these `ngrams`, ascending, as numbers in [`Index::tasks`].
    pub fn tasks_hit(&self, ngrams: &[u32]) -> Vec<usize> {
        let postings = ngrams.iter().flat_map(|ngram| self.postings(*ngram));
        sorted_distinct(postings.map(|posting| self.item(posting.item).task).collect())
    }

    /// Returns the numbers of the items with one of these distinct `ngrams`, ascending, each with
    /// the share of the item's tokens that are in one of them.
    pub fn items_hit(&self, ngrams: &[u32]) -> Vec<(u32, f64)> {
        let mut postings: Vec<_> = ngrams.iter().flat_map(|ngram| self.postings(*ngram)).collect();
        postings.sort_unstable();
        let of_items = postings.chunk_by(|a, b| a.item == b.item);
        of_items
            .map(|postings| {
                let item = self.item(postings[0].item);
                let (mut covered, mut end) = (0, 0);
                for posting in postings {
                    let next = posting.token + item.ngram;
                    covered += next - posting.token.max(end);
                    end = next;
                }
                (postings[0].item, f64::from(covered) / f64::from(item.tokens))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::build::{BenchmarkItem, IndexBuilder};
    use super::super::settings::IndexSettings;
    use super::*;
    use polysift_base::error::Error;

    /// Returns an index that compares hashes only in the bits of `hash_mask`.
    fn index(settings: &IndexSettings, items: &[String], hash_mask: u64) -> Result<Index, Error> {
        let mut builder = IndexBuilder::new(settings.clone())?;
        builder.hash_mask = hash_mask;
        for text in items {
            let item = BenchmarkItem { task: "task", question: text, ..BenchmarkItem::default() };
            _ = builder.add(&item);
        }
        let folder = tempfile::tempdir().map_err(Error::io("".as_ref(), "create"))?;
        let path = folder.path().join("benchmarks.idx");
        builder.build(BTreeMap::new(), &path)?;
        let mut index = Index::open(&path)?;
        index.hash_mask = hash_mask;
        Ok(index)
    }

    fn tokens(settings: &IndexSettings, text: &str) -> Vec<(String, Range<usize>)> {
        let mut tokens = Vec::new();
        for_each_token(settings, "", text, |token, range| {
            tokens.push((String::from_utf8_lossy(token).into_owned(), range));
        });
        tokens
    }

    fn texts() -> impl Strategy<Value = String> {
        let words: Vec<&str> = "a B c d É e. 1 2.5 don't 你 カ _ \u{301} ก ׳".split(' ').collect();
        let words = prop::collection::vec(prop::sample::select(words), 0..25);
        words.prop_map(|words| words.join(" "))
    }

    #[test]
    fn words_that_a_hyphen_breaks_are_found_joined_and_as_they_stand() -> Result<(), Error> {
        let settings = IndexSettings { ngram: 3, ngram_chars: 3, ..IndexSettings::default() };
        let items = ["the contamination of self".to_owned(), "one self regulation two".to_owned()];
        let index = index(&settings, &items, u64::MAX)?;
        let found = |text: &str| -> Vec<(String, String)> {
            let hits = index.scan(text, "eng_Latn").hits.into_iter();
            hits.map(|hit| (index.ngram_text(hit.ngram).to_owned(), text[hit.range].to_owned()))
                .collect()
        };
        let hit = |ngram: &str, place: &str| (ngram.to_owned(), place.to_owned());
        assert_eq!(
            found("é the contami-\r\n  nation of x"),
            [hit("the contamination of", "the contami-\r\n  nation of")]
        );
        for end in [" \n", "\u{A0}\r\n"] {
            assert_eq!(found(&format!("the contami-{end}nation of x")).len(), 1, "{end:?}");
        }
        // A hyphen of the word itself, as before.
        assert_eq!(
            found("one self-\nregulation x"),
            [hit("one self regulation", "one self-\nregulation")]
        );
        let twice = "the conta\u{AD}\nmination of se\u{2010}\nlf";
        assert_eq!(found(twice).len(), 2);
        // A hit on one side of a break is one hit.
        let beside = "the contamination of-\none self regulation-\nx";
        assert_eq!(found(beside).len(), 2);
        for text in ["the contami- nation of", "the contami -\nnation of", "the contami\nnation of"]
        {
            assert!(found(text).is_empty(), "{text}");
        }
        let parts = IndexSettings::default().parts;
        let published =
            IndexSettings { ngram: 3, ngram_chars: 3, parts, ..IndexSettings::datatrove() };
        let published = super::tests::index(&published, &items, u64::MAX)?;
        assert!(published.scan("the contami-\nnation of", "eng_Latn").is_empty());
        Ok(())
    }

    proptest! {
        #[test]
        fn what_is_hit_is_what_a_search_for_strings_finds(
            items in prop::collection::vec(texts(), 1..6),
            document in texts(),
            n in 1_u32..5,
            bits in prop::sample::select(vec![0_u32, 8, 64]),
            is_datatrove: bool,
        ) {
            let base =
                if is_datatrove { IndexSettings::datatrove() } else { IndexSettings::default() };
            let settings =
                IndexSettings { ngram: n, ngram_chars: n, parts: IndexSettings::default().parts, ..base };
            let n = n as usize;
            let of_items: Vec<Vec<String>> = items
                .iter()
                .map(|item| tokens(&settings, item).into_iter().map(|token| token.0).collect())
                .collect();
            let is_known = |ngram: &[String]| {
                of_items.iter().any(|item| item.windows(n).any(|known| known == ngram))
            };
            let words = tokens(&settings, &document);
            let mut distinct = Vec::new();
            let mut expected = Vec::new();
            for window in words.windows(n) {
                let ngram: Vec<String> = window.iter().map(|token| token.0.clone()).collect();
                if is_known(&ngram) {
                    let range = window[0].1.start..window[n - 1].1.end;
                    expected.push((ngram.join(" "), range));
                }
                distinct.push(ngram);
            }
            distinct.sort_unstable();
            distinct.dedup();
            let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            let index = match index(&settings, &items, mask) {
                Ok(index) => index,
                Err(error) => {
                    // No item has `n` tokens.
                    prop_assert!(matches!(error, Error::Config { .. }), "{error}");
                    prop_assert!(of_items.iter().all(|item| item.len() < n));
                    return Ok(());
                }
            };
            let hits = index.scan(&document, "");
            let found: Vec<(String, Range<usize>)> = hits
                .hits
                .iter()
                .map(|hit| (index.ngram_text(hit.ngram).to_owned(), hit.range.clone()))
                .collect();
            let distinct = if expected.is_empty() { 0 } else { distinct.len() };
            prop_assert_eq!(found, expected);
            prop_assert_eq!(hits.distinct_ngrams, distinct);
        }

        #[test]
        fn any_text_can_be_scanned(text: String, is_datatrove: bool) {
            let base =
                if is_datatrove { IndexSettings::datatrove() } else { IndexSettings::default() };
            let settings = IndexSettings { ngram: 1, ..base };
            let built = index(&settings, &["a b 0 é".to_owned()], u64::MAX);
            if let Ok(index) = built {
                let hits = index.scan(&text, "");
                super::super::cut::cut(&text, &hits);
                for span in hits.spans() {
                    prop_assert!(text.get(span).is_some());
                }
            }
        }
    }
}
