//! `polysift report`: its counts beside those of the run, of the export and of recounts; the page; what is missing.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, page_cell, polysift, read_parquet, text};

/// Documents of the workspace by language.
const DOCUMENTS: [(&str, usize); 2] = [("deu_Latn", 25), ("fra_Latn", 40)];

/// The text of document `i` of a language; two have none, and one would end a script.
fn text_of(language: &str, i: usize) -> Option<String> {
    match i {
        7 => None,
        9 => Some(format!("</script><script>1 {}", text(i))),
        11 => Some("漢字かな交じり文 ok".to_owned()),
        _ => Some(format!(
            "{} {}",
            text(i),
            "mot ".repeat(i % 4 * usize::from(language == "fra_Latn"))
        )),
    }
}

/// The number of words of a text; each of the eight letters of Japanese is one.
fn words_of(text: &str) -> usize {
    text.split_whitespace().count() + if text.starts_with('漢') { 7 } else { 0 }
}

/// A workspace with URLs and a head of toxicity in French, and a run of it.
fn ran() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    work.write_toxicity_samples()?;
    for (language, documents) in DOCUMENTS {
        // In two files, so that there are shards to be in another order.
        for (name, rows) in [("a", 0..documents / 2), ("b", documents / 2..documents)] {
            let rows = rows.map(|i| {
                let url = format!("https://www{}.example.co.uk/{i}", i % 3);
                let url =
                    if i % 5 == 0 { format!("http://www.xn--bcher-kva.org/{i}") } else { url };
                json!({"id": format!("{language}-{i}"), "text": text_of(language, i), "url": url})
            });
            work.write_lines(&format!("corpus/{language}/{name}.jsonl"), rows)?;
        }
    }
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let more = "removal = { toxicity = 0.2 }\n[heads.toxicity]\ntrain = ['toxic/{lang}.jsonl']\n";
    work.write("run.toml", settings + more)?;
    work.command("run", "out").assert().success();
    Ok(work)
}

/// `polysift report RUN ARGUMENTS` in the workspace.
fn reported(work: &Workspace, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).arg("report").args(arguments);
    command
}

fn made(work: &Workspace, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
    reported(work, &[&["out"], arguments].concat()).assert().success();
    work.json("out/report/report.json")
}

/// The entry of `language` in a list.
fn of<'a>(list: &'a Value, language: &str) -> &'a Value {
    let mut entries = list.as_array().into_iter().flatten();
    entries.find(|entry| entry["language"] == language).unwrap_or(&Value::Null)
}

/// Exported documents by id, with the smallest rate that keeps each.
fn exported(work: &Workspace, language: &str) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
    let mut found = BTreeMap::new();
    for name in ["a", "b"] {
        let rows = read_parquet(&work.path(&format!("out/export/{language}/{name}.parquet")))?;
        let column = |name: &str| rows.column_by_name(name).ok_or("no column");
        let ids = arrow::compute::cast(column("id")?, &arrow::datatypes::DataType::Utf8)?;
        let rates = column("quality_retention")?.as_primitive::<Float64Type>();
        let ids = ids.as_string::<i32>().iter().flatten().map(str::to_owned);
        found.extend(ids.zip(rates.iter().map(|rate| rate.unwrap_or(f64::NAN))));
    }
    Ok(found)
}

/// Mean, standard deviation and median by their definitions.
fn naive(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    };
    [mean, variance.sqrt(), median]
}

