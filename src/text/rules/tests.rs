//! Tests the rules against the output of `tests/golden/rules.py`, numbers from their definitions,
//! and texts made to take long.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use ::base64::alphabet::STANDARD;
use ::base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use ::base64::{DecodeError, Engine as _};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::sentences::sentences;
use super::terms::RESTRICTIVE;
use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn golden<T: DeserializeOwned>(name: &str) -> Result<T, Box<dyn Error>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/rules"));
    Ok(serde_json::from_slice(&std::fs::read(folder.join(name))?)?)
}

#[derive(Deserialize)]
struct WordCase {
    set: String,
    text: String,
    entries: Vec<String>,
    share: (usize, usize),
}

#[derive(Deserialize)]
struct SentenceCase {
    set: String,
    text: String,
    /// Lengths of its sentences in bytes.
    ends: Vec<usize>,
    sentences: usize,
    repeated: usize,
    left: String,
}

#[derive(Deserialize)]
struct Base64Case {
    kind: String,
    size: usize,
    text: String,
    /// Decoded data that is found, in hexadecimal digits.
    data: Vec<String>,
}

/// Returns an entry of an allow list in TOML.
fn entry(key: &str, value: &str) -> String {
    format!("[[allow]]\n{key} = {}\n", toml::Value::from(value))
}

fn rule(options: &LicenseConfig) -> Result<LicenseRule, String> {
    LicenseRule::new(AllowList::published()?, options)
}

/// Returns the evidence, or the word for a refusal.
fn outcome(rule: &LicenseRule, url: Option<&str>, text: &str) -> String {
    match rule.judge(url, Some(text)) {
        Ok(licensed) => licensed.evidence,
        Err(Refusal { reason, term: Some(term) }) => format!("{reason} {term}"),
        Err(Refusal { reason, term: None }) => reason.to_owned(),
    }
}

/// Returns a text of 300 characters in which `word` begins at `at`.
fn with_word(word: &str, at: usize) -> String {
    let text = format!("{}{word}", ". é".repeat(at).chars().take(at).collect::<String>());
    let rest = 300 - text.chars().count();
    text + &"é ".repeat(rest).chars().take(rest).collect::<String>()
}

#[test]
fn keywords_stand_wholly_in_a_window() -> TestResult {
    let rule = rule(&LicenseConfig::default())?;
    for (at, expected) in [
        (0, "keyword:head:cc-by"),
        (95, "keyword:head:cc-by"),
        (96, "no-evidence"),
        (150, "no-evidence"),
        (199, "no-evidence"),
        (200, "keyword:tail:cc-by"),
        (295, "keyword:tail:cc-by"),
    ] {
        let text = with_word("CC-BY", at);
        assert_eq!(text.chars().count(), 300);
        assert_eq!(outcome(&rule, Some("https://a.example/"), &text), expected, "{at}");
    }
    let short = "a work under Creative\n Commons";
    assert_eq!(outcome(&rule, Some("http://a.example"), short), "keyword:head:creative common");
    assert_eq!(outcome(&rule, Some("http://a.example"), ""), "no-evidence");
    Ok(())
}

