//! Has more documents encoded where the audit of a cascade does not prove the recall.

use polysift_base::error::Result;
use polysift_config::{CascadeConfig, Rate};
use polysift_corpus::audit::{Audited, kept_counts, least_recall, most_lost, read_audited};
use polysift_corpus::cascaded::{Repair, mark_repair, repair_file};
use polysift_corpus::languages::language_of;
use polysift_corpus::select::stored_selections;
use polysift_corpus::{Cascade, Context, Embedded, ScoreFiles};
use polysift_runs::run::Stage;
use polysift_selection::Selection;

/// Number of thresholds that a repair chooses from; each drops half as many as the one before.
const REPAIR_STEPS: u32 = 10;

/// Has more documents encoded in languages without a proved recall. If it returns true, the embed
/// stage and all later stages must run again; existing embeddings are kept. Returns
/// [`Error::Busy`](polysift_base::Error::Busy) while other processes work in the run directory.
pub(crate) fn repair(context: Context<'_>) -> Result<bool> {
    let Context { config, run, .. } = context;
    let Some(settings) = &config.cascade else { return Ok(false) };
    let embedded = Embedded::scored(run, config.heads.keys())?;
    let languages = embedded.languages();
    if !run.try_finish(Stage::Threshold, &languages.iter().cloned().collect::<Vec<_>>())? {
        return Ok(false); // the process with the last language does it
    }
    let mut repairs = Vec::new();
    for (language, selection) in stored_selections(run, languages)? {
        let Some(proof) = &selection.cascade else { continue };
        if proof.recalls.iter().all(|recall| recall.is_proved) || proof.dropped == 0 {
            continue;
        }
        let threshold = repaired(context, settings, &embedded, &language, &selection)?;
        tracing::warn!(language, ?threshold, "the recall is not proved: more is to be encoded");
        repairs.push((language, threshold));
    }
    if repairs.is_empty() {
        return Ok(false);
    }
    context.worker.exclusive(context.stop, |held| {
        run.discard_from(Stage::Score, held)?;
        for shard in &embedded.plan.shards {
            if repairs.iter().any(|(language, _)| language_of(config, shard) == *language) {
                run.reopen_embeddings(shard)?;
            }
        }
        // Repairs are written last: after an earlier stop, the stages redo what was there.
        for (language, threshold) in &repairs {
            run.write_json(&repair_file(run, language), &Repair { threshold: *threshold })?;
            mark_repair(run, language)?;
        }
        Ok(())
    })?;
    Ok(true)
}

/// Returns the highest margin threshold at which the audit proves the recall, among those that drop
/// 1/2, 1/4, ... of what is dropped now; `None` if no threshold does, so all must be encoded.
fn repaired(
    context: Context<'_>,
    settings: &CascadeConfig,
    embedded: &Embedded,
    language: &str,
    selection: &Selection,
) -> Result<Option<f32>> {
    let cascade = Cascade::of_languages(context, [language.to_owned()])?;
    let files = ScoreFiles::selected(context)?;
    let audited = read_audited(context, embedded, language, files, selection)?;
    let mut margins: Vec<f32> = audited.iter().map(|audited| audited.margin).collect();
    margins.sort_by(f32::total_cmp);
    let at = |step: u32| margins.get(margins.len() >> step).copied();
    let mut steps: Vec<f32> = (1..=REPAIR_STEPS).filter_map(at).collect();
    steps.dedup();
    let mut dropped = vec![0u64; steps.len()];
    for (_, shard, _) in embedded.shards_with(&[language]) {
        context.stop.check()?;
        cascade.for_each_below(context, shard, &mut |_, margin| {
            for (dropped, _) in dropped.iter_mut().zip(&steps).filter(|(_, step)| margin < **step) {
                *dropped += 1;
            }
        })?;
    }
    // The risk is split over the steps, because one of them is chosen.
    let risk = settings.risk() / f64::from(REPAIR_STEPS);
    for (step, dropped) in steps.into_iter().zip(dropped) {
        let left: Vec<&Audited> = audited.iter().filter(|audited| audited.margin < step).collect();
        let proves = |(at, (_, rate, kept)): (usize, &(String, Option<Rate>, u64))| {
            let found = left.iter().filter(|audited| audited.kept[at]).count() as u64;
            let m = left.len() as u64;
            let lost = most_lost(dropped.max(m), m, found, risk);
            least_recall(*rate, *kept, lost) >= settings.recall
        };
        if !left.is_empty() && kept_counts(selection).iter().enumerate().all(proves) {
            return Ok(Some(step));
        }
    }
    Ok(None)
}
