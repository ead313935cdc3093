//! The tasks of a stage that have work left, and the resources they need.

use crate::run::Stage;
use polysift_config::{EncoderPrecision, HeadConfig, RunConfig};

pub(super) struct StageTasks<'a> {
    pub(super) stage: Stage,
    /// Ids of the tasks with work; `None` for a stage that is a single job.
    pub(super) tasks: Option<&'a [u32]>,
    pub(super) needs: Needs,
}

impl<'a> StageTasks<'a> {
    /// Describes the job of `stage` with `tasks` left, which a stage of a single job does not have.
    pub(super) fn of_tasks(config: &RunConfig, stage: Stage, tasks: &'a [u32]) -> Self {
        use Stage::{Cascade, Embed, Export, Filter, Score};
        let is_split = matches!(stage, Cascade | Embed | Score | Filter | Export);
        Self { stage, tasks: is_split.then_some(tasks), needs: Needs::of(config, stage) }
    }
}

/// Returns a Slurm array expression of the sorted, distinct `ids`: `0-3,7,9-12`; empty for none.
pub fn array_expression(ids: &[u32]) -> String {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let text = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one[0].to_string(),
    };
    sorted.chunk_by(|a, b| a + 1 == *b).map(text).collect::<Vec<_>>().join(",")
}

/// Part of a machine that a task can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Some cores: the task reads and writes more than it computes.
    Cores,
    /// All cores: the task encodes on the CPU, or compares embeddings.
    Node,
    /// All GPUs, if there are any, and the cores that feed them.
    Gpus,
}

impl Needs {
    /// Returns what a task of `stage` can use with these settings.
    fn of(config: &RunConfig, stage: Stage) -> Self {
        let encoder = if config.encoder.needs_cpu() { Self::Node } else { Self::Gpus };
        // Refining, also of the heads' samples, is in f32 on the CPU, or for fp8 in bf16 on GPUs.
        let is_fp8 = config.encoder.precision == EncoderPrecision::Fp8;
        let refining = if is_fp8 { Self::Gpus } else { Self::Node };
        let encodes_samples = || config.heads.values().any(HeadConfig::learns_from_embeddings);
        match stage {
            Stage::Cascade | Stage::Embed if config.embeds_texts() => encoder,
            Stage::Refine => refining,
            Stage::Deduplicate => Self::Node,
            Stage::Train if encodes_samples() && config.selection.refine => refining,
            Stage::Train if encodes_samples() => encoder,
            _ => Self::Cores,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use polysift_base::error::Result;

    fn needs(settings: &str) -> Result<[Needs; 9]> {
        let config = RunConfig::from_toml(settings, "run.toml")?;
        Ok(Stage::ALL.map(|stage| Needs::of(&config, stage)))
    }

    #[test]
    fn only_stages_that_encode_need_gpus() -> Result<()> {
        use Needs::{Cores, Gpus, Node};
        let trained = "[heads.q]\ntrain=['s']\n";
        for (settings, expected) in [
            (trained.to_owned(), [Gpus, Gpus, Gpus, Cores, Cores, Node, Node, Cores, Cores]),
            (
                "[heads.q]\npath='q'".to_owned(),
                [Gpus, Gpus, Cores, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                "[heads.q]\ntrain=['s']\nkind='fasttext'".to_owned(),
                [Gpus, Gpus, Cores, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                format!("{trained}[encoder]\ndevice='cuda'"),
                [Gpus, Gpus, Gpus, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                format!("{trained}[encoder]\ndevice='cpu'"),
                [Node, Node, Node, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                format!("{trained}[encoder]\nprecision = 'int8'"),
                [Node, Node, Node, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                format!("{trained}[selection]\nrefine=true"),
                [Gpus, Gpus, Node, Cores, Cores, Node, Node, Cores, Cores],
            ),
            (
                format!("{trained}[encoder]\nprecision = 'fp8'\n[selection]\nrefine=true"),
                [Gpus, Gpus, Gpus, Cores, Cores, Node, Gpus, Cores, Cores],
            ),
            (
                format!("{trained}[input]\nembeddings='e'"),
                [Cores, Cores, Gpus, Cores, Cores, Node, Node, Cores, Cores],
            ),
        ] {
            assert_eq!(needs(&settings)?, expected, "{settings}");
        }
        Ok(())
    }
    #[test]
    fn runs_become_ranges_and_single_ids_stay_alone() {
        assert_eq!(array_expression(&[]), "");
        assert_eq!(array_expression(&[5]), "5");
        assert_eq!(array_expression(&[0, 1, 2, 3, 7, 9, 10, 11, 12]), "0-3,7,9-12");
        assert_eq!(array_expression(&[u32::MAX, 3, u32::MAX - 1, 3]), "3,4294967294-4294967295");
    }

    proptest! {
        #[test]
        fn an_expression_stands_for_the_ids_that_it_was_made_of(
            ids in proptest::collection::btree_set(0u32..200, 1..100)
        ) {
            let expression = array_expression(&ids.iter().copied().collect::<Vec<_>>());
            let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
            let back: BTreeSet<u32> = expression
                .split(',')
                .map(|part| part.split_once('-').unwrap_or((part, part)))
                .flat_map(|(first, last)| number(first)..=number(last))
                .collect();
            prop_assert_eq!(back, ids);
        }
    }
}
