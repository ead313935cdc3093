//! Filters: what they remove and flag, what is left for the thresholds, what is reported.

mod rules;

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet};

/// The texts of a column of a Parquet file of the workspace.
fn texts(
    work: &Workspace,
    path: &str,
    column: &str,
) -> Result<Vec<Option<String>>, Box<dyn std::error::Error>> {
    let rows = read_parquet(&work.path(path))?;
    let column = rows.column_by_name(column).ok_or("no such column")?.as_string::<i32>();
    Ok(column.iter().map(|text| text.map(str::to_owned)).collect())
}

fn ids(work: &Workspace, path: &str) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    Ok(texts(work, path, "id")?.into_iter().flatten().collect())
}

/// The documents `numbers` of a language, of which 7 and 8 have no text.
fn named(language: &str, numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    numbers.into_iter().map(|i| format!("{language}-{i}")).collect()
}

#[test]
fn filters_without_an_encoder_remove_flag_and_report() -> TestResult {
    let work = Workspace::new()?;
    work.write("run.toml", "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[parts]\nrows = 16\n[encoder]\nmodel = 'none'\n[export]\nkeep_removed = true\n")?;
    work.add_filters()?;
    work.command("run", "out").assert().success();

    // `requests` removes 3 (and 7, which has no text); `known` removes every fourth of the others.
    let kept = (0..40).filter(|i| i % 4 > 0 && ![3, 7, 8].contains(i));
    assert_eq!(ids(&work, "out/export/fra_Latn/a.parquet")?, named("fra_Latn", kept));
    let kept = (0..25).filter(|i| ![7, 8, 12].contains(i));
    assert_eq!(ids(&work, "out/export/deu_Latn/a.parquet")?, named("deu_Latn", kept));
    let removed = "out/removed/requests/fra_Latn/a.parquet";
    assert_eq!(ids(&work, removed)?, named("fra_Latn", [3]));
    let removed = "out/removed/known/fra_Latn/a.parquet";
    let known = named("fra_Latn", (0..40).step_by(4).filter(|i| *i != 8));
    assert_eq!(ids(&work, removed)?, known);
    assert!(!work.path("out/removed/known/deu_Latn").exists());
    // Nobody that is left is among the requests, which is what `noted` flags.
    let noted = texts(&work, "out/export/deu_Latn/a.parquet", "noted")?;
    assert!(noted.iter().all(|flag| flag.as_deref() == Some("not-listed")));

    let report = work.json("out/filters/requests.json")?;
    let amount = |documents: u64, ids: &[usize]| {
        let bytes: usize = ids.iter().map(|&i| crate::util::text(i).len()).sum();
        json!({"documents": documents, "bytes": bytes})
    };
    assert_eq!(report["total"]["found"], amount(3, &[3, 12]));
    assert_eq!(report["total"]["seen"]["documents"], 65);
    assert_eq!(report["languages"]["deu_Latn"]["reasons"], json!({"listed": amount(1, &[12])}));
    let report = work.json("out/filters/known.json")?;
    assert_eq!(report["total"]["seen"]["documents"], 40);
    assert_eq!(report["total"]["found"]["documents"], 10);
    let verdicts = read_parquet(&work.path("out/verdicts/deu_Latn/a.parquet"))?;
    let found = |name: &str| {
        let column = verdicts.column_by_name(name).ok_or("no such column")?.as_string::<i32>();
        Ok::<_, &str>(column.iter().flatten().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut by_filter: BTreeMap<(String, String), usize> = BTreeMap::new();
    for key in found("filter")?.into_iter().zip(found("action")?) {
        *by_filter.entry(key).or_default() += 1;
    }
    let expected = [(("noted", "flag"), 24), (("requests", "remove"), 1)];
    let expected =
        expected.map(|((filter, action), n)| ((filter.to_owned(), action.to_owned()), n));
    assert_eq!(by_filter, expected.into());
    work.command("run", "out").assert().success();
    let mut verify = crate::util::polysift();
    verify.current_dir(work.dir.path()).args(["verify", "out"]).assert().success();
    Ok(())
}

#[test]
fn rates_are_of_what_filters_leave_unless_they_come_after() -> TestResult {
    let work = Workspace::new()?;
    let chance = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[parts]\nrows = 16\n[encoder]\nmodel = 'none'\n\
                  [heads.chance]\nkind = 'random'\n[languages._default]\nretention = { chance = 0.5 }\n";
    let listed: Vec<String> = (0..40).step_by(2).map(|i| format!("fra_Latn-{i}")).collect();
    work.write("even.txt", listed.join("\n"))?;
    let filter = "[filters.even]\nkind = 'ids'\nlists = ['even.txt']\n";
    work.write("run.toml", chance)?;
    work.command("run", "all").assert().success();
    let of_all = ids(&work, "all/export/fra_Latn/a.parquet")?;
    assert_eq!(of_all.len(), 19);
    let is_odd = |id: &String| {
        id.strip_prefix("fra_Latn-").and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n % 2 == 1)
    };

    // 20 odd documents, one without text: ceil(0.5 · 19) of them.
    work.write("run.toml", format!("{chance}{filter}"))?;
    work.command("run", "before").assert().success();
    let before = ids(&work, "before/export/fra_Latn/a.parquet")?;
    assert!(before.len() == 10 && before.iter().all(is_odd), "{before:?}");
    let selection = work.json("before/selection/fra_Latn.json")?;
    assert_eq!(selection["thresholds"][0]["scored"]["num_documents"], 19);

    work.write("run.toml", format!("{chance}{filter}when = 'after'\n"))?;
    work.command("run", "after").assert().success();
    let after = ids(&work, "after/export/fra_Latn/a.parquet")?;
    assert_eq!(after, of_all.iter().filter(|id| is_odd(id)).cloned().collect());

    // Another place of the filter is another selection.
    let mut again = work.command("run", "before");
    again.assert().code(78).stderr(contains("filter.filters.even.when: was (absent), now"));
    Ok(())
}

/// A corpus of documents with URLs, without an encoder, and these settings.
fn with_urls(urls: &[&str], filters: &str) -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    let rows = urls.iter().enumerate();
    work.write_lines(
        "web/eng_Latn/a.jsonl",
        rows.map(|(i, url)| json!({"id": i.to_string(), "text": format!("text {i}"), "url": url, "number": i})),
    )?;
    let input = "[input]\nfiles = ['web/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n";
    work.write("run.toml", format!("{input}{filters}"))?;
    Ok(work)
}

