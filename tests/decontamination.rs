//! Decontamination: published verdicts and figures, planted items in many languages, what is
//! subtracted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use polysift::Error;
use polysift::decontamination::{
    BenchmarkItem, Hits, Index, IndexBuilder, IndexSettings, ItemPart, cut, cut_by_both,
};
use polysift::filter::{FilteredDocument, open_filter};
use serde::Deserialize;

use crate::util::{TestResult, root};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What `tests/golden/decontamination.py` wrote, as far as these tests need it.
#[derive(Deserialize)]
struct Golden {
    straddling: Vec<Straddling>,
    verdicts: Verdicts,
    janitor: Vec<Janitor>,
}

#[derive(Deserialize)]
struct Straddling {
    query: String,
    label: String,
    without_query: Vec<String>,
    with_query: Vec<String>,
}

#[derive(Deserialize)]
struct Verdicts {
    hash: String,
    ngram: String,
    kept: Vec<(String, bool)>,
}

#[derive(Deserialize)]
struct Janitor {
    #[serde(rename = "match")]
    item: String,
    text: String,
    pieces: Vec<usize>,
}

fn golden() -> Result<Golden> {
    let path = root().join("tests/golden/decontamination/expected.json");
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// An item without question.
fn item<'a>(task: &'a str, answer: &'a str, language: &'a str) -> BenchmarkItem<'a> {
    BenchmarkItem { task, answer, language, ..BenchmarkItem::default() }
}

fn open(builder: IndexBuilder) -> Result<Index> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("benchmarks.idx");
    builder.build(BTreeMap::new(), &path)?;
    Ok(Index::open(&path)?)
}

