//! Decides how many copies of each document are taken: whole epochs of all, and for the rest of the
//! budget the documents of lowest hash.
//!
//! Documents that share a budget are a pool: a source, or a language of it with its own share. With
//! budget B and A tokens in an epoch, each document gets ⌊B / A⌋ times its copies. Copies then fill
//! B mod A in the order of the xxh3-64 of the ids, equal hashes by position, so that a pool exceeds
//! its budget by less than one document. All sums are integers, independent of the reading order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use rayon::prelude::*;
use serde::Serialize;
use twox_hash::XxHash3_64;

use super::config::{MixConfig, MixSource};
use super::copies::CopyRule;
use super::count::{CountedFile, CountedRow};
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::progress::{Progress, Stop};
use polysift_base::sample::hash_seed;
use polysift_data::input::InputFile;

/// Salt for the seed of the hash that chooses documents.
const SALT: &str = "mix";
/// Leading bits of a hash by which tokens are summed, to find the documents near a budget's end.
const BIN_BITS: u32 = 12;

pub(super) struct DrawnFile {
    pub(super) file: InputFile,
    /// Index of the file's source in the settings.
    pub(super) source: usize,
    pub language: String,
    pub(super) fingerprint: String,
    pub(super) counted: CountedFile,
}

/// Holds the settings of a mixture and the folders that it reads and writes.
pub struct MixRequest<'a> {
    /// Settings of the mixture.
    pub config: &'a MixConfig,
    /// Folder to which the paths of the settings are relative.
    pub base: &'a Path,
    /// Folder of the output.
    pub out: &'a Path,
    /// Settings of the hub that provides tokenizers.
    pub hub: &'a HubSettings,
    /// Signal to stop.
    pub stop: &'a Stop,
    /// Receiver of the progress.
    pub progress: &'a dyn Progress,
    /// True to remove what was mixed in the folder first, whatever its settings.
    pub redo: bool,
    /// True to count and draw without writing the mixture.
    pub dry_run: bool,
}

pub(super) struct MixCorpus<'a> {
    pub(super) request: &'a MixRequest<'a>,
    pub(super) rules: &'a [CopyRule],
    pub(super) files: &'a [DrawnFile],
}

/// Counts of a language of a source: its epoch, and the drawn documents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize)]
pub struct LanguageCounts {
    /// Number of documents within the limits of length.
    pub documents: u64,
    /// Tokens of an epoch: the sum over documents of tokens times copies.
    pub epoch_tokens: u64,
    /// Documents without a value in the column of weights or copies, which have one copy.
    pub without_copies: u64,
    /// Number of documents that were drawn at least once.
    pub drawn_documents: u64,
    /// Number of drawn copies, which are rows of the output.
    pub rows: u64,
    /// Number of tokens of the drawn copies.
    pub tokens: u64,
    /// `tokens` divided by `epoch_tokens`.
    pub epochs: f64,
}

/// What decides how often a document is drawn.
pub(super) struct Document {
    hash: u64,
    copies: u32,
    tokens: u32,
}

impl Document {
    fn epoch_tokens(&self) -> u64 {
        u64::from(self.tokens) * u64::from(self.copies)
    }

    /// Returns the number of its bin in [`Bins`].
    fn bin(&self) -> usize {
        (self.hash >> (u64::BITS - BIN_BITS)) as usize
    }
}

/// End of the rest of a budget: earlier documents get their copies once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RestEnd {
    /// Hash, file and row of the last document.
    last: (u64, usize, u64),
    copies: u64,
}

/// Documents that share a budget.
struct Pool {
    /// Number of whole epochs in the budget.
    whole: u64,
    /// Tokens of the budget that whole epochs leave.
    rest: u64,
    /// Bin in which the documents of the rest end, and the tokens before it.
    bin: (usize, u64),
    end: Option<RestEnd>,
}

/// Numbers of copies of all documents.
pub(super) struct Draw {
    pools: Vec<Pool>,
    pool_of: Vec<usize>,
    pub(super) budgets: Vec<u64>,
    /// Counts by source and language.
    pub(super) counts: BTreeMap<(usize, String), LanguageCounts>,
    /// Number of drawn copies by file.
    pub(super) rows: Vec<u64>,
    /// Approximate bytes of all drawn copies.
    pub(super) bytes: u128,
}

/// Tokens of the documents of an epoch by the first bits of their hashes.
struct Bins(Vec<u128>);