/// By id why each document was found.
fn reasons(work: &Workspace) -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
    let column = |name| texts(work, "out/verdicts/eng_Latn/a.parquet", name);
    let why = column("reason")?.into_iter().zip(column("detail")?);
    let why = why.map(|(reason, detail)| {
        format!("{} {}", reason.unwrap_or_default(), detail.unwrap_or_default())
    });
    Ok(column("id")?.into_iter().flatten().zip(why).collect())
}

const CONSENT: &str = "[filters.consent]\nkind = 'robots'\nas_of = '2025-01'\n\
    sources = [{ ids = 'ids.jsonl', blocked_if = 'user_agents' }, { domains = 'domains.txt' }, \
    { robots = 'robots.jsonl' }]\n";

fn consent() -> Result<Workspace, Box<dyn std::error::Error>> {
    let urls = [
        "https://open.org/a",               // nothing said: stays
        "https://WWW.Closed.org:443/x",     // all agents
        "http://gpt.org/private/x",         // one agent, by the file of https
        "http://gpt.org/public",            // its other paths stay
        "https://sub.listed.com/",          // by its registrable domain
        "https://open.org/listed-by-id",    // by its id
        "https://open.org/not-by-id",       // in the list of ids, but nobody blocks it
        "no url",                           // unreadable
        "https://nobody.net/",              // no file
        "https://new.org/",                 // the newer file allows
        "https://user:pw@bücher.example./", // host names as browsers read them
    ];
    let work = with_urls(&urls, CONSENT)?;
    let agents = [("5", json!(["GPTBot"])), ("6", json!([])), ("77", json!(["CCBot"]))];
    let ids = agents.into_iter().map(|(id, agents)| json!({"id": id, "user_agents": agents}));
    work.write_lines("ids.jsonl", ids)?;
    work.write("domains.txt", "# blocked\nListed.COM\n")?;
    let deny = "User-agent: *\nDisallow: /\n";
    let file = |domain: &str, content: &str, fetched: Option<&str>| json!({"domain": domain, "content": content, "fetched": fetched});
    let files = [
        file("open.org", "User-agent: Googlebot\nDisallow: /", None),
        file("www.closed.org", deny, None),
        file("gpt.org", "User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /private", None),
        file("new.org", deny, Some("2024-01-01")),
        file("new.org", "", Some("2025-01-01")),
        file("bücher.example", deny, None),
    ];
    work.write_lines("robots.jsonl", files.into_iter())?;
    Ok(work)
}

