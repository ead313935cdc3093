//! Budgets: amounts of text as people write them, such as `70B`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::rate::written;

/// An amount of text above 0, in the unit of `selection.weight`: documents, bytes or tokens.
///
/// ```
/// let budget: polysift_config::Budget = "1.5M".parse()?;
/// assert_eq!(budget.0, 1_500_000);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Budget(pub u64);

impl FromStr for Budget {
    type Err = String;

    /// Parses a whole number, or a decimal with `k`, `M`, `B` or `T` for 10^3, 10^6, 10^9 or 10^12.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a budget; a number above 0 is needed, as in 500000, 1.5M or 70B"
            )
        };
        let (number, exponent) = [('k', 3), ('M', 6), ('B', 9), ('T', 12)]
            .into_iter()
            .find_map(|(suffix, exponent)| Some((text.strip_suffix(suffix)?, exponent)))
            .unwrap_or((text, 0));
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let is_decimal = whole.bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_decimal || decimals.len() > exponent {
            return Err(wrong());
        }
        let units = format!("{whole}{decimals:0<exponent$}").parse().ok();
        units.filter(|units| *units > 0).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, "a budget as 500000 or \"70B\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_exact_whole_numbers() {
        for (text, units) in [
            ("1", 1),
            ("500000", 500_000),
            ("12k", 12_000),
            ("1.5M", 1_500_000),
            ("70B", 70_000_000_000),
            ("0.000000000001T", 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Budget(units)), "{text}");
        }
        for text in
            ["", "0", "0k", "-1", "1.5", "1.2345k", ".5M", "70 B", "70b", "1e9", "99999999T"]
        {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