impl Default for Bins {
    fn default() -> Self {
        Self(vec![0; 1 << BIN_BITS])
    }
}

impl Bins {
    /// Returns the tokens of all bins; fails from 2^64 on.
    fn total(&self) -> Result<u64> {
        u64::try_from(self.0.iter().sum::<u128>()).map_err(|_| too_many_tokens())
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, tokens)| *own += tokens);
    }

    /// Returns the bin in which the sum reaches `target`, and the sum before it.
    fn reach(&self, target: u64) -> (usize, u64) {
        let mut before = 0;
        for (bin, &tokens) in self.0.iter().enumerate() {
            if before + tokens >= u128::from(target) {
                return (bin, before as u64);
            }
            before += tokens;
        }
        (self.0.len(), before as u64)
    }
}

/// Epochs by source and language.
type Groups = BTreeMap<(usize, String), (LanguageCounts, Bins)>;

impl MixCorpus<'_> {
    /// Counts all epochs, divides the budgets into pools, and decides where each pool ends. Fails
    /// if a budget exceeds the allowed epochs or has no tokens to draw.
    pub(super) fn draw(&self) -> Result<Draw> {
        let groups = self.count_epochs()?;
        let (mut pools, mut budgets, mut pool_of_group) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (place, source) in self.request.config.sources.iter().enumerate() {
            let own = groups.range((place, String::new())..(place + 1, String::new()));
            let own = own.map(|((_, code), (counts, _))| (code.as_str(), counts.epoch_tokens));
            let languages: Vec<(&str, u64)> = own.collect();
            let total: u128 = languages.iter().map(|(_, tokens)| u128::from(*tokens)).sum();
            let total = u64::try_from(total).map_err(|_| too_many_tokens())?;
            let empty = |of: &str| {
                let path = source.files.first().map_or("", String::as_str);
                Error::corrupt(path.as_ref(), format!("{of} has no tokens"))
            };
            let name = format!("the source `{}`", source.name);
            if total == 0 {
                return Err(empty(&name));
            }
            let budget = budget_of(self.request.config, source, total)?;
            for (languages, budget) in split_budget(source, &languages, budget)? {
                let mut bins = Bins::default();
                for &language in &languages {
                    let group = (place, language.to_owned());
                    if let Some((_, own)) = groups.get(&group) {
                        bins.add_all(own);
                    }
                    pool_of_group.insert(group, pools.len());
                }
                let epoch_tokens = bins.total()?;
                let of = match languages.as_slice() {
                    [language] => format!("{name} in {language}"),
                    _ => name.clone(),
                };
                if epoch_tokens == 0 && budget > 0 {
                    return Err(empty(&of));
                }
                let most = self.request.config.max_epochs;
                if u128::from(budget) > most.ceil_of(epoch_tokens) {
                    let epochs = budget as f64 / epoch_tokens as f64;
                    let reason = format!(
                        "{of} has {epoch_tokens} tokens, and {budget} would be {epochs} epochs; {most} are allowed"
                    );
                    return Err(Error::config("max_epochs", reason));
                }
                let whole = budget.checked_div(epoch_tokens).unwrap_or(0);
                let rest = budget.checked_rem(epoch_tokens).unwrap_or(0);
                pools.push(Pool { whole, rest, bin: bins.reach(rest), end: None });
            }
            budgets.push(budget);
        }
        let pool_of_file = |file: &DrawnFile| pool_of_group[&(file.source, file.language.clone())];
        let pool_of: Vec<usize> = self.files.iter().map(pool_of_file).collect();
        self.find_rest_ends(&mut pools, &pool_of)?;
        let counts = groups.into_iter().map(|(group, (counts, _))| (group, counts)).collect();
        let mut draw = Draw { pools, pool_of, budgets, counts, rows: Vec::new(), bytes: 0 };
        self.count_drawn(&mut draw)?;
        Ok(draw)
    }

    /// Calls `each` with the documents of the file at `place` that are within the limits; returns
    /// the tokens of all its documents.
    pub(super) fn for_each_document(
        &self,
        place: usize,
        mut each: impl FnMut(CountedRow<'_>, Document),
    ) -> Result<u64> {
        let DrawnFile { file, source, counted, .. } = &self.files[place];
        let MixSource { min_tokens, max_tokens, .. } = &self.request.config.sources[*source];
        let (least, end) = (min_tokens.unwrap_or(0), max_tokens.unwrap_or(u64::MAX));
        let seed = hash_seed(&[SALT], self.request.config.seed);
        let (mut all, mut bad): (u64, Option<(u64, String, u64)>) = (0, None);
        counted.for_each(self.request.stop, |row| {
            all = all.saturating_add(row.tokens.into());
            if !(least..end).contains(&u64::from(row.tokens)) {
                return Ok(());
            }
            match self.rules[*source].copies_for(row.value) {
                Ok(copies) => {
                    let hash = XxHash3_64::oneshot_with_seed(seed, row.id.as_bytes());
                    each(row, Document { hash, copies, tokens: row.tokens });
                }
                Err(reason) => bad.get_or_insert((row.row, reason, 0)).2 += 1,
            }
            Ok(())
        })?;
        bad.map_or(Ok(all), |(row, reason, count)| {
            Err(Error::Row { path: file.path.clone(), row: row + 1, reason, count })
        })
    }

    /// Returns what `work` makes of every file, in parallel, or the error of the first that fails.
    fn map_files<T: Send>(
        &self,
        work: impl Fn(usize) -> Result<T> + Send + Sync,
    ) -> Result<Vec<T>> {
        let done: Vec<Result<T>> = (0..self.files.len()).into_par_iter().map(work).collect();
        done.into_iter().collect()
    }

    /// Counts an epoch of every source and language.
    fn count_epochs(&self) -> Result<Groups> {
        let groups = Mutex::new(Groups::new());
        self.map_files(|place| {
            let DrawnFile { source, language, .. } = &self.files[place];
            let looks_at_copies = self.rules[*source].column().is_some();
            let (mut counts, mut bins) = <(LanguageCounts, Bins)>::default();
            self.for_each_document(place, |row, document| {
                counts.documents += 1;
                counts.without_copies += u64::from(row.value.is_none() && looks_at_copies);
                bins.0[document.bin()] += u128::from(document.epoch_tokens());
            })?;
            let mut groups = lock(&groups);
            let (all, all_bins) = groups.entry((*source, language.clone())).or_default();
            all.documents += counts.documents;
            all.without_copies += counts.without_copies;
            all_bins.add_all(&bins);
            Ok(())
        })?;
        let mut groups = unpoisoned(groups.into_inner());
        for (counts, bins) in groups.values_mut() {
            counts.epoch_tokens = bins.total()?;
        }
        Ok(groups)
    }

    /// Finds where the rest of each budget ends, from the documents in the bin of that end.
    fn find_rest_ends(&self, pools: &mut [Pool], pool_of: &[usize]) -> Result<()> {
        let near = self.map_files(|place| {
            let (mut own, pool) = (Vec::new(), &pools[pool_of[place]]);
            if pool.rest > 0 {
                self.for_each_document(place, |row, document| {
                    if document.bin() == pool.bin.0 {
                        own.push(((document.hash, place, row.row), document));
                    }
                })?;
            }
            Ok(own)
        })?;
        let mut near_of: Vec<Vec<_>> = pools.iter().map(|_| Vec::new()).collect();
        near.into_iter().zip(pool_of).for_each(|(own, &pool)| near_of[pool].extend(own));
        for (pool, near) in pools.iter_mut().zip(near_of).filter(|(pool, _)| pool.rest > 0) {
            pool.end = find_rest_end(near, pool.rest - pool.bin.1);
        }
        Ok(())
    }

    /// Adds the drawn documents, copies and tokens to the counts, and rows and bytes to `draw`.
    fn count_drawn(&self, draw: &mut Draw) -> Result<()> {
        let counted = self.map_files(|place| {
            let (mut documents, mut rows, mut tokens) = (0u64, 0u64, 0u64);
            let all = self.for_each_document(place, |row, document| {
                let copies = draw.copies(&document, place, row.row);
                documents += u64::from(copies > 0);
                rows = rows.saturating_add(copies);
                tokens = tokens.saturating_add(copies.saturating_mul(document.tokens.into()));
            })?;
            let counted = &self.files[place].counted;
            // Documents may be drawn by their length, so bytes follow tokens, not rows.
            let (part, whole) = if all == 0 { (rows, counted.num_rows) } else { (tokens, all) };
            let bytes = u128::from(counted.data_bytes) * u128::from(part);
            Ok((documents, rows, tokens, bytes / u128::from(whole.max(1))))
        })?;
        for (file, (documents, rows, tokens, bytes)) in self.files.iter().zip(counted) {
            let DrawnFile { source, language, .. } = file;
            draw.bytes += bytes;
            let counts = draw.counts.entry((*source, language.clone())).or_default();
            counts.drawn_documents += documents;
            counts.rows = counts.rows.saturating_add(rows);
            counts.tokens = counts.tokens.saturating_add(tokens);
            draw.rows.push(rows);
        }
        for counts in draw.counts.values_mut() {
            counts.epochs = counts.tokens as f64 / counts.epoch_tokens.max(1) as f64;
        }
        Ok(())
    }
}

