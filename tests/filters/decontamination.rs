//! Decontamination: what an index of benchmarks finds, flags and cuts, and items that are refused.

use assert_cmd::assert::Assert;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use super::{ids, texts};
use crate::util::{TestResult, Workspace, digests, polysift};

/// Seventeen words that stand nowhere else, from number `start` on.
fn words(start: usize) -> String {
    (start..start + 17).map(|i| format!("word{i}")).collect::<Vec<_>>().join(" ")
}

/// Makes the index `out` of the `items`.
fn index(work: &Workspace, items: &str, out: &str) -> Assert {
    let mut command = polysift();
    command.current_dir(work.dir.path());
    command.args(["dataset", "benchmarks", "--items", items, "--out", out]).assert()
}

/// A corpus with text of benchmarks in it, and the index of their items.
fn contaminated() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    let filler = |n: usize| "other ".repeat(n);
    let chinese: String = ('\u{4E00}'..).take(40).collect();
    let near = words(0).replace("word8 ", "word800 ");
    let texts = [
        words(0),                                              // a whole item
        near,                                                  // one word changed
        format!("{}{}{}", filler(60), words(100), filler(60)), // in the middle
        format!("{chinese}。"),                                // without spaces
        words(200),                                            // of the training split
        "nothing of all this".to_owned(),
        words(300).to_uppercase().replace(' ', ", "), // otherwise written
    ];
    let language = |i| if i == 3 { "cmn_Hani" } else { "eng_Latn" };
    let rows = texts
        .iter()
        .enumerate()
        .map(|(i, text)| json!({"id": i.to_string(), "text": text, "language": language(i)}));
    work.write_lines("web/a.jsonl", rows)?;
    let items = [
        json!({"task": "quiz", "id": 1, "question": words(0), "answer": "yes"}),
        json!({"task": "quiz", "id": 2, "question": "too short", "answer": "no"}),
        json!({"task": "quiz", "id": 3, "split": "train", "question": words(200)}),
        json!({"task": "quiz", "id": 4, "question": words(200)}),
        json!({"task": "han", "id": 1, "text": chinese, "language": "cmn_Hani"}),
    ];
    work.write_lines("items/own.jsonl", items.into_iter())?;
    let decon = [
        json!({"eval_key": "exam", "eval_instance_index": 7, "question": words(100), "answer": "a", "is_correct": true}),
        json!({"eval_key": "exam", "eval_instance_index": 7, "question": words(100), "answer": "b", "is_correct": false}),
    ];
    work.write_lines("items/decon.jsonl", decon.into_iter())?;
    let datatrove = [json!({"task": "dt", "query": "Why?", "text": words(300)})];
    work.write_lines("items/datatrove.jsonl", datatrove.into_iter())?;
    index(&work, "items/*.jsonl", "b.idx")
        .success()
        .stdout(contains("quiz").and(contains("not covered")));
    let input = "[input]\nfiles = ['web/*.jsonl']\nlanguage = { column = 'language' }\n[encoder]\nmodel = 'none'\n\
                 [filters.benchmarks]\nkind = 'decontamination'\nindex = 'b.idx'\n";
    work.write("run.toml", input)?;
    Ok(work)
}

#[test]
fn an_index_that_a_kill_left_half_written_is_removed_by_the_next_one() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines(
        "items.jsonl",
        (0..3).map(|i| {
            let answer = format!(
                "the quick brown fox jumps over the lazy dog while nobody looks at its number {i}"
            );
            json!({"id": i.to_string(), "task": "t", "answer": answer, "language": "eng_Latn"})
        }),
    )?;
    let build = || {
        let mut command = polysift();
        command.current_dir(work.dir.path());
        command.args(["dataset", "benchmarks", "--items", "items.jsonl", "--out", "b.idx"]);
        command
    };
    // At the first piece of data, which the name does not wait for.
    let killed = build().env("POLYSIFT_KILL_AT", "3").output()?;
    assert_eq!(killed.status.code(), None);
    let temporaries = || -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let files = digests(work.dir.path())?.into_keys();
        Ok(files.filter(|name| name.contains(".tmp")).collect())
    };
    assert_eq!(temporaries()?.len(), 1);
    // Of another file, and of a process that is at work, which has it locked: this one.
    let alive = format!(".b.idx.{}-0.tmp", std::process::id());
    work.write(".c.idx.999999999-0.tmp", "")?;
    let at_work = std::fs::File::create(work.path(&alive))?;
    at_work.lock()?;
    build().assert().success();
    let mut kept = [alive, ".c.idx.999999999-0.tmp".to_owned()];
    kept.sort();
    assert_eq!(temporaries()?, kept);
    Ok(())
}