fn index(settings: IndexSettings, items: &[BenchmarkItem<'_>]) -> Result<Index> {
    let mut builder = IndexBuilder::new(settings)?;
    for item in items {
        builder.add(item)?;
    }
    open(builder)
}

/// Whether a filter with the index at `path` and the settings `rule` finds a document.
fn is_found(path: &Path, rule: &str, document: &str) -> Result<bool> {
    let settings = format!("kind = 'decontamination'\nindex = '{}'\n{rule}", path.display());
    let filter = open_filter("benchmarks", &toml::from_str(&settings)?)?;
    let text = Some(document);
    let document = FilteredDocument { id: "", language: "eng_Latn", url: None, text };
    Ok(filter.verdict(&document).finding.is_some())
}

/// `{prefix}{first}` to `{prefix}{end - 1}`, a space between them.
fn numbered(prefix: &str, range: std::ops::Range<usize>) -> String {
    let words: Vec<String> = range.map(|number| format!("{prefix}{number}")).collect();
    words.join(" ")
}

fn ngrams(index: &Index) -> Vec<&str> {
    let mut ngrams: Vec<&str> = (0..index.num_ngrams()).map(|n| index.ngram_text(n)).collect();
    ngrams.sort_unstable();
    ngrams
}

#[test]
fn verdicts_are_those_of_datatrove() -> TestResult {
    let Verdicts { hash, ngram, kept } = golden()?.verdicts;
    // The xxh64 that datatrove's index would hold of this n-gram.
    assert_eq!(hash, "4954706101050732559");
    let settings = IndexSettings { ngram: 13, ..IndexSettings::datatrove() };
    let index = index(settings, &[item("task", &ngram, "eng_Latn")])?;
    assert_eq!(ngrams(&index), [ngram]);
    assert_eq!(kept.iter().map(|(_, kept)| *kept).collect::<Vec<_>>(), [false, false, true, true]);
    for (text, kept) in kept {
        assert_eq!(index.scan(&text, "eng_Latn").is_empty(), kept, "{text}");
    }
    Ok(())
}

#[test]
fn ngrams_of_question_and_answer_are_those_of_datatrove() -> TestResult {
    use ItemPart::{Answer, Question, Straddle};
    for Straddling { query, label, without_query, with_query } in golden()?.straddling {
        for (parts, mut expected) in [
            (vec![Straddle, Answer], without_query),
            (vec![Question, Straddle, Answer], with_query),
        ] {
            let settings = IndexSettings { ngram: 4, parts, ..IndexSettings::datatrove() };
            let mut builder = IndexBuilder::new(settings)?;
            builder.add(&BenchmarkItem { question: &query, ..item("task", &label, "eng_Latn") })?;
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("benchmarks.idx");
            let built = builder.build(BTreeMap::new(), &path);
            if expected.is_empty() {
                assert!(matches!(built, Err(Error::Config { .. })), "{query} {label}");
                continue;
            }
            built?;
            let index = Index::open(&path)?;
            expected.sort_unstable();
            assert_eq!(ngrams(&index), expected, "{query} {label}");
        }
    }
    Ok(())
}

#[test]
fn coverage_is_that_of_mixturevitae() -> TestResult {
    let text = numbered("w", 0..15);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("benchmarks.idx");
    let mut builder = IndexBuilder::new(IndexSettings::default())?;
    builder.add(&item("task", &text, "eng_Latn"))?;
    builder.build(BTreeMap::new(), &path)?;
    let index = Index::open(&path)?;
    assert_eq!(index.num_ngrams(), 3);
    let rule = "rule = 'coverage'";
    // Item and k words of filling; distinct hits, distinct n-grams, verdict.
    for (k, distinct, is_contaminated) in
        [(0, 3, true), (2960, 2963, true), (2985, 2988, true), (3000, 3003, false)]
    {
        let document = format!("{text} {}", numbered("filler", 0..k));
        let hits = index.scan(&document, "eng_Latn");
        assert_eq!((hits.ngrams().len(), hits.distinct_ngrams), (3, distinct), "{k}");
        assert_eq!(is_found(&path, rule, &document)?, is_contaminated, "{k}");
        assert!(is_found(&path, "", &document)?);
    }
    let document = numbered("w", 0..14);
    let hits = index.scan(&document, "eng_Latn");
    assert_eq!((hits.ngrams().len(), hits.distinct_ngrams), (2, 2));
    assert!(!is_found(&path, rule, &document)?);
    assert!(!is_found(&path, "", &numbered("w", 0..12))?);
    Ok(())
}

#[test]
fn the_pieces_of_a_cut_text_are_those_of_the_harness() -> TestResult {
    for Janitor { item: text, text: document, pieces } in golden()?.janitor {
        let index = index(IndexSettings::default(), &[item("task", &text, "eng_Latn")])?;
        let hits = index.scan(&document, "eng_Latn");
        assert_eq!(hits.spans().len(), 1);
        let found = cut(&document, &hits).ok_or("removed")?;
        assert_eq!(pieces, [640, 760]);
        assert_eq!(found.iter().map(ExactSizeIterator::len).collect::<Vec<_>>(), pieces);
    }
    Ok(())
}

#[test]
fn of_two_cuts_that_leave_white_space_alone_nothing_is_left() {
    let text = "first\nsecond";
    let both = |pieces: &[_]| cut_by_both(text, pieces, &[0..1, 5..6], false);
    assert_eq!(both(&[1..6, 11..12]), None);
    assert_eq!(both(&[0..6, 11..12]), Some(vec![0..1, 5..6]));
}

#[test]
fn short_pieces_go_and_eleven_collisions_remove_a_document() -> TestResult {
    let text = numbered("w", 0..13);
    let index = index(IndexSettings::default(), &[item("task", &text, "eng_Latn")])?;
    let cut_pieces = |document: &str| cut(document, &index.scan(document, "eng_Latn"));
    // Characters, not bytes, count: 399 before the hit leave 199, 400 leave 200.
    assert_eq!(cut_pieces(&format!("{} {text}", "ä".repeat(398))), None);
    let pieces = cut_pieces(&format!("{} {text}", "ä".repeat(399))).ok_or("removed")?;
    assert_eq!(pieces.as_slice(), std::slice::from_ref(&(0..400)));
    assert_eq!(cut_pieces(&format!("{text} {}", "ä".repeat(398))), None);
    let document = format!("{text} {}", "ä".repeat(399));
    let pieces = cut_pieces(&document).ok_or("removed")?;
    let start = text.len() + 1 + 2 * 199;
    assert_eq!(pieces.as_slice(), std::slice::from_ref(&(start..document.len())));
    let filling = "filling ".repeat(100);
    for (hits, is_removed) in [(10, false), (11, true)] {
        let mut document = filling.clone();
        for _ in 0..hits {
            write!(document, "{text} {filling}")?;
        }
        let pieces = cut_pieces(&document);
        assert_eq!(pieces.is_none(), is_removed);
        assert!(pieces.is_none_or(|pieces| pieces.len() == hits + 1));
    }
    assert_eq!(cut("short", &Hits::default()), None);
    Ok(())
}

#[test]
fn an_item_is_covered_as_far_as_its_ngrams_are_hit() -> TestResult {
    let (first, second) = (numbered("w", 0..20), numbered("v", 0..13));
    let mut builder = IndexBuilder::new(IndexSettings::default())?;
    builder.add(&BenchmarkItem { id: "a", ..item("one", &first, "") })?;
    builder.add(&BenchmarkItem { id: "b", ..item("two", &second, "") })?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("benchmarks.idx");
    builder.build(BTreeMap::new(), &path)?;
    let index = Index::open(&path)?;
    let partial = numbered("w", 3..18);
    let ngrams = index.scan(&format!("{partial} and {second}"), "eng_Latn").ngrams();
    let found: Vec<(&str, f64)> = (index.items_hit(&ngrams).into_iter())
        .map(|(item, share)| (index.item(item).id, share))
        .collect();
    assert_eq!(found, [("a", 15.0 / 20.0), ("b", 1.0)]);
    assert_eq!(index.tasks_hit(&ngrams), [0, 1]);
    assert_eq!(index.tasks_hit(&index.scan(&partial, "eng_Latn").ngrams()), [0]);
    assert!(is_found(&path, "rule = 'item'\nmin_item = 0.75", &partial)?);
    assert!(!is_found(&path, "rule = 'item'\nmin_item = 0.76", &partial)?);
    Ok(())
}

#[test]
fn ngrams_of_the_training_split_and_of_ignored_texts_are_subtracted() -> TestResult {
    let common = numbered("w", 0..20);
    let licence = numbered("licence", 0..13);
    let own = numbered("own", 0..15);
    let test = format!("{common} {own}");
    let mut builder = IndexBuilder::new(IndexSettings::default())?;
    builder.add(&BenchmarkItem { split: "test", ..item("one", &test, "") })?;
    builder.add(&BenchmarkItem { split: "test", ..item("two", &test, "") })?;
    builder.add(&BenchmarkItem { split: "test", ..item("two", &licence, "") })?;
    builder.add(&BenchmarkItem { split: "test", ..item("two", "too short", "") })?;
    builder.add(&BenchmarkItem { split: "train", ..item("one", &common, "") })?;
    builder.ignore(&format!("This is a licence: {licence}"), "eng_Latn");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("benchmarks.idx");
    let inputs = [("items.jsonl".to_owned(), "00".to_owned())].into();
    let tasks = builder.build(inputs, &path)?;
    // 35 tokens have 23 n-grams, 20 have 8.
    let counts: Vec<_> = tasks
        .iter()
        .map(|t| (t.task.as_str(), t.items, t.not_covered, t.ngrams, t.subtracted))
        .collect();
    assert_eq!(counts, [("one", 1, 0, 15, 8), ("two", 3, 1, 23, 1)]);
    let index = Index::open(&path)?;
    assert_eq!(index.tasks(), tasks);
    assert_eq!(index.num_items(), 4);
    // What `one` trains on still is evidence for `two`.
    assert_eq!(index.tasks_hit(&index.scan(&common, "").ngrams()), [1]);
    assert_eq!(index.tasks_hit(&index.scan(&own, "").ngrams()), [0, 1]);
    assert!(index.scan(&licence, "").is_empty());
    Ok(())
}

#[test]
fn items_that_cannot_be_are_refused() -> TestResult {
    let mut builder = IndexBuilder::new(IndexSettings::default())?;
    assert_eq!(builder.add(&item("", "text", "")), Err("has no task"));
    assert_eq!(builder.add(&item("task", "", "")), Err("has no text"));
    let text = numbered("w", 0..13);
    let first = BenchmarkItem { id: "1", ..item("task", &text, "") };
    assert_eq!(builder.add(&first), Ok(()));
    assert_eq!(builder.add(&first), Ok(()));
    let other = BenchmarkItem { answer: "another", ..first };
    assert_eq!(builder.add(&other), Err("has the id of another item with another text"));
    assert_eq!(builder.add(&BenchmarkItem { split: "dev", ..other }), Ok(()));
    // Parallel benchmarks have one id in every language.
    assert_eq!(builder.add(&BenchmarkItem { language: "deu_Latn", ..other }), Ok(()));
    let index = open(builder)?;
    assert_eq!((index.num_items(), index.num_ngrams()), (3, 1));
    let unused = Path::new("benchmarks.idx");
    let empty = IndexBuilder::new(IndexSettings::default())?.build(BTreeMap::new(), unused);
    assert!(matches!(empty, Err(Error::Config { .. })));
    let none = IndexSettings { ngram: 0, ..IndexSettings::default() };
    assert!(matches!(IndexBuilder::new(none), Err(Error::Config { .. })));
    Ok(())
}

/// Language, item, and a word in its middle, in every n-gram of it, that another takes the place
/// of.
const PLANTED: [(&str, &str, &str, &str); 8] = [
    (
        "eng_Latn",
        "Which of the following gases makes up the largest share of the Earth's atmosphere today?",
        "share",
        "part",
    ),
    (
        "cmn_Hani",
        "下列关于光合作用的说法中，哪一项正确地描述了植物在白天吸收二氧化碳的过程？",
        "描述",
        "说明",
    ),
    (
        "jpn_Jpan",
        "次のうち、日本の首都である東京がパリと同じように位置する半球はどれですか。",
        "パリ",
        "ロマ",
    ),
    ("tha_Thai", "เมืองหลวงของประเทศไทยคือจังหวัดใดต่อไปนี้", "ไทย", "จีน"),
    (
        "arb_Arab",
        "أي من الغازات التالية يشكل النسبة الأكبر من الغلاف الجوي للأرض في الوقت الحاضر؟",
        "الجوي",
        "المائي",
    ),
    ("hin_Deva", "निम्नलिखित में से कौन सी गैस पृथ्वी के वायुमंडल का सबसे बड़ा भाग आज बनाती है?", "पृथ्वी", "मंगल"),
    (
        "ell_Grek",
        "Ποιο από τα παρακάτω αέρια αποτελεί το μεγαλύτερο μέρος της ατμόσφαιρας της Γης σήμερα;",
        "μέρος",
        "ποσοστό",
    ),
    (
        "kor_Hang",
        "다음 중 오늘날 지구 대기의 가장 큰 부분을 차지하는 기체는 무엇인지 바르게 고른 것은 어느 것인가?",
        "차지하는",
        "만드는",
    ),
];

#[test]
fn planted_items_are_found_and_near_misses_are_not() -> TestResult {
    let items: Vec<BenchmarkItem<'_>> =
        PLANTED.iter().map(|(language, text, ..)| item(language, text, language)).collect();
    let index = index(IndexSettings::default(), &items)?;
    assert!(index.tasks().iter().all(|task| task.not_covered == 0 && task.ngrams > 0));
    for (number, (language, text, word, other)) in PLANTED.iter().enumerate() {
        for planted in [
            (*text).to_owned(),
            text.to_uppercase(),
            text.replace(' ', " — \n"),
            text.replace(['，', '、', '？', '?', ';', '؟'], " … "),
        ] {
            let document = format!("１) « {planted} » A. B. C.");
            let hits = index.scan(&document, language);
            assert_eq!(index.tasks_hit(&hits.ngrams()), [number], "{document}");
            let spans = hits.spans();
            assert_eq!(spans.len(), 1, "{document}");
            assert!(document[spans[0].clone()].len() > text.len() / 2);
        }
        let near = text.replace(word, other);
        assert_ne!(near, *text);
        assert!(index.scan(&near, language).is_empty(), "{near}");
    }
    // An item is found in documents of other languages, and where nothing says what it is written
    // in.
    let mixed = PLANTED.map(|(_, text, ..)| text).join("\n");
    let unknown = PLANTED.map(|(_, text, ..)| item("unknown", text, ""));
    let unknown = self::index(IndexSettings::default(), &unknown)?;
    for (number, (own, text, ..)) in PLANTED.iter().enumerate() {
        for language in ["eng_Latn", "cmn_Hani", "tha_Thai", "und", ""] {
            let ngrams = index.scan(text, language).ngrams();
            assert_eq!(index.tasks_hit(&ngrams), [number], "{own} {language}");
            assert_eq!(unknown.scan(text, language).spans(), index.scan(text, own).spans());
        }
    }
    let all: Vec<usize> = (0..PLANTED.len()).collect();
    assert_eq!(index.tasks_hit(&index.scan(&mixed, "jpn_Jpan").ngrams()), all);
    Ok(())
}