#[test]
fn sources_are_hosts_paths_and_public_suffixes() -> TestResult {
    let rule = rule(&LicenseConfig::default())?;
    for (url, expected) in [
        ("https://python.org/", "host:python.org"),
        ("HTTPS://DOCS.PYTHON.ORG./3/?a#b", "host:python.org"),
        ("https://evil.example/?.python.org/", "no-evidence"),
        ("https://evil.example/python.org/", "no-evidence"),
        ("https://notpython.org/", "no-evidence"),
        ("https://python.org.evil.example/", "no-evidence"),
        ("https://python.org@evil.example/", "no-evidence"),
        ("https://open.umn.edu/opentextbooks", "url:open.umn.edu/opentextbooks"),
        ("https://x.open.umn.edu/opentextbooks/1", "url:open.umn.edu/opentextbooks"),
        ("https://open.umn.edu/opentextbooks?page=2", "url:open.umn.edu/opentextbooks"),
        ("https://open.umn.edu/opentextbooks2", "no-evidence"),
        ("https://open.umn.edu/a/../opentextbooks/", "url:open.umn.edu/opentextbooks"),
        ("https://open.umn.edu/", "no-evidence"),
        ("https://www.irs.gov/", "suffix:gov"),
        ("https://www.gov.uk/", "suffix:gov"),
        ("http://x.gouv.fr/", "suffix:gouv"),
        ("http://y.go.jp", "suffix:go.jp"),
        ("http://www.health.govt.nz", "suffix:govt"),
        ("https://irs.gov.example.com/", "no-evidence"),
        ("https://gov.example.com/", "no-evidence"),
        ("https://go.jp.example.org/", "no-evidence"),
        ("https://www.gob.mx/", "host:www.gob.mx"),
        ("https://x.gob.mx/", "no-evidence"),
        ("http://127.0.0.1/", "no-evidence"),
        ("ftp://python.org/", "unreadable-url"),
        ("python.org", "unreadable-url"),
        ("", "unreadable-url"),
    ] {
        assert_eq!(outcome(&rule, Some(url), "Some text."), expected, "{url}");
    }
    assert_eq!(outcome(&rule, None, "Some text."), "unreadable-url");
    assert_eq!(outcome(&rule, None, "cc-0"), "keyword:head:cc-0");
    let licensed = rule.judge(Some("https://python.org"), None);
    let license = licensed.map(|found| (found.license, found.tier));
    assert_eq!(license, Ok((Some("PSF-2.0".to_owned()), Some("1".to_owned()))));
    Ok(())
}

#[test]
fn golden_public_suffixes() -> TestResult {
    // Every suffix and its last label are found; labels outside the suffix are not.
    for (host, suffix) in golden::<Vec<(String, String)>>("hosts.json")? {
        let Some(last) = suffix.rsplit('.').next().filter(|last| !last.is_empty()) else {
            continue;
        };
        for part in [&suffix, last] {
            let options = LicenseConfig { keywords: Some(vec![]), ..LicenseConfig::default() };
            let rule = LicenseRule::new(AllowList::parse(&entry("suffix", part))?, &options)?;
            let found = outcome(&rule, Some(&format!("http://{host}/")), "");
            assert_eq!(found, format!("suffix:{part}"), "{host}");
        }
        let labels = host.strip_suffix(&suffix).unwrap_or_default().trim_end_matches('.');
        for label in labels.split('.').filter(|label| !label.is_empty()) {
            let list = AllowList::parse(&entry("suffix", label))?;
            let rule = LicenseRule::new(list, &LicenseConfig::default())?;
            let found = outcome(&rule, Some(&format!("http://{host}/")), "");
            let is_part = suffix.split('.').any(|part| part == label);
            assert_eq!(found == format!("suffix:{label}"), is_part, "{host} {label}");
        }
    }
    Ok(())
}

#[test]
fn restrictive_terms_refuse_what_there_is_evidence_for() -> TestResult {
    let default = LicenseConfig::default();
    let on_keywords =
        LicenseConfig { restrictive_on: RestrictiveOn::Keywords, ..LicenseConfig::default() };
    let (all, keywords) = (rule(&default)?, rule(&on_keywords)?);
    let gov = Some("https://www.irs.gov/");
    for (text, with_all, with_keywords) in [
        ("All Rights Reserved", "all rights reserved", ""),
        ("ALL RIGHTS\n\tRESERVED.", "all rights reserved", ""),
        ("Copyright 1999", "copyright 19", ""),
        ("Nicht  Kommerziell", "nicht kommerziell", ""),
        ("Pas d’utilisation commerciale", "pas d'utilisation commerciale", ""),
        ("ΜΗ ΕΜΠΟΡΙΚΉ ΧΡΉΣΗ", "μη εμπορική χρήση", ""),
        ("本作品非商业性使用", "非商业性", ""),
        ("ＡＬＬ ＲＩＧＨＴＳ ＲＥＳＥＲＶＥＤ", "all rights reserved", ""),
        ("under CC BY-NC-SA 4.0", "by-nc", "by-nc"),
        ("https://creativecommons.org/licenses/by-nd/4.0", "by-nd", "by-nd"),
        ("CC BY\u{2011}NC", "by-nc", "by-nc"),
        ("本文以CC-BY-NC协议发布。", "by-nc", "by-nc"),
        ("版权所有All rights reserved", "all rights reserved", ""),
        ("Creative Commons BY NC ND 4.0", "commons by nc", "commons by nc"),
        ("Attribution-NonCommercial", "noncommercial", "noncommercial"),
        ("nearby-ndola", "", ""),
        ("by-ndé by-nd\u{301}", "", ""),
        ("uncopyright byword", "", ""),
        ("small rights reserved", "", ""),
        ("the noncommercially minded", "", ""),
    ] {
        for (rule, expected) in [(&all, with_all), (&keywords, with_keywords)] {
            let expected = match expected {
                "" => "suffix:gov".to_owned(),
                term => format!("restrictive-term {term}"),
            };
            assert_eq!(outcome(rule, gov, text), expected, "{text}");
        }
        let text = format!("cc-by. {text}");
        let expected = match with_all {
            "" => "keyword:head:cc-by".to_owned(),
            term => format!("restrictive-term {term}"),
        };
        assert_eq!(outcome(&keywords, Some("http://a.example"), &text), expected, "{text}");
    }
    for term in RESTRICTIVE {
        let expected = format!("restrictive-term {term}");
        let found = outcome(&all, gov, &format!("x ({}) y", term.to_uppercase()));
        // Other terms may end before it or lie within it.
        assert!(found == expected || found.starts_with("restrictive-term"), "{term} {found}");
    }
    Ok(())
}