#[test]
fn text_of_benchmarks_is_found_and_leaks_are_counted() -> TestResult {
    let work = contaminated()?;
    work.command("run", "out").assert().success();
    assert_eq!(ids(&work, "out/export/a.parquet")?, ["1", "4", "5"].map(str::to_owned).into());
    let tasks = texts(&work, "out/verdicts/a.parquet", "detail")?;
    let tasks: Vec<String> = tasks.into_iter().flatten().collect();
    assert_eq!(tasks, ["quiz", "exam", "han", "dt"]);
    let report = work.json("out/filters/benchmarks.json")?;
    assert_eq!(report["total"]["found"]["documents"], 4);
    let of_tasks = report["leaks"]["tasks"].as_array().ok_or("no tasks")?;
    let quiz = of_tasks.iter().find(|task| task["task"] == "quiz").ok_or("no quiz")?;
    // Items 1 (18 tokens), 2 (too short) and 4, whose 5 n-grams are those of item 3; of item 1's 6 the one that ends
    // with `yes` is not in the corpus.
    let expected = json!({
        "task": "quiz", "items": 3, "not_covered": 1, "items_hit": 1, "ngrams": 6,
        "leaked_ngrams": 5, "leaked_percent": 100.0 * 5.0 / 6.0,
    });
    assert_eq!(quiz, &expected);
    assert_eq!(report["leaks"]["ngrams"][0][1], 1);
    let items = std::fs::read_to_string(work.path("out/filters/benchmarks.items.jsonl"))?;
    assert_eq!(items.lines().count(), 4);
    assert!(items.contains("\"task\":\"exam\",\"id\":\"7\""), "{items}");
    let mut verify = polysift();
    verify.current_dir(work.dir.path()).args(["verify", "out"]).assert().success();
    Ok(())
}

#[test]
fn what_is_found_may_be_flagged_or_cut() -> TestResult {
    let work = contaminated()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", format!("{settings}action = 'flag'\n"))?;
    work.command("run", "flagged").assert().success();
    let flags = texts(&work, "flagged/export/a.parquet", "benchmarks")?;
    let flags: Vec<&str> = flags.iter().map(|flag| flag.as_deref().unwrap_or("-")).collect();
    assert_eq!(flags, ["quiz", "-", "exam", "han", "-", "-", "dt"]);

    work.write("run.toml", format!("{settings}action = 'cut'\n"))?;
    work.command("run", "cut").assert().success();
    // 360 characters on each side of the item, of which 200 go: too little is left of either side, as of the
    // whole documents that were found.
    assert_eq!(ids(&work, "cut/export/a.parquet")?, ["1", "4", "5"].map(str::to_owned).into());
    let long = format!("{}{}{}", "before ".repeat(100), words(100), " behind".repeat(100));
    let rows = [json!({"id": "long", "text": long, "language": "eng_Latn"})];
    work.write_lines("web/a.jsonl", rows.into_iter())?;
    work.command("run", "long").assert().success();
    let exported = texts(&work, "long/export/a.parquet", "text")?;
    let [pieces] = &exported[..] else { return Err("not one text".into()) };
    let expected =
        format!("{}\n\n{}", &"before ".repeat(100)[..500], &" behind".repeat(100)[200..]);
    assert_eq!(pieces.as_deref(), Some(expected.as_str()));
    let mut card = polysift();
    let card =
        card.current_dir(work.dir.path()).args(["card", "long", "--json"]).assert().success();
    let facts: serde_json::Value = serde_json::from_slice(&card.get_output().stdout)?;
    assert_eq!(facts["languages"][0]["bytes"], expected.len());
    let parts = texts(&work, "long/verdicts/a.parquet", "pieces")?;
    assert_eq!(
        parts[0].as_deref(),
        Some(format!("0-500 {}-{}", long.len() - 500, long.len()).as_str())
    );
    Ok(())
}