#[test]
fn protego_0_4_allows_a_url_without_a_path_in_a_closed_file() -> TestResult {
    // What `Protego.can_fetch` of 0.4.0 says of GPTBot.
    let urls = [
        ("https://a.org?q=1", true),
        ("https://a.org#f", true),
        ("https://a.org?/x", true),
        ("https://a.org", false),
        ("https://a.org?", false),
        ("https://a.org/?q=1", false),
        ("https://all.org?q=1", false),
    ];
    let matching = "[filters.consent]\nkind = 'robots'\nmatching = 'protego-0.4'\nas_of = '2025-01'\n\
                    agents = ['GPTBot']\nsources = [{ robots = 'robots.jsonl' }]\n";
    let work = with_urls(&urls.map(|(url, _)| url), matching)?;
    let files = [("a.org", "/"), ("all.org", "*")].map(|(domain, path)| {
        json!({"domain": domain, "content": format!("User-agent: *\nDisallow: {path}\n")})
    });
    work.write_lines("robots.jsonl", files.into_iter())?;
    work.command("run", "out").assert().success();
    let blocked = urls.iter().enumerate().filter(|(_, (_, may_fetch))| !may_fetch);
    let blocked: BTreeSet<String> = blocked.map(|(id, _)| id.to_string()).collect();
    assert_eq!(reasons(&work)?.into_keys().collect::<BTreeSet<_>>(), blocked);
    Ok(())
}

#[test]
fn consent_is_what_ids_domains_and_robots_files_say() -> TestResult {
    let work = consent()?;
    work.command("run", "out").assert().success();
    let all = "AI2Bot,Applebot-Extended,Bytespider,CCBot,ClaudeBot,cohere-training-data-crawler,Diffbot,\
               FacebookBot,Meta-ExternalAgent,Google-Extended,GPTBot,PanguBot,*";
    let expected = [
        ("1", format!("robots {all}")),
        ("10", format!("robots {all}")),
        ("2", "robots CCBot,GPTBot".to_owned()),
        ("4", "domain listed.com".to_owned()),
        ("5", "id ".to_owned()),
    ];
    assert_eq!(reasons(&work)?, expected.map(|(id, why)| (id.to_owned(), why)).into());
    let total = &work.json("out/filters/consent.json")?["total"];
    let documents = |key: &str| -> BTreeMap<&str, u64> {
        let counts = total[key].as_object().into_iter().flatten();
        counts
            .filter_map(|(name, amount)| Some((name.as_str(), amount["documents"].as_u64()?)))
            .collect()
    };
    assert_eq!(documents("reasons"), [("domain", 1), ("id", 1), ("robots", 3)].into());
    assert_eq!((documents("details")["GPTBot"], documents("details")["ClaudeBot"]), (3, 2));
    assert_eq!(
        documents("notes"),
        [("no-robots-file", 1), ("robots-file", 7), ("unreadable-url", 1)].into()
    );
    assert_eq!(documents("hosts")["gpt.org"], 1);
    assert_eq!(work.json("out/filters/consent.json")?["settings"]["as_of"], "2025-01");

    work.write(
        "run.toml",
        std::fs::read_to_string(work.path("run.toml"))? + "unknown = 'remove'\n",
    )?;
    work.command("run", "out").args(["--redo", "filter"]).assert().success();
    let found = reasons(&work)?;
    assert_eq!((found["7"].as_str(), found["8"].as_str()), ("unreadable-url ", "no-robots-file "));
    assert_eq!(found.len(), 7);
    Ok(())
}