impl Draw {
    /// Returns the copies of `document`, which is in `row` of the file at `file`.
    pub(super) fn copies(&self, document: &Document, file: usize, row: u64) -> u64 {
        let (pool, own) = (&self.pools[self.pool_of[file]], u64::from(document.copies));
        let rest = pool.end.map_or(0, |rest| match (document.hash, file, row).cmp(&rest.last) {
            std::cmp::Ordering::Less => own,
            std::cmp::Ordering::Equal => rest.copies,
            std::cmp::Ordering::Greater => 0,
        });
        pool.whole.saturating_mul(own).saturating_add(rest)
    }
}

fn too_many_tokens() -> Error {
    let reason = "there are more than 2^64 tokens; look at the columns of tokens and copies";
    Error::config("source", reason)
}

/// Returns the tokens requested from `source`, which has `total` in an epoch.
fn budget_of(config: &MixConfig, source: &MixSource, total: u64) -> Result<u64> {
    match (source.share, source.tokens, source.epochs) {
        (Some(share), ..) => Ok(share.ceil_of(config.tokens.map_or(0, |tokens| tokens.0))),
        (_, Some(tokens), _) => Ok(tokens.0),
        (.., epochs) => {
            u64::try_from(epochs.map_or(0, |e| e.ceil_of(total))).map_err(|_| too_many_tokens())
        }
    }
}