#[test]
fn counts_are_those_of_the_thresholds_and_of_the_export() -> TestResult {
    let work = ran()?;
    for order in ["[]", "['quality', 'toxicity']"] {
        let order_set = format!("selection.order={order}");
        let order_set = ["--set", order_set.as_str()];
        let again = ["--redo", "threshold"];
        work.command("threshold", "out").args(order_set).args(again).assert().success();
        work.command("export", "out").args(order_set).assert().success();
        let report = made(&work, &[])?;
        assert_eq!(report["selections"], json!(["quality=0.1", "quality=0.33"]));
        for (language, documents) in DOCUMENTS {
            let found = of(&report["languages"], language);
            assert_eq!(found["documents"], documents);
            let stored = work.json(&format!("out/selection/{language}.json"))?;
            let last = stored["thresholds"].as_array().and_then(|all| all.last()).ok_or("none")?;
            for (i, name) in ["quality=0.1", "quality=0.33"].into_iter().enumerate() {
                let kept = &last["outcomes"][i]["kept"]["num_documents"];
                assert_eq!(found["selected"][name]["documents"], *kept, "{language} {name}");
            }
            let score = &found["scores"]["quality"];
            assert_eq!(score["n"], last["scored"]["num_documents"]);
            let counts = score["bins"]["counts"].as_array().ok_or("no bins")?;
            // Twice the cube root of 24 or 39 documents, rounded up.
            assert_eq!(counts.len(), if language == "deu_Latn" { 6 } else { 7 });
            assert_eq!(counts.iter().filter_map(Value::as_u64).sum::<u64>(), score["n"]);
            let curve = &score["curve"];
            assert_eq!(curve["documents"][0], 0);
            let ends = curve["documents"].as_array().and_then(|all| all.last()).ok_or("none")?;
            assert_eq!(ends, &score["n"]);
            if order == "[]" {
                let ids = exported(&work, language)?;
                assert_eq!(found["selected"]["quality=0.33"]["documents"], ids.len());
                let few = ids.values().filter(|rate| **rate < 0.2).count();
                assert_eq!(found["selected"]["quality=0.1"]["documents"], few);
                lengths_are_those_of_a_recount(found, (language, documents), &ids);
            }
        }
        // One in French for each selection, none in German, which has no such head.
        let french = of(&report["languages"], "fra_Latn")["thresholds"].as_array();
        assert_eq!(french.map(Vec::len), Some(4));
        assert_eq!(of(&report["languages"], "deu_Latn")["scores"]["toxicity"], Value::Null);
    }
    Ok(())
}

fn lengths_are_those_of_a_recount(
    found: &Value,
    (language, documents): (&str, usize),
    exported: &BTreeMap<String, f64>,
) {
    let is_in = |i: &usize, most: f64| {
        exported.get(&format!("{language}-{i}")).is_some_and(|rate| *rate <= most)
    };
    for (group, most) in [("all", f64::INFINITY), ("quality=0.1", 0.1), ("quality=0.33", 0.33)] {
        let texts: Vec<String> = (0..documents)
            .filter(|i| most.is_infinite() || is_in(i, most))
            .filter_map(|i| text_of(language, i))
            .collect();
        let length = &found["length"][group];
        assert_eq!(length["documents"], texts.len(), "{language} {group}");
        let of = |length: fn(&str) -> usize| texts.iter().map(|text| length(text) as f64).collect();
        let measures = [
            ("words", naive(of(words_of))),
            ("characters", naive(of(|text| text.chars().count()))),
            ("bytes", naive(of(str::len))),
        ];
        for (measure, expected) in measures {
            for (name, expected) in ["mean", "std", "median"].into_iter().zip(expected) {
                let found = length[measure][name].as_f64().unwrap_or(f64::NAN);
                let error = (found - expected).abs();
                assert!(error <= 1e-6 * expected, "{language} {group} {measure} {name}: {found}");
            }
        }
    }
}