#[test]
fn robots_files_may_be_bytes_and_the_newest_counts() -> TestResult {
    use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampSecondArray};
    use std::sync::Arc;

    let deny: &[u8] = b"User-agent: *\nDisallow: /\n";
    let allow: &[u8] = b"User-agent: *\nAllow: / # \xff\n";
    let hosts = ["a.org", "a.org", "https://b.org/", "c.org:80"];
    let contents = BinaryArray::from_vec(vec![deny, allow, deny, deny]);
    let columns: [(&str, ArrayRef); 3] = [
        ("domain", Arc::new(StringArray::from(hosts.to_vec()))),
        ("content", Arc::new(contents)),
        ("fetched", Arc::new(TimestampSecondArray::from(vec![9, 10, 1, 1]))),
    ];
    let table = RecordBatch::try_from_iter(columns)?;
    let urls = ["https://a.org/", "https://b.org/", "http://c.org/", "https://d.org/"];
    let source = "[filters.consent]\nkind = 'robots'\nas_of = '2025-01-31'\n";
    let work = with_urls(&urls, &format!("{source}sources = [{{ robots = 'robots.parquet' }}]\n"))?;
    let file = std::fs::File::create(work.path("robots.parquet"))?;
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, table.schema(), None)?;
    writer.write(&table)?;
    writer.close()?;
    work.command("run", "out").assert().success();
    assert_eq!(reasons(&work)?.into_keys().collect::<Vec<_>>(), ["1", "2"]);

    // Dates, times and numbers, of which the later one is not the longer one, or the larger text.
    for (older, newer) in
        [("9", "10"), ("2024-12", "2025-01-02"), ("2025-01-01T00:30:00+02:00", "2025-01-01")]
    {
        let file = |content: &str, fetched: &str| json!({"domain": "a.org", "content": content, "fetched": fetched});
        let deny = "User-agent: *\nDisallow: /";
        work.write_lines("robots.jsonl", [file("", newer), file(deny, older)].into_iter())?;
        work.write(
            "run.toml",
            std::fs::read_to_string(work.path("run.toml"))?.replace(".parquet", ".jsonl"),
        )?;
        work.command("run", "out").args(["--redo", "filter"]).assert().success();
        assert_eq!(reasons(&work)?.len(), 0, "{older} {newer}");
    }
    Ok(())
}

#[test]
fn robots_check_names_the_line_that_decides() -> TestResult {
    let work = consent()?;
    let check = |url: &str| {
        let mut command = crate::util::polysift();
        command.current_dir(work.dir.path()).args(["robots", "check", url, "-c", "run.toml"]);
        command
    };
    check("http://gpt.org/private/x").assert().success().stdout(
        contains("2 of 13 agents blocked")
            .and(contains("GPTBot                         blocked by line 3: Disallow: /private"))
            .and(contains("ClaudeBot                      allowed\n")),
    );
    let json = check("https://new.org/").arg("--json").assert().success();
    let verdicts: Value = serde_json::from_slice(&json.get_output().stdout)?;
    assert_eq!(
        (&verdicts[0]["has_robots_file"], &verdicts[0]["agents"][0]["is_blocked"]),
        (&json!(true), &json!(false))
    );
    check("https://nobody.net/").assert().success().stdout(contains("no robots.txt of its host"));
    check("nobody.net").assert().code(2).stderr(contains("not a URL"));
    Ok(())
}

