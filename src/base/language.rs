//! Names of languages, by the codes that corpora give them: `fra_Latn`, `deu`, `pt`.

use isolang::Language;

/// Languages with an ISO 639-1 code of which corpora name the standard form by a code of its own; from the language
/// aliases of CLDR.
const STANDARD_FORMS: [(&str, &str); 18] = [
    ("als", "sq"),
    ("arb", "ar"),
    ("azj", "az"),
    ("cmn", "zh"),
    ("ekk", "et"),
    ("gaz", "om"),
    ("khk", "mn"),
    ("kmr", "ku"),
    ("lvs", "lv"),
    ("npi", "ne"),
    ("ory", "or"),
    ("pbu", "ps"),
    ("pes", "fa"),
    ("plt", "mg"),
    ("swh", "sw"),
    ("uzn", "uz"),
    ("ydd", "yi"),
    ("zsm", "ms"),
];

/// The language of `code`: ISO 639-3 or 639-1, alone or before a script.
fn language(code: &str) -> Option<Language> {
    let code = code.split(['_', '-']).next()?.to_ascii_lowercase();
    Language::from_639_3(&code).or_else(|| Language::from_639_1(&code))
}

/// The ISO 639-3 code and the English name of the language of `code`, or of that English name; `None` for what is neither.
pub fn iso_639_3(code: &str) -> Option<(&'static str, &'static str)> {
    let capital = |name: &str| Some(name.get(..1)?.to_uppercase() + &name.get(1..)?.to_lowercase());
    let language = language(code).or_else(|| Language::from_name(&capital(code)?))?;
    Some((language.to_639_3(), language.to_name()))
}

/// What the language of `code` is called in English; `None` for a code that ISO 639 does not have.
pub fn language_name(code: &str) -> Option<&'static str> {
    Some(language(code)?.to_name())
}

/// Its ISO 639-1 code, or the ISO 639-3 one where there is none, as hubs tag languages.
pub fn language_tag(code: &str) -> Option<&'static str> {
    let language = language(code)?;
    let alias = STANDARD_FORMS.iter().find(|(form, _)| *form == language.to_639_3());
    let short = alias.map(|(_, tag)| *tag).or(language.to_639_1());
    Some(short.unwrap_or(language.to_639_3()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_found_by_its_codes_and_by_its_name() {
        for named in ["fra", "fr", "French", "french", "FRENCH", "fra_Latn", "fr-FR"] {
            assert_eq!(iso_639_3(named), Some(("fra", "French")), "{named}");
        }
        assert_eq!((iso_639_3("qqq"), iso_639_3(""), iso_639_3("é")), (None, None, None));
    }

    #[test]
    fn languages_of_fineweb2_have_names_and_the_tags_of_its_card() {
        // Codes, and the tags of the card of FineWeb2-HQ.
        let published = [
            ("rus_Cyrl", "ru"),
            ("cmn_Hani", "zh"),
            ("deu_Latn", "de"),
            ("jpn_Jpan", "ja"),
            ("spa_Latn", "es"),
            ("fra_Latn", "fr"),
            ("ita_Latn", "it"),
            ("por_Latn", "pt"),
            ("pol_Latn", "pl"),
            ("nld_Latn", "nl"),
            ("ind_Latn", "id"),
            ("tur_Latn", "tr"),
            ("ces_Latn", "cs"),
            ("vie_Latn", "vi"),
            ("swe_Latn", "sv"),
            ("fas_Arab", "fa"),
            ("arb_Arab", "ar"),
            ("ell_Grek", "el"),
            ("dan_Latn", "da"),
            ("hun_Latn", "hu"),
        ];
        for (code, tag) in published {
            assert_eq!(language_tag(code), Some(tag), "{code}");
        }
        assert_eq!(language_name("fra_Latn"), Some("French"));
        assert_eq!(language_name("pt"), Some("Portuguese"));
        assert_eq!(language_tag("hsb_Latn"), Some("hsb"));
        assert_eq!((language_name("xx1_Latn"), language_tag("unknown")), (None, None));
    }
}
