//! Exact amounts: rates, so that `ceil(rate · n)` equals the result by hand, and budgets.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

/// Maximum number of decimal places of a [`Rate`].
pub const MAX_DECIMALS: usize = 12;

/// A rate in (0, 1], exact: 0.1 is one tenth, not the nearest binary fraction. So `ceil_of(30)` of
/// it is 3, though `0.1 * 30.0` is 3.0000000000000004 in f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// The rate in units of 10^-[`MAX_DECIMALS`].
    units: u64,
}

impl Rate {
    /// The units of the rate 1.
    pub const ONE: u64 = 10u64.pow(MAX_DECIMALS as u32);

    /// Returns the rate of `units` of 10^-[`MAX_DECIMALS`]; `None` if it is 0 or above 1.
    pub fn of_units(units: u64) -> Option<Self> {
        (1..=Self::ONE).contains(&units).then_some(Self { units })
    }

    /// Returns the rate in units of 10^-[`MAX_DECIMALS`].
    pub fn units(self) -> u64 {
        self.units
    }

    /// Returns ceil(rate · `total`), computed exactly.
    pub fn ceil_of(self, total: u64) -> u64 {
        // total < 2^64 and units <= 10^12, so the product fits u128 and the quotient is <= total.
        (u128::from(self.units) * u128::from(total)).div_ceil(u128::from(Self::ONE)) as u64
    }

    /// Returns the nearest f64.
    pub fn as_f64(self) -> f64 {
        self.units as f64 / Self::ONE as f64
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses a decimal (`0.1`) or a percentage (`10%`).
    fn from_str(text: &str) -> Result<Self, String> {
        let percentage = text.strip_suffix('%').map(|number| parse_units(number, MAX_DECIMALS - 2));
        let units = percentage.unwrap_or_else(|| parse_units(text, MAX_DECIMALS));
        let needed = "a decimal above 0 and at most 1, or a percentage such as 10%, is needed";
        let wrong = || format!("`{text}` is not a rate; {needed}");
        units.and_then(Self::of_units).ok_or_else(wrong)
    }
}

/// Parses a decimal without sign into units of 10^-`places`; `None` for more places or other text.
pub fn parse_units(decimal: &str, places: usize) -> Option<u64> {
    let (whole, decimals) = decimal.split_once('.').unwrap_or((decimal, ""));
    let has_digits = whole.bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit());
    let units =
        (has_digits && decimals.len() <= places).then(|| format!("{whole}{decimals:0<places$}"));
    units?.parse().ok()
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest decimal that parses to the nearest f64 is the rate itself.
        fmt::Display::fmt(&self.as_f64(), f)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "a rate above 0 and at most 1, such as 0.1 or \"10%\",")
    }
}

/// An amount of text above 0, in the unit of `selection.weight`: documents, bytes or tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Budget(pub u64);

impl FromStr for Budget {
    type Err = String;

    /// Parses a whole number, or a decimal with `k`, `M`, `B` or `T` for 10^3, 10^6, 10^9 or 10^12.
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, exponent) = [('k', 3), ('M', 6), ('B', 9), ('T', 12)]
            .into_iter()
            .find_map(|(suffix, exponent)| Some((text.strip_suffix(suffix)?, exponent)))
            .unwrap_or((text, 0));
        // TOML and the files of a run hold whole numbers up to i64::MAX.
        let units =
            parse_units(number, exponent).filter(|units| (1..=i64::MAX as u64).contains(units));
        let needed = "a number above 0 is needed (below 2^63), as in 500000, 1.5M or 70B";
        let wrong = || format!("`{text}` is not a budget; {needed}");
        units.filter(|_| !number.starts_with('.')).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "a budget as 500000 or \"70B\"")
    }
}

/// Makes types be read and written as the text that they parse and display.
macro_rules! as_text {
    ($($of:ty),+) => { $(
        impl serde::Serialize for $of {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $of {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+ };
}
pub(super) use as_text;

/// Reads a number, or text, and parses it as text; `needed` says in errors what is allowed.
pub fn number_or_text<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    deserializer: D,
    needed: &str,
) -> Result<T, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Integer(number) => number.to_string(),
        // The shortest decimal that parses to the number is what the user wrote.
        Value::Float(number) => number.to_string(),
        other => return Err(D::Error::custom(format!("is {other}; {needed} is needed"))),
    };
    text.parse().map_err(D::Error::custom)
}

/// Reads one value or a list of values, which must not be empty.
pub(super) fn one_or_many<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = match Value::deserialize(deserializer)? {
        Value::Array(all) if all.is_empty() => return Err(D::Error::custom("is an empty list")),
        Value::Array(values) => values,
        one => vec![one],
    };
    let values = values.into_iter().map(Value::try_into);
    values.collect::<Result<_, _>>().map_err(|e| D::Error::custom(e.message()))
}

/// Reads rates by head, as in `{ quality = [0.1, 0.33] }`; a single rate is a list of one.
pub(super) fn rates_by_head<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Vec<Rate>>>, D::Error> {
    #[derive(Deserialize)]
    struct Rates(#[serde(deserialize_with = "one_or_many")] Vec<Rate>);

    let by_head = Option::<BTreeMap<String, Rates>>::deserialize(deserializer)?;
    Ok(by_head.map(|heads| heads.into_iter().map(|(head, Rates(own))| (head, own)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceil_is_exact_where_f64_is_not() -> Result<(), String> {
        for (rate, total, expected) in
            [("0.1", 30, 3), ("0.07", 100, 7), ("0.1", 31, 4), ("1", 7, 7), ("0.05", 0, 0)]
        {
            assert_eq!(rate.parse::<Rate>()?.ceil_of(total), expected, "{rate} of {total}");
        }
        assert_eq!("1".parse::<Rate>()?.ceil_of(u64::MAX), u64::MAX);
        Ok(())
    }

    #[test]
    fn only_rates_above_zero_and_up_to_one_are_accepted() {
        for text in [
            "0",
            "0.0",
            "1.1",
            "-0.1",
            "",
            ".",
            "1e-3",
            "0.1234567890123",
            "0%",
            "101%",
            "%",
            "1%%",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentage_is_a_hundredth_of_the_decimal() -> Result<(), String> {
        for (percentage, decimal) in
            [("10%", "0.1"), ("0.5%", "0.005"), ("100%", "1"), ("33.3333333333%", "0.333333333333")]
        {
            assert_eq!(percentage.parse::<Rate>()?, decimal.parse()?, "{percentage}");
        }
        Ok(())
    }

    #[test]
    fn displays_as_written() -> Result<(), String> {
        for text in ["0.1", "1", "0.095", "0.000001"] {
            assert_eq!(text.parse::<Rate>()?.to_string(), text);
        }
        Ok(())
    }

    #[test]
    fn budgets_are_exact_whole_numbers() {
        for (text, units) in [
            ("1", 1),
            ("500000", 500_000),
            ("12k", 12_000),
            ("1.5M", 1_500_000),
            ("70B", 70_000_000_000),
            ("0.000000000001T", 1),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(text.parse(), Ok(Budget(units)), "{text}");
        }
        for text in ["", "0", "0k", "-1", "1.5", "1.2345k", ".5M", "70 B", "70b", "1e9", "9300000T"]
        {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