#[test]
fn urls_are_found_by_host_domain_and_path() -> TestResult {
    let urls = [
        "https://spam.com/",
        "http://www.spam.com:8080/x",
        "https://notspam.com/",
        "https://blog.org/ads/1",
        "https://blog.org/ads?x",
        "https://blog.org/adsorption",
        "https://BLOG.org/",
        "https://de.wiki.org/a",
        "https://fr.wiki.org/a",
        "ftp://spam.com/",
        "https://blog.org/it's a*b/c",
        "https://a.b.de.wiki.org/",
        "https://xde.wiki.org/",
    ];
    let filter = "[filters.web]\nkind = 'urls'\nlists = ['urls.txt']\n";
    let work = with_urls(&urls, filter)?;
    let list = "# sites\nspam.com # why\nhttps://blog.org/ads\n*.DE.wiki.org\n.gone.net\n2001:db8::1\n\
                blog.org/it's a*b\n";
    work.write("urls.txt", list)?;
    work.command("run", "out").assert().success();
    let listed = [
        ("0", "spam.com"),
        ("1", "spam.com"),
        ("3", "blog.org/ads"),
        ("10", "blog.org/it's%20a*b"),
        ("4", "blog.org/ads"),
        ("7", "de.wiki.org"),
        ("11", "de.wiki.org"),
    ];
    let expected = listed.map(|(id, entry)| (id.to_owned(), format!("listed {entry}")));
    assert_eq!(reasons(&work)?, expected.into());
    work.write("run.toml", std::fs::read_to_string(work.path("run.toml"))? + "mode = 'include'\n")?;
    work.command("run", "out").args(["--redo", "filter"]).assert().success();
    let ids: Vec<String> = reasons(&work)?.into_keys().collect();
    assert_eq!(ids, ["12", "2", "5", "6", "8", "9"]);
    Ok(())
}

#[test]
fn sources_of_consent_that_cannot_be_are_refused() -> TestResult {
    let work = consent()?;
    let input = "[input]\nfiles = ['web/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n";
    work.write_lines("bare.jsonl", [json!({"domain": "a.com"})].into_iter())?;
    let file = |content: &str| json!({"domain": "a.com", "content": content});
    work.write_lines("twice.jsonl", [file("a"), file("b")].into_iter())?;
    work.write_lines("same.jsonl", [file("a"), file("a")].into_iter())?;
    work.write("hosts.txt", "a.com\n0.0.0.0 x.com\n\"x.com\"\n")?;
    work.write("paths.txt", "x.com/blog\n")?;
    work.write("latin.txt", b"a.com\nb\xfc.com\n")?;
    work.write("robots/a.com_robots.txt", "")?;
    let dates = json!({"domain": "a.com", "content": "", "fetched": "31.12.2024"});
    work.write_lines("dates.jsonl", [dates].into_iter())?;
    let fetched = |fetched: Value| json!({"domain": "a.com", "content": "", "fetched": fetched});
    let mixed = [fetched(json!(1_740_787_200)), fetched(json!("2025-01-01"))];
    work.write_lines("mixed.jsonl", mixed.into_iter())?;
    work.write_lines("none.jsonl", std::iter::empty())?;
    let robots = |rest: &str| format!("[filters.c]\nkind = 'robots'\nas_of = '2025'\n{rest}\n");
    for (filter, code, wrong) in [
        (
            "[filters.c]\nkind = 'robots'\nsources = [{ domains = 'domains.txt' }]\n".to_owned(),
            2,
            "filters.c.as_of",
        ),
        (robots(""), 2, "filters.c.sources: is empty"),
        (
            robots("sources = [{ domains = 'domains.txt', ids = 'ids.jsonl' }]"),
            2,
            "filters.c.sources: has a source",
        ),
        (
            robots("sources = [{ domains = 'domains.txt' }]\nagents = []"),
            2,
            "list of agents is empty",
        ),
        (
            robots("sources = [{ domains = 'domains.txt' }]\nmatching = 'protego'"),
            2,
            "did you mean `protego-0.7`?",
        ),
        (
            robots("sources = [{ domains = 'domains.txt' }]\nlists = ['a']"),
            2,
            "unknown field `lists`, expected one of `kind`, `when`, `action`, `languages` or, for the kind \"robots\", `as_of`",
        ),
        (robots("sources = [{ robots = 'gone.parquet' }]"), 66, "gone.parquet"),
        (robots("sources = [{ robots = 'bare.jsonl' }]"), 65, "content"),
        (robots("sources = [{ robots = 'twice.jsonl' }]"), 65, "https://a.com has two files"),
        (robots("sources = [{ domains = 'domains.txt' }]\nurl = 'link'"), 65, "link"),
        (
            robots("sources = [{ domains = 'domains.txt' }]\nurl = 'number'"),
            65,
            "row 1: `number` is a number",
        ),
        (robots("sources = [{ robots = 'same.jsonl' }]"), 0, ""),
        (robots("sources = [{ domains = 'hosts.txt' }]"), 65, "row 2: `0.0.0.0 x.com` is no host"),
        (robots("sources = [{ domains = 'paths.txt' }]"), 65, "`x.com/blog` has a path"),
        (robots("sources = [{ domains = 'latin.txt' }]"), 65, "row 2: is not UTF-8"),
        (robots("sources = [{ robots = 'dates.jsonl' }]"), 65, "row 1: `fetched` is `31.12.2024`"),
        (robots("sources = [{ robots = 'mixed.jsonl' }]"), 65, "row 2: `fetched` is `2025-01-01`"),
        (robots("sources = [{ robots = 'none.jsonl' }]"), 65, "none.jsonl: there is no entry"),
        (robots("sources = [{ robots = 'robots/*' }]"), 65, "its name is not a host"),
        (robots("sources = [{ domains = 'domains.txt' }]").replace("2025", "now"), 2, "is no date"),
    ] {
        work.write("run.toml", format!("{input}{filter}"))?;
        let run = work.command("run", &format!("run-{code}-{}", wrong.len()));
        let mut run = run;
        run.assert().code(code).stderr(contains(wrong));
    }
    Ok(())
}

