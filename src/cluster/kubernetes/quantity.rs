//! Amounts of a resource as Kubernetes writes them: `500m`, `64`, `256Gi`.

use std::fmt;
use std::str::FromStr;

/// A positive quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    text: String,
    value: f64,
}

impl Quantity {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// In units of the resource: cores, bytes.
    pub fn value(&self) -> f64 {
        self.value
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let value = number.parse::<f64>().ok().zip(factor(suffix)).map(|(n, factor)| n * factor);
        match value {
            Some(value) if value > 0.0 && value.is_finite() => {
                Ok(Self { text: text.to_owned(), value })
            }
            Some(_) => Err("a quantity has to be more than 0".into()),
            None => Err("is no quantity of Kubernetes, such as 500m, 64 or 256Gi".into()),
        }
    }
}

/// What a suffix multiplies by: of 10 (`k`), of 2 (`Ki`) or an exponent (`e3`).
fn factor(suffix: &str) -> Option<f64> {
    let exponent = |suffix: &str| suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok();
    Some(match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 2f64.powi(10),
        "Mi" => 2f64.powi(20),
        "Gi" => 2f64.powi(30),
        "Ti" => 2f64.powi(40),
        "Pi" => 2f64.powi(50),
        "Ei" => 2f64.powi(60),
        _ => 10f64.powi(exponent(suffix)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_quantity_is_understood() -> Result<(), String> {
        // The forms of the Kubernetes API's "Quantity".
        for (text, value) in [
            ("64", 64.0),
            ("500m", 0.5),
            ("1.5", 1.5),
            (".5", 0.5),
            ("2.", 2.0),
            ("256Gi", 274_877_906_944.0),
            ("16G", 16e9),
            ("1E", 1e18),
            ("1e3", 1e3),
            ("12E-1", 1.2),
        ] {
            let quantity: Quantity = text.parse()?;
            assert!((quantity.value() / value - 1.0).abs() < 1e-12, "{text}");
            assert_eq!(quantity.to_string(), text);
        }
        Ok(())
    }

    #[test]
    fn what_is_no_positive_quantity_is_refused() {
        for text in
            ["", "Gi", "256GB", "256 Gi", "256gi", "-1", "+1", "0", "0Gi", "1.2.3", "1e", "a", "."]
        {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
