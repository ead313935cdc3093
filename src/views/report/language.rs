//! The part of a report on one language.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use serde_json::{Map, Value, json};

use super::counts::{QUANTILES, ValueCounts, num_bins, rounded};
use super::details::{CurveStep, LanguageDetails, MEASURES, Wanted, domain_of};
use super::limits::ReportLimits;
use super::stored::{KeptDocument, StoredRun, StoredThresholds};
use super::survey::LanguageSurvey;
use polysift_base::error::Result;
use polysift_base::language::language_name;
use polysift_config::KEPT;
use polysift_runs::run::DocumentAmount;
use polysift_selection::{Amount, Bound, RankKey, ThresholdKind};

const MAIN_QUANTILES: [u64; 3] = [5000, 50_000, 95_000];
const MAIN_MEASURES: [&str; 2] = ["words", "tokens"];
/// Approximate maximum of documents per language that count by domain.
const MOST_LOCATED: u64 = 1_000_000;
/// Points at the ends of a long curve, at powers of two.
const END_POINTS: usize = 24;
const OTHERS: &str = "(others)";

/// A language after the first pass, and what the second looks for and counts.
pub(super) struct SurveyedLanguage<'a> {
    pub(super) run: &'a StoredRun<'a>,
    pub(super) limits: &'a ReportLimits,
    language: &'a str,
    pub(super) thresholds: &'a StoredThresholds,
    pub(super) survey: LanguageSurvey,
    pub(super) sample: Vec<KeptDocument>,
    /// By head, the sample in its order: keys, with places in the sample.
    orders: Vec<Vec<(RankKey, usize)>>,
    pub(super) wanted: Wanted,
    /// What the second pass counts; empty before it.
    pub(super) details: Mutex<LanguageDetails>,
}

/// Returns a score with the fewest digits that identify it; `"inf"` or `"-inf"` if infinite.
fn short_score(score: f32) -> Value {
    let text = score.to_string();
    match text.parse::<f64>() {
        Ok(score) if score.is_finite() => json!(score),
        _ => json!(text),
    }
}

/// Returns the documents up to the end of each of the `steps` of an order.
fn running_sums(steps: &[CurveStep]) -> impl Iterator<Item = CurveStep> {
    steps.iter().scan(CurveStep::default(), |sum, step| {
        sum.merge(*step);
        Some(*sum)
    })
}