/// Seventeen words that stand nowhere else, from number `start` on.
fn words(start: usize) -> String {
    (start..start + 17).map(|i| format!("word{i}")).collect::<Vec<_>>().join(" ")
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
    let mut index = crate::util::polysift();
    index.current_dir(work.dir.path()).args([
        "dataset",
        "benchmarks",
        "--items",
        "items/*.jsonl",
        "--out",
        "b.idx",
    ]);
    index.assert().success().stdout(contains("quiz").and(contains("not covered")));
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
    let mut verify = crate::util::polysift();
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
    let mut card = crate::util::polysift();
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
    let mut index = crate::util::polysift();
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
        let mut index = crate::util::polysift();
        index.current_dir(work.dir.path()).args([
            "dataset",
            "benchmarks",
            "--items",
            "bad.jsonl",
            "--out",
            "bad.idx",
        ]);
        let refused = index.assert().code(code);
        refused.stderr(contains(wrong).and(contains("max-rejects").not()));
        assert!(!work.path("bad.idx").exists());
    }
    let twice = ["a", "b"]
        .map(|answer| json!({"task": "t", "id": 1, "question": words(0), "answer": answer}));
    work.write_lines("bad.jsonl", twice.into_iter())?;
    let mut index = crate::util::polysift();
    index.current_dir(work.dir.path()).args([
        "dataset",
        "benchmarks",
        "--items",
        "bad.jsonl",
        "--out",
        "bad.idx",
    ]);
    index.assert().code(65).stderr(contains("row 2: has the id of another item"));
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
        let mut index = crate::util::polysift();
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