#[test]
fn examples_have_their_ranks_texts_and_domains() -> TestResult {
    let work = ran()?;
    let report = made(&work, &["--examples", "3"])?;
    let french = of(&report["languages"], "fra_Latn");
    let examples = french["examples"].as_array().ok_or("no examples")?;
    let shown_for = |word: &str| -> Vec<&Value> {
        let is_shown = |example: &&Value| {
            let words = example["shown_for"]["quality"].as_array().into_iter().flatten();
            words.into_iter().any(|found| found == word)
        };
        examples.iter().filter(is_shown).collect()
    };
    let ranks = |word: &str| -> Vec<u64> {
        let ranks = shown_for(word).into_iter();
        let mut ranks: Vec<u64> =
            ranks.filter_map(|row| row["ranks"]["quality"].as_u64()).collect();
        ranks.sort_unstable();
        ranks
    };
    let n = french["scores"]["quality"]["n"].as_u64().ok_or("no n")?;
    assert_eq!((n, ranks("top"), ranks("bottom")), (39, vec![0, 1, 2], vec![36, 37, 38]));
    assert_eq!(french["sample"]["ranks"]["quality"].as_array().map(Vec::len), Some(40));
    for name in ["quality=0.1", "quality=0.33"] {
        let (above, below) = (format!("above_cut {name}"), format!("below_cut {name}"));
        assert!(ranks(&above).last() < ranks(&below).first(), "{name}");
        assert!(
            shown_for(&above).iter().all(|row| !row["verdict"].to_string().contains("removed"))
        );
        // The curve has the very place of the cut.
        let cut = ranks(&above).last().map(|rank| rank + 1);
        let curve = french["scores"]["quality"]["curve"]["documents"].as_array();
        assert!(curve.into_iter().flatten().any(|point| point.as_u64() == cut), "{name}: {cut:?}");
    }
    for example in examples {
        let i: usize =
            example["id"].as_str().and_then(|id| id.rsplit('-').next()?.parse().ok()).ok_or("")?;
        assert_eq!(example["text"], json!(text_of("fra_Latn", i)));
        let domain = if i.is_multiple_of(5) { "bücher.org" } else { "example.co.uk" };
        assert_eq!(example["domain"], domain);
    }
    let domains = french["domains"].as_array().ok_or("no domains")?;
    let counts: Vec<(&Value, &Value)> =
        domains.iter().map(|row| (&row["domain"], &row["documents"])).collect();
    assert_eq!(counts, [(&json!("example.co.uk"), &json!(32)), (&json!("bücher.org"), &json!(8))]);
    let kept = domains.iter().filter_map(|row| row["kept"]["quality=0.33"].as_u64()).sum::<u64>();
    assert_eq!(french["selected"]["quality=0.33"]["documents"], kept);
    Ok(())
}

#[test]
fn the_same_run_gives_the_same_bytes_and_stays_as_it_is() -> TestResult {
    let work = ran()?;
    let before = digests(&work.path("out"))?;
    for (out, threads) in [("one", "1"), ("two", "2"), ("again", "2")] {
        reported(&work, &["out", "--out", out, "--threads", threads]).assert().success();
    }
    assert_eq!(digests(&work.path("out"))?, before, "the run is only read");
    let digests = |out: &str| digests(&work.path(out));
    assert_eq!(digests("one")?, digests("two")?);
    assert_eq!(digests("one")?, digests("again")?);
    assert_eq!(digests("one")?.into_keys().collect::<Vec<_>>(), ["index.html", "report.json"]);
    // The data of the page is that of the file, and nothing in it ends its script.
    let page = std::fs::read_to_string(work.path("one/index.html"))?;
    let json = std::fs::read_to_string(work.path("one/report.json"))?;
    assert!(json.contains("</script>") && !json.contains(&*work.dir.path().to_string_lossy()));
    let (_, rest) = page.split_once("id=\"data\">").ok_or("no data")?;
    let (data, _) = rest.split_once("</script>").ok_or("no end")?;
    let mut shown = String::new();
    GzDecoder::new(&STANDARD.decode(data)?[..]).read_to_string(&mut shown)?;
    assert_eq!(shown, json.trim_end());
    Ok(())
}

#[test]
fn what_is_missing_is_said() -> TestResult {
    let work = ran()?;
    std::fs::remove_file(work.path("corpus/deu_Latn/b.jsonl"))?;
    reported(&work, &["out"]).assert().success().stdout(contains("1 language(s) are gone"));
    let report = work.json("out/report/report.json")?;
    let has_words = |report: &Value, language: &str| {
        !of(&report["languages"], language)["length"]["all"]["words"].is_null()
    };
    assert!(!has_words(&report, "deu_Latn") && has_words(&report, "fra_Latn"));
    assert!(of(&report["languages"], "deu_Latn")["length"]["all"]["bytes"]["mean"].is_f64());
    let report = made(&work, &["--no-texts", "--json"])?;
    assert!(!has_words(&report, "fra_Latn") && report["notes"] == json!([]));
    assert!(of(&report["languages"], "fra_Latn")["examples"][0]["text"].is_null());

    std::fs::remove_dir_all(work.path("out/state/threshold"))?;
    reported(&work, &["out"]).assert().code(66).stderr(contains("polysift threshold"));
    reported(&work, &["nowhere"]).assert().code(66).stderr(contains("not a run directory"));
    Ok(())
}

