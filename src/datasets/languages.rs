//! Names of the languages in the sources: a TOML table that users can extend.

use std::collections::BTreeMap;
use std::path::Path;

use polysift_base::error::{Error, Result};
use polysift_base::io::read_text;
use polysift_config::{LANGUAGE_CODE, Mode, is_language_code};

const TABLE: &str = include_str!("languages.toml");
/// Entries in which the published table differs.
const PUBLISHED: &str = include_str!("languages_published.toml");
/// Sources of positives: names of their folders and of the table's columns.
const SOURCES: [&str; 5] = ["mmmlu", "include", "oasst2", "aya_dataset", "aya_collection"];

/// Names of languages in the sources, by FineWeb-2 code: for each source the config of MMMLU
/// (`DE_DE`) or of INCLUDE-base-44 (`German`), `lang` of OpenAssistant-2 (`de`), `language_code` of
/// the Aya Dataset (`deu`), or the config of the Aya Collection (`german`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LanguageTable(BTreeMap<String, BTreeMap<String, String>>);

impl LanguageTable {
    /// Returns the table for `mode`: the corrected or the published one.
    ///
    /// # Errors
    /// Never fails: tests parse both tables.
    pub fn of_mode(mode: Mode) -> Result<Self> {
        let mut table = Self::default();
        table.merge(TABLE, "languages.toml")?;
        if mode == Mode::Published {
            table.merge(PUBLISHED, "languages_published.toml")?;
        }
        Ok(table)
    }

    /// Adds the rows of the TOML file at `path`; its keys override, and an empty name removes one.
    ///
    /// # Errors
    /// The errors of [`read_text`]; [`Error::Config`] if the file is not such a table.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        self.merge(&read_text(path)?, &path.display().to_string())
    }

    fn merge(&mut self, text: &str, origin: &str) -> Result<()> {
        let fail = |reason: String| Error::config(origin, reason);
        let rows: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(text).map_err(|e| fail(e.to_string()))?;
        for (code, row) in rows {
            if !is_language_code(&code) {
                return Err(fail(format!("`{code}` is not {LANGUAGE_CODE}")));
            }
            let names = self.0.entry(code).or_default();
            for (source, name) in row {
                if !SOURCES.contains(&source.as_str()) {
                    let known = SOURCES.join(", ");
                    return Err(fail(format!("unknown field `{source}`, expected one of {known}")));
                }
                names.insert(source, name);
            }
            names.retain(|_, name| !name.is_empty());
        }
        Ok(())
    }

    /// Returns true if the table has a row for the language.
    pub fn has(&self, code: &str) -> bool {
        self.0.contains_key(code)
    }

    /// Returns the name of a language in `source`, if the source has it.
    pub fn name(&self, code: &str, source: &str) -> Option<&str> {
        self.0.get(code)?.get(source).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_languages_of_fineweb2_hq_and_english() -> Result<()> {
        let table = LanguageTable::of_mode(Mode::Default)?;
        assert_eq!(table.0.len(), 21);
        assert_eq!(table.name("deu_Latn", "mmmlu"), Some("DE_DE"));
        assert_eq!(table.name("deu_Latn", "include"), Some("German"));
        Ok(())
    }

    #[test]
    fn the_published_mistakes_are_in_the_published_table_only() -> Result<()> {
        for (mode, names) in [
            (Mode::Default, [Some("ces"), Some("zh"), Some("zho")]),
            (Mode::Published, [Some("czech"), None, None]),
        ] {
            let table = LanguageTable::of_mode(mode)?;
            assert_eq!(table.name("ces_Latn", "aya_dataset"), names[0]);
            assert_eq!(table.name("cmn_Hani", "oasst2"), names[1]);
            assert_eq!(table.name("cmn_Hani", "aya_dataset"), names[2]);
        }
        Ok(())
    }

    #[test]
    fn users_add_rows_and_override_keys() -> Result<()> {
        let mut table = LanguageTable::of_mode(Mode::Default)?;
        table.merge("[deu_Latn]\nmmmlu=''\n[kor_Hang]\noasst2='ko'", "t")?;
        assert_eq!(table.name("deu_Latn", "mmmlu"), None);
        assert_eq!(table.name("deu_Latn", "oasst2"), Some("de"));
        assert_eq!(table.name("kor_Hang", "oasst2"), Some("ko"));
        for wrong in ["[deu_Latn]\nmmlu='x'", "['a b']\noasst2='x'", "deu"] {
            assert!(matches!(table.merge(wrong, "t"), Err(Error::Config { .. })), "{wrong}");
        }
        Ok(())
    }
}
