//! Consent against Protego, Google's parser and tldextract; the golden files are written by
//! `tests/golden/robots.py`.

use anyhow::{Error, Result, ensure};
use polysift::robots::{
    AgentMask, Agents, DEFAULT_AGENTS, Matching, Robots, Suffixes, locate, registrable_domain,
};
use proptest::prelude::*;
use robotstxt::DefaultMatcher;
use serde::Deserialize;

/// A robots.txt with the agents that may not fetch each path.
#[derive(Deserialize)]
struct File {
    text: String,
    paths: Vec<String>,
    blocked: Vec<AgentMask>,
}

#[derive(Deserialize)]
struct Verdicts {
    agents: Vec<String>,
    files: Vec<File>,
}

#[derive(Deserialize)]
struct Domain {
    host: String,
    icann: Option<String>,
    private: Option<String>,
}

/// The number of verdicts, and those that differ from Protego's.
fn compare(golden: &Verdicts) -> Result<(usize, Vec<String>)> {
    let agents = Agents::new(&golden.agents, Matching::Protego04).map_err(Error::msg)?;
    let mut num_verdicts = 0;
    let mut differences = Vec::new();
    for File { text, paths, blocked: expected } in &golden.files {
        let robots = Robots::parse(text.as_bytes(), &agents);
        for (path, expected) in paths.iter().zip(expected) {
            let url = format!("https://a.com{path}");
            let location = locate(&url).map_err(Error::msg)?;
            let blocked = robots.blocked(location.path(Matching::Protego04));
            num_verdicts += 1;
            if blocked != *expected {
                differences.push(format!("{text:?} {path:?}: {blocked:b}, not {expected:b}"));
            }
        }
    }
    Ok((num_verdicts, differences))
}

