//! The train stage fits heads to labelled samples, with the tokenizer and encoder of the corpus.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::draw::draw_texts;
use crate::samples::embed_samples;
use polysift_base::error::{Error, Result};
use polysift_base::io::write_atomic;
use polysift_base::progress::Stop;
use polysift_base::sample::text_key;
use polysift_config::{HeadKind, RunConfig};
use polysift_corpus::embedded::place_of;
use polysift_corpus::heads::in_words;
use polysift_corpus::languages::{ALL_LANGUAGES, language_of, planned_languages};
use polysift_corpus::model::{freeze_encoded, load_model};
use polysift_corpus::plan::plan;
use polysift_corpus::training::{PlannedHead, TrainingJob, corpus_languages, jobs, to_train};
use polysift_corpus::{Context, FrozenEncoder, StageWork};
use polysift_data::input::{
    LabelledText, SampleColumns, SkippedRows, for_each_sample, read_samples,
};
use polysift_encoder::Model;
use polysift_heads::head::{AnyHead, FastTextHead, Head, ModelCard, Provenance};
use polysift_heads::train::{Samples, TrainingRequest, train_head, train_round, train_text_head};
use polysift_runs::run::{RunDir, Shard, ShardMarker, Stage};

/// Trains every head that has samples and is not trained yet, for the languages of the run.
pub fn train(context: Context<'_>) -> Result<()> {
    if to_train(context.config).next().is_none() {
        tracing::info!("no head is to be trained: all of them come from files");
        return Ok(());
    }
    let jobs = jobs(context.config, corpus_languages(context)?.as_ref())?;
    if jobs.is_empty() {
        tracing::warn!("no head has samples for a language of the corpus; nothing to train");
        return context.discard_redone(Stage::Train);
    }
    let needs_embeddings = jobs.iter().any(|job| !job.head.kind.is_of_texts());
    let model = needs_embeddings.then(|| load_model(context, Stage::Train)).transpose()?;
    let settings = to_freeze(context, &jobs, model.as_ref());
    freeze_encoded(context, Stage::Train, &settings, model.as_ref())?;
    let keys = jobs.iter().map(TrainingJob::key).collect();
    // One after another, since each uses all threads.
    let work = StageWork { at_once: 1, ..StageWork::dealt(context, Stage::Train, keys)? };
    if work.is_over() {
        return Ok(());
    }
    let bytes: u64 = work.items.own.iter().map(|&item| jobs[item].bytes()).sum();
    context.progress.input(0, bytes.cast_signed());
    let one = |_| Some(1);
    work.claim_all(context, "heads", one, |context, item| {
        let job = &jobs[item];
        if !work.items.is_own[item] {
            context.progress.input(0, job.bytes().cast_signed());
        }
        let model = model.as_ref().filter(|_| !job.head.kind.is_of_texts());
        let mut encoded = 0;
        let mut on_share = |share: f64| {
            let bytes = (share * job.bytes() as f64) as u64;
            context.progress.input(bytes.saturating_sub(encoded), 0);
            context.progress.advance(0, 0);
            encoded = bytes.max(encoded);
        };
        let marker = train_one(context, model, job, &mut on_share)?;
        on_share(1.0);
        context.progress.advance(1, 0);
        Ok(marker)
    })
}

/// Reads the samples of every head to train for `languages` (`None`: all) that is not in `run`,
/// checks that the head can be trained on them, and returns these heads. Returns [`Error::Missing`]
/// for a head without samples for any language; [`Error::Training`] as in [`TrainingJob::check`].
pub(crate) fn check_samples(
    config: &RunConfig,
    languages: Option<&BTreeSet<String>>,
    run: Option<&RunDir>,
    stop: &Stop,
) -> Result<Vec<PlannedHead>> {
    let jobs = jobs(config, languages)?;
    let mut without = to_train(config).filter(|(name, _)| jobs.iter().all(|job| job.name != *name));
    let without = without.find(|(_, head)| head.fallback.is_none());
    if let (Some((name, head)), Some(languages)) = (without, languages) {
        let reason = format!("the head `{name}` has samples for none of {}", in_words(languages));
        return Err(Error::Missing { path: head.train.join(", "), reason });
    }
    let check = |job: &TrainingJob<'_>| -> Result<Option<PlannedHead>> {
        if run.map_or(Ok(false), |run| run.is_done(Stage::Train, &job.key()))? {
            return Ok(None);
        }
        let columns = SampleColumns::of_head(job.head);
        let (mut labels, mut text_bytes) = (Vec::new(), 0);
        for_each_sample(&job.files, &config.input, &columns, &mut |sample| {
            labels.push((sample.label, sample.split));
            text_bytes += sample.text.len() as u64;
            stop.check()
        })?;
        job.check(&labels)?;
        let (head, language) = (job.name.to_owned(), job.language());
        let (samples, is_encoded) = (labels.len() as u64, !job.head.kind.is_of_texts());
        let negatives = job.head.negatives.map_or(0, |drawn| drawn.num_drawn(drawn.corpus) as u64);
        Ok(Some(PlannedHead { head, language, samples, text_bytes, negatives, is_encoded }))
    };
    // The first error in the order of the heads is returned.
    let planned = jobs.par_iter().map(check).collect::<Vec<_>>().into_iter();
    planned.filter_map(Result::transpose).collect()
}