#[test]
fn texts_are_read_for_keywords_and_terms() -> TestResult {
    let none = || LicenseConfig {
        keywords: Some(vec![]),
        restrictive: Some(vec![]),
        ..LicenseConfig::default()
    };
    let urls_only = rule(&none())?;
    assert!(!none().needs_text());
    assert_eq!(outcome(&urls_only, Some("https://python.org"), "by-nc"), "host:python.org");
    let keywords = LicenseConfig { keywords: Some(vec!["x".to_owned()]), ..none() };
    assert!(keywords.needs_text());
    let keywords = rule(&keywords)?;
    assert_eq!(outcome(&keywords, Some("https://python.org"), "by-nc"), "restrictive-term by-nc");
    assert!(LicenseConfig { restrictive: Some(vec!["x".to_owned()]), ..none() }.needs_text());
    let only_keywords = LicenseRule::new(AllowList::default(), &LicenseConfig::default())?;
    assert_eq!(outcome(&only_keywords, None, "Some text."), "no-evidence");
    Ok(())
}

#[test]
fn a_rule_that_cannot_work_says_why() {
    let error = |entries: &str, options: &LicenseConfig| {
        let list = AllowList::parse(entries);
        list.and_then(|list| LicenseRule::new(list, options)).err().unwrap_or_default()
    };
    for (wrong, reason) in [
        (entry("host", "a.com") + "url = 'a.com/x'\n", "needs one of `host`, `url` and `suffix`"),
        ("[[allow]]\n".to_owned(), "needs one of `host`, `url` and `suffix`"),
        (entry("host", ""), "`` is no host and no URL"),
        (entry("host", "*.a.com"), "`*.a.com` is no host and no URL"),
        (entry("host", "a.com/x"), "`a.com/x` is no host; with a path it is a `url`"),
        (entry("url", "a b"), "`a b` is no host and no URL"),
        (entry("suffix", "gov/x"), "`gov/x` is no suffix of hosts"),
    ] {
        let found = error(&(entry("host", "b.com") + &wrong), &LicenseConfig::default());
        assert_eq!(found, format!("entry 2 of the allow list: {reason}"));
    }
    let with = |keywords: &[&str], window| LicenseConfig {
        keywords: Some(keywords.iter().map(|word| (*word).to_owned()).collect()),
        window: Some(window),
        ..LicenseConfig::default()
    };
    let one = &entry("host", "b.com");
    assert!(error("allow = []", &with(&[], 100)).contains("no document could pass"));
    assert!(error(one, &with(&["x"], 0)).contains("`window` is 0"));
    assert!(error(one, &with(&["long", " cc-by "], 3)).contains("`window` is 3"));
    assert_eq!(error(one, &with(&["long", "cc-by"], 4)), "");
    assert!(error(one, &with(&[" "], 100)).contains("`keywords`"));
    let restrictive = Some(vec![String::new()]);
    let blank = LicenseConfig { restrictive, ..LicenseConfig::default() };
    assert!(error(one, &blank).contains("`restrictive`"));
}