#[test]
fn lists_that_change_are_refused_until_the_stage_is_done_again() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("run", "out").assert().success();
    let before = digests(&work.path("out"))?;
    work.write("lists/requests.txt", "fra_Latn-4\n")?;
    let changed = work.command("run", "out").assert().code(78);
    changed.stderr(contains("requests.txt: was").and(contains("--redo filter")));
    // A command after it needs no lists.
    work.command("threshold", "out").assert().success();
    work.command("run", "out").args(["--redo", "filter"]).assert().success();
    let after = digests(&work.path("out"))?;
    let kept = |name: &&String| {
        ["embeddings/", "scores/", "heads/", "state/train/", "state/score/"]
            .iter()
            .any(|folder| name.starts_with(folder))
    };
    assert!(before.keys().filter(kept).all(|name| before[name] == after[name]));
    assert_ne!(before["verdicts/fra_Latn/a.parquet"], after["verdicts/fra_Latn/a.parquet"]);
    let selected = |digests: &BTreeMap<String, String>| digests["selection/fra_Latn.json"].clone();
    assert_ne!(selected(&before), selected(&after));
    // What is trained and scored again leaves the verdicts as they are.
    let verdicts = "out/state/filter/done/fra_Latn/a.json";
    let written =
        |path: &str| std::fs::metadata(work.path(path)).and_then(|found| found.modified());
    let before = written(verdicts)?;
    work.command("run", "out").args(["--redo", "train"]).assert().success();
    assert_eq!(written(verdicts)?, before);
    Ok(())
}

#[test]
fn a_stage_that_the_settings_lack_is_redone_with_the_stages_after_it() -> TestResult {
    let work = Workspace::new()?;
    let input = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n";
    work.write("run.toml", input)?;
    for stage in ["train", "filter", "deduplicate"] {
        work.command("run", "out").assert().success();
        work.command(stage, "out").args(["--redo", stage]).assert().success();
        assert!(!work.path("out/selection").exists(), "{stage}");
    }
    Ok(())
}

#[test]
fn filters_that_cannot_be_are_refused_by_name() -> TestResult {
    let work = Workspace::new()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("empty.csv", "name\nx\n")?;
    for (filter, code, wrong) in [
        ("[filters.f]\nkind = 'ids'\n", 2, "filters.f.lists: is empty"),
        ("[filters.f]\nkind = 'id'\nlists = ['a']\n", 2, "`id` is unknown; did you mean `ids`?"),
        (
            "[filters.f]\nkind = 'ids'\nlist = ['a']\n",
            2,
            "`list` is unknown; did you mean `lists`?",
        ),
        ("[filters.f]\nlists = ['a']\n", 2, "missing field `kind`"),
        ("[filters.'f/g']\nkind = 'ids'\nlists = ['a']\n", 2, "a filter's name is made of"),
        ("[filters.quality]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        ("[filters.quality_nan]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        ("[filters.no_text]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        (
            "[filters.f]\nkind='ids'\nlists=['a']\naction='flag'\nwhen='after'\n",
            2,
            "filters.f.when",
        ),
        ("[filters.f]\nkind = 'ids'\nlists = ['s3://b/a.txt']\n", 2, "is a URL"),
        ("[filters.f]\nkind = 'ids'\nlists = ['gone.txt']\n", 66, "gone.txt"),
        ("[filters.f]\nkind = 'ids'\nlists = ['empty.csv']\n", 65, "id"),
    ] {
        work.write("run.toml", format!("{settings}{filter}"))?;
        let refused = work.command("run", "out").assert().code(code);
        refused.stderr(contains(wrong));
        // Nothing is embedded for a list that cannot be read.
        assert!(!work.path("out/embeddings").exists(), "{filter}");
    }
    Ok(())
}

#[test]
fn the_filter_stage_needs_the_embed_stage_and_is_needed_by_the_thresholds() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("plan", "out").assert().success();
    work.command("filter", "out").assert().code(66).stderr(contains("run `polysift embed`"));
    for stage in ["embed", "train", "score"] {
        work.command(stage, "out").assert().success();
    }
    work.command("threshold", "out").assert().code(66).stderr(contains("run `polysift filter`"));
    let mut retry = crate::util::polysift();
    let retry =
        retry.current_dir(work.dir.path()).args(["retry", "out", "--num-tasks", "2", "--json"]);
    let left: Value = serde_json::from_slice(&retry.assert().success().get_output().stdout)?;
    assert_eq!((&left["stage"], &left["items"]), (&json!("filter"), &json!(2)));
    let first =
        work.command("filter", "out").args(["--task", "0", "--num-tasks", "2", "-v"]).assert();
    first.success().stderr(contains("done").and(contains("fra_Latn/a")));
    work.command("filter", "out").args(["--task", "1", "--num-tasks", "2"]).assert().success();
    assert!(work.path("out/filters/requests.json").exists());
    work.command("threshold", "out").assert().success();
    work.command("export", "out").assert().success();
    work.command("run", "whole").assert().success();
    for folder in ["verdicts", "filters", "selection", "export"] {
        let [parts, whole] =
            ["out", "whole"].map(|run| digests(&work.path(&format!("{run}/{folder}"))));
        assert_eq!(parts?, whole?, "{folder}");
    }
    Ok(())
}