#[test]
fn verdicts_are_those_of_protego() -> Result<()> {
    let golden: Verdicts = serde_json::from_str(include_str!("golden/robots/verdicts.json"))?;
    ensure!(golden.agents == DEFAULT_AGENTS);
    let (num_verdicts, differences) = compare(&golden)?;
    ensure!(num_verdicts >= 400, "{num_verdicts}");
    ensure!(differences.is_empty(), "{}\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

/// `POLYSIFT_ROBOTS_VERDICTS`: a larger file that `robots.py verdicts` wrote.
#[test]
fn verdicts_are_those_of_protego_on_many_files() -> Result<()> {
    let Ok(path) = std::env::var("POLYSIFT_ROBOTS_VERDICTS") else { return Ok(()) };
    let (num_verdicts, differences) =
        compare(&serde_json::from_str(&std::fs::read_to_string(path)?)?)?;
    ensure!(
        differences.is_empty(),
        "{} of {num_verdicts}\n{}",
        differences.len(),
        differences[..differences.len().min(40)].join("\n")
    );
    Ok(())
}

/// `https://a.com` and a path.
fn blocked(text: &str, path: &str, matching: Matching) -> Result<Vec<String>> {
    let agents = Agents::new(&DEFAULT_AGENTS, matching).map_err(Error::msg)?;
    let url = format!("https://a.com{path}");
    let location = locate(&url).map_err(Error::msg)?;
    let blocked = Robots::parse(text.as_bytes(), &agents).blocked(location.path(matching));
    Ok(agents.labels_of(blocked).map(str::to_owned).collect())
}

#[test]
fn well_known_shapes_of_files_block_whom_they_should() -> Result<()> {
    use Matching::{Protego04, Rfc9309};
    // Number of blocked agents of the default list: Protego's, then ours.
    for (text, path, expected) in [
        ("User-agent: *\nDisallow: /", "/x", [15, 13]),
        ("User-agent: *\nDissallow: /", "/x", [15, 13]),
        ("User-agent: *\rDisallow: /", "/x", [15, 13]),
        ("User-agent: *\0Disallow: /", "/x", [0, 13]),
        ("User-agent: *\nDisallow: /private", "/x", [0, 0]),
        ("User-agent: *\nDisallow: /private", "/private/x", [15, 13]),
        ("User-agent: GPTBot\nDisallow: /", "/x", [1, 1]),
        ("User-agent: GPTBot\n\nDisallow: /", "/x", [1, 1]),
        ("User-agent: *\nDisallow: /\nUser-agent: GPTBot\nAllow: /", "/x", [14, 12]),
        ("User-agent: Googlebot\nDisallow: /", "/x", [0, 0]),
        ("User-agent: anthropic-ai\nDisallow: /", "/x", [0, 0]),
        ("User-agent: Google\nDisallow: /", "/x", [1, 0]),
        ("User-agent: bot\nDisallow: /", "/x", [10, 0]),
        ("User-agent: CCBot/2.0\nDisallow: /", "/x", [1, 1]),
        ("User-agent: CCBot\nDisallow: /", "/x", [3, 1]),
        ("User-agent: ai2bot\nDisallow: /", "/x", [1, 1]),
        ("User-agent: *\nDisallow: /$", "/", [15, 13]),
        ("User-agent: *\nDisallow: /$", "/x", [0, 0]),
        ("User-agent: *\nDisallow: /*?", "/x?y=1", [15, 13]),
        ("User-agent: *\nDisallow: /*.pdf$", "/x.pdf", [15, 13]),
        ("User-agent: *\nDisallow: /a%C3%A9", "/aé", [15, 13]),
        ("User-agent: *\nDisallow: /x\nAllow: /x", "/x", [0, 0]),
        ("User-agent: *\nDisallow: /\nAllow: /pub/", "/pub/x", [0, 0]),
        ("User-agent: *\nDisallow:", "/x", [0, 0]),
        ("User-agent: *\nDisallow: /Private", "/private", [0, 0]),
        ("User-agent *\nDisallow /", "/x", [0, 13]),
        ("\u{feff}User-agent: *\nDisallow: /", "/x", [0, 13]),
        ("<!DOCTYPE html>\n<html><body>Not found</body></html>", "/x", [0, 0]),
        ("User-agent: GPTBot\nSitemap: s\nUser-agent: CCBot\nDisallow: /", "/x", [3, 2]),
        // What RFC 9309 does not define does not end a group.
        ("User-agent: GPTBot\nCrawl-delay: 1\nUser-agent: CCBot\nDisallow: /", "/x", [3, 2]),
        ("Disallow: /\nUser-agent: *", "/x", [0, 0]),
        ("User-agent: *\nDisallow: /", "/robots.txt", [15, 0]),
        ("User-agent: *\nDisallow: /\nUser-agent: CCBot\nDisallow:", "/x", [12, 12]),
    ] {
        let counts = [Protego04, Rfc9309].map(|m| blocked(text, path, m).map(|b| b.len()));
        let [a, b] = counts;
        ensure!([a?, b?] == expected, "{text:?} {path}");
    }
    ensure!(blocked("User-agent: CCBot/2.0\nDisallow: /", "/x", Protego04)? == ["CCBot/2.0"]);
    ensure!(blocked("User-agent: CCBot/2.0\nDisallow: /", "/x", Rfc9309)? == ["CCBot"]);
    Ok(())
}

#[test]
fn paths_are_compared_as_rfc_9309_spells_them() -> Result<()> {
    // Its section 2.2.2 has the first six, 2.2.3 the next three.
    for (pattern, path, is_blocked) in [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", true),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", true),
        ("/foo/bar?baz=https%3a%2f%2ffoo.bar", "/foo/bar?baz=https://foo.bar", true),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84", true),
        ("/foo/bar/%E3%83%84", "/foo/bar/ツ", true),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", true),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-b.html", false),
        ("/path/foo-%24", "/path/foo-$", true),
        ("/path/foo-%24", "/path/foo-", false),
        ("/a%2fb", "/a%2Fb", true),
        ("/a%2Fb", "/a/b", false),
        ("/Special:", "/Special%3ASearch", true),
        ("/Special%3aSearch", "/Special:Search", true),
        ("/a%40b;c%2B", "/a@b%3Bc+", true),
        ("/*?q=*%3A%2f", "/x?q=a:/", true),
        ("/a%3Fb", "/a?b", false),
        ("/a?b%3Dc", "/a?b=c", false),
        ("/a?b%26c", "/a?b&c", false),
        ("/a b", "/a%20b", true),
        ("/~a", "/%7ea", true),
        ("/%", "/%", true),
        ("/a$b", "/a$b", true),
        ("a", "/a", false),
    ] {
        let text = format!("User-agent: *\nDisallow: {pattern}");
        let blocked = blocked(&text, path, Matching::Rfc9309)?;
        ensure!(blocked.is_empty() != is_blocked, "{pattern} {path}");
    }
    Ok(())
}