#[test]
fn lists_of_sources_are_read() -> TestResult {
    let published = AllowList::published()?.sources;
    assert_eq!(published.len(), 84);
    let tiers = |tier: &str| published.iter().filter(|e| e.tier.as_deref() == Some(tier)).count();
    assert_eq!((tiers("3"), tiers("1")), (35, 49));
    for (list, reason) in [
        ("", "is no list of tables"),
        ("allow = 1", "is no list of tables"),
        ("other = 1\n[[allow]]\nhost = 'a.com'", "is no list of tables"),
        ("[[allow]]\nhost = 'a.com'\n[[allow]]\nhost = 'b.com'\nsuffix = 'com'", "entry 2 of"),
        ("[[allow]]\nhost = 'a.com'\nhots = 'b.com'", "entry 1 of"),
        ("[[allow]]\nhost = 1", "entry 1 of"),
        ("[[allow]\n", "TOML parse error"),
    ] {
        let error = AllowList::parse(list).err().unwrap_or_default();
        assert!(error.contains(reason), "{list}: {error}");
    }
    let options: LicenseConfig = toml::from_str("window = 9\nrestrictive_on = 'keywords'")?;
    assert_eq!((options.window, options.restrictive_on), (Some(9), RestrictiveOn::Keywords));
    assert!(toml::from_str::<LicenseConfig>("windows = 9").is_err());
    Ok(())
}

#[test]
fn golden_words() -> TestResult {
    for case in golden::<Vec<WordCase>>("words.json")? {
        let list = WordList::new(case.entries.iter().map(String::as_str))?;
        let share = list.share(&case.text);
        assert_eq!((share.hits, share.words), case.share, "{} {:?}", case.set, case.entries);
    }
    Ok(())
}

#[test]
fn entries_stand_between_the_borders_of_words() -> TestResult {
    let list = "ass\n\nass\u{a0}hole\nStraße\r\n  a2m \n🖕\n变态\nでぶ\ns&m\nควย\nアス\n";
    let list = WordList::new(list.lines())?;
    for (text, hits, words, first) in [
        ("", 0, 0, None),
        ("assassin glass ass_x ass's", 0, 4, None),
        ("Ass, ASS; (ass)", 3, 3, Some("ass")),
        ("an ass  hole", 2, 3, Some("ass")),
        ("STRASSE straße", 2, 2, Some("Straße")),
        ("s&m S&M sm", 4, 5, Some("s&m")),
        ("a \u{ff41}\u{ff53}\u{ff53} a\u{ad}ss", 2, 3, Some("ass")),
        ("you 🖕🖕", 2, 3, Some("🖕")),
        ("这个变态很坏", 2, 6, Some("变态")),
        ("でぶ、カタカナ", 2, 6, Some("でぶ")),
        ("アスのアスファルトとマース", 2, 13, Some("アス")),
        ("คนควย", 3, 5, Some("ควย")),
        ("ass\u{301} a\u{301}ss", 0, 2, None),
    ] {
        assert_eq!(list.share(text), WordShare { hits, words, first }, "{text}");
    }
    for empty in ["", "\n \n", "\u{200b}\n"] {
        assert!(WordList::new(empty.lines()).is_err(), "{empty:?}");
    }
    let one = WordShare { hits: 1, words: 4, first: None };
    let shares = [one, WordShare::default()].map(WordShare::share);
    assert!((shares[0] - 0.25).abs() < 1e-12 && shares[1].abs() < 1e-12);
    Ok(())
}

#[test]
fn golden_sentences() -> TestResult {
    for case in golden::<Vec<SentenceCase>>("sentences.json")? {
        let lengths: Vec<usize> = sentences(&case.text).iter().map(Range::len).collect();
        assert_eq!(lengths, case.ends, "{} {}", case.set, case.text);
        let found = Repetition::of(&case.text);
        assert_eq!((found.sentences, found.repeated), (case.sentences, case.repeated));
        let left: String = found.pieces.iter().map(|piece| &case.text[piece.clone()]).collect();
        assert_eq!(left, case.left);
    }
    Ok(())
}