/// Returns the settings to freeze, with the digests of the samples of each head.
fn to_freeze(context: Context<'_>, jobs: &[TrainingJob<'_>], model: Option<&Model>) -> Value {
    let mut heads: BTreeMap<&str, Value> = BTreeMap::new();
    for job in jobs {
        let head = heads.entry(job.name).or_insert_with(|| {
            if job.head.kind == HeadKind::FastText {
                return json!({"fasttext": job.head.fasttext, "kind": job.head.kind,
                              "keep": job.head.keep(job.name), "label": job.head.labels(),
                              "samples": {}});
            }
            json!({"training": job.head.training,
                   "hidden": job.head.hidden, "kind": job.head.kind,
                   "preset": job.head.preset(job.name),
                   "output": job.head.output(job.name), "label": job.head.labels(),
                   "weight": job.head.weight, "languages": job.head.languages,
                   "references": job.head.references(),
                   "center": job.head.center.unwrap_or_default(), "samples": {}})
        });
        head["samples"][&job.language()] = json!(job.digests);
        if let Some(negatives) = job.head.negatives {
            head["negatives"] = json!(negatives);
        }
    }
    let input = &context.config.input;
    let input = json!({"text": input.text, "id": input.id, "language": input.language});
    let mut settings = json!({"seed": context.config.seed, "input": input});
    if model.is_some() {
        settings["encoder"] = json!(FrozenEncoder::of(context.config, model));
        settings["embeddings"] = json!(context.config.parts.embeddings);
    }
    settings["heads"] = json!(heads);
    settings
}

/// Trains a head on texts, or with a `model` on embeddings; `on_share` gets the encoded share.
fn train_one(
    context: Context<'_>,
    model: Option<&Model>,
    job: &TrainingJob<'_>,
    on_share: &mut dyn FnMut(f64),
) -> Result<ShardMarker> {
    let Context { config, run, stop, .. } = context;
    stop.check()?;
    let mut set = read_training_set(context, model, job, on_share)?;
    let language = job.language();
    let of_encoder = model.map(|model| Provenance {
        model: config.encoder.model.clone(),
        recipe: Some(model.recipe.clone()),
        recipe_digest: model.recipe.digest(),
        encoder_digest: model.recipe.model_digest.clone(),
        ..Provenance::default()
    });
    let provenance =
        Provenance { data_digests: job.digests.clone(), ..of_encoder.unwrap_or_default() };
    let request = TrainingRequest {
        name: job.name,
        language: &language,
        config: job.head,
        samples: &Samples::default(), // every use of the request replaces them
        seed: config.seed,
        provenance,
        stop,
    };
    if job.head.negatives.is_none() {
        balance(&request, &set.languages, &mut set.samples)?;
    }
    let (mut rows, mut chosen): (_, Option<Samples>) = (Vec::new(), None);
    for _ in 0..job.head.negatives.map_or(0, |negatives| negatives.rounds()) {
        let of_round = |samples| TrainingRequest { samples, ..request.clone() };
        let head = chosen.as_ref().map(|samples| train_round(&of_round(samples))).transpose()?;
        rows = set.choose_rows(job, head.as_ref())?;
        let samples = chosen.insert(set.samples.of_rows(&rows));
        balance(&request, &set.languages, samples)?;
    }
    let request = TrainingRequest { samples: chosen.as_ref().unwrap_or(&set.samples), ..request };
    let num_samples = request.samples.labels.len() as u64;
    let trained = match job.head.kind {
        HeadKind::FastText => None,
        _ => Some(train_head(&request)?.to_bytes()?),
    };
    context.check_held()?;
    let mut marker = ShardMarker { rows: num_samples, ..ShardMarker::default() };
    let mut wrote = |path: &Path, stamp| marker.files.push(run.file(path, marker.rows, stamp));
    if job.head.negatives.is_some() {
        let path = run.path(format!("heads/{}/{language}.negatives.jsonl", job.name));
        let drawn = rows.iter().filter(|row| **row >= set.languages.len());
        let places: String = drawn.flat_map(|row| [&*set.samples.ids[*row], "\n"]).collect();
        wrote(&path, write_atomic(&path, places.as_bytes())?);
    }
    let Some(bytes) = trained else {
        let path = run.head_file(job.name, job.head.kind, &language);
        let (_, [model, card]) = train_text_head(&request, &path)?;
        wrote(&path, model);
        wrote(&FastTextHead::card_path(&path), card);
        return Ok(marker);
    };
    for language in &job.serves {
        let path = run.head_file(job.name, job.head.kind, language);
        wrote(&path, write_atomic(&path, &bytes)?);
    }
    Ok(marker)
}