#[test]
fn readings_have_the_names_of_the_settings() -> Result<()> {
    for (matching, name) in [(Matching::Rfc9309, "rfc9309"), (Matching::Protego04, "protego-0.4")] {
        ensure!(serde_json::to_value(matching)? == name);
        ensure!(serde_json::from_value::<Matching>(name.into())? == matching);
    }
    ensure!(Matching::default() == Matching::Rfc9309);
    ensure!(serde_json::from_str::<Suffixes>("\"private\"")? == Suffixes::Private);
    ensure!(serde_json::from_str::<Suffixes>("\"icann\"")? == Suffixes::default());
    Ok(())
}

/// Files in which `robotstxt` and RFC 9309 agree. Without digits in agents, escapes of what needs none,
/// `index.html` and names that only begin like a field's, for which Google has rules of its own; without
/// other fields, which end a group in this port.
fn file() -> impl Strategy<Value = String> {
    let agent =
        "(User-agent|user agent|USERAGENT)(: ?| : ?)([*]|[*] x|alpha|Alpha/2.0|be-ta|be_ta|al|)";
    let rule = "(Allow|Disallow|disalow)(: ?| : | )(/|/[*]|[/ab.*$?=é]{0,6}|/%C3%a9)";
    let other = "(x|# Disallow: /|Disallow /a b|User-agent alpha|)";
    let line = prop_oneof![3 => agent, 5 => rule, 1 => other];
    let line = (line, "( # x)?(\n|\r\n|\r|\n\n)").prop_map(|(line, end)| line + &end);
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn verdicts_are_those_of_google(
        text in file(),
        // No character twice: the port forgets places where a `*` could end.
        paths in proptest::collection::vec("/(a?b?|b?a?)(%C3%A9)?[.]?[?]?(=?[$]?|[$]=)", 1..4),
    ) {
        let names = ["alpha", "be-ta", "be_ta", "gamma", "*"];
        let agents = Agents::new(&names, Matching::Rfc9309);
        let agents = agents.map_err(TestCaseError::fail)?;
        let robots = Robots::parse(text.as_bytes(), &agents);
        for path in paths {
            let blocked: Vec<&str> = agents.labels_of(robots.blocked(&path)).collect();
            let url = format!("https://a.com{path}");
            let is_blocked = |agent: &&str| {
                !DefaultMatcher::default().one_agent_allowed_by_robots(&text, agent, &url)
            };
            let expected: Vec<&str> = names.into_iter().filter(is_blocked).collect();
            prop_assert_eq!(blocked, expected, "{}", path);
        }
    }
}

#[test]
fn registrable_domains_are_those_of_tldextract() -> Result<()> {
    let golden: Vec<Domain> = serde_json::from_str(include_str!("golden/robots/domains.json"))?;
    ensure!(golden.len() > 200);
    let mut differences = Vec::new();
    for Domain { host, icann, private } in golden {
        for (suffixes, expected) in [(Suffixes::Icann, icann), (Suffixes::Private, private)] {
            let found = registrable_domain(&host, suffixes);
            if found != expected.as_deref() {
                differences.push(format!("{host} {suffixes:?}: {found:?}, not {expected:?}"));
            }
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}
