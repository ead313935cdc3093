//! Rates as exact decimal fractions, so that `ceil(rate · n)` equals the result by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

/// Maximum number of decimal places of a [`Rate`].
const MAX_DECIMALS: u32 = 12;

/// A rate in (0, 1], exact: 0.1 is one tenth, not the nearest binary fraction.
///
/// ```
/// let rate: polysift_config::Rate = "0.1".parse()?;
/// assert_eq!(rate.ceil_of(30), 3); // 0.1 * 30.0 is 3.0000000000000004 in f64
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// The rate in units of 10^-[`MAX_DECIMALS`].
    units: u64,
}

impl Rate {
    const ONE: u64 = 10u64.pow(MAX_DECIMALS);

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

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a rate; a decimal above 0 and at most 1 is needed");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        if decimals.len() > MAX_DECIMALS as usize
            || !whole.bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit())
        {
            return Err(wrong());
        }
        let padded = format!("{whole}{decimals:0<width$}", width = MAX_DECIMALS as usize);
        let units: u64 = padded.parse().map_err(|_| wrong())?;
        if units == 0 || units > Self::ONE { Err(wrong()) } else { Ok(Self { units }) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:0width$}", self.units % Self::ONE, width = MAX_DECIMALS as usize);
        let decimals = decimals.trim_end_matches('0');
        let whole = self.units / Self::ONE;
        if decimals.is_empty() { write!(f, "{whole}") } else { write!(f, "{whole}.{decimals}") }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, "a rate above 0 and at most 1")
    }
}

/// Reads what is written as a number or as text; `needed` says what is allowed.
pub(super) fn written<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
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

/// Reads rates by head, as in `{ quality = [0.1, 0.33] }`; a single rate is a list of one.
pub(super) fn by_head<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Vec<Rate>>>, D::Error> {
    let rates = |rates| match rates {
        OneOrMany::One(rate) => vec![rate],
        OneOrMany::Many(rates) => rates,
    };
    let by_head = Option::<BTreeMap<String, OneOrMany>>::deserialize(deserializer)?;
    Ok(by_head.map(|heads| heads.into_iter().map(|(head, own)| (head, rates(own))).collect()))
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "rates above 0 and at most 1 are needed, as in [0.1, 0.33]")]
enum OneOrMany {
    One(Rate),
    Many(Vec<Rate>),
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
        for text in ["0", "0.0", "1.1", "-0.1", "10%", "", ".", "1e-3", "0.1234567890123"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn displays_as_written() -> Result<(), String> {
        for text in ["0.1", "1", "0.095", "0.000001"] {
            assert_eq!(text.parse::<Rate>()?.to_string(), text);
        }
        Ok(())
    }
}
