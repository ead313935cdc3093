//! Second pass: counts over scores and input texts that depend on the first pass.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::Comparison;
use super::counts::{ScoreDetails, ValueCounts, num_words};
use super::stored::StoredThresholds;
use super::survey::sampling_hash;
use polysift_base::error::{Error, Result};
use polysift_config::{FilterConfig, FilterWhen};
use polysift_corpus::rows::{Row, ShardRows};
use polysift_corpus::{Context, Texts};
use polysift_data::input::{ColumnKind, ColumnValues, InputFile};
use polysift_runs::run::{DocumentAmount, Shard};
use polysift_selection::{Bound, RankKey};
use polysift_text::robots::{Suffixes, locate, registrable_domain};

const URL: &str = "url";

pub(super) const MEASURES: [&str; 4] = ["words", "characters", "bytes", "tokens"];

/// What the second pass looks for in a language.
#[derive(Default)]
pub(super) struct Wanted {
    /// By head, the places in its order that its curve shows.
    pub(super) curves: Vec<BTreeSet<RankKey>>,
    /// By head, the places in its order up to which documents are counted, for curves and examples.
    pub(super) steps: Vec<Vec<RankKey>>,
    pub(super) examples: BTreeSet<u64>,
    /// By ordinal, the places of documents in the sample.
    pub(super) sample: BTreeMap<u64, usize>,
    /// Largest [`sampling_hash`] of a document that counts by domain.
    pub(super) located: u64,
    pub(super) characters: usize,
}

/// The documents between two places of an order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CurveStep {
    pub(super) totals: DocumentAmount,
    /// Key and score of the last of them.
    pub(super) last: Option<(RankKey, f32)>,
}

