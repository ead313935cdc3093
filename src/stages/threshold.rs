//! The threshold stage computes the exact thresholds of each language over the whole corpus.

use serde_json::json;

use polysift_base::error::Result;
use polysift_config::CascadeConfig;
use polysift_corpus::mixed::MixedScores;
use polysift_corpus::select::{refine_settings, scored_run, select_language, threshold_settings};
use polysift_corpus::{Context, ScoreFiles, StageWork};
use polysift_runs::run::{ShardMarker, Stage};
use polysift_selection::{Selection, ThresholdKind, ThresholdReport};

/// Finds and writes the thresholds to `selection/<lang>.json`; each language is a unit of work.
pub fn threshold(context: Context<'_>) -> Result<()> {
    let run = context.run;
    let (embedded, heads) = scored_run(context)?;
    let scores = ScoreFiles::selected(context)?;
    if scores == ScoreFiles::Refined {
        run.check_frozen(Stage::Refine, &refine_settings(context, &heads)?)?;
    }
    context.freeze(Stage::Threshold, &threshold_settings(context, &heads)?)?;
    let languages = heads.languages().iter().cloned().collect();
    let mut work = StageWork::dealt(context, Stage::Threshold, languages)?;
    let mixed = MixedScores::groups(context, &embedded, scores, None);
    if !mixed.is_empty() {
        work.at_once = 1; // see `LanguageGroups::with`
    }
    let one = |_| Some(1);
    work.for_all(context, "languages", one, |context, item| {
        context.stop.check()?;
        let language = &work.items.keys[item];
        let mixed = mixed.with(language)?;
        let selection =
            select_language(context, &embedded, &heads, language, scores, mixed.as_deref())?;
        warn_of_misses(language, &selection, context.config.cascade.as_ref());
        context.check_held()?;
        let files = vec![run.write_json(&run.selection_file(language), &selection)?];
        context.progress.advance(1, 0);
        Ok(ShardMarker { rows: 1, files, ..ShardMarker::default() })
    })
}

/// Warns of budgets that the documents do not reach, and of recalls that are not proved.
fn warn_of_misses(language: &str, selection: &Selection, cascade: Option<&CascadeConfig>) {
    for ThresholdReport { threshold, outcomes, .. } in &selection.thresholds {
        let ThresholdKind::Budget(budget) = threshold.kind else { continue };
        let (head, kept) = (&threshold.head_name, outcomes.iter().map(|o| o.kept.weight).min());
        if let Some(kept) = kept.filter(|kept| *kept < budget.0) {
            tracing::warn!(language, head, %budget, kept, "the documents left for this threshold are below the budget; all of them are kept");
        }
    }
    let (Some(proof), Some(config)) = (&selection.cascade, cascade) else { return };
    for recall in proof.recalls.iter().filter(|recall| !recall.is_proved) {
        let (head, rate) = (&recall.head, json!(recall.rate));
        let (found, wanted) = (recall.lower_bound, config.recall);
        let hint = if config.repair { "" } else { "; `--cascade-repair` encodes more until then" };
        tracing::warn!(language, head, %rate,
            "the audit proves a recall of {found:.4} and not of {wanted}{hint}");
    }
}
