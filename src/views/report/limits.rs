//! Limits on what a report shows of each language, so that a page of 2,000 languages still opens.

use super::stored::StoredRun;

/// Maximum documents of all samples together.
const SAMPLED: usize = 70_000;
/// Minimum documents of a sample.
const LEAST_SAMPLE: usize = 30;
/// Maximum bins of all languages and heads together, and points of curves.
const PLOTTED: usize = 60_000;
const MOST_PLOTTED: usize = 200;
/// Approximate bytes of all examples together.
const EXAMPLE_BYTES: usize = 1_500_000;
/// Approximate bytes of an example without its text.
const EXAMPLE_FRAME: usize = 250;
/// Minimum and maximum characters of an example's text.
const EXAMPLE_CHARACTERS: [usize; 2] = [120, 500];
/// Maximum domains of all languages together, and of one language.
const DOMAINS: [usize; 2] = [5000, 50];
/// With more languages, the documents of samples have no domains.
const SAMPLE_DOMAINS_BELOW: usize = 100;
/// With more languages, only the main numbers of each are shown.
const BRIEF_ABOVE: usize = 300;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportLimits {
    pub(super) sample: usize,
    /// Bins of a histogram, and points of a curve.
    pub(super) points: usize,
    /// Examples at each end of an order, and on each side of a threshold.
    pub(super) examples: usize,
    /// Examples from the middle of each tenth of an order.
    pub(super) of_decile: usize,
    pub(super) characters: usize,
    /// Domains shown by name.
    pub(super) domains: usize,
    /// Whether the documents of the sample have domains.
    pub(super) sample_domains: bool,
    /// Whether only the main quantiles and lengths are shown, because there are many languages.
    pub(super) brief: bool,
}

impl ReportLimits {
    /// Computes the limits; `sample` and `examples` are maxima, reached with few languages.
    pub(super) fn new(run: &StoredRun<'_>, sample: usize, examples: usize) -> Self {
        let languages = run.languages.len().max(1);
        let heads = run.rows.heads.len();
        let placed =
            run.languages.values().map(|language| language.placed.len()).max().unwrap_or(0);
        let least = LEAST_SAMPLE.min(sample);
        let mut limits = Self {
            sample: (SAMPLED / languages).clamp(least, sample),
            points: (PLOTTED / languages / heads.max(1)).clamp(8, MOST_PLOTTED),
            examples: 0,
            of_decile: 0,
            characters: 0,
            domains: (DOMAINS[0] / languages).min(DOMAINS[1]),
            sample_domains: languages <= SAMPLE_DOMAINS_BELOW,
            brief: languages > BRIEF_ABOVE,
        };
        let bytes = EXAMPLE_BYTES / languages;
        let [least, most] = EXAMPLE_CHARACTERS;
        let mut choices = (1..=examples.min(EXAMPLE_BYTES / EXAMPLE_FRAME))
            .rev()
            .flat_map(|examples| [2, 1, 0].map(|of_decile| (examples, of_decile.min(examples))));
        let number = |(examples, of_decile): (usize, usize)| {
            heads * (2 * examples + 10 * of_decile) + 2 * placed * examples
        };
        let fits = |choice: &(usize, usize)| number(*choice) * (EXAMPLE_FRAME + least) <= bytes;
        if let Some(choice) = choices.find(fits) {
            (limits.examples, limits.of_decile) = choice;
            let room = bytes / number(choice).max(1);
            limits.characters = room.saturating_sub(EXAMPLE_FRAME).clamp(least, most);
        }
        limits
    }
}