/// Reads the model cards of the trained heads of the run, with their names, in training order.
pub fn cards(context: Context<'_>) -> Result<Vec<(String, ModelCard)>> {
    let (languages, run) = (corpus_languages(context)?, context.run);
    let mut cards = Vec::new();
    for job in jobs(context.config, languages.as_ref())? {
        if !run.is_done(Stage::Train, &job.key())? {
            continue;
        }
        run.check_files(Stage::Train, &job.key())?;
        if job.head.kind == HeadKind::FastText {
            let path = run.head_file(job.name, job.head.kind, &job.language());
            let card = FastTextHead::read_card(&path)?;
            cards.extend(card.map(|card| (job.name.to_owned(), card)));
            continue;
        }
        let path = run.head_file(job.name, job.head.kind, &job.serves[0]);
        let head = AnyHead::load(&path, job.name, job.head, &job.language())?;
        cards.push((job.name.to_owned(), head.card().clone()));
    }
    Ok(cards)
}

/// Draws the documents of the corpus that may become negatives of a head, without the texts of
/// `samples`. Adds them to `documents` by language, in random order: texts, and JSON with their
/// files and rows. Returns for each language their number, and how many become negatives.
fn draw_negatives(
    context: Context<'_>,
    job: &TrainingJob<'_>,
    samples: &[LabelledText],
    documents: &mut Vec<(String, Value)>,
) -> Result<Vec<(usize, usize)>> {
    let Some(negatives) = job.head.negatives else { return Ok(Vec::new()) };
    let Context { config, run, .. } = context;
    let place = format!("heads.{}.negatives", job.name);
    if config.input.files.is_empty() {
        let reason = "come from the corpus; name its files in `input.files`";
        return Err(Error::config(place, reason));
    }
    if !run.has_plan() {
        run.freeze_plan(&plan(config)?)?;
    }
    let plan = run.plan()?;
    let mut shards: BTreeMap<String, Vec<(u64, &Shard)>> = BTreeMap::new();
    let is_of_all = job.serves == [ALL_LANGUAGES];
    if planned_languages(config, &plan).is_none() && !is_of_all {
        let reason = "need the language of each file (`{lang}` in `input.files`), or a head for \
                      all languages";
        return Err(Error::config(place, reason));
    }
    for (at, shard) in (0..).zip(&plan.shards) {
        let language = language_of(config, shard);
        if job.draws_from(&language) {
            shards.entry(language).or_default().push((at, shard));
        }
    }
    let mut known: HashSet<u128> = samples.iter().map(|sample| text_key(&sample.text)).collect();
    let mut pools = Vec::new();
    let num_languages = shards.len().max(1);
    let (each, more) = (negatives.corpus / num_languages, negatives.corpus % num_languages);
    for (at, shards) in shards.values().enumerate() {
        let wanted = each + usize::from(at < more);
        let most = negatives.num_drawn(wanted);
        let mut size = most;
        let new = loop {
            let (drawn, is_all) = draw_texts(context, "negatives", shards, size)?;
            let mut own = HashSet::new();
            let is_new = |(_, text): &(u64, String)| {
                let key = text_key(text);
                !known.contains(&key) && own.insert(key)
            };
            let new: Vec<_> = drawn.into_iter().filter(is_new).take(most).collect();
            if new.len() == most || is_all {
                known.extend(own);
                break new;
            }
            // A larger sample begins with the smaller one.
            size = size.saturating_mul(2);
        };
        if new.len() < most {
            let (head, language, found) = (job.name, job.language(), new.len());
            let drawn = wanted.min(found);
            tracing::warn!(
                head,
                language,
                "the settings ask for {wanted} negatives from {most} documents; the corpus has {found} that are \
                 no samples, so at most {drawn} become negatives"
            );
        }
        pools.push((new.len(), wanted));
        documents.extend(new.into_iter().map(|(ordinal, text)| {
            let (shard, row) = place_of(ordinal);
            (text, json!({"file": plan.shards[shard as usize].file, "row": row}))
        }));
    }
    Ok(pools)
}

