//! Samples of a dataset: splits them, and writes its files and its card.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::{ClassSizes, DatasetCard};
use polysift_base::error::{Error, Result};
use polysift_base::io::{AtomicFile, unlink, write_json};
use polysift_base::sample::{Ranks, key_of, text_key};
use polysift_config::Mode;
use polysift_data::input::{InputFile, Split};
use polysift_heads::train::{hold_out, tenth};

const CARD: &str = "card.json";

/// Files of a dataset with their splits; a split without a file gets no samples.
type SplitFiles = &'static [(&'static str, Split)];

pub(super) const THREE_FILES: SplitFiles = &[
    ("train_80.jsonl", Split::Train),
    ("valid_10.jsonl", Split::Validation),
    ("test_10.jsonl", Split::Test),
];

pub(super) const TWO_FILES: SplitFiles =
    &[("train_90.jsonl", Split::Train), ("valid_10.jsonl", Split::Validation)];

/// A labelled text of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatasetSample {
    /// Unique within a dataset: the source and the sample's place in it.
    pub id: String,
    pub text: String,
    /// Folder of the source for a positive, `corpus` for a negative, file for a toxicity sample.
    pub source: String,
    /// Whether the sample is in the positive (toxic) class.
    pub positive: bool,
    /// Samples with equal keys are duplicates: a hash of the text, or in published mode, which
    /// keeps duplicates, of the place.
    pub key: u128,
    /// Samples of one group are always in the same split.
    pub group: u128,
    /// Whether the group exists in all languages and must be in the same split in each.
    pub is_translated: bool,
}

/// Returns the [`DatasetSample::key`] of `text`, which is in `row` of `file`.
pub(super) fn sample_key(mode: Mode, text: &str, file: &str, row: u64) -> u128 {
    match mode {
        Mode::Default => text_key(text),
        Mode::Published => key_of("place", &[file, &row.to_string()]),
    }
}

/// Refuses inputs that [`write_files`] would replace in `directory`.
pub(super) fn refuse_inputs(directory: &Path, files: &[InputFile]) -> Result<()> {
    let own: Vec<_> = (THREE_FILES.iter().chain(TWO_FILES))
        .filter_map(|(name, _)| directory.join(name).canonicalize().ok())
        .collect();
    let is_own = |file: &&InputFile| file.path.canonicalize().is_ok_and(|path| own.contains(&path));
    files.iter().find(is_own).map_or(Ok(()), |file| {
        Err(Error::config("--out", format!("would replace its input {}", file.path.display())))
    })
}

/// Splits `samples`, writes them below `directory` and completes the card, which is written last.
pub(super) fn write_files(
    directory: &Path,
    files: SplitFiles,
    [positive, negative]: [&str; 2],
    mut samples: Vec<DatasetSample>,
    card: &mut DatasetCard,
) -> Result<()> {
    // Files that another mode wrote are removed, so that no sample is in two splits. The card goes
    // first, because it marks a complete dataset.
    let names = THREE_FILES.iter().chain(TWO_FILES).map(|(name, _)| *name);
    [CARD].into_iter().chain(names).try_for_each(|name| unlink(&directory.join(name)))?;
    let order = Ranks::new(card.seed, "order");
    samples.sort_by_cached_key(|sample| (order.rank_of(sample.key), sample.id.clone()));
    let splits = assign_splits(card.seed, files, &samples);
    for &(name, split) in files {
        let path = directory.join(name);
        let (mut file, mut sizes) = (AtomicFile::create(&path)?, ClassSizes::default());
        for (sample, _) in samples.iter().zip(&splits).filter(|(_, own)| **own == split) {
            let label = if sample.positive { positive } else { negative };
            let DatasetSample { id, text, source, .. } = sample;
            let line = json!({"label": label, "text": text, "id": id, "source": source,
                              "split": split});
            writeln!(file, "{line}").map_err(Error::io(&path, "write"))?;
            *if sample.positive { &mut sizes.positive } else { &mut sizes.negative } += 1;
        }
        card.samples.insert(name.to_owned(), sizes);
        card.files.insert(name.to_owned(), file.commit()?);
    }
    for sample in &samples {
        if let Some(source) = card.sources.get_mut(&sample.source) {
            source.kept += 1;
        }
    }
    write_json(&directory.join(CARD), card).map(drop)
}