#[test]
fn a_document_that_two_filters_cut_keeps_what_both_leave() -> TestResult {
    let work = contaminated()?;
    let item = json!({"task": "other", "question": words(600), "language": "eng_Latn"});
    work.write_lines("other.jsonl", [item].into_iter())?;
    let mut index = polysift();
    index.current_dir(work.dir.path()).args(["dataset", "benchmarks", "--items", "other.jsonl"]);
    index.args(["--out", "o.idx"]).assert().success();
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let other = "[filters.other]\nkind = 'decontamination'\nindex = 'o.idx'\naction = 'cut'\n";
    work.write("run.toml", format!("{settings}action = 'cut'\n{other}"))?;
    let (first, second) = (words(100), words(600));
    let [before, behind] = ["before ", " behind"].map(|word| word.repeat(200));
    let between = " mid".repeat(200) + " ";
    let documents = [
        ("three", format!("{before}{first}{between}{second}{behind}")),
        // Each leaves more than 200 characters, in the same place both do not.
        ("none", format!("{first}{} {second}", " x".repeat(175))),
        ("other", format!("{second}{behind}")),
    ];
    let rows = documents.map(|(id, text)| json!({"id": id, "text": text, "language": "eng_Latn"}));
    work.write_lines("web/a.jsonl", rows.into_iter())?;
    work.command("run", "both").assert().success();
    let three = [&before[..before.len() - 200], &between[200..between.len() - 200], &behind[200..]];
    let exported = texts(&work, "both/export/a.parquet", "text")?;
    assert_eq!(exported, [three.join("\n\n"), behind[200..].to_owned()].map(Some));
    let actions = texts(&work, "both/verdicts/a.parquet", "action")?;
    let actions: Vec<&str> = actions.iter().flatten().map(String::as_str).collect();
    assert_eq!(actions, ["cut", "cut", "cut", "remove", "cut"]);

    // Beside another kind of filter, what both leave stays, however short it is.
    let repetition = "[filters.repeated]\nkind = 'repetition'\naction = 'cut'\n";
    work.write("run.toml", format!("{settings}action = 'cut'\n{repetition}"))?;
    let kept = "Nobody has written this sentence before, and it stays as it is here. ";
    let repeated = "This sentence stands here again and again, many times over. ".repeat(3);
    let [long, behind] = [" one", " two"].map(|word| word.repeat(200));
    let text = format!("{kept}{repeated}{long} {first} {behind}");
    let row = json!({"id": "short", "text": text, "language": "eng_Latn"});
    work.write_lines("web/a.jsonl", [row].into_iter())?;
    work.command("run", "kinds").assert().success();
    let exported = texts(&work, "kinds/export/a.parquet", "text")?;
    assert!(
        exported[0].as_deref().is_some_and(|text| text.starts_with(kept.trim_end())),
        "{exported:?}"
    );
    Ok(())
}