#[test]
fn another_run_and_lists_of_ids_are_compared_with() -> TestResult {
    let work = ran()?;
    work.command("run", "other")
        .args(["--retention", "quality=0.5", "--removal", "toxicity=0.01"])
        .assert()
        .success();
    let kept = |report: &Value, language: &str, name: &str| {
        of(&report["languages"], language)["selected"][name]["documents"].as_u64()
    };
    let report = made(&work, &["--compare", "other"])?;
    assert_eq!(report["compare"]["with"], "other");
    assert_eq!(report["compare"]["unknown"], json!({"documents": 0, "ids": []}));
    assert_eq!(report["notes"], json!([]));
    for (language, _) in DOCUMENTS {
        let compared = of(&report["compare"]["languages"], language);
        assert_eq!(compared["here"].as_u64(), kept(&report, language, "quality=0.33"));
        assert!(compared["there"].as_u64() > compared["here"].as_u64());
        assert!(compared["both"].as_u64() <= compared["here"].as_u64());
    }
    work.write("ids.txt", "fra_Latn-1\nfra_Latn-2\nfra_Latn-400\n")?;
    let report = made(&work, &["--compare", "ids.txt"])?;
    let compared = of(&report["compare"]["languages"], "fra_Latn");
    assert_eq!(compared["there"], 2);
    assert_eq!(report["compare"]["unknown"], json!({"documents": 1, "ids": ["fra_Latn-400"]}));
    let note = "1 of the 3 ids of ids.txt belong to no document of this run: fra_Latn-400";
    assert_eq!(report["notes"], json!([note]));
    // Of many only the first ten are named, each once.
    let ids: Vec<String> = (0..30).map(|i| format!("none-{:02}", i / 2)).collect();
    work.write("ids.txt", ids.join("\n"))?;
    let named: Vec<String> = (0..10).map(|i| format!("none-{i:02}")).collect();
    let report = made(&work, &["--compare", "ids.txt"])?;
    assert_eq!(report["compare"]["unknown"], json!({"documents": 15, "ids": named}));
    reported(&work, &["out", "--compare", "ids.txt"])
        .assert()
        .stdout(contains("note: 15 of the 15 ids of ids.txt").and(contains("none-09, …")));
    reported(&work, &["out", "--compare", "nothing.txt"]).assert().code(66);
    Ok(())
}

/// Without heads there are filters alone; what they remove before the thresholds is no document of the report.
#[test]
fn a_run_of_filters_is_reported_too() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let filters = settings.find("[filters").ok_or("no filters")?;
    work.write(
        "run.toml",
        format!(
            "[input]\nfiles = ['corpus/{{lang}}/*.jsonl']\n[encoder]\nmodel = 'none'\n{}",
            &settings[filters..]
        ),
    )?;
    work.command("run", "out").assert().success();
    // What a filter removes is known nevertheless.
    let ids: Vec<String> = (0..40).map(|i| format!("fra_Latn-{i}")).collect();
    work.write("ids.txt", ids.join("\n"))?;
    let report = made(&work, &["--compare", "ids.txt"])?;
    assert_eq!(report["compare"]["unknown"]["documents"], 0);
    // Two of the 40 are withdrawn, one has no text, and of the others a quarter is not known.
    let compared = of(&report["compare"]["languages"], "fra_Latn");
    assert_eq!(compared["there"], 40);
    assert_eq!(compared["here"], compared["both"]);
    let french = of(&report["languages"], "fra_Latn");
    // Two of 40 were withdrawn, another has no text.
    assert_eq!((&french["documents"], &french["tokens"]), (&json!(38), &Value::Null));
    assert_eq!(french["selected"]["kept"]["documents"], 37);
    assert_eq!((&report["encoder"], &report["heads"]), (&json!("none"), &json!([])));
    assert_eq!(report["filters"]["requests"], work.json("out/filters/requests.json")?);
    Ok(())
}

