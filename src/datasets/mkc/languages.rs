//! Names of the languages in the sources: a TOML table that users can extend.

use std::collections::BTreeMap;
use std::path::Path;

use super::reader::{SOURCES, source_names};
use polysift_base::error::{Error, Result};
use polysift_base::io::read_text;
use polysift_config::{LANGUAGE_CODE, Mode, is_language_code};

const TABLE: &str = include_str!("../languages.toml");
/// Entries in which the published table differs.
const PUBLISHED: &str = include_str!("../languages_published.toml");

/// Names of languages in the sources, by FineWeb-2 code: for each source the config of MMMLU
/// (`DE_DE`) or of INCLUDE-base-44 (`German`), `lang` of OpenAssistant-2 (`de`), `language_code` of
/// the Aya Dataset (`deu`), or the config of the Aya Collection (`german`).
pub(super) type LanguageTable = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the corrected or the published table, with the rows of the TOML file `own`: its keys
/// override, and an empty name removes one.
pub(super) fn load_table(mode: Mode, own: Option<&Path>) -> Result<LanguageTable> {
    let mut table = LanguageTable::new();
    merge_rows(&mut table, TABLE, "languages.toml")?;
    if mode == Mode::Published {
        merge_rows(&mut table, PUBLISHED, "languages_published.toml")?;
    }
    if let Some(path) = own {
        merge_rows(&mut table, &read_text(path)?, &path.display().to_string())?;
    }
    Ok(table)
}

/// Overrides names in `table` by the rows in the TOML `text`; `origin` names it in errors.
fn merge_rows(table: &mut LanguageTable, text: &str, origin: &str) -> Result<()> {
    let fail = |reason: String| Error::config(origin, reason);
    let rows: LanguageTable = toml::from_str(text).map_err(|e| fail(e.to_string()))?;
    for (code, row) in rows {
        if !is_language_code(&code) {
            return Err(fail(format!("`{code}` is not {LANGUAGE_CODE}")));
        }
        let names = table.entry(code).or_default();
        for (source, name) in row {
            if SOURCES.iter().all(|kind| kind.name != source) {
                let known = source_names();
                return Err(fail(format!("unknown field `{source}`, expected one of {known}")));
            }
            names.insert(source, name);
        }
        names.retain(|_, name| !name.is_empty());
    }
    Ok(())
}

/// Returns the name of a language in `source`, if the source has it.
pub(super) fn find_name<'t>(table: &'t LanguageTable, code: &str, source: &str) -> Option<&'t str> {
    table.get(code)?.get(source).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_languages_of_fineweb2_hq_and_english() -> Result<()> {
        let table = load_table(Mode::Default, None)?;
        assert_eq!(table.len(), 21);
        assert_eq!(find_name(&table, "deu_Latn", "mmmlu"), Some("DE_DE"));
        assert_eq!(find_name(&table, "deu_Latn", "include"), Some("German"));
        Ok(())
    }

    #[test]
    fn the_published_mistakes_are_in_the_published_table_only() -> Result<()> {
        for (mode, names) in [
            (Mode::Default, [Some("ces"), Some("zh"), Some("zho")]),
            (Mode::Published, [Some("czech"), None, None]),
        ] {
            let table = load_table(mode, None)?;
            assert_eq!(find_name(&table, "ces_Latn", "aya_dataset"), names[0]);
            assert_eq!(find_name(&table, "cmn_Hani", "oasst2"), names[1]);
            assert_eq!(find_name(&table, "cmn_Hani", "aya_dataset"), names[2]);
        }
        Ok(())
    }

    #[test]
    fn users_add_rows_and_override_keys() -> Result<()> {
        let mut table = load_table(Mode::Default, None)?;
        merge_rows(&mut table, "[deu_Latn]\nmmmlu=''\n[kor_Hang]\noasst2='ko'", "t")?;
        assert_eq!(find_name(&table, "deu_Latn", "mmmlu"), None);
        assert_eq!(find_name(&table, "deu_Latn", "oasst2"), Some("de"));
        assert_eq!(find_name(&table, "kor_Hang", "oasst2"), Some("ko"));
        for wrong in ["[deu_Latn]\nmmlu='x'", "['a b']\noasst2='x'", "deu"] {
            assert!(
                matches!(merge_rows(&mut table, wrong, "t"), Err(Error::Config { .. })),
                "{wrong}"
            );
        }
        Ok(())
    }
}
