//! Consent and URLs: what lists of ids, domains and hosts and robots.txt files find.

use std::collections::{BTreeMap, BTreeSet};

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use super::texts;
use crate::util::{TestResult, Workspace, polysift};

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
        let mut command = polysift();
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
        "https://blog.org/%c3%bcber/x", // escapes in either case, or none, are equal
    ];
    let filter = "[filters.web]\nkind = 'urls'\nlists = ['urls.txt']\n";
    let work = with_urls(&urls, filter)?;
    let list = "# sites\nspam.com # why\nhttps://blog.org/ads\n*.DE.wiki.org\n.gone.net\n2001:db8::1\n\
                blog.org/it's a*b\nblog.org/über\n";
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
        ("13", "blog.org/%C3%BCber"),
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
    work.write("latin.txt", b"a.com\nb\xfc.com\n\xe4.com\n")?;
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
            "did you mean `protego-0.4`?",
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
        (robots("sources = [{ domains = 'latin.txt' }]"), 65, "row 2: is not UTF-8 (2 bad"),
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