/// Labelled samples, and behind them the documents that may become negatives.
struct TrainingSet {
    samples: Samples,
    /// Language of each labelled sample.
    languages: Vec<String>,
    /// For each pool its number of documents, and how many become negatives.
    pools: Vec<(usize, usize)>,
}

impl TrainingSet {
    /// Returns the rows that a head is trained on: all labelled ones, and of each pool those that
    /// the head of the round before scores between the quantiles, or else the first ones.
    fn choose_rows(&self, job: &TrainingJob<'_>, before: Option<&Head>) -> Result<Vec<usize>> {
        let mut start = self.languages.len();
        let mut rows: Vec<usize> = (0..start).collect();
        for &(found, wanted) in &self.pools {
            let mut pool: Vec<usize> = (start..start + found).collect();
            let mut range = 0..wanted.min(found);
            let quantiles = job.head.negatives.and_then(|negatives| negatives.quantiles);
            if let (Some(head), Some(quantiles)) = (before, quantiles) {
                let (width, offsets) = (self.samples.hidden_size, (0..=found).collect::<Vec<_>>());
                let embeddings = &self.samples.embeddings[start * width..(start + found) * width];
                let scores = head.score(embeddings, &offsets)?;
                let logit = |row: &usize| scores[row - start].map_or(f32::NAN, |score| score.logit);
                pool.retain(|row| !logit(row).is_nan());
                pool.sort_by(|a, b| logit(a).total_cmp(&logit(b)));
                let [low, high] = quantiles.map(|q| (q * pool.len() as f64).round() as usize);
                range = low..high.min(low + wanted);
            }
            rows.extend(&pool[range]);
            start += found;
        }
        Ok(rows)
    }
}

/// Reads the samples of a head, of both classes, and draws documents that may become negatives.
/// With a `model` the first chunk of each is embedded and rounded like the corpus.
fn read_training_set(
    context: Context<'_>,
    model: Option<&Model>,
    job: &TrainingJob<'_>,
    on_share: &mut dyn FnMut(f64),
) -> Result<TrainingSet> {
    let config = context.config;
    let columns = SampleColumns::of_head(job.head);
    let (labelled, skipped) = read_samples(&job.files, &config.input, &columns)?;
    let SkippedRows { without_text, without_label, malformed } = skipped;
    if without_text + without_label + malformed > 0 {
        let head = job.name;
        tracing::warn!(head, without_text, without_label, malformed, "rows are left out");
    }
    let labels: Vec<_> = labelled.iter().map(|s| (s.label, s.split)).collect();
    job.check(&labels)?;
    let mut documents = Vec::new();
    let pools = draw_negatives(context, job, &labelled, &mut documents)?;
    let mut samples = Samples::default();
    let mut languages = Vec::new();
    let mut push = |id, label, weight, text, split| {
        samples.ids.push(id);
        samples.labels.push(label);
        samples.weights.extend(columns.weight.is_some().then_some(weight));
        samples.texts.push(text);
        samples.splits.push(split);
    };
    for LabelledText { id, text, language, label, weight, split, .. } in labelled {
        languages.push(language);
        push(id, label, weight, text, split);
    }
    for (text, place) in documents {
        push(place.to_string(), 0.0, 1.0, text, None);
    }
    if let Some(model) = model {
        let texts: Vec<&str> = samples.texts.iter().map(String::as_str).collect();
        let embedded = embed_samples(context, model, &texts, on_share)?;
        (samples.embeddings, samples.hidden_size) = (embedded.values, embedded.width);
    }
    Ok(TrainingSet { samples, languages, pools })
}

/// Gives several `languages` of the first, labelled `samples` equal total weights in each split.
fn balance(
    request: &TrainingRequest<'_>,
    languages: &[String],
    samples: &mut Samples,
) -> Result<()> {
    if languages.iter().any(|language| *language != languages[0]) {
        let request = TrainingRequest { samples, ..request.clone() };
        samples.weights = request.balanced_weights(languages)?;
    }
    Ok(())
}
