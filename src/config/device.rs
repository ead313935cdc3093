//! `encoder.device`: the device of the encoder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Device of the encoder: `auto`, `cpu`, `cuda` or `cuda:0,2`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// All suitable GPUs, or the CPU if there is none.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPUs with these numbers, without duplicates; all suitable GPUs if empty.
    Cuda(Vec<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: String| {
            Err(format!(
                "{reason}; allowed are auto, cpu, cuda, and numbers of GPUs as in cuda:0,2"
            ))
        };
        let numbers = match text.split_once(':') {
            None if text == "auto" => return Ok(Self::Auto),
            None if text == "cpu" => return Ok(Self::Cpu),
            None if text == "cuda" => return Ok(Self::Cuda(Vec::new())),
            Some(("cuda", numbers)) => numbers,
            _ => return wrong(format!("`{text}` is no device")),
        };
        let mut ordinals = Vec::new();
        for number in numbers.split(',') {
            // `parse` would accept a sign.
            let digits = number.bytes().all(|b| b.is_ascii_digit());
            match number.parse::<usize>() {
                Ok(ordinal) if digits && !ordinals.contains(&ordinal) => ordinals.push(ordinal),
                Ok(ordinal) if digits => {
                    return wrong(format!("`{text}` names GPU {ordinal} twice"));
                }
                _ => return wrong(format!("`{text}`: `{number}` is no number of a GPU")),
            }
        }
        Ok(Self::Cuda(ordinals))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinals) if ordinals.is_empty() => f.write_str("cuda"),
            Self::Cuda(ordinals) => {
                let numbers: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_displayed_as_it_was_written() -> Result<(), String> {
        for text in ["auto", "cpu", "cuda", "cuda:0", "cuda:2,0"] {
            assert_eq!(text.parse::<DeviceChoice>()?.to_string(), text);
        }
        assert_eq!("cuda:0,2".parse(), Ok(DeviceChoice::Cuda(vec![0, 2])));
        Ok(())
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_is_allowed() {
        for (text, expected) in [
            ("gpu", "`gpu` is no device"),
            ("cpu:0", "`cpu:0` is no device"),
            ("CUDA", "`CUDA` is no device"),
            ("", "`` is no device"),
            ("cuda:", "`` is no number"),
            ("cuda:0,", "`` is no number"),
            ("cuda:+1", "`+1` is no number"),
            ("cuda:0,1,0", "names GPU 0 twice"),
        ] {
            let message = text.parse::<DeviceChoice>().err().unwrap_or_default();
            assert!(message.contains(expected) && message.contains("cuda:0,2"), "{message}");
        }
    }
}
