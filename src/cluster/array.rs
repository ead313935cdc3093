//! Array expressions as Slurm writes them: `0-3,7,9-12`.

use crate::error::{Error, Result};

/// Largest number of ids that an expression may stand for; Slurm's own limit is 4,000,001 tasks.
const MAX_IDS: usize = 4_000_001;

/// The expression of `ids`, each once and in order; empty for none.
///
/// ```
/// assert_eq!(polysift::cluster::array_expression(&[7, 0, 1, 2, 3, 9, 10]), "0-3,7,9-10");
/// ```
pub fn array_expression(ids: &[u32]) -> String {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .filter_map(|run| match run {
            [] => None,
            [one] => Some(one.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        })
        .collect();
    texts.join(",")
}

/// The ids of an expression, each once and in order; `name` is the flag in [`Error::Config`].
///
/// Steps (`0-9:3`) and a limit (`%4`) are not part of it. Text without an id is refused.
///
/// ```
/// assert_eq!(polysift::cluster::array_ids("--array", "9,0-2")?, [0, 1, 2, 9]);
/// # Ok::<(), polysift::Error>(())
/// ```
pub fn array_ids(name: &str, expression: &str) -> Result<Vec<u32>> {
    let wrong = |part: &str| {
        Error::config(name, format!("`{part}` is neither a number nor a range such as 7-9"))
    };
    let mut ids = Vec::new();
    for part in expression.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| wrong(part))?;
        let last: u32 = last.trim().parse().map_err(|_| wrong(part))?;
        if first > last {
            return Err(wrong(part));
        }
        if ids.len() as u64 + u64::from(last - first) >= MAX_IDS as u64 {
            return Err(Error::config(name, format!("stands for more than {MAX_IDS} tasks")));
        }
        ids.extend(first..=last);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_become_ranges_and_single_ids_stay_alone() {
        assert_eq!(array_expression(&[]), "");
        assert_eq!(array_expression(&[5]), "5");
        assert_eq!(array_expression(&[0, 1, 2, 3, 7, 9, 10, 11, 12]), "0-3,7,9-12");
        assert_eq!(array_expression(&[u32::MAX, 3, u32::MAX - 1, 3]), "3,4294967294-4294967295");
    }

    #[test]
    fn what_is_no_expression_is_refused_with_the_part() {
        for (text, part) in [
            ("", "``"),
            ("1,,2", "``"),
            ("3-1", "`3-1`"),
            ("a", "`a`"),
            ("1-", "`1-`"),
            ("0-9:3", "`0-9:3`"),
            ("0-3%2", "`0-3%2`"),
        ] {
            let refused = array_ids("--array", text).map_err(|e| (e.exit_code(), e.to_string()));
            assert!(refused.is_err_and(|(code, t)| code == 2 && t.contains(part)), "{text}");
        }
        assert!(array_ids("--array", "0-4294967295").is_err(), "not taken into memory");
    }

    proptest! {
        #[test]
        fn an_expression_stands_for_the_ids_that_it_was_made_of(
            ids in proptest::collection::btree_set(0u32..200, 1..100)
        ) {
            let ids: Vec<u32> = ids.into_iter().collect();
            let back = array_ids("--array", &array_expression(&ids));
            prop_assert_eq!(back.ok(), Some(ids));
        }
    }
}
