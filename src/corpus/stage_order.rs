//! Which stages a run has, and their order.

use polysift_config::RunConfig;
use polysift_runs::run::Stage;

/// Returns the stages that a run of `config` has, in the order in which tasks run them.
pub fn stages_of(config: &RunConfig) -> Vec<Stage> {
    let is_trained = config.heads.values().any(|head| !head.train.is_empty());
    let is_wanted = |stage: &Stage| match stage {
        Stage::Embed | Stage::Score | Stage::Threshold | Stage::Export => true,
        Stage::Train => is_trained,
        Stage::Filter => config.row_filters().next().is_some(),
        Stage::Deduplicate => config.near().is_some(),
        Stage::Refine => config.selection.refine,
        Stage::Cascade => config.cascade.is_some(),
    };
    in_order(config, Stage::ALL.into_iter().filter(is_wanted).collect())
}

/// Sorts `stages`, each once. A cascade comes after training, because heads score its pilot.
pub fn in_order(config: &RunConfig, mut stages: Vec<Stage>) -> Vec<Stage> {
    stages.sort_by_key(|stage| (config.cascade.is_some() && *stage != Stage::Train, *stage));
    stages.dedup();
    stages
}