/// What the cards of heads and the files of thresholds say.
#[test]
fn tests_of_heads_and_the_time_are_those_of_the_run() -> TestResult {
    let work = ran()?;
    let report = made(&work, &[])?;
    for (language, head) in
        [("deu_Latn", "quality"), ("fra_Latn", "quality"), ("fra_Latn", "toxicity")]
    {
        let file = work.path(&format!("out/heads/{head}/{language}.safetensors"));
        let shown = polysift().arg("inspect").arg(file).arg("--json").assert().success();
        let shown: Value = serde_json::from_slice(&shown.get_output().stdout)?;
        let found = &of(&report["languages"], language)["scores"][head]["test"];
        assert_eq!(found, &shown["card"]["training"]["test"]);
        assert!(found["num_samples"].as_u64() > Some(0), "{shown}");
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    for (language, _) in DOCUMENTS {
        let file = work.path(&format!("out/selection/{language}.json"));
        std::fs::File::options().write(true).open(file)?.set_modified(time)?;
    }
    assert_eq!(made(&work, &[])?["time"], 1_700_000_000);
    // Without its file a head has no test, and the report is made nevertheless.
    std::fs::remove_file(work.path("out/heads/quality/deu_Latn.safetensors"))?;
    let report = made(&work, &[])?;
    assert_eq!(of(&report["languages"], "deu_Latn")["scores"]["quality"]["test"], Value::Null);
    Ok(())
}

#[test]
fn the_page_opens_in_a_browser_and_shows_the_numbers_of_the_run() -> TestResult {
    let work = ran()?;
    let report = made(&work, &[])?;
    let Some(shown) = work.page("out/report", "") else { return Ok(()) };
    for (language, _) in DOCUMENTS {
        let selected = &of(&report["languages"], language)["selected"]["quality=0.1"];
        let documents = selected["documents"].as_u64().ok_or("no count")?;
        assert!(shown.contains(&page_cell(language, documents)), "{language}");
    }
    let french = of(&report["languages"], "fra_Latn");
    let tested = &french["scores"]["quality"]["test"]["num_samples"];
    for text in [
        format!("the head quality was tested on {tested} texts"),
        "there are 25 documents, of which quality=0.1 keeps".to_owned(),
        "in 2 languages, ".to_owned(),
    ] {
        assert!(shown.contains(&text), "{text}");
    }
    // The best fifth of the 24 German documents with a text.
    let shown = work.page("out/report", "#quality=0.2").unwrap_or_default();
    assert!(shown.contains(&page_cell("deu_Latn", 5)));
    Ok(())
}

/// The published mode selects by a sample that the page does not have, so no rate is asked of the page.
#[test]
fn the_page_of_a_run_in_the_published_mode_offers_no_other_rates() -> TestResult {
    let work = ran()?;
    assert_eq!(made(&work, &[])?["mode"], "default");
    let published = ["--set", "selection.mode=published"];
    work.command("run", "drawn").args(published).assert().success();
    reported(&work, &["drawn"]).assert().success();
    let report = work.json("drawn/report/report.json")?;
    assert_eq!(report["mode"], "published");
    let Some(shown) = work.page("drawn/report", "#quality=0.7") else { return Ok(()) };
    for (language, _) in DOCUMENTS {
        let selected = &of(&report["languages"], language)["selected"]["quality=0.1"];
        let documents = selected["documents"].as_u64().ok_or("no count")?;
        assert!(shown.contains(&page_cell(language, documents)), "{language}");
    }
    let narrowed = work.page("drawn/report", "#least=1").unwrap_or_default();
    let control = "aria-label=\"Keep the best by";
    assert!(!shown.contains(control) && narrowed.contains("unknown (the published mode"));
    Ok(())
}

/// The workspace's only documents, with a head that is their column `s`, and a run of them.
fn scored_by_column(rows: impl Iterator<Item = Value>) -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
         [heads.a]\nkind = 'column'\nscore = 's'\n\
         [languages._default]\nthreshold = { a = { at_least = 0.65 } }\n",
    )?;
    work.write_lines("in/eng_Latn/a.jsonl", rows)?;
    work.command("run", "out").assert().success();
    Ok(work)
}