/// Divides the `budget` of `source` into pools of `languages`, which have tokens per epoch; returns
/// the languages and the tokens of each pool.
fn split_budget<'l>(
    source: &MixSource,
    languages: &[(&'l str, u64)],
    budget: u64,
) -> Result<Vec<(Vec<&'l str>, u64)>> {
    let named = &source.languages;
    if let Some(code) = named.keys().find(|code| languages.iter().all(|(own, _)| own != code)) {
        return Err(source.wrong("languages", format!("there are no documents of `{code}`")));
    }
    if let Some(power) = source.temperature {
        // libm's functions give equal results on all machines.
        let size = |tokens: u64| if tokens == 0 { 0.0 } else { libm::pow(tokens as f64, power) };
        let total: f64 = languages.iter().map(|(_, tokens)| size(*tokens)).sum();
        let share = |tokens: u64| (budget as f64 * (size(tokens) / total)).round() as u64;
        return Ok(languages.iter().map(|&(code, own)| (vec![code], share(own))).collect());
    }
    let others = languages.iter().filter(|(code, _)| !named.contains_key(*code));
    let other = others.clone().find(|(_, tokens)| *tokens > 0).map(|(code, _)| *code);
    let others: Vec<&str> = others.map(|(code, _)| *code).collect();
    let mut pools = Vec::new();
    for &(code, _) in languages {
        pools.extend(named.get(code).map(|share| (vec![code], share.ceil_of(budget))));
    }
    match (source.share_left(), other) {
        (Some(left), Some(_)) => pools.push((others, left.ceil_of(budget))),
        (None, Some(other)) => {
            let reason = format!("the shares leave nothing for `{other}`, which has documents");
            return Err(source.wrong("languages", reason));
        }
        (Some(_), None) => {
            let reason = "add up to less than 1, and no other language has tokens to draw";
            return Err(source.wrong("languages", reason));
        }
        (None, None) if others.is_empty() => {}
        (None, None) => pools.push((others, 0)),
    }
    Ok(pools)
}

/// Finds the document, in order of hash, file and row, with which `near` reaches `rest` tokens, and
/// how many of its copies that takes; `None` if all are too few. `rest` is without earlier bins.
fn find_rest_end(mut near: Vec<((u64, usize, u64), Document)>, mut rest: u64) -> Option<RestEnd> {
    near.sort_unstable_by_key(|(order, _)| *order);
    for (last, document) in near {
        let tokens = document.epoch_tokens();
        if tokens >= rest {
            return Some(RestEnd { last, copies: rest.div_ceil(document.tokens.into()) });
        }
        rest -= tokens;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Epochs;

    fn documents(seed: u64, tokens: u32) -> Vec<((u64, usize, u64), Document)> {
        let document = |i: u64| {
            let hash = XxHash3_64::oneshot_with_seed(seed, format!("doc-{i}").as_bytes());
            ((hash, 0, i), Document { hash, copies: 1, tokens })
        };
        (0..1000).map(document).collect()
    }

    /// The copies come from tests/golden/mix.py, which uses xxhash for Python, with both salts.
    #[test]
    fn epochs_are_met_to_the_document() -> Result<(), String> {
        let epochs: Epochs = "2.37".parse()?;
        for (salt, first) in [("sample", [2, 2, 3, 2, 2]), (SALT, [2, 3, 2, 2, 2])] {
            for tokens in [1, 7] {
                let seed = hash_seed(&[salt], 42);
                let budget = epochs.ceil_of(1000 * u64::from(tokens)) as u64;
                let (whole, rest) =
                    (budget / (1000 * u64::from(tokens)), budget % (1000 * u64::from(tokens)));
                let end = find_rest_end(documents(seed, tokens), rest);
                let (budgets, rows, counts) = (Vec::new(), Vec::new(), BTreeMap::new());
                let (pools, pool_of) = (vec![Pool { whole, rest, bin: (0, 0), end }], vec![0]);
                let draw = Draw { pools, pool_of, budgets, counts, rows, bytes: 0 };
                let copies = |(order, document): &((u64, usize, u64), Document)| {
                    draw.copies(document, order.1, order.2)
                };
                let copies: Vec<u64> = documents(seed, tokens).iter().map(copies).collect();
                assert_eq!(copies.iter().sum::<u64>(), 2370);
                assert_eq!(copies[..5], first, "{salt}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_last_document_gets_as_many_of_its_copies_as_are_needed() {
        let document =
            |hash: u64, tokens, copies| ((hash, 0, hash), Document { hash, copies, tokens });
        let near = || vec![document(3, 10, 5), document(1, 4, 2), document(2, 0, 3)];
        let end = |rest| find_rest_end(near(), rest).map(|end| (end.last.0, end.copies));
        assert_eq!(end(1), Some((1, 1)));
        assert_eq!(end(8), Some((1, 2)));
        assert_eq!(end(9), Some((3, 1)));
        assert_eq!(end(38), Some((3, 3)));
        assert_eq!(end(58), Some((3, 5)));
        assert_eq!(end(59), None);
    }

    fn source(settings: &str) -> Result<MixSource> {
        let text = format!("count = 'bytes'\n[[source]]\nfiles = ['x']\ntokens = 1000\n{settings}");
        Ok(MixConfig::from_toml(&text, "mix.toml")?.sources.remove(0))
    }

    #[test]
    fn languages_have_their_shares() -> Result<()> {
        let languages = [("ces", 100), ("deu", 400), ("fra", 900)];
        let of = |settings: &str| split_budget(&source(settings)?, &languages, 1000);
        assert_eq!(of("")?, [(vec!["ces", "deu", "fra"], 1000)]);
        // The square roots are 10, 20 and 30: a sixth, a third, a half.
        let alone =
            |ces, deu, fra| vec![(vec!["ces"], ces), (vec!["deu"], deu), (vec!["fra"], fra)];
        assert_eq!(of("temperature = 0.5")?, alone(167, 333, 500));
        assert_eq!(of("temperature = 0")?, alone(333, 333, 333));
        // The shares are 71.4, 285.7 and 642.9.
        assert_eq!(of("temperature = 1")?, alone(71, 286, 643));
        let named = of("languages = { deu = 0.2 }")?;
        assert_eq!(named, [(vec!["deu"], 200), (vec!["ces", "fra"], 800)]);
        let all = of("languages = { deu = 0.2, fra = 0.7, ces = 0.1 }")?;
        assert_eq!(all, alone(100, 200, 700));
        for (wrong, reason) in [
            ("{ swe = 0.1 }", "no documents of `swe`"),
            ("{ deu = 1 }", "nothing for `ces`"),
            ("{ deu = 0.1, fra = 0.1, ces = 0.1 }", "add up to less than 1"),
        ] {
            let error = of(&format!("languages = {wrong}")).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.contains(reason)), "{wrong}: {error:?}");
        }
        Ok(())
    }
}