#[test]
fn items_and_rules_that_cannot_be_are_refused() -> TestResult {
    let work = contaminated()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    for (keys, code, wrong) in [
        ("rule = 'some'\n", 2, "unknown variant `some`"),
        ("min_hits = 2\n", 2, "filters.benchmarks.rule"),
        ("rule = 'item'\nmin_item = 2.0\n", 2, "filters.benchmarks.min_item: is no share"),
        ("lists = ['a']\n", 2, "or, for the kind \"decontamination\", `index`"),
    ] {
        work.write("run.toml", format!("{settings}{keys}"))?;
        work.command("run", "bad").assert().code(code).stderr(contains(wrong));
    }
    work.write("run.toml", settings.replace("b.idx", "gone.idx"))?;
    work.command("run", "bad").assert().code(66).stderr(contains("polysift dataset benchmarks"));
    work.write("run.toml", settings.replace("b.idx", "web/a.jsonl"))?;
    work.command("run", "bad").assert().code(65).stderr(contains("a.jsonl"));
    for (row, code, wrong) in [
        (json!({"question": words(0)}), 65, "row 1: has no task"),
        (json!({"task": "t"}), 65, "row 1: has no text"),
        (json!({"task": "t", "text": "short"}), 2, ""),
    ] {
        work.write_lines("bad.jsonl", [row].into_iter())?;
        let refused = index(&work, "bad.jsonl", "bad.idx").code(code);
        refused.stderr(contains(wrong).and(contains("max-rejects").not()));
        assert!(!work.path("bad.idx").exists());
    }
    let twice = ["a", "b"]
        .map(|answer| json!({"task": "t", "id": 1, "question": words(0), "answer": answer}));
    work.write_lines("bad.jsonl", twice.into_iter())?;
    let refused = index(&work, "bad.jsonl", "bad.idx").code(65);
    refused.stderr(contains("row 2: has the id of another item"));
    Ok(())
}

#[test]
fn items_of_any_table_are_read_by_a_file_of_sets() -> TestResult {
    let work = contaminated()?;
    // The layouts of some data sets on the hub: lists of choices, and the language in the path.
    let choices = [words(200), "none of these".to_owned()];
    let exam = json!({"question": "Which?", "choices": choices, "answer": 0});
    work.write_lines("sets/exam.jsonl", [exam].into_iter())?;
    let reading = json!({"query": "no", "passage": words(300), "mc_answer1": words(400)});
    work.write_lines("sets/reading/fra_Latn.jsonl", [reading].into_iter())?;
    let sets = "[[set]]\ntask = 'exam'\nfiles = ['exam.jsonl']\nquestion = ['question', 'choices']\n\
                language = 'eng_Latn'\n\
                [[set]]\ntask = 'reading'\nfiles = ['reading/{lang}.jsonl']\nanswer = ['mc_answer1']\n";
    work.write("sets/sets.toml", sets)?;
    let index = |sets: &str| {
        let mut index = polysift();
        index.current_dir(work.dir.path()).args(["dataset", "benchmarks", "--out", "b.idx"]);
        index.args(["--sets", sets]).assert()
    };
    index("sets/sets.toml").success();
    let planted = |i: usize| match i {
        3 => format!("{} and more", words(200)),
        4 => words(300), // a passage, which no set names
        5 => format!("so: {}", words(400)),
        _ => words(1000 + i),
    };
    let rows =
        (0..8).map(|i| json!({"id": format!("d-{i}"), "text": planted(i), "language": "eng_Latn"}));
    work.write_lines("web/a.jsonl", rows)?;
    work.command("run", "out").assert().success();
    let report = work.json("out/filters/benchmarks.json")?;
    let found = &report["total"]["details"];
    assert_eq!(found["exam"]["documents"], 1, "{report}");
    assert_eq!(found["reading"]["documents"], 1, "{report}");
    assert_eq!(report["total"]["found"]["documents"], 2);
    for (wrong, code, message) in [
        ("[[set]]\ntask = 'exam'\n", 2, "a set has no `files`"),
        ("[[set]]\nfiles = ['exam.jsonl']\nask = 'a'\n", 2, "unknown field `ask`"),
        ("[[set]]\nfiles = ['gone.jsonl']\n", 66, "gone.jsonl"),
        ("[[set]]\nfiles = ['exam.jsonl']\nquestion = ['stem']\n", 65, "stem"),
        ("[[set]]\nfiles = ['exam.jsonl']\nquestion = ['question']\n", 65, "row 1: has no task"),
    ] {
        work.write("sets/bad.toml", wrong)?;
        index("sets/bad.toml").code(code).stderr(contains(message));
    }
    work.write("sets/bad.toml", b"[[set]]\n# caf\xe9\n")?;
    index("sets/bad.toml").code(2).stderr(contains("not UTF-8 in line 2"));
    index("sets/none.toml").code(66).stderr(contains("none.toml"));
    Ok(())
}
