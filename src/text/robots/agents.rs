//! Agents that sites may opt out of, and the group of a robots.txt that applies to each.

use super::{Matching, is_space};

/// A set of agents; bit i is agent i of [`Agents::labels`].
pub type AgentMask = u32;

pub(super) const MAX_AGENTS: usize = AgentMask::BITS as usize;

/// Agents that Apertus checks.
///
/// # Source
/// `swiss-ai/pretrain-data` @0943bfda; the paper's list lacks `FacebookBot`.
#[rustfmt::skip]
pub const DEFAULT_AGENTS: [&str; 15] = [
    "AI2Bot", "Applebot-Extended", "Bytespider", "CCBot", "CCBot/2.0", "CCBot/1.0", "ClaudeBot",
    "cohere-training-data-crawler", "Diffbot", "FacebookBot", "Meta-ExternalAgent",
    "Google-Extended", "GPTBot", "PanguBot", ANY,
];

/// Name of the group for all agents without a group of their own.
const ANY: &str = "*";

/// Agents to check, each distinct from the others in one reading of robots.txt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    matching: Matching,
    labels: Vec<String>,
}

impl Agents {
    /// Collects the agents of a list in order; those that `matching` does not distinguish are one.
    ///
    /// # Errors
    /// Returns a message for an empty or long list, and for an entry that no group can name.
    pub fn new<S: AsRef<str>>(listed: &[S], matching: Matching) -> Result<Self, String> {
        let mut agents = Self { matching, labels: Vec::new() };
        for entry in listed.iter().map(AsRef::as_ref) {
            let label = match matching {
                Matching::Rfc9309 => product_token(entry.trim()),
                Matching::Protego04 => entry.trim_matches(is_space),
            };
            if label.is_empty() || !label.is_ascii() {
                return Err(format!("{entry:?} is not the name of an agent"));
            }
            if !agents.labels.iter().any(|known| known.eq_ignore_ascii_case(label)) {
                agents.labels.push(label.to_owned());
            }
        }
        match agents.labels.len() {
            0 => Err("the list of agents is empty".to_owned()),
            1..=MAX_AGENTS => Ok(agents),
            _ => Err(format!("the list of agents has more than {MAX_AGENTS}")),
        }
    }

    /// Returns the reading of robots.txt that this list is for.
    pub fn matching(&self) -> Matching {
        self.matching
    }

    /// Returns the names as first listed; for rfc9309 truncated to the product token.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the names of the agents in a set, in the order of the list.
    pub fn labels_of(&self, mask: AgentMask) -> impl Iterator<Item = &str> {
        let is_in = move |agent: usize| mask & mask_of(agent) != 0;
        self.labels.iter().enumerate().filter(move |(i, _)| is_in(*i)).map(|(_, l)| l.as_str())
    }

    /// Chooses the group of each agent, if any, from the `names` of all groups in file order.
    pub(super) fn choose_groups<'a>(&self, names: &'a [String]) -> Vec<Option<&'a str>> {
        let group = |agent: &String| {
            let agent = agent.to_ascii_lowercase();
            let scores = names.iter().map(|name| (self.matching.score(name, &agent), name));
            // Of equal scores the first counts, which is the last in reverse.
            let best = scores.rev().filter(|(score, _)| *score > 0).max_by_key(|(score, _)| *score);
            best.map(|(_, name)| name.as_str())
        };
        self.labels.iter().map(group).collect()
    }
}

/// Returns the set of agent number `agent` alone, which is below [`MAX_AGENTS`].
pub(super) fn mask_of(agent: usize) -> AgentMask {
    1 << agent
}

impl Matching {
    /// Returns the names that a `User-agent` line gives to its group, in lower case and not empty.
    pub(super) fn group_names(self, value: &str) -> impl Iterator<Item = String> {
        let (name, other) = match self {
            Self::Rfc9309 => (product_token(value).to_ascii_lowercase(), None),
            Self::Protego04 => {
                let name = value.to_lowercase();
                let other = (name != ANY && name.contains('*')).then(|| name.replace('*', ""));
                (name, other)
            }
        };
        std::iter::once(name).chain(other).filter(|name| !name.is_empty())
    }

    /// Scores how well a group's name fits an agent, both in lower case; 0 means not at all.
    fn score(self, group: &str, agent: &str) -> usize {
        match self {
            _ if group == ANY => 1,
            Self::Rfc9309 if group == agent => usize::MAX,
            Self::Protego04 if agent.contains(group) => group.len(),
            _ => 0,
        }
    }
}

/// Returns the part of a name that identifies an agent, `*` for all of them; may be empty. RFC 9309
/// allows no digits here, but AI2Bot has one.
fn product_token(name: &str) -> &str {
    if let Some(rest) = name.strip_prefix(ANY)
        && (rest.is_empty() || rest.starts_with(is_space))
    {
        return ANY;
    }
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    name.split(ends).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_tokens_of_one_agent_are_one_bit() -> Result<(), String> {
        let agents = Agents::new(&DEFAULT_AGENTS, Matching::Rfc9309)?;
        let expected = [
            "AI2Bot",
            "Applebot-Extended",
            "Bytespider",
            "CCBot",
            "ClaudeBot",
            "cohere-training-data-crawler",
            "Diffbot",
            "FacebookBot",
            "Meta-ExternalAgent",
            "Google-Extended",
            "GPTBot",
            "PanguBot",
            "*",
        ];
        assert_eq!(agents.labels(), expected);
        let agents = Agents::new(&["CCBot/2.0", "ccbot"], Matching::Rfc9309)?;
        assert_eq!(agents.labels(), ["CCBot"]);
        let agents = Agents::new(&["CCBot/2.0", "ccbot", "CCBot"], Matching::Protego04)?;
        assert_eq!(agents.labels(), ["CCBot/2.0", "ccbot"]);
        assert_eq!(agents.labels_of(0b10).collect::<Vec<_>>(), ["ccbot"]);
        Ok(())
    }

    #[test]
    fn lists_without_use_are_errors() {
        let error =
            |names: &[&str]| Agents::new(names, Matching::Rfc9309).err().unwrap_or_default();
        let numbered = |count: usize| (0..count).map(|i| format!("bot{i}")).collect::<Vec<_>>();
        assert_eq!(error(&[]), "the list of agents is empty");
        assert_eq!(error(&["a", "/1.0"]), "\"/1.0\" is not the name of an agent");
        assert_eq!(error(&["", "a"]), "\"\" is not the name of an agent");
        assert!(Agents::new(&["é"], Matching::Protego04).is_err());
        assert!(Agents::new(&numbered(32), Matching::Rfc9309).is_ok());
        let too_many = Agents::new(&numbered(33), Matching::Rfc9309).err();
        assert_eq!(too_many.as_deref(), Some("the list of agents has more than 32"));
    }
}