impl CurveStep {
    /// Adds documents of this step.
    pub(super) fn merge(&mut self, other: Self) {
        self.totals.add(other.totals);
        if other.last.map(|(key, _)| key) > self.last.map(|(key, _)| key) {
            self.last = other.last;
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct ExampleDetails {
    /// Folder of the export that holds the document.
    pub(super) fate: String,
    /// Filter that removes the document after the thresholds, whatever they decide.
    pub(super) filter: Option<String>,
    pub(super) text: Option<String>,
    pub(super) url: Option<String>,
}

/// What the second pass finds of a language.
#[derive(Clone, Default)]
pub(super) struct LanguageDetails {
    pub(super) scores: Vec<ScoreDetails>,
    /// By head, documents in the steps before, between and after the places of [`Wanted::steps`].
    pub(super) steps: Vec<Vec<CurveStep>>,
    pub(super) selected: Vec<DocumentAmount>,
    /// By threshold, the candidates with the logit of its boundary: those kept, and the others.
    pub(super) tied: Vec<[u64; 2]>,
    /// Lengths by measure, of all documents with text, then of each selection.
    pub(super) lengths: Vec<[ValueCounts; 4]>,
    /// By registrable domain, the number of documents, then the number in each selection.
    pub(super) domains: BTreeMap<String, Vec<u64>>,
    pub(super) examples: BTreeMap<u64, ExampleDetails>,
    pub(super) sample_domains: BTreeMap<u64, String>,
    /// Whether the input of some document was not read.
    pub(super) without_input: bool,
    pub(super) with_urls: bool,
    /// Number of documents kept here, with an id of the other set, and kept in both.
    pub(super) compared: [u64; 3],
}

impl LanguageDetails {
    /// Counts a document of `shard` with its input, and whether the other set has it if it is kept.
    pub(super) fn add(
        &mut self,
        (shard, document): (&ShardRows<'_>, &Row<'_>),
        (thresholds, wanted): (&StoredThresholds, &Wanted),
        input: &mut ShardInput<'_>,
        other: Option<&Comparison<'_>>,
    ) -> Result<()> {
        let (info, ordinal) = (&document.info, document.scored.ordinal);
        let ranked = thresholds.head_ranks(&document.scored);
        for (head, ranked) in ranked.iter().enumerate() {
            let Some((key, score)) = ranked else { continue };
            self.scores[head].add(*score);
            let place = wanted.steps[head].partition_point(|step| step <= key);
            let mut step = CurveStep { last: Some((*key, score.score)), ..CurveStep::default() };
            step.totals.add((*info).into());
            self.steps[head][place].merge(step);
        }
        let has_text = info.num_bytes > 0;
        let tied = &mut self.tied;
        let kept = thresholds.selections_of(&document.scored, |at, passes| {
            let placed = &thresholds.placed[at];
            let key = ranked.get(placed.head).copied().flatten().map(|(key, _)| key.logit);
            if let (Some(own), Bound::UpTo(edge) | Bound::Before(edge)) = (key, placed.bound)
                && own == edge.logit
            {
                tied[at][usize::from(!passes)] += 1;
            }
        });
        let kept = if has_text { kept } else { 0 };
        let is_in = |selection: usize| kept >> selection & 1 == 1;
        for (selection, totals) in self.selected.iter_mut().enumerate() {
            if is_in(selection) {
                totals.add((*info).into());
            }
        }
        let is_here = kept > 0 && shard.removed_by(document, FilterWhen::After).is_none();
        self.compared[0] += u64::from(is_here);
        let is_in_both =
            is_here && other.is_some_and(|other| other.take_pair(info.id, info.language));
        self.compared[2] += u64::from(is_in_both);
        let texts = input.texts.as_mut();
        let text = texts.map_or(Ok(None), |texts| texts.text(info.row, info.num_bytes))?;
        self.without_input |= input.texts.is_none();
        if has_text {
            let length = text.as_deref().map(|text| [num_words(text), text.chars().count() as u64]);
            let [words, characters] = length.map_or([None; 2], |length| length.map(Some));
            let lengths = [words, characters, Some(info.num_bytes), info.num_tokens];
            let groups = self.lengths.iter_mut().enumerate();
            for (_, counts) in groups.filter(|(group, _)| *group == 0 || is_in(*group - 1)) {
                for (counts, length) in counts.iter_mut().zip(lengths) {
                    if let Some(length) = length {
                        counts.add(length);
                    }
                }
            }
        }
        let is_example = wanted.examples.contains(&ordinal);
        let is_located = sampling_hash(info.id) <= wanted.located;
        let is_sampled = wanted.sample.contains_key(&ordinal);
        let is_wanted = is_example || is_located || is_sampled;
        let url = if is_wanted { input.read_url(info.row)? } else { None };
        self.with_urls |= input.urls.is_some();
        let domain = url.as_deref().filter(|_| is_located || is_sampled).and_then(domain_of);
        if let Some(domain) = domain.as_ref().filter(|_| is_sampled) {
            self.sample_domains.insert(ordinal, domain.clone());
        }
        if let Some(domain) = domain.filter(|_| is_located) {
            let counts =
                self.domains.entry(domain).or_insert_with(|| vec![0; self.selected.len() + 1]);
            counts[0] += 1;
            for (selection, count) in counts[1..].iter_mut().enumerate() {
                *count += u64::from(is_in(selection));
            }
        }
        if is_example {
            let text = text.map(|text| text.chars().take(wanted.characters).collect());
            let fate = shard.fate(document, &thresholds.selection).to_string();
            let filter = shard.removed_by(document, FilterWhen::After).map(str::to_owned);
            self.examples.insert(ordinal, ExampleDetails { fate, filter, text, url });
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.scores.iter_mut().zip(other.scores) {
            mine.merge(theirs);
        }
        let steps = self.steps.iter_mut().flatten().zip(other.steps.into_iter().flatten());
        steps.for_each(|(mine, theirs)| mine.merge(theirs));
        for (mine, theirs) in self.selected.iter_mut().zip(other.selected) {
            mine.add(theirs);
        }
        let tied = self.tied.iter_mut().flatten().zip(other.tied.into_iter().flatten());
        tied.for_each(|(mine, theirs)| *mine += theirs);
        let lengths = self.lengths.iter_mut().flatten().zip(other.lengths.into_iter().flatten());
        lengths.for_each(|(mine, theirs)| mine.merge(theirs));
        for (domain, counts) in other.domains {
            let mine = self.domains.entry(domain).or_insert_with(|| vec![0; counts.len()]);
            mine.iter_mut().zip(counts).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.examples.extend(other.examples);
        self.sample_domains.extend(other.sample_domains);
        self.without_input |= other.without_input;
        self.with_urls |= other.with_urls;
        self.compared.iter_mut().zip(other.compared).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Returns the registrable domain of a URL in Unicode, else its host; `None` if the URL is invalid.
pub(super) fn domain_of(url: &str) -> Option<String> {
    let host = locate(url).ok()?.authority.host;
    let domain = registrable_domain(&host, Suffixes::Icann).unwrap_or(&host);
    let (unicode, outcome) = idna::domain_to_unicode(domain);
    Some(outcome.map_or_else(|_| domain.to_owned(), |()| unicode))
}

/// Texts and URLs of a shard, read forwards.
pub(super) struct ShardInput<'a> {
    /// `None` if the input is not read.
    texts: Option<Texts<'a>>,
    /// `None` if the input has no URL column.
    urls: Option<ColumnValues<'a>>,
}

impl<'a> ShardInput<'a> {
    /// Opens the input `file` of `shard`; without a file there are neither texts nor URLs.
    pub(super) fn open(
        context: Context<'a>,
        shard: &'a Shard,
        file: Option<&'a InputFile>,
    ) -> Result<Self> {
        let Some(file) = file else { return Ok(Self { texts: None, urls: None }) };
        let config = context.config;
        let name = config.filters.values().find_map(FilterConfig::url_column).unwrap_or(URL);
        let urls = match ColumnValues::open(file, &config.input, name, ColumnKind::Text) {
            Err(Error::Schema { .. }) => None, // there is no such column
            opened => Some(opened?),
        };
        Ok(Self { texts: Some(Texts::open(context, shard)?), urls })
    }

    /// Returns the URL in `row`, `None` if it is not text; a column that is not is dropped.
    fn read_url(&mut self, row: u64) -> Result<Option<String>> {
        let Some(urls) = &mut self.urls else { return Ok(None) };
        match urls.value(row).map(|url| url.map(str::to_owned)) {
            Err(Error::Schema { .. }) => self.urls = None,
            Err(Error::Row { .. }) => {} // the value is not text
            found => return found,
        }
        Ok(None)
    }
}