#[test]
fn five_equal_sentences_are_too_many() {
    let sentence = "This sentence has more than thirty characters. ";
    for (count, is_over) in [(0, false), (1, false), (4, false), (5, true)] {
        let text = sentence.repeat(count);
        let found = Repetition::of(&text);
        assert_eq!(found.sentences, count);
        assert_eq!(found.repeated, count.saturating_sub(1));
        assert_eq!(found.is_over(MAX_REPETITION_RATE), is_over, "{count}");
        assert_eq!(found.pieces.len(), count.min(1));
        assert!(count == 0 || found.pieces[0] == (0..sentence.len()));
    }
}

#[test]
fn sentences_are_compared_without_case_and_white_space() {
    let first = "Thirty-one characters are here!";
    assert_eq!(first.chars().count(), 31);
    let text = format!("{first} {} 9 characters are here already! x\n{}", first.to_uppercase(), {
        first.replace(' ', " \t ")
    });
    let found = Repetition::of(&text);
    assert_eq!((found.sentences, found.repeated), (3, 2));
    let short = "Thirty characters  are   here!".repeat(3);
    assert_eq!(Repetition::of(&short).sentences, 0);
    let left: String = found.pieces.iter().map(|piece| &text[piece.clone()]).collect();
    assert_eq!(left, format!("{first} 9 characters are here already! x\n"));
}

/// Decodes base64 of any alphabet and with any line ends.
fn decoded(written: &str) -> Result<Vec<u8>, DecodeError> {
    let is_data = |c: &char| c.is_ascii_alphanumeric() || "+/-_".contains(*c);
    let data: String = written.chars().filter(is_data).collect();
    let config = NO_PAD.with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, config).decode(data.replace('-', "+").replace('_', "/"))
}

#[test]
fn golden_base64() -> TestResult {
    use std::fmt::Write as _;
    for case in golden::<Vec<Base64Case>>("base64.json")? {
        let mut found = Vec::new();
        for range in base64_ranges(&case.text) {
            let mut hex = String::new();
            for byte in decoded(&case.text[range])? {
                write!(hex, "{byte:02x}")?;
            }
            found.push(hex);
        }
        assert_eq!(found, case.data, "{} of {} bytes:\n{}", case.kind, case.size, case.text);
    }
    Ok(())
}

/// 120 characters of base64.
const DATA: &str = "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIDEzIGxhenkgZG9ncy4gU3BoaW54\
                    IG9mIGJsYWNrIHF1YXJ0eiwganVkZ2UgbXkgdm93LiAwMTIzNDU2";

#[test]
fn urls_names_and_numbers_are_no_base64() {
    for (text, is_found) in [
        (format!("x {DATA} y"), true),
        (format!("key={DATA}=="), false),
        (format!("key={}==", &DATA[..118]), true),
        (format!("key={}", &DATA[..117]), false),
        (format!("é{DATA}é"), true),
        (DATA[..99].to_owned(), false),
        (DATA[..100].to_owned(), true),
        (format!("https://a.example/x?y={DATA}"), false),
        (format!("https://a.example/ {DATA}"), true),
        (format!("www.example.com/{DATA}"), false),
        (format!("eyJhbGciOiJIUzI1NiJ9.{DATA}.c2ln"), true),
        (format!("data:text/plain;base64,{DATA}"), true),
        (format!("view-source:https://a.example/#data:text/plain;base64,{DATA}"), true),
        (format!("/usr/share/doc/{}", "Python3/Modules/2024/Reference/".repeat(5)), false),
        ("Some-Title-of-2024-and-Other-Words-".repeat(5), false),
        ("LONG_NAME_OF_A_constant_42_".repeat(6), false),
        ("deadBEEF01234567".repeat(8), false),
        ("0123456789".repeat(12), false),
        ("abcABC".repeat(20), false),
        ("g1B2".repeat(25), true),
    ] {
        assert_eq!(base64_ranges(&text).len(), usize::from(is_found), "{text}");
    }
    let wrapped = format!("{}\n{}\nand prose", &DATA[..60], &DATA[60..]);
    assert_eq!(base64_ranges(&wrapped), vec![Range { start: 0, end: 121 }]);
    // A word of a length that no base64 has is no last line.
    let followed = format!("{}\n{}\nHello", &DATA[..60], &DATA[..60]);
    assert_eq!(base64_ranges(&followed), vec![Range { start: 0, end: 121 }]);
    let indented = format!("  {}\r\n  {}\"", &DATA[..64], &DATA[64..]);
    assert_eq!(base64_ranges(&indented), vec![Range { start: 2, end: 126 }]);
    let apart = format!("{}\n\n{}", &DATA[..60], &DATA[60..]);
    assert!(base64_ranges(&apart).is_empty());
}

