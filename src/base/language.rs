//! Looks up languages by the codes that corpora use: `fra_Latn`, `deu`, `pt`.

use isolang::Language;

/// Language code of a document whose language is unknown (ISO 639-2 "undetermined").
pub const UNDETERMINED_LANGUAGE: &str = "und";

/// ISO 639-3 codes that corpora use for the standard form of a language, each with the ISO 639-1
/// code of that language; from the language aliases of CLDR.
#[rustfmt::skip]
const STANDARD_FORMS: [(&str, &str); 18] = [
    ("als", "sq"), ("arb", "ar"), ("azj", "az"), ("cmn", "zh"), ("ekk", "et"), ("gaz", "om"),
    ("khk", "mn"), ("kmr", "ku"), ("lvs", "lv"), ("npi", "ne"), ("ory", "or"), ("pbu", "ps"),
    ("pes", "fa"), ("plt", "mg"), ("swh", "sw"), ("uzn", "uz"), ("ydd", "yi"), ("zsm", "ms"),
];

/// Finds the language of an ISO 639-3 or 639-1 `code`, alone or before a script or region.
fn find_language(code: &str) -> Option<Language> {
    let code = code.split(['_', '-']).next()?.to_ascii_lowercase();
    Language::from_639_3(&code).or_else(|| Language::from_639_1(&code))
}

/// Returns the ISO 639-3 code and English name of a language given by code or name, if it is known.
pub fn iso_639_3(code: &str) -> Option<(&'static str, &'static str)> {
    let capital = |name: &str| Some(name.get(..1)?.to_uppercase() + &name.get(1..)?.to_lowercase());
    let language = find_language(code).or_else(|| Language::from_name(&capital(code)?))?;
    Some((language.to_639_3(), language.to_name()))
}

/// Returns the English name of the language of `code`, or `None` if ISO 639 lacks the code.
pub fn language_name(code: &str) -> Option<&'static str> {
    Some(find_language(code)?.to_name())
}

/// Returns the ISO 639-1 code of a language, as hubs tag it, else its ISO 639-3 code; `None` if ISO
/// 639 lacks `code`.
pub fn language_tag(code: &str) -> Option<&'static str> {
    let language = find_language(code)?;
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
        // Language codes, and their tags on the card of FineWeb2-HQ.
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
