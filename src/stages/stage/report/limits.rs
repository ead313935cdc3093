//! How much of each language goes into a report, so that a page of 2,000 languages can still be opened.

use super::stored::StoredRun;

/// Documents of all samples together.
const SAMPLED: usize = 70_000;
/// Documents of a sample, at least.
const LEAST_SAMPLE: usize = 30;
/// Bins of all languages and heads together, and points of curves.
const PLOTTED: usize = 60_000;
/// Bins of a histogram, and points of a curve, at most.
const MOST_PLOTTED: usize = 200;
/// Bytes of all examples together, about.
const EXAMPLE_BYTES: usize = 1_500_000;
/// Bytes of an example without its text, about.
const EXAMPLE_FRAME: usize = 250;
/// Characters of an example's text, at least and at most.
const EXAMPLE_CHARACTERS: [usize; 2] = [120, 500];
/// Domains of all languages together, and of one at most.
const DOMAINS: [usize; 2] = [5000, 50];
/// With more languages documents of samples are without their domains.
const SAMPLE_DOMAINS_BELOW: usize = 100;
/// With more languages only the main numbers of each are there.
const BRIEF_ABOVE: usize = 300;

/// How much of each language goes into a report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportLimits {
    /// Documents of the sample.
    pub(super) sample: usize,
    /// Bins of a histogram, points of a curve.
    pub(super) points: usize,
    /// Examples at each end, and on each side of a cut.
    pub(super) examples: usize,
    /// Examples of a tenth of the documents.
    pub(super) of_decile: usize,
    /// Characters of an example's text.
    pub(super) characters: usize,
    /// Domains by name.
    pub(super) domains: usize,
    /// Whether the domains of the sample are there.
    pub(super) sample_domains: bool,
    /// Whether there are so many languages that quantiles and lengths are left out but for the main ones.
    pub(super) brief: bool,
}

impl ReportLimits {
    /// At most, and with few languages, `sample` documents of each and so many `examples` at each place.
    pub(super) fn new(run: &StoredRun<'_>, sample: usize, examples: usize) -> Self {
        let languages = run.languages.len().max(1);
        let heads = run.heads.len();
        let cuts = run.languages.values().map(|language| language.cuts.len()).max().unwrap_or(0);
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
            heads * (2 * examples + 10 * of_decile) + 2 * cuts * examples
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
