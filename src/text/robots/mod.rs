//! Decides by a robots.txt which agents may fetch the URL of a document.
//!
//! ```
//! use polysift_text::robots::{Agents, DEFAULT_AGENTS, Matching, Robots, locate};
//!
//! let agents = Agents::new(&DEFAULT_AGENTS, Matching::Rfc9309)?;
//! let robots = Robots::parse(b"User-agent: GPTBot\nDisallow: /private\n", &agents);
//! let location = locate("https://WWW.Example.COM:443/private/a?b#c")?;
//! assert_eq!(location.authority.to_string(), "https://www.example.com");
//! let blocked = robots.blocked(location.path(Matching::Rfc9309));
//! assert_eq!(agents.labels_of(blocked).collect::<Vec<_>>(), ["GPTBot"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One parser serves two readings of the format ([`Matching`]). Protego 0.4 undoes `%` escapes in
//! paths, not in queries. Otherwise the readings differ as follows:
//!
//! | | rfc9309 | protego-0.4 |
//! |---|---|---|
//! | read | first 500 KiB, no byte order mark, no HTML page | everything |
//! | lines end at | LF, CR, NUL | what Python's `str.splitlines` takes |
//! | colon missing | two words | a name in lower case, then a space |
//! | agent starts a group after | `Allow`, `Disallow` | any line |
//! | an agent's group | same product token | longest name within |
//! | `%` escapes kept | non-URI, `#%&=`, paths `/?` | `/%`, patterns `*$` |
//! | `Allow: …/index.html` | | allows the folder |
//! | `/robots.txt` is allowed | yes | |

mod agents;
mod host;
mod lines;
mod pattern;
mod rules;

use serde::{Deserialize, Serialize};

pub use agents::{AgentMask, Agents, DEFAULT_AGENTS};
pub use host::{Authority, DocumentUrl, locate, registrable_domain};
pub use polysift_suffix::Suffixes;
pub use rules::{Robots, line_text};

/// Reading of robots.txt to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Matching {
    /// RFC 9309, with the leniency of Google's parser, for which `/index.html` is also `/`; here
    /// it is not.
    #[default]
    #[serde(rename = "rfc9309")]
    Rfc9309,
    /// Protego 0.4.0, faults included, which Apertus ran.
    #[serde(rename = "protego-0.4")]
    Protego04,
}

/// Returns true for Python's `str.isspace`: Unicode's white space and four separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}