impl<'a> SurveyedLanguage<'a> {
    /// Orders the sample and chooses what to look for in the second pass.
    pub(super) fn new(
        (run, limits): (&'a StoredRun<'a>, &'a ReportLimits),
        language: &'a str,
        (survey, sample): (LanguageSurvey, Vec<KeptDocument>),
    ) -> Self {
        let thresholds = &run.languages[language];
        let mut orders = vec![Vec::new(); run.rows.heads.len()];
        for (at, document) in sample.iter().enumerate() {
            for (order, ranked) in orders.iter_mut().zip(thresholds.head_ranks(&document.scored()))
            {
                order.extend(ranked.map(|(key, _)| (key, at)));
            }
        }
        for order in &mut orders {
            order.sort_unstable();
        }
        let (wanted, details) = Default::default();
        let mut found =
            Self { run, limits, language, thresholds, survey, sample, orders, wanted, details };
        found.wanted = found.choose_wanted();
        found.details = Mutex::new(found.begin_details());
        found
    }

    /// Makes details without counts, with a place for all that is wanted.
    pub(super) fn begin_details(&self) -> LanguageDetails {
        let (steps, selections) = (self.wanted.steps.iter(), self.thresholds.names.len());
        let counts = self.survey.heads.iter().map(|head| &head.counts);
        let scores =
            counts.map(|counts| counts.begin_details(num_bins(counts.n, self.limits.points)));
        LanguageDetails {
            scores: scores.collect(),
            steps: steps.map(|keys| vec![CurveStep::default(); keys.len() + 1]).collect(),
            selected: vec![DocumentAmount::default(); selections],
            tied: vec![[0; 2]; self.thresholds.placed.len()],
            lengths: vec![<[ValueCounts; 4]>::default(); selections + 1],
            ..LanguageDetails::default()
        }
    }

    fn places_of_thresholds(&self, head: usize) -> impl Iterator<Item = usize> {
        let placed = self.thresholds.placed.iter().enumerate();
        placed.filter(move |(_, placed)| placed.head == head).map(|(at, _)| at)
    }

    /// Chooses documents to read: at the ends of each order, around thresholds, in each decile.
    /// Returns them with the reasons to show them, by head.
    fn choose_examples(&self) -> Vec<(&KeptDocument, BTreeMap<&str, Vec<String>>)> {
        let mut found: Vec<(&KeptDocument, BTreeMap<&str, Vec<String>>)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (head, name) in self.run.rows.heads.iter().enumerate() {
            let mut show = |document, word: &str| {
                let &KeptDocument { ordinal, .. } = document;
                let at = *places.entry(ordinal).or_insert_with(|| {
                    found.push((document, BTreeMap::new()));
                    found.len() - 1
                });
                let words = found[at].1.entry(*name).or_default();
                if !words.iter().any(|known| known == word) {
                    words.push(word.to_owned());
                }
            };
            let survey = &self.survey.heads[head];
            survey.top.kept.values().for_each(|document| show(document, "top"));
            survey.bottom.kept.values().for_each(|document| show(document, "bottom"));
            for at in self.places_of_thresholds(head) {
                let (survey, placed) = (&self.survey.thresholds[at], &self.thresholds.placed[at]);
                for selection in &placed.selections {
                    for (side, word) in [(&survey.above, "above"), (&survey.below, "below")] {
                        let word = format!("{word}_cut {selection}");
                        side.kept.values().for_each(|document| show(document, &word));
                    }
                }
            }
            let order = &self.orders[head];
            for decile in 0..10 {
                // The middle of the decile.
                let first = (2 * decile + 1) * order.len() / 20;
                for (_, at) in order.iter().skip(first).take(self.limits.of_decile) {
                    show(&self.sample[*at], &format!("decile {decile}"));
                }
            }
        }
        found
    }

    fn choose_wanted(&self) -> Wanted {
        // The places of each head's curve: a number of the sample's keys, and the thresholds.
        let curve = |(head, order): (usize, &Vec<(RankKey, usize)>)| {
            let thresholds = self.places_of_thresholds(head).map(|at| &self.survey.thresholds[at]);
            let first_out = thresholds.filter_map(|threshold| threshold.first_out);
            let at = choose_places(order.len(), self.limits.points);
            at.into_iter().map(|at| order[at].0).chain(first_out).collect()
        };
        let curves: Vec<BTreeSet<RankKey>> = self.orders.iter().enumerate().map(curve).collect();
        let (mut steps, mut examples) = (curves.clone(), BTreeSet::new());
        for (document, _) in self.choose_examples() {
            examples.insert(document.ordinal);
            let ranked = self.thresholds.head_ranks(&document.scored());
            for (steps, ranked) in steps.iter_mut().zip(ranked) {
                steps.extend(ranked.map(|(key, _)| key));
            }
        }
        let documents = self.survey.totals.documents;
        let share = (u128::from(MOST_LOCATED) << 64) / u128::from(documents.max(1));
        Wanted {
            curves,
            steps: steps.into_iter().map(|keys| keys.into_iter().collect()).collect(),
            examples,
            sample: self.sample.iter().enumerate().map(|(at, d)| (d.ordinal, at)).collect(),
            located: u64::try_from(share).unwrap_or(u64::MAX),
            characters: self.limits.characters,
        }
    }

    /// Returns whether there are token counts, and all documents with text have one.
    fn has_tokens(&self) -> bool {
        self.survey.without_tokens == 0 && self.survey.totals.tokens.is_some()
    }

    /// Returns `tokens`, a sum of no counts as 0; `None` unless all documents are counted.
    fn known_tokens(&self, tokens: Option<u64>) -> Option<u64> {
        self.has_tokens().then_some(tokens.unwrap_or_default())
    }

    fn report_amount(&self, totals: DocumentAmount) -> Value {
        let DocumentAmount { documents, bytes, tokens } = totals;
        json!({"documents": documents, "bytes": bytes, "tokens": self.known_tokens(tokens)})
    }

    /// Builds the whole report of the language, after the second pass.
    pub(super) fn report(&self, details: &LanguageDetails, order: &[usize]) -> Result<Value> {
        let (names, DocumentAmount { documents, bytes, tokens }) =
            (&self.thresholds.names, self.survey.totals);
        let mut scores = Map::new();
        for &head in order {
            if let Some(found) = self.report_scores(head, details)? {
                scores.insert(self.run.rows.heads[head].to_owned(), found);
            }
        }
        let selected: Map<String, Value> = (names.iter().zip(&details.selected))
            .map(|(name, totals)| (name.name.clone(), self.report_amount(*totals)))
            .collect();
        let mut report = json!({
            "language": self.language,
            "name": language_name(self.language),
            "documents": documents,
            "bytes": bytes,
            "tokens": self.known_tokens(tokens),
            "scores": scores,
            "thresholds": self.report_thresholds(&details.tied),
            "selected": selected,
            "sample": self.report_sample(details),
            "examples": self.report_examples(details),
            "length": self.report_lengths(details),
        });
        if self.has_domains(details) {
            report["domains"] = self.report_domains(details);
            report["domains_sampled"] = json!(self.wanted.located < u64::MAX);
        }
        if let Some(cascade) = &self.thresholds.selection.cascade {
            report["cascade"] = json!(cascade);
        }
        Ok(report)
    }

    /// Reports the scores of a head; `None` if the language does not have the head.
    fn report_scores(&self, head: usize, details: &LanguageDetails) -> Result<Option<Value>> {
        let survey = &self.survey.heads[head];
        let (counts, found) = (&survey.counts, &details.scores[head]);
        if counts.n + survey.nan == 0 && self.places_of_thresholds(head).next().is_none() {
            return Ok(None);
        }
        let quantiles: Map<String, Value> = (QUANTILES.iter().zip(counts.quantiles(found)))
            .filter(|(at, _)| !self.limits.brief || MAIN_QUANTILES.contains(at))
            .map(|(at, score)| ((*at as f64 / 1000.0).to_string(), json!(score.map(short_score))))
            .collect();
        let range = counts.range;
        let dropped = self.thresholds.selection.thresholds.first();
        let dropped = dropped.map_or(0, |report| report.dropped.num_documents);
        let mut report = json!({
            "n": counts.n,
            "nan": survey.nan,
            "unscored": survey.unscored.saturating_sub(dropped),
            "mean": counts.mean().map(|mean| rounded(mean, 9)),
            "std": counts.std(found).map(|std| rounded(std, 9)),
            "min": range.map(|(min, _)| short_score(min)),
            "max": range.map(|(_, max)| short_score(max)),
            "quantiles": quantiles,
            "bins": found.bins,
            "logits": found.logits,
            "curve": self.report_curve(head, details),
            "test": self.run.test_metrics(self.run.rows.heads[head], self.language)?,
        });
        for (key, number) in [("infinite", counts.infinite), ("dropped", dropped)] {
            if number > 0 {
                report[key] = json!(number);
            }
        }
        Ok(Some(report))
    }

    /// Sums documents, bytes and tokens up to each point, where the last document has the score.
    fn report_curve(&self, head: usize, details: &LanguageDetails) -> Value {
        let (steps, of_curve) = (&self.wanted.steps[head], &self.wanted.curves[head]);
        let (mut documents, mut bytes, mut tokens) = (vec![0], vec![0], vec![0]);
        let mut scores = vec![Value::Null];
        for (at, CurveStep { totals, last }) in running_sums(&details.steps[head]).enumerate() {
            let is_point = steps.get(at).is_none_or(|key| of_curve.contains(key));
            if is_point && documents.last() != Some(&totals.documents) {
                documents.push(totals.documents);
                bytes.push(totals.bytes);
                tokens.push(totals.tokens.unwrap_or_default());
                scores.push(last.map_or(Value::Null, |(_, score)| short_score(score)));
            }
        }
        let tokens = self.has_tokens().then_some(tokens);
        json!({"documents": documents, "bytes": bytes, "tokens": tokens, "score": scores})
    }

    /// Lists each threshold once for every selection that contains it.
    fn report_thresholds(&self, tied: &[[u64; 2]]) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut placed = self.thresholds.placed.iter().zip(tied);
        for report in &self.thresholds.selection.thresholds {
            let threshold = &report.threshold;
            for (i, outcome) in report.outcomes.iter().enumerate() {
                let (kind, key, value) = match &threshold.kind {
                    ThresholdKind::Retain(_) => ("retention", "rate", json!(threshold.rate(i))),
                    ThresholdKind::Remove(_) => ("removal", "rate", json!(threshold.rate(i))),
                    ThresholdKind::Budget(budget) => ("budget", "budget", json!(budget.0)),
                    ThresholdKind::Fixed(fixed) => ("threshold", "at", json!(fixed.score())),
                };
                let mut row = json!({"head": threshold.head_name, "kind": kind, key: value});
                if kind == "threshold" {
                    row["bound"] = json!(match outcome.bound {
                        Bound::Below(_) => "below",
                        Bound::AtLeast(_) => "at-least",
                        Bound::AtMost(_) => "at-most",
                        _ => "above",
                    });
                }
                let amount = |Amount { num_documents, weight }: Amount| json!({"documents": num_documents, "weight": weight});
                let score = outcome.threshold_score.map(|score| short_score(score as f32));
                let Some((placed, [kept, dropped])) = placed.next() else { continue };
                if kept.min(dropped) > &0 {
                    row["tied"] = json!({"kept": kept, "dropped": dropped});
                }
                for selection in &placed.selections {
                    let mut row = row.clone();
                    row["selection"] = json!(selection);
                    row["candidates"] = amount(outcome.candidates);
                    row["kept"] = amount(outcome.kept);
                    row["score"] = json!(score);
                    row["logit"] = json!(outcome.threshold_logit.map(short_score));
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// Reports the sampled documents column by column; a rank of -1 stands for no score.
    fn report_sample(&self, details: &LanguageDetails) -> Value {
        let mut ranks = Map::new();
        for (head, name) in self.run.rows.heads.iter().enumerate() {
            let mut of_head = vec![-1; self.sample.len()];
            for (rank, (_, at)) in (0i64..).zip(&self.orders[head]) {
                of_head[*at] = rank;
            }
            ranks.insert((*name).to_owned(), json!(of_head));
        }
        let bytes: Vec<u64> = self.sample.iter().map(|document| document.bytes).collect();
        let tokens: Vec<u64> = self.sample.iter().filter_map(|document| document.tokens).collect();
        let mut sample = json!({
            "of": self.survey.totals.documents,
            "is_all": self.sample.len() as u64 == self.survey.totals.documents,
            "bytes": bytes,
            "tokens": Some(tokens).filter(|tokens| tokens.len() == bytes.len()),
            "ranks": ranks,
        });
        if self.has_domains(details) && self.limits.sample_domains {
            let of = |d: &KeptDocument| details.sample_domains.get(&d.ordinal).map(String::as_str);
            let domains: Vec<&str> =
                self.sample.iter().map(|d| of(d).unwrap_or_default()).collect();
            let names: BTreeSet<&str> = domains.iter().copied().collect();
            let names: Vec<&str> = names.into_iter().collect();
            let place = |domain: &&str| names.binary_search(domain).unwrap_or_default();
            sample["domains"] = json!(domains.iter().map(place).collect::<Vec<_>>());
            sample["domain_names"] = json!(names);
        }
        sample
    }

    /// Returns whether URLs of all documents were read and there is room for domains.
    fn has_domains(&self, details: &LanguageDetails) -> bool {
        details.with_urls && !details.without_input && self.limits.domains > 0
    }

    /// Reports the examples, each with its rank among all documents by each head (-1 without one).
    fn report_examples(&self, details: &LanguageDetails) -> Vec<Value> {
        let before: Vec<Vec<CurveStep>> =
            details.steps.iter().map(|steps| running_sums(steps).collect()).collect();
        let shown = |(document, shown_for): (&KeptDocument, BTreeMap<&str, Vec<String>>)| {
            let KeptDocument { id, bytes, tokens, ordinal, .. } = document;
            let (mut scores, mut ranks) = (Map::new(), Map::new());
            let document = document.scored();
            let ranked = self.thresholds.head_ranks(&document);
            for (head, name) in self.run.rows.heads.iter().enumerate() {
                let place = ranked[head].and_then(|(key, found)| {
                    scores.insert((*name).to_owned(), short_score(found.score));
                    let at = self.wanted.steps[head].binary_search(&key).ok()?;
                    Some(before[head][at].totals.documents)
                });
                ranks.insert((*name).to_owned(), place.map_or(json!(-1), |rank| json!(rank)));
            }
            let input = details.examples.get(ordinal).cloned().unwrap_or_default();
            let verdict = if input.fate == KEPT {
                let kept = self.thresholds.selections_of(&document, |_, _| {});
                let first = self.thresholds.names.get(kept.trailing_zeros() as usize);
                first.map(|name| name.name.clone()).unwrap_or_default()
            } else {
                format!("removed: {}", input.fate)
            };
            let mut row = json!({"id": id});
            if let Some(url) = input.url {
                row["domain"] = json!(domain_of(&url));
                row["url"] = json!(url);
            }
            row["bytes"] = json!(bytes);
            row["tokens"] = json!(tokens);
            row["scores"] = json!(scores);
            row["ranks"] = json!(ranks);
            row["sample"] = json!(self.wanted.sample.get(ordinal));
            row["shown_for"] = json!(shown_for);
            row["verdict"] = json!(verdict);
            if let Some(filter) = input.filter {
                row["filter"] = json!(filter);
            }
            if let Some(text) = input.text {
                row["text"] = json!(text);
            }
            row
        };
        self.choose_examples().into_iter().map(shown).collect()
    }

    /// Reports the distributions of lengths, of all documents and of each selection.
    fn report_lengths(&self, details: &LanguageDetails) -> Value {
        let names = self.thresholds.names.iter().map(|name| name.name.as_str());
        let groups = ["all"].into_iter().chain(names).zip(&details.lengths);
        let of_group = |(name, lengths): (&str, &[_; 4])| {
            let bytes: &ValueCounts = &lengths[2];
            let mut row = json!({"documents": bytes.total()});
            for (at, measure) in MEASURES.into_iter().enumerate() {
                let is_read = at >= 2 || !details.without_input;
                if is_read && (!self.limits.brief || MAIN_MEASURES.contains(&measure)) {
                    let is_known = measure != "tokens" || self.has_tokens();
                    let lengths = if is_known { &lengths[at] } else { &ValueCounts::default() };
                    row[measure] = lengths.distribution();
                }
            }
            (name.to_owned(), row)
        };
        Value::Object(groups.map(of_group).collect())
    }

    /// Reports the domains with the most documents, and the sum of all others.
    fn report_domains(&self, details: &LanguageDetails) -> Value {
        let mut domains: Vec<(&str, &Vec<u64>)> =
            details.domains.iter().map(|(domain, counts)| (domain.as_str(), counts)).collect();
        domains.sort_by_key(|(domain, counts)| (u64::MAX - counts[0], *domain));
        let others = domains.split_off(self.limits.domains.min(domains.len()));
        let mut sum = vec![0; self.thresholds.names.len() + 1];
        for (_, counts) in &others {
            sum.iter_mut().zip(*counts).for_each(|(sum, count)| *sum += count);
        }
        domains.extend((!others.is_empty()).then_some((OTHERS, &sum)));
        let row = |(domain, counts): (&str, &Vec<u64>)| {
            let kept: Map<String, Value> = (self.thresholds.names.iter().zip(&counts[1..]))
                .map(|(name, count)| (name.name.clone(), json!(count)))
                .collect();
            json!({"domain": domain, "documents": counts[0], "kept": kept})
        };
        domains.into_iter().map(row).collect()
    }
}

/// Chooses about `most` of `len` places or fewer: evenly, with more of a long order at both ends.
fn choose_places(len: usize, most: usize) -> BTreeSet<usize> {
    if len <= most {
        return (0..len).collect();
    }
    let ends = if most > 2 * END_POINTS { END_POINTS / 2 } else { 0 };
    let evenly = most - 2 * ends;
    let even = (0..evenly).map(|i| i * (len - 1) / (evenly - 1).max(1));
    let powers = (0..ends).map(|i| (1 << i) - 1).filter(|at| *at < len);
    even.chain(powers.flat_map(|at| [at, len - 1 - at])).collect()
}