/// Applies each rule to a text and checks the results.
fn all_rules(rule: &LicenseRule, list: &WordList, text: &str) -> Result<(), TestCaseError> {
    let _ = rule.judge(Some("https://www.irs.gov/"), Some(text));
    let _ = rule.judge(Some(text), Some(text));
    let share = list.share(text);
    prop_assert!(share.hits <= share.words);
    prop_assert_eq!(share.hits > 0, share.first.is_some());
    let found = Repetition::of(text);
    prop_assert!(found.repeated < found.sentences.max(1));
    let mut at = 0;
    for piece in found.pieces.iter().chain(&base64_ranges(text)) {
        at = if piece.start < at { 0 } else { at };
        prop_assert!(at <= piece.start && piece.start < piece.end);
        prop_assert!(text.get(piece.clone()).is_some());
        at = piece.end;
    }
    Ok(())
}

fn all_rules_with_lists() -> Result<(LicenseRule, WordList), String> {
    let list =
        WordList::new(["a", "aa", "a a", ".", "/", "变", "\u{301}", "Å", "ing", "quick brown"])?;
    Ok((rule(&LicenseConfig::default())?, list))
}

#[test]
fn long_texts_that_are_made_to_take_long_do_not() -> TestResult {
    let (rule, list) = all_rules_with_lists()?;
    // Quadratic time would take minutes for one of these.
    let to_size = |piece: &str| piece.repeat(600_000 / piece.len());
    let texts = [
        to_size("a"),
        to_size("/"),
        to_size(" ."),
        to_size("\u{301}"),
        to_size("a\u{301}\u{323}"),
        to_size(":\u{301}"),
        format!(".{}", to_size(" ")),
        format!("x.{}", to_size(")]")),
        format!("x.{}", to_size(" 1")),
        to_size("a'"),
        to_size("א\""),
        to_size("g1B2"),
        to_size("A/1/a_-"),
        to_size("://A1b2.com/"),
        to_size(&format!("{}\n", &DATA[..60])),
        to_size("\n"),
        to_size("\u{ad}"),
        to_size("by-n copyright 1"),
        to_size("变ア"),
        "\u{fdfa}".repeat(36_000), // becomes 18 characters
        to_size("\u{1100}\u{1161}\u{11a8}"),
    ];
    let measured = |text: &str| -> Result<Duration, String> {
        let start = Instant::now();
        all_rules(&rule, &list, text).map_err(|e| e.to_string())?;
        Ok(start.elapsed())
    };
    for text in texts {
        let took = measured(&text)?;
        // Time for an eighth of the text would be an eighth of linear and a 64th of quadratic time.
        if took > Duration::from_secs(10) {
            let part = measured(&text[..text.floor_char_boundary(text.len() / 8)])?;
            let shown: String = text.chars().take(12).collect();
            assert!(took < 24 * part, "{shown:?}: {took:?}, {part:?} for an eighth");
        }
    }
    Ok(())
}

fn awkward() -> impl Strategy<Value = String> {
    let pieces = "a|A|1| |\n|\r\n|.|!|'|\"|/|://|http|=|+|-|_|é|e\u{301}|\u{301}|\u{323}|ß|İ|ﬁ|\u{ad}|\
                  变|ア|ｶﾞ|ก|ำ|א|가|\u{1100}|\u{1161}|🖕|cc-by|by-nd|©|quick brown|\u{3000}|¨|\
                  \u{85}|A sentence of more than thirty characters. ";
    let pieces: Vec<&str> = pieces.split('|').chain([DATA]).collect();
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "[a-zA-Z0-9+/]{50,80}\n?",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn nothing_panics(text in awkward(), entries in awkward(), any: String) {
        let (rule, list) = all_rules_with_lists().map_err(TestCaseError::fail)?;
        all_rules(&rule, &WordList::new(entries.lines()).unwrap_or(list), &text)?;
        let _ = AllowList::parse(&format!("[[allow]]\nhost = \"{any}\""));
        let _ = AllowList::parse(&entry("url", &any));
    }
}
