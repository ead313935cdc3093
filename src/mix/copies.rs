//! Copies of a document in one epoch: the value of a column or a function of it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::config::{Copies, MixSource};
use polysift_base::error::{Error, Result};
use polysift_base::io::read_json;

/// Copies by minimum cluster size, from FineWeb-2's data card; larger sizes have the last's copies.
const CARD: [(u64, u32); 6] = [(1, 1), (2, 2), (3, 3), (5, 5), (100, 8), (1000, 1)];
/// Maximum copies of a document, so that a wrong column is noticed before the disk is full.
const MAX_COPIES: u32 = 10_000;

/// Rule for the copies of a document in one epoch of a source. The plan has it with the content of
/// a file of weights instead of its path.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum CopyRule {
    /// One copy.
    One,
    /// The number in the column.
    Number { column: String },
    /// The copies of the largest step that is not above the number in the column; else one.
    Steps { column: String, steps: BTreeMap<u64, u32> },
    /// The copies listed for the value in the column.
    Values { column: String, values: BTreeMap<String, u32> },
}

impl CopyRule {
    /// Makes the rule of `source`, and reads its file of weights, which is below `base`.
    pub(super) fn load(source: &MixSource, base: &Path) -> Result<Self> {
        Ok(match (&source.copies, &source.weight) {
            (None, None) => Self::One,
            (None, Some(weight)) => {
                let (column, values) = (weight.column.clone(), weight.values.clone());
                let wrong = values.iter().find(|(_, copies)| **copies > MAX_COPIES);
                if let Some((value, copies)) = wrong {
                    let reason =
                        format!("`{value}` asks for {copies} copies; {MAX_COPIES} are allowed");
                    return Err(Error::config("source.weight.values", reason));
                }
                Self::Values { column, values }
            }
            (Some(Copies::Column(column)), _) => Self::Number { column: column.clone() },
            (Some(Copies::ClusterSize { by, weights }), _) => {
                let path = base.join(weights);
                let steps: BTreeMap<u64, u32> = if weights == "card" {
                    CARD.into_iter().collect()
                } else {
                    let format = "a map from cluster sizes to copies, as in {\"1\": 1}";
                    let missing = || Error::missing(&path, "no such file of weights");
                    read_json(&path, format)?.ok_or_else(missing)?
                };
                if let Some(copies) = steps.values().find(|copies| **copies > MAX_COPIES) {
                    let reason = format!("asks for {copies} copies; {MAX_COPIES} are allowed");
                    return Err(Error::corrupt(&path, reason));
                }
                Self::Steps { column: by.clone(), steps }
            }
        })
    }

    /// Returns the column that the copies depend on, if there is one.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Self::One => None,
            Self::Number { column } | Self::Steps { column, .. } | Self::Values { column, .. } => {
                Some(column)
            }
        }
    }

    /// Returns the copies for a `value` of the column, one for null, or what is wrong with it.
    pub(crate) fn copies_for(&self, value: Option<&str>) -> Result<u32, String> {
        let Some(value) = value else { return Ok(1) };
        let number = |column: &str| {
            parse_whole(value).ok_or_else(|| format!("`{column}` is {value}, not a whole number"))
        };
        match self {
            Self::One => Ok(1),
            Self::Number { column } => {
                let copies = number(column)?;
                let many =
                    || format!("`{column}` is {copies}; at most {MAX_COPIES} copies are made");
                u32::try_from(copies).ok().filter(|copies| *copies <= MAX_COPIES).ok_or_else(many)
            }
            Self::Steps { column, steps } => {
                let step = steps.range(..=number(column)?).next_back();
                Ok(step.map_or(1, |(_, copies)| *copies).max(1))
            }
            Self::Values { column, values } => {
                let bits = |text: &str| text.parse::<f64>().ok().map(f64::to_bits);
                let number = bits(value);
                let is_equal = |(key, _): &(&String, _)| number.is_some() && bits(key) == number;
                let equal = || values.iter().find(is_equal).map(|(_, copies)| copies);
                values.get(value).or_else(equal).copied().ok_or_else(|| {
                    format!("`{column}` is {value}, which `weight.values` does not name")
                })
            }
        }
    }
}

/// Parses a whole number, also in pandas' form for columns with nulls: `3.0`.
pub(super) fn parse_whole(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    whole.parse().ok().filter(|_| decimals.bytes().all(|byte| byte == b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters(steps: impl IntoIterator<Item = (u64, u32)>) -> CopyRule {
        CopyRule::Steps { column: "size".into(), steps: steps.into_iter().collect() }
    }

    /// Sizes and copies are those of FineWeb-2's card.
    #[test]
    fn clusters_have_the_copies_of_the_card() -> Result<(), String> {
        let rule = clusters(CARD);
        for (sizes, copies) in
            [(1..=1, 1), (2..=2, 2), (3..=4, 3), (5..=99, 5), (100..=999, 8), (1000..=5000, 1)]
        {
            for size in sizes {
                assert_eq!(rule.copies_for(Some(&size.to_string()))?, copies, "{size}");
            }
        }
        assert_eq!(rule.copies_for(Some("3.0"))?, 3);
        assert_eq!(rule.copies_for(None)?, 1);
        assert!(rule.copies_for(Some("many")).is_err());
        Ok(())
    }

    #[test]
    fn sizes_above_the_last_take_its_copies_and_none_counts_as_one() -> Result<(), String> {
        let rule = clusters([(2, 7), (76, 0), (122, 3)]);
        let of = |size: &str| rule.copies_for(Some(size));
        assert_eq!((of("1")?, of("2")?, of("75")?), (1, 7, 7));
        assert_eq!((of("76")?, of("121")?), (1, 1));
        assert_eq!((of("122")?, of("18446744073709551615")?), (3, 3));
        Ok(())
    }

    #[test]
    fn values_are_looked_up_as_numbers_too() -> Result<(), String> {
        let values = [("0.10".to_owned(), 2), ("web".to_owned(), 0)].into();
        let rule = CopyRule::Values { column: "rate".into(), values };
        assert_eq!(
            (rule.copies_for(Some("0.1"))?, rule.copies_for(Some("web"))?, rule.copies_for(None)?),
            (2, 0, 1)
        );
        assert!(rule.copies_for(Some("0.33")).is_err_and(|reason| reason.contains("0.33")));
        Ok(())
    }

    #[test]
    fn a_column_of_copies_is_bounded() {
        let rule = CopyRule::Number { column: "copies".into() };
        assert_eq!((rule.copies_for(Some("0")), rule.copies_for(Some("12"))), (Ok(0), Ok(12)));
        for wrong in ["10001", "-1", "1.5", "x"] {
            assert!(rule.copies_for(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
