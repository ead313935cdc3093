//! The score stage scores stored embeddings, or texts of the input, per head; it never encodes.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Value, json};

use polysift_base::error::{Error, Result};
use polysift_config::{ChunkRule, Chunks};
use polysift_corpus::heads::{needs_encoder_error, warn_of_unserved};
use polysift_corpus::model::refined_precision;
use polysift_corpus::work::{own_shards, score_keys};
use polysift_corpus::{
    Context, Embedded, FrozenEmbeddings, FrozenEncoder, Heads, ScoreFiles, StageWork, Texts,
};
use polysift_data::input::{ColumnKind, ColumnValues, DocumentInfo};
use polysift_data::parts::{EmbeddingScan, ScoreRows, read_documents, write_scores};
use polysift_heads::head::{DocumentScore, ScoreScratch};
use polysift_heads::vectors::BLOCK_ROWS;
use polysift_runs::run::{PartFile, Shard, ShardMarker, Stage};

/// Number of documents whose texts are in memory and scored in parallel.
const BLOCK_DOCUMENTS: usize = 1024;

/// Scores every shard with every head where that is not done yet.
pub fn score(context: Context<'_>) -> Result<()> {
    let Context { run, .. } = context;
    let embedded = Embedded::of(run)?;
    let heads = Heads::load(context, &embedded)?;
    check_same_encoder(context, &heads)?;
    check_heads_of_cascade(context, &heads.settings())?;
    context.freeze(Stage::Score, &heads.settings())?;
    let names: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let (plan, shards) = (&embedded.plan, &embedded.plan.shards);
    let places = own_shards(context, plan);
    let own = (0..names.len()).flat_map(|h| places.iter().map(move |at| h * shards.len() + at));
    let own: Vec<usize> = own.collect();
    let work = StageWork::new(context, Stage::Score, score_keys(plan, &names), &own)?;
    if !work.is_over() {
        for name in &names {
            let is_unserved = |language: &&String| heads.get(name, language).is_none();
            let unserved = heads.languages().iter().filter(is_unserved);
            warn_of_unserved(name, &unserved.cloned().collect());
        }
        let is_first =
            context.config.embeds_texts() && context.config.encoder.chunks == Chunks::First;
        let rules = context.config.heads.iter().filter_map(|(head, own)| Some((head, own.chunk?)));
        for (head, _) in rules.filter(|(_, rule)| is_first && *rule != ChunkRule::First) {
            tracing::warn!(head, "`chunk` has no effect where `encoder.chunks` is `first`");
        }
    }
    let rows = |item: usize| Some(embedded.summaries[item % shards.len()].rows);
    work.for_all(context, "documents", rows, |context, item| {
        let (head, place) = (item / shards.len(), item % shards.len());
        score_shard(context, &heads, names[head], &shards[place])
    })
}

/// Returns [`Error::Mismatch`] if the run's cascade was made with other heads than in `settings`.
fn check_heads_of_cascade(context: Context<'_>, settings: &Value) -> Result<()> {
    let cascade = context.run.frozen_settings(Stage::Cascade)?.unwrap_or_default();
    for (name, languages) in cascade["heads"].as_object().into_iter().flatten() {
        for (language, before) in languages.as_object().into_iter().flatten() {
            let now = settings.get(name).and_then(|languages| languages.get(language));
            if now.is_none_or(|now| now == before) {
                continue;
            }
            let path = context.run.root().to_owned();
            let difference = format!("  the cascade has another head {name} of {language}");
            let hint = "give `polysift run --redo cascade` to make it and what follows again";
            return Err(Error::Mismatch { path, difference, hint: hint.into() });
        }
    }
    Ok(())
}

/// Returns [`Error::Model`] or [`Error::Mismatch`] for heads that do not fit the embeddings.
fn check_same_encoder(context: Context<'_>, heads: &Heads) -> Result<()> {
    let run = context.run;
    let corpus = FrozenEmbeddings::read(run, Stage::Embed)?;
    let Some(encoder) = corpus.encoder.as_ref().filter(|encoder| !encoder.is_foreign()) else {
        return Ok(());
    };
    let FrozenEncoder::Run { recipe, precision } = encoder else {
        let of_embeddings = context.config.heads.keys().find(|name| heads.is_encoded(name));
        return of_embeddings.map_or(Ok(()), |name| Err(needs_encoder_error(name)));
    };
    let checked = heads.check_recipe(recipe);
    // Heads of texts are trained without an encoder.
    let samples = FrozenEmbeddings::read(run, Stage::Train)?;
    let Some(trained) = &samples.encoder else { return checked };
    let precise =
        FrozenEncoder::Run { recipe: recipe.clone(), precision: refined_precision(*precision) };
    let is_equal = trained == encoder || context.config.selection.refine && *trained == precise;
    if is_equal && samples.dtype() == corpus.dtype() || trained.digest() != encoder.digest() {
        return checked;
    }
    let [samples, corpus] =
        [samples, corpus].map(|it| json!({"encoder": it.encoder, "embeddings": it.dtype()}));
    let difference =
        format!("  the heads were trained with {samples}\n  the corpus is embedded with {corpus}");
    let hint = "train again with `--redo train`, or embed again with `--redo embed`".into();
    Err(Error::Mismatch { path: run.root().to_owned(), difference, hint })
}

