//! Values that differ by stage.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::run::Stage;

/// A value for all stages, and others for some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerStage<T> {
    all: Option<T>,
    by_stage: BTreeMap<Stage, T>,
}

impl<T> Default for PerStage<T> {
    fn default() -> Self {
        Self { all: None, by_stage: BTreeMap::new() }
    }
}

impl<T: FromStr<Err: Display>> PerStage<T> {
    /// The values of a flag that is given as `VALUE`, `STAGE=VALUE`, or several of them.
    ///
    /// An unknown stage, a value that `T` does not take and a second one for the same stage are [`Error::Config`].
    pub fn parse(flag: &str, texts: &[String]) -> Result<Self> {
        let mut values = Self::default();
        for text in texts {
            let wrong = |reason: String| Error::config(flag, format!("`{text}`: {reason}"));
            let (stage, value) = match text.split_once('=') {
                None => (None, text.as_str()),
                Some((name, value)) => (Some(name.parse::<Stage>().map_err(&wrong)?), value),
            };
            if value.is_empty() {
                return Err(wrong("has no value".into()));
            }
            let value = value.parse().map_err(|e: T::Err| wrong(e.to_string()))?;
            let before = match stage {
                None => values.all.replace(value),
                Some(stage) => values.by_stage.insert(stage, value),
            };
            if before.is_some() {
                let whom = stage.map_or("all stages", Stage::name);
                return Err(wrong(format!("{whom} has two values")));
            }
        }
        Ok(values)
    }
}

impl<T> PerStage<T> {
    /// The value for `stage`, if there is one.
    pub fn get(&self, stage: Stage) -> Option<&T> {
        self.by_stage.get(&stage).or(self.all.as_ref())
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.all.iter().chain(self.by_stage.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: FromStr<Err: Display>>(texts: &[&str]) -> Result<PerStage<T>> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        PerStage::parse("--flag", &texts)
    }

    #[test]
    fn a_value_of_a_stage_wins_over_that_of_all_in_either_order() -> Result<()> {
        for texts in [["gpu", "score=cpu,big"], ["score=cpu,big", "gpu"]] {
            let values = parse::<String>(&texts)?;
            assert_eq!(values.get(Stage::Score).map(String::as_str), Some("cpu,big"));
            assert_eq!(values.get(Stage::Embed).map(String::as_str), Some("gpu"));
            assert_eq!(values.values().count(), 2);
        }
        assert_eq!(parse::<u32>(&["train=4"])?.get(Stage::Embed), None);
        Ok(())
    }

    #[test]
    fn what_names_no_stage_or_has_no_value_is_refused() {
        for (texts, wrong) in [
            (&["scor=4"][..], "--flag: `scor=4`: `scor` is no stage; the stages are embed, train"),
            (&["score="], "`score=`: has no value"),
            (&[""], "has no value"),
            (&["score=4G"], "`score=4G`: invalid digit"),
            (&["4", "5"], "`5`: all stages has two values"),
            (&["train=4", "train=4"], "`train=4`: train has two values"),
        ] {
            let message = parse::<u32>(texts).map_err(|e| (e.exit_code(), e.to_string()));
            let is_named = |(code, text): (u8, String)| code == 2 && text.contains(wrong);
            assert!(message.is_err_and(is_named), "{texts:?}");
        }
    }
}