/// Where several documents have one id, as many are in both as in the run that keeps fewer.
#[test]
fn documents_with_one_id_are_compared_one_by_one() -> TestResult {
    let rows = [("x", 0.9), ("x", 0.8), ("x", 0.7), ("y", 0.95), ("z", 0.1)].into_iter();
    let row =
        |(i, (id, score)): (usize, (&str, f64))| json!({"id": id, "text": text(i), "s": score});
    let work = scored_by_column(rows.enumerate().map(row))?;
    work.command("run", "other")
        .args(["--set", "languages._default={threshold={a={at_least=0.85}}}"])
        .assert()
        .success();
    let compared = |run: &str, with: &str| -> Result<Value, Box<dyn Error>> {
        reported(&work, &[run, "--out", "r", "--compare", with]).assert().success();
        let report = work.json("r/report.json")?;
        assert_eq!(report["compare"]["unknown"]["documents"], 0);
        Ok(of(&report["compare"]["languages"], "eng_Latn").clone())
    };
    for (run, with, [here, there, both]) in
        [("out", "other", [4, 2, 2]), ("other", "out", [2, 4, 2]), ("out", "out", [4, 4, 4])]
    {
        let expected = json!({"language": "eng_Latn", "here": here, "there": there, "both": both});
        assert_eq!(compared(run, with)?, expected);
    }
    work.write("ids.txt", "x\nz\n")?;
    // Three documents of the run have the id x and are kept, and one has the id z.
    let listed = compared("out", "ids.txt")?;
    assert_eq!((&listed["there"], &listed["both"]), (&json!(4), &json!(3)));
    let rows = work.json("r/report.json")?["compare"]["languages"].as_array().map(Vec::len);
    assert_eq!(rows, Some(1));
    // Another run may have languages that this one lacks.
    let row = json!({"id": "x", "text": text(1), "s": 0.9});
    work.write_lines("in/ita_Latn/a.jsonl", [row].into_iter())?;
    work.command("run", "wide").assert().success();
    compared("out", "wide")?;
    let italian = json!({"language": "ita_Latn", "here": 0, "there": 1, "both": 0});
    assert_eq!(of(&work.json("r/report.json")?["compare"]["languages"], "ita_Latn"), &italian);
    Ok(())
}

#[test]
fn a_language_without_documents_has_no_tokens_and_keeps_none() -> TestResult {
    let row = |(i, id): (usize, &str)| json!({"id": id, "text": text(i), "s": 0.9});
    let work = scored_by_column(["x", "y"].into_iter().enumerate().map(row))?;
    work.write_lines("in/ita_Latn/a.jsonl", [row((2, "gone"))].into_iter())?;
    work.write("gone.txt", "gone\n")?;
    let filter = ["--set", "filters.withdrawn={kind='ids',lists=['gone.txt']}"];
    work.command("run", "less").args(filter).assert().success();
    reported(&work, &["less"]).assert().success();
    let report = work.json("less/report/report.json")?;
    let italian = of(&report["languages"], "ita_Latn");
    assert_eq!((&italian["documents"], &italian["tokens"]), (&json!(0), &Value::Null));
    assert_eq!(italian["selected"]["a=0.65"]["tokens"], Value::Null);
    assert_eq!(italian["scores"]["a"]["curve"]["tokens"], Value::Null);
    let Some(shown) = work.page("less/report", "#a=0.5") else { return Ok(()) };
    assert!(shown.contains(&page_cell("ita_Latn", 0)) && shown.contains(&page_cell("eng_Latn", 1)));
    assert!(!shown.contains("0 tokens") && !shown.contains("unknown (there is no sample"));
    Ok(())
}

#[test]
fn infinite_scores_lie_in_the_last_bins_and_at_the_ends_of_the_curve() -> TestResult {
    let row = |i: usize| {
        let score = match i {
            0 => json!("-inf"),
            1 => json!("inf"),
            i => json!(i),
        };
        json!({"id": i, "text": text(i), "s": score})
    };
    let work = scored_by_column((0..20).map(row))?;
    let report = made(&work, &[])?;
    let scores = &of(&report["languages"], "eng_Latn")["scores"]["a"];
    assert_eq!(scores["bins"], scores["logits"]);
    let counts = scores["logits"]["counts"].as_array().into_iter().flatten();
    assert_eq!(counts.filter_map(Value::as_u64).sum::<u64>(), 20);
    let curve = scores["curve"]["score"].as_array().ok_or("no curve")?;
    assert_eq!((&curve[1], curve.last()), (&json!("inf"), Some(&json!("-inf"))));
    // On the page too, minus infinity does not pass a threshold below 0.
    let low = ["--set", "languages._default={threshold={a={at_least=-0.5}}}"];
    work.command("run", "low").args(low).assert().success();
    reported(&work, &["low"]).assert().success();
    let Some(shown) = work.page("low/report", "#least=1") else { return Ok(()) };
    assert!(shown.contains(&page_cell("eng_Latn", 19)));
    Ok(())
}