/// Writes the scores of `shard` by the head `name`, part by part; returns its marker.
fn score_shard(
    context: Context<'_>,
    heads: &Heads,
    name: &str,
    shard: &Shard,
) -> Result<ShardMarker> {
    let run = context.run;
    let embedded = run.done(Stage::Embed, &shard.name)?;
    let write = |index: usize, scored: &ScoreRows| {
        let path = ScoreFiles::Scored.part(run, name, shard, index);
        context.check_held()?;
        let stamp = write_scores(&path, scored, None, context.config.parts.zstd)?;
        let rows = scored.documents.len() as u64;
        context.progress.advance(rows, 0);
        Ok((run.file(&path, rows, stamp), count_outcomes(scored)))
    };
    let path = |part: &PartFile| run.path(&part.path);
    let in_turn = |score: &mut dyn FnMut(&Path) -> Result<ScoreRows>| {
        let parts = embedded.files.iter().enumerate();
        parts.map(|(index, part)| write(index, &score(&path(part))?)).collect()
    };
    let parts: Vec<Result<(PartFile, Counts)>> = if let Some(head) = heads.of_rows(name) {
        let file = shard.input()?;
        let input = &context.config.input;
        let open = |column| ColumnValues::open(&file, input, column, ColumnKind::Scalar);
        let mut column = head.column().map(open).transpose()?;
        let mut score = |document: DocumentInfo<'_>| -> Result<Option<DocumentScore>> {
            if document.num_bytes == 0 {
                return Ok(None);
            }
            let value = column.as_mut().map_or(Ok(None), |column| column.number(document.row))?;
            Ok(head.score(document.id, value))
        };
        let parts = in_turn(&mut |path| {
            context.stop.check()?;
            let documents = read_documents(path)?;
            let scores = documents.iter().map(&mut score).collect::<Result<_>>()?;
            Ok(ScoreRows { documents, scores })
        });
        column.map_or(Ok(()), ColumnValues::finish)?;
        parts
    } else if heads.is_text(name) {
        let mut texts = Texts::open(context, shard)?;
        in_turn(&mut |path| score_texts(context, heads, name, &mut texts, path))
    } else {
        let parts = embedded.files.par_iter().enumerate().map(|(index, part)| {
            context.stop.check()?;
            write(index, &score_embeddings(heads, name, &path(part))?)
        });
        parts.collect()
    };
    let mut marker = ShardMarker::default();
    for part in parts {
        let (file, counts) = part?;
        marker.add(file, counts);
    }
    Ok(marker)
}

/// Number of rows by outcome.
type Counts = BTreeMap<&'static str, u64>;

fn count_outcomes(scored: &ScoreRows) -> Counts {
    let mut counts = Counts::new();
    for score in &scored.scores {
        let outcome = match score {
            None => "null",
            Some(score) if score.logit.is_nan() => "nan",
            Some(_) => "scored",
        };
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}

/// Scores the documents of the embeddings part `path` in blocks, with the head `name` by language.
fn score_embeddings(heads: &Heads, name: &str, path: &Path) -> Result<ScoreRows> {
    let mut scan = EmbeddingScan::open(path)?;
    let documents = scan.documents.clone();
    let mut scores = Vec::new();
    let (mut chunk_offsets, mut values) = (Vec::new(), Vec::new());
    let mut scratch = ScoreScratch::default();
    while scores.len() < documents.len() {
        scan.next(BLOCK_ROWS, &mut chunk_offsets, &mut values)?;
        let block = scores.len()..scores.len() + chunk_offsets.len() - 1;
        let languages: Vec<&str> = block.map(|at| documents.get(at).language).collect();
        let (width, chunks) = (scan.hidden_size, (&values[..], &chunk_offsets[..]));
        scores.extend(heads.score_chunks(name, &languages, width, chunks, &mut scratch)?);
    }
    Ok(ScoreRows { documents, scores })
}

/// Scores the texts of the documents of the part `path`; `texts` is positioned before the first.
fn score_texts(
    context: Context<'_>,
    heads: &Heads,
    name: &str,
    texts: &mut Texts<'_>,
    path: &Path,
) -> Result<ScoreRows> {
    let documents = read_documents(path)?;
    let mut scores = Vec::new();
    for start in (0..documents.len()).step_by(BLOCK_DOCUMENTS) {
        context.stop.check()?;
        let block = start..documents.len().min(start + BLOCK_DOCUMENTS);
        let languages: Vec<&str> = block.clone().map(|at| documents.get(at).language).collect();
        let text = |at: usize| texts.text(documents.rows()[at], documents.get(at).num_bytes);
        let texts: Vec<Option<String>> = block.map(text).collect::<Result<_>>()?;
        scores.extend(heads.score_texts(name, &languages, &texts));
    }
    Ok(ScoreRows { documents, scores })
}
