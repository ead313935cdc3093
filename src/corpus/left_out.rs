//! Sets of the rows of a shard that filters remove and that a cascade drops or audits.

use polysift_config::FilterAction;
use polysift_data::parts::VerdictRows;

/// Rows of a shard, with a bit for each.
#[derive(Debug, Default)]
pub struct RowSet {
    first: u64,
    bits: Vec<u64>,
}

impl RowSet {
    /// Makes the set of the rows that filters remove; only filters whose names are `chosen` count.
    pub fn removed(verdicts: &VerdictRows, chosen: impl Fn(&str) -> bool) -> Self {
        let mut removed = Self::default();
        for (&row, found) in verdicts.documents.rows().iter().zip(&verdicts.found) {
            if found.action == FilterAction::Remove && chosen(&found.filter) {
                removed.push(row);
            }
        }
        removed
    }

    /// Adds `row`, which no row of the set follows.
    pub(crate) fn push(&mut self, row: u64) {
        if self.bits.is_empty() {
            self.first = row;
        }
        let at = row - self.first;
        let word = (at / 64) as usize;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (at % 64);
    }

    /// Returns true without rows.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns true if `row` is in the set.
    #[inline]
    pub fn contains(&self, row: u64) -> bool {
        let at = row.wrapping_sub(self.first);
        let word = self.bits.get((at / 64) as usize);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// Rows of a shard that thresholds leave out or weigh differently.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Rows that filters remove; the reader of their verdicts sets it.
    pub removed: RowSet,
    /// Rows of documents that the cascade dropped: they are not encoded.
    pub dropped: RowSet,
    /// Rows that the cascade would drop but the audit has encoded, ascending, with their margins.
    pub(crate) audited: Vec<(u64, f32)>,
    /// Number of dropped documents that an audited document stands for.
    pub(crate) audit_every: u64,
}

impl LeftOut {
    /// Returns true if the thresholds are computed over `row`.
    #[inline]
    pub fn counts(&self, row: u64) -> bool {
        !self.removed.contains(row) && !self.dropped.contains(row)
    }

    /// Returns the margin of `row` if it is encoded for the audit.
    pub(crate) fn audited_margin(&self, row: u64) -> Option<f32> {
        let at = self.audited.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        Some(self.audited[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_rows_contains_exactly_its_rows(
            rows in proptest::collection::btree_set(0u64..500, 0..60),
            first in 0u64..1 << 40,
        ) {
            let rows: Vec<u64> = rows.into_iter().map(|row| first + row).collect();
            let mut set = RowSet::default();
            for row in rows.iter().flat_map(|row| [*row, *row]) {
                set.push(row);
            }
            prop_assert_eq!(set.is_empty(), rows.is_empty());
            prop_assert_eq!(set.count(), rows.len() as u64);
            for row in first.saturating_sub(100)..first + 700 {
                prop_assert_eq!(set.contains(row), rows.contains(&row), "{}", row);
            }
        }
    }
}
