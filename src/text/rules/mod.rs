//! Judges one document by its URL and text, without a model: licences, words, repetition, base64.
//!
//! ```
//! use polysift_text::rules::{AllowList, LicenseConfig, LicenseRule, Repetition, WordList};
//!
//! let rule = LicenseRule::new(AllowList::published()?, &LicenseConfig::default())?;
//! let licensed = rule.judge(Some("https://docs.python.org/3/"), Some("The tutorial."));
//! assert_eq!(licensed.map(|found| found.evidence).as_deref(), Ok("host:python.org"));
//! let refused = rule.judge(Some("https://example.com/"), Some("All rights reserved"));
//! assert_eq!(refused.map_err(|refusal| refusal.reason), Err("no-evidence"));
//!
//! let list = WordList::new(["darn", "sweet pea"])?;
//! let share = list.share("Darn! It is a sweet  pea.");
//! assert_eq!((share.hits, share.words), (3, 6));
//! assert_eq!(Repetition::of("Only one sentence, which is not repeated.").repeated, 0);
//! # Ok::<(), String>(())
//! ```
//!
//! Every rule takes time linear in the length of the text, whatever its content. Words and
//! sentences follow UAX #29 with the character classes of `unicode-segmentation`, but not its
//! search for sentence ends, which looks ahead from every space after a full stop and is quadratic.

mod allow;
mod base64;
mod characters;
mod folding;
mod license;
mod repetition;
mod sentences;
mod terms;
#[cfg(test)]
mod tests;

mod units;
mod words;

pub use allow::{AllowList, Licensed};
pub use base64::{MIN_BASE64_CHARACTERS, base64_ranges};
pub use license::{DEFAULT_WINDOW, LicenseConfig, LicenseRule, Refusal, RestrictiveOn};
pub use repetition::{MAX_REPETITION_RATE, MIN_SENTENCE_CHARACTERS, Repetition};
pub use words::{MAX_LISTED_SHARE, WordList, WordShare};