/// Returns the split of each sample; groups stay together.
///
/// The split of a group that exists in all languages depends only on its rank, since languages are
/// built separately. The other groups fill the held-out splits up to a tenth of each class, or of
/// all classes together without a test split.
fn assign_splits(seed: u64, files: SplitFiles, samples: &[DatasetSample]) -> Vec<Split> {
    let ranks = Ranks::new(seed, "split");
    let has_test = files.iter().any(|(_, split)| *split == Split::Test);
    let mut splits = vec![Split::Train; samples.len()];
    let classes: &[&[bool]] = if has_test { &[&[true], &[false]] } else { &[&[true, false]] };
    for class in classes {
        let mut groups: BTreeMap<u128, Vec<usize>> = BTreeMap::new();
        let (mut num_samples, mut validation, mut test) = (0, 0, 0);
        for (at, sample) in samples.iter().enumerate() {
            if !class.contains(&sample.positive) {
                continue;
            }
            num_samples += 1;
            let rank = ranks.rank_of(sample.group);
            if sample.is_translated {
                splits[at] = match rank / (u128::MAX / 10) {
                    0 => Split::Validation,
                    1 => Split::Test,
                    _ => Split::Train,
                };
                validation += usize::from(splits[at] == Split::Validation);
                test += usize::from(splits[at] == Split::Test);
            } else {
                groups.entry(rank).or_default().push(at);
            }
        }
        let sizes: Vec<usize> = groups.values().map(Vec::len).collect();
        let target = tenth(num_samples);
        let of_test = if has_test { target.saturating_sub(test) } else { 0 };
        let parts = hold_out(&sizes, target.saturating_sub(validation), of_test);
        for (group, part) in groups.into_values().zip(parts) {
            for at in group {
                splits[at] = part;
            }
        }
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<DatasetSample> {
        // Positives are in groups of one, two and three; negatives are alone.
        let group = |i: u128| {
            if i < 90 { i / 6 * 3 + [0, 1, 1, 2, 2, 2][i as usize % 6] } else { 1000 + i }
        };
        (0..180)
            .map(|i| DatasetSample {
                id: i.to_string(),
                text: String::new(),
                source: String::new(),
                positive: i < 90,
                key: i,
                group: group(i),
                is_translated: false,
            })
            .collect()
    }

    #[test]
    fn a_tenth_of_each_class_is_held_out_and_groups_stay_together() {
        let samples = samples();
        let splits = assign_splits(1, THREE_FILES, &samples);
        let size = |split, positive| {
            let rows = samples.iter().zip(&splits);
            rows.filter(|(s, own)| **own == split && s.positive == positive).count()
        };
        for positive in [true, false] {
            let sizes =
                [Split::Train, Split::Validation, Split::Test].map(|split| size(split, positive));
            assert_eq!(sizes, [72, 9, 9], "{positive}");
        }
        for (a, split) in samples.iter().zip(&splits) {
            let others = samples.iter().zip(&splits).filter(|(b, _)| b.group == a.group);
            assert!(others.into_iter().all(|(_, other)| other == split), "{}", a.group);
        }
    }

    #[test]
    fn a_translated_group_is_in_the_same_split_whatever_else_there_is() {
        let translated = |number: u128, others: u128| -> Vec<DatasetSample> {
            let mut all = samples();
            all.truncate(others as usize);
            for (i, sample) in (0..number).zip(&mut all) {
                (sample.group, sample.is_translated) = (5000 + i, true);
            }
            all
        };
        let (some, more) = (translated(60, 80), translated(60, 180));
        let (a, b) = (assign_splits(1, THREE_FILES, &some), assign_splits(1, THREE_FILES, &more));
        assert_eq!(a[..60], b[..60]);
        assert!([Split::Train, Split::Validation, Split::Test].iter().all(|s| a.contains(s)));
        // The other groups make up for splits that the ranks left too small.
        let held_out = |split| b[..90].iter().filter(|own| **own == split).count();
        assert_eq!((held_out(Split::Validation), held_out(Split::Test)), (9, 9));
    }

    #[test]
    fn without_a_test_file_there_is_no_test_split() {
        let splits = assign_splits(1, TWO_FILES, &samples());
        assert_eq!(splits.iter().filter(|s| **s == Split::Validation).count(), 18);
        assert!(!splits.contains(&Split::Test));
    }
}