/// A request for removal that names no document shows.
#[test]
fn listed_ids_of_no_document_are_counted() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines(
        "data/a.jsonl",
        ["a", "b", "c"].map(|id| json!({"id": id, "text": "text"})).into_iter(),
    )?;
    work.write("ids.txt", "a\nb # asked for on Monday\n'c'\nd\n")?;
    for (mode, kept) in [("exclude", 1), ("include", 2)] {
        let settings = format!(
            "[input]\nfiles = ['data/*.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n[filters.f]\nkind = 'ids'\n\
             lists = ['ids.txt']\nmode = '{mode}'\n"
        );
        work.write("run.toml", settings)?;
        let told = contains("at least 2 of 4 listed ids match no document");
        work.command("run", mode).assert().success().stderr(told);
        let report = work.json(&format!("{mode}/filters/f.json"))?;
        assert_eq!(report["ids"], json!({"listed": 4, "unmatched_at_least": 2}));
        assert_eq!(read_parquet(&work.path(&format!("{mode}/export/a.parquet")))?.num_rows(), kept);
    }
    // A filter of one language cannot know the ids of the others.
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", format!("{settings}languages = ['und']\n"))?;
    work.command("run", "language").assert().success();
    assert_eq!(work.json("language/filters/f.json")?["ids"], Value::Null);
    Ok(())
}

/// Programs write nothing and false in several ways, a word may begin with `#`, and a list names no unreadable URL.
#[test]
fn what_a_list_names_is_taken_as_it_is_meant() -> TestResult {
    let work = Workspace::new()?;
    let row =
        |i: usize, url: Value| json!({"id": i.to_string(), "text": "seen #metoo", "url": url});
    let urls = ["https://good.org/x", "", "good.org", "https://evil.org/", ""];
    let urls = urls.map(|url| if url.is_empty() { Value::Null } else { json!(url) });
    work.write_lines("data/a.jsonl", urls.into_iter().enumerate().map(|(i, url)| row(i, url)))?;
    work.write("blocked.csv", "id,b\n0,False\n1,True\n2,NaN\n3,0.0\n4,[None]\n")?;
    work.write("good.txt", "good.org\n")?;
    work.write("words.jsonl", "{\"word\": \"#metoo\"}\n")?;
    let consent =
        "kind = 'robots'\nas_of = '2025'\nsources = [{ ids = 'blocked.csv', blocked_if = 'b' }]";
    let words = "kind = 'words'\nlists = ['words.jsonl']\nmax_share = 0.4";
    for (name, filter, kept) in [
        ("consent", consent, &["0", "2", "3", "4"][..]),
        ("urls", "kind = 'urls'\nmode = 'include'\nlists = ['good.txt']", &["0"]),
        ("words", words, &[]),
    ] {
        let settings = format!(
            "[input]\nfiles = ['data/*.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n[filters.f]\n{filter}\n"
        );
        work.write("run.toml", settings)?;
        work.command("run", name).assert().success();
        let found = ids(&work, &format!("{name}/export/a.parquet"))?;
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), kept, "{name}");
    }
    Ok(())
}
