//! Parses the rules of a robots.txt and applies them to paths.

use std::cmp::Reverse;

use super::Matching;
use super::agents::{AgentMask, Agents, MAX_AGENTS, mask_of};
use super::lines::{Field, Line, lines};
use super::pattern::{Pattern, matches, matches_everything};

/// Rules of a robots.txt for a list of agents, each stored once with its agents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Robots {
    matching: Matching,
    /// Rules in deciding order: longest first, `Allow` before `Disallow`, then as in the file.
    rules: Box<[PathRule]>,
    /// Literals of all patterns, concatenated.
    literals: Box<str>,
    everyone: AgentMask,
    /// Agents that may fetch nothing, where there are no rules.
    closed: AgentMask,
}

/// A rule without the literals of its pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PathRule {
    /// End of its literals in `Robots::literals`.
    end: u32,
    line: u32,
    agents: AgentMask,
    is_anchored: bool,
    is_allow: bool,
}

impl Robots {
    /// Parses the rules for these agents. Accepts any content and ignores what is not a rule.
    pub fn parse(content: &[u8], agents: &Agents) -> Self {
        let matching = agents.matching();
        let text = matching.decode(content);
        let lines: Vec<Line> = lines(&text, matching).collect();
        let mut rules = parse_rules(&lines, agents);
        rules.sort_by_key(|(pattern, rule)| (Reverse(pattern.priority), !rule.is_allow));
        let everyone = (0..agents.labels().len()).fold(0, |mask, agent| mask | mask_of(agent));
        let mut literals = String::new();
        let mut stored = Vec::with_capacity(rules.len());
        for (pattern, rule) in rules {
            // Only the rules of the shortest patterns lie behind the first 4 GiB of literals.
            let Ok(end) = u32::try_from(literals.len() + pattern.literals.len()) else { break };
            literals.push_str(&pattern.literals);
            stored.push(PathRule { end, ..rule });
        }
        Self { matching, rules: stored.into(), literals: literals.into(), everyone, closed: 0 }
    }

    /// Leaves out the rules if each agent may fetch either everything or nothing; then
    /// [`Robots::deciding_line`] finds no line.
    #[must_use]
    pub fn compacted(self) -> Self {
        let (closed, open) = self.everywhere();
        // Protego 0.4 matches a query without a path unchanged, so `/` does not match it.
        let is_certain = closed == 0 || self.matching != Matching::Protego04;
        if !is_certain || (closed | open) != self.everyone {
            return self;
        }
        Self { rules: Box::default(), literals: Box::default(), closed, ..self }
    }

    /// Returns the rules in deciding order, with their literals.
    fn rules(&self) -> impl Iterator<Item = (&str, &PathRule)> {
        let mut start = 0;
        self.rules.iter().map(move |rule| {
            let end = rule.end as usize;
            (&self.literals[std::mem::replace(&mut start, end)..end], rule)
        })
    }

    /// Returns the agents that may not fetch `path`, which comes from [`super::DocumentUrl::path`].
    pub fn blocked(&self, path: &str) -> AgentMask {
        if self.matching.always_allows(path) {
            return 0;
        }
        if self.rules.is_empty() {
            return self.closed;
        }
        let path = self.matching.spelling(path);
        let (mut undecided, mut blocked) = (self.everyone, 0);
        for (literals, rule) in self.rules() {
            let decided = rule.agents & undecided;
            if decided != 0 && matches(literals, rule.is_anchored, &path) {
                undecided &= !decided;
                blocked |= if rule.is_allow { 0 } else { decided };
                if undecided == 0 {
                    break;
                }
            }
        }
        blocked
    }

    /// Returns the number, from 1, of the line that decides if agent number `agent` may fetch
    /// `path`, or `None` if no rule does, so that it may.
    pub fn deciding_line(&self, agent: usize, path: &str) -> Option<usize> {
        if self.matching.always_allows(path) {
            return None;
        }
        let path = self.matching.spelling(path);
        let agent = if agent < MAX_AGENTS { mask_of(agent) } else { 0 };
        let decides = |(literals, rule): &(&str, &PathRule)| {
            rule.agents & agent != 0 && matches(literals, rule.is_anchored, &path)
        };
        self.rules().find(decides).map(|(_, rule)| rule.line as usize)
    }

    /// Returns the agents that certainly may fetch no path beginning with `/`, and those that
    /// certainly may fetch every path, except paths that [`Matching::always_allows`].
    fn everywhere(&self) -> (AgentMask, AgentMask) {
        let (mut closed, mut allowing, mut disallowing) = (0, 0, 0);
        for (literals, rule) in self.rules() {
            if rule.is_allow {
                allowing |= rule.agents;
                continue;
            }
            disallowing |= rule.agents;
            if matches_everything(literals, rule.is_anchored) {
                closed |= rule.agents;
            }
        }
        (closed & !allowing, self.everyone & !disallowing)
    }
}

/// Returns line `number`, from 1, of a robots.txt without its comment, if it has a field.
pub fn line_text(content: &[u8], matching: Matching, number: usize) -> Option<String> {
    let text = matching.decode(content);
    lines(&text, matching).find(|line| line.number == number).map(|line| line.text.to_owned())
}

