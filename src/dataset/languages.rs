//! What each language is called in the sources: a table in TOML that users can add to.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::{LANGUAGE_CODE, Mode, is_language_code};
use crate::error::{Error, Result};

/// The table that comes with the program.
const TABLE: &str = include_str!("languages.toml");

/// What the published table says otherwise.
const PUBLISHED: &str = include_str!("languages_published.toml");

/// Names of a language in the sources; `None` where a source does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageRow {
    /// Config of MMMLU: `DE_DE`.
    pub mmmlu: Option<String>,
    /// Config of INCLUDE-base-44, the language in English: `German`.
    pub include: Option<String>,
    /// `lang` of OpenAssistant-2: `de`.
    pub oasst2: Option<String>,
    /// `language_code` of the Aya Dataset: `deu`.
    pub aya_dataset: Option<String>,
    /// Config of the Aya Collection split by language: `german`.
    pub aya_collection: Option<String>,
}

/// Names by FineWeb-2 code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LanguageTable(BTreeMap<String, LanguageRow>);

impl LanguageTable {
    /// The table of `mode`: the corrected one, or the one that was published.
    ///
    /// # Errors
    /// None in a program that was tested.
    pub fn of_mode(mode: Mode) -> Result<Self> {
        let mut table = Self::default();
        table.merge(TABLE, "languages.toml")?;
        if mode == Mode::Published {
            table.merge(PUBLISHED, "languages_published.toml")?;
        }
        Ok(table)
    }

    /// Adds the rows of the TOML file at `path`; a key there wins, an empty one blanks.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::Config`] when it is not such a table.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path, "read"))?;
        self.merge(&text, &path.display().to_string())
    }

    fn merge(&mut self, text: &str, origin: &str) -> Result<()> {
        let fail = |reason: String| Error::config(origin, reason);
        let rows: BTreeMap<String, LanguageRow> =
            toml::from_str(text).map_err(|e| fail(e.to_string()))?;
        for (code, mut row) in rows {
            if !is_language_code(&code) {
                return Err(fail(format!("`{code}` is not {LANGUAGE_CODE}")));
            }
            let own = self.0.entry(code).or_default();
            for (own, new) in own.cells().into_iter().zip(row.cells()) {
                if let Some(name) = new.take() {
                    *own = Some(name).filter(|name| !name.is_empty());
                }
            }
        }
        Ok(())
    }

    /// Row of a language.
    pub fn get(&self, code: &str) -> Option<&LanguageRow> {
        self.0.get(code)
    }

    /// All codes, sorted.
    pub fn codes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl LanguageRow {
    /// What the sources call the language, in the order of the fields.
    pub(super) fn names(&self) -> [Option<&str>; 5] {
        let Self { mmmlu, include, oasst2, aya_dataset, aya_collection } = self;
        [mmmlu, include, oasst2, aya_dataset, aya_collection].map(Option::as_deref)
    }

    fn cells(&mut self) -> [&mut Option<String>; 5] {
        let Self { mmmlu, include, oasst2, aya_dataset, aya_collection } = self;
        [mmmlu, include, oasst2, aya_dataset, aya_collection]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_languages_of_fineweb2_hq_and_english() -> Result<()> {
        let table = LanguageTable::of_mode(Mode::Default)?;
        assert_eq!(table.codes().count(), 21);
        let german = table.get("deu_Latn").cloned().unwrap_or_default();
        assert_eq!(german.mmmlu.as_deref(), Some("DE_DE"));
        assert_eq!(german.include.as_deref(), Some("German"));
        Ok(())
    }

    #[test]
    fn the_published_mistakes_are_in_the_published_table_only() -> Result<()> {
        let cell = |mode| -> Result<_> {
            let table = LanguageTable::of_mode(mode)?;
            let row = |code| table.get(code).cloned().unwrap_or_default();
            Ok((row("ces_Latn").aya_dataset, row("cmn_Hani").oasst2, row("cmn_Hani").aya_dataset))
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(cell(Mode::Default)?, (some("ces"), some("zh"), some("zho")));
        assert_eq!(cell(Mode::Published)?, (some("czech"), None, None));
        Ok(())
    }

    #[test]
    fn users_add_rows_and_override_keys() -> Result<()> {
        let mut table = LanguageTable::of_mode(Mode::Default)?;
        table.merge("[deu_Latn]\nmmmlu=''\n[kor_Hang]\noasst2='ko'", "t")?;
        let german = table.get("deu_Latn").cloned().unwrap_or_default();
        assert_eq!((german.mmmlu, german.oasst2.as_deref()), (None, Some("de")));
        assert!(table.get("kor_Hang").is_some_and(|row| row.oasst2.as_deref() == Some("ko")));
        for wrong in ["[deu_Latn]\nmmlu='x'", "['a b']\noasst2='x'", "deu"] {
            assert!(matches!(table.merge(wrong, "t"), Err(Error::Config { .. })), "{wrong}");
        }
        Ok(())
    }
}