/// Returns the rules that concern an agent of the list, in file order, with their patterns.
fn parse_rules(lines: &[Line], agents: &Agents) -> Vec<(Pattern, PathRule)> {
    let matching = agents.matching();
    let of_agents = lines.iter().filter(|line| line.field == Field::UserAgent);
    let names: Vec<String> = of_agents.flat_map(|line| matching.group_names(line.value)).collect();
    let groups = agents.choose_groups(&names);
    let mut rules = Vec::new();
    let mut group: AgentMask = 0;
    let mut is_complete = false;
    for line in lines {
        if line.field == Field::UserAgent {
            if is_complete && (matching != Matching::Protego04 || !line.value.is_empty()) {
                group = 0;
            }
            is_complete = false;
            for name in matching.group_names(line.value) {
                for (agent, chosen) in groups.iter().enumerate() {
                    if *chosen == Some(name.as_str()) {
                        group |= mask_of(agent);
                    }
                }
            }
            continue;
        }
        let is_allow = line.field == Field::Allow;
        let is_rule = is_allow || line.field == Field::Disallow;
        is_complete = match matching {
            Matching::Rfc9309 => is_complete || is_rule,
            Matching::Protego04 => line.field != Field::Empty,
        };
        if !is_rule || group == 0 || line.value.is_empty() {
            continue;
        }
        let number = u32::try_from(line.number).unwrap_or(u32::MAX);
        for pattern in matching.patterns(line.value, is_allow) {
            let is_anchored = pattern.is_anchored;
            let rule = PathRule { end: 0, line: number, agents: group, is_anchored, is_allow };
            rules.push((pattern, rule));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::robots::DEFAULT_AGENTS;

    const MATCHINGS: [Matching; 2] = [Matching::Rfc9309, Matching::Protego04];

    #[test]
    fn the_deciding_line_is_named() -> Result<(), String> {
        let agents = Agents::new(&["GPTBot", "*"], Matching::Rfc9309)?;
        let text = b"User-agent: *\nDisallow: /a # all\n\nAllow:/a/b\nUser-agent: GPTBot\nAllow: /";
        let robots = Robots::parse(text, &agents);
        assert_eq!(robots.deciding_line(0, "/a"), Some(6));
        assert_eq!(robots.deciding_line(1, "/a"), Some(2));
        assert_eq!(robots.deciding_line(1, "/a/b"), Some(4));
        assert_eq!(robots.deciding_line(1, "/x"), None);
        assert_eq!(robots.deciding_line(1, "/robots.txt"), None);
        assert_eq!(robots.deciding_line(99, "/a"), None);
        let line = |number| line_text(text, Matching::Rfc9309, number);
        assert_eq!(line(2).as_deref(), Some("Disallow: /a"));
        assert_eq!((line(4).as_deref(), line(9)), (Some("Allow:/a/b"), None));
        assert_eq!(robots.everywhere(), (0, 0b01));
        Ok(())
    }

    #[test]
    fn hostile_files_take_time_in_proportion() -> Result<(), String> {
        let stars = format!("User-agent: *\nDisallow: /{}b$", "*a".repeat(100_000));
        let groups =
            "User-agent: x\nUser-agent: y\n".repeat(9_000) + &"Disallow:/z\n".repeat(20_000);
        let path = format!("/{}", "a".repeat(200_000));
        for matching in MATCHINGS {
            let agents = Agents::new(&DEFAULT_AGENTS, matching)?;
            assert_eq!(Robots::parse(stars.as_bytes(), &agents).blocked(&path), 0);
            assert_eq!(Robots::parse(groups.as_bytes(), &agents).blocked(&path), 0);
        }
        Ok(())
    }

    fn file() -> impl Strategy<Value = (String, String)> {
        let field = "(User-agent|Allow|Disallow|Disallow|Sitemap|host|x|)[: \t]{1,2}";
        let value = "([*]|gptbot|/|/[*]|/[ab%2F*$?;:é]{0,4})[\n\r\0]{1,2}";
        let line = (field, value).prop_map(|(field, value)| field + &value);
        let lines = proptest::collection::vec(line, 0..12);
        (lines, "/[ab%2F*$?;:é#]{0,6}").prop_map(|(lines, path)| (lines.concat(), path))
    }

    proptest! {
        #[test]
        fn hosts_closed_or_open_everywhere_are_so_for_each_path((text, path) in file()) {
            for matching in MATCHINGS {
                let agents = Agents::new(&["GPTBot", "AI2Bot", "*"], matching);
                let agents = agents.map_err(TestCaseError::fail)?;
                let robots = Robots::parse(text.as_bytes(), &agents);
                let blocked = robots.blocked(&path);
                let (closed, open) = robots.everywhere();
                prop_assert_eq!(robots.clone().compacted().blocked(&path), blocked);
                prop_assert_eq!(blocked & open, 0);
                prop_assert!(matching.always_allows(&path) || blocked & closed == closed);
                for agent in 0..3 {
                    let line = robots.deciding_line(agent, &path);
                    prop_assert!(blocked & mask_of(agent) == 0 || line.is_some());
                }
            }
        }

        #[test]
        fn nothing_panics(content: Vec<u8>, text: String, (start, path) in file(), any: String) {
            for matching in MATCHINGS {
                let agents = Agents::new(&DEFAULT_AGENTS, matching);
                let agents = agents.map_err(TestCaseError::fail)?;
                for content in [&content, text.as_bytes(), format!("{start}{text}").as_bytes()] {
                    let robots = Robots::parse(content, &agents);
                    robots.blocked(&path);
                    robots.blocked(&any);
                    robots.deciding_line(0, &format!("/{any}"));
                }
            }
        }
    }
}
