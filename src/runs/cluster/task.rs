//! The task of this process, from flags, polysift's variables or the scheduler's.

use polysift_base::error::{Error, Result};

const SLURM: &str = "SLURM_ARRAY_TASK_ID";
/// Variables with the index and the count that Slurm, Kubernetes and AWS Batch set.
const SCHEDULERS: [(&str, &str); 3] = [
    (SLURM, "SLURM_ARRAY_TASK_COUNT"),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"),
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
];

/// Task `index` of `count` on a stage: it does its part of the shards first, then helps others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Index of the task, from 0.
    pub index: u32,
    /// Number of tasks; greater than `index`.
    pub count: u32,
}

/// A number, and the flag or variable that gave it.
#[derive(Debug, Clone, Copy)]
struct Named {
    name: &'static str,
    value: u32,
}

impl Task {
    /// Returns the task, if one is named. The index is that of `--task`, else `POLYSIFT_TASK`, else
    /// of a scheduler; the count, separately, that of `--num-tasks`, else `POLYSIFT_NUM_TASKS`, else
    /// of that scheduler. What is incomplete or wrong is an [`Error::Config`] with the name of the
    /// flag or variable.
    ///
    /// Without `--num-tasks` or `POLYSIFT_NUM_TASKS`, a scheduler's index counts only if the run
    /// `is_shared` or `task` is `auto`: other job arrays set it too, for instance one with a
    /// separate run in each task.
    pub fn resolve(
        task: Option<&str>,
        num_tasks: Option<u32>,
        is_shared: bool,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let is_shared = is_shared || task == Some("auto");
        let index = match task.filter(|text| *text != "auto") {
            Some(text) => Some(parse_number("--task", text, "neither `auto` nor")?),
            None => read_variable("POLYSIFT_TASK", &env)?,
        };
        let count = match num_tasks {
            Some(value) => Some(Named { name: "--num-tasks", value }),
            None => read_variable("POLYSIFT_NUM_TASKS", &env)?,
        };
        if let Some(index) = index {
            let missing = || lacks_other(index.name, "--num-tasks or POLYSIFT_NUM_TASKS");
            return Self::checked(index, count.ok_or_else(missing)?).map(Some);
        }
        if count.is_none() && !is_shared {
            if let Some((name, _)) = SCHEDULERS.iter().find(|(name, _)| env(name).is_some()) {
                tracing::warn!(
                    "{name} is set, but this run was not planned for several tasks (`polysift plan`): all shards \
                     are done here; give `--task auto` for a share of them"
                );
            }
            return Ok(None);
        }
        let Some((index, total)) = read_scheduler(count, &env)? else {
            return count
                .map_or(Ok(None), |count| Err(lacks_other(count.name, "--task or POLYSIFT_TASK")));
        };
        let task = Self::checked(index, total)?;
        tracing::warn!("task {} of {}, by {}", task.index, task.count, index.name);
        Ok(Some(task))
    }

    /// Makes the task; [`Error::Config`] unless `index` is below `count`.
    fn checked(index: Named, count: Named) -> Result<Self> {
        if count.value == 0 {
            return Err(Error::config(count.name, "is 0; there has to be at least one task"));
        }
        if index.value >= count.value {
            let reason = format!(
                "is {}, but the tasks are counted from 0 and {} says that there are {}",
                index.value, count.name, count.value
            );
            return Err(Error::config(index.name, reason));
        }
        Ok(Self { index: index.value, count: count.value })
    }
}

/// Makes the error of an index without a count, or the other way round.
fn lacks_other(name: &str, missing: &str) -> Error {
    Error::config(name, format!("is given without {missing}"))
}

/// Reads the variable `name` of `env` as a number; `None` if it is not set.
fn read_variable(
    name: &'static str,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Named>> {
    env(name).map(|text| parse_number(name, &text, "not")).transpose()
}

/// Parses the number `text` of the flag or variable `name`; the error says what it is `not`.
fn parse_number(name: &'static str, text: &str, not: &str) -> Result<Named> {
    let value = text.trim().parse().map_err(|_| {
        Error::config(name, format!("`{text}` is {not} a number from 0 to {}", u32::MAX))
    })?;
    Ok(Named { name, value })
}

/// Returns index and count of the first scheduler with an index; `count` replaces its count.
fn read_scheduler(
    count: Option<Named>,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(Named, Named)>> {
    for (index, size) in SCHEDULERS {
        let Some(index) = read_variable(index, env)? else { continue };
        let size_there = read_variable(size, env)?;
        if index.name == SLURM {
            return read_slurm_array(index, count, size_there, env).map(Some);
        }
        let missing =
            || lacks_other(index.name, &format!("--num-tasks, POLYSIFT_NUM_TASKS or {size}"));
        return Ok(Some((index, count.or(size_there).ok_or_else(missing)?)));
    }
    Ok(None)
}

/// Returns index and count; a contiguous array of known size is counted from its first id.
fn read_slurm_array(
    task: Named,
    count: Option<Named>,
    size: Option<Named>,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<(Named, Named)> {
    let (min, max) =
        (read_variable("SLURM_ARRAY_TASK_MIN", env)?, read_variable("SLURM_ARRAY_TASK_MAX", env)?);
    let whole = || {
        let (tasks, min, max) = (size?, min?.value, max?.value);
        let contiguous = max.checked_sub(min)?.checked_add(1)?;
        let is_whole = contiguous == tasks.value && (min..=max).contains(&task.value);
        is_whole.then_some((tasks, min))
    };
    match (count, whole()) {
        (_, Some((tasks, first))) if count.is_none_or(|count| count.value == tasks.value) => {
            Ok((Named { value: task.value - first, ..task }, count.unwrap_or(tasks)))
        }
        (Some(count), _) => Ok((task, count)),
        (None, _) => Err(Error::config(
            task.name,
            "the array has gaps (or Slurm does not tell its size), so it does not say how many tasks \
             there are; give --num-tasks or POLYSIFT_NUM_TASKS",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Env<'a> = &'a [(&'a str, &'a str)];

    fn resolve(task: Option<&str>, num_tasks: Option<u32>, env: Env) -> Result<Option<(u32, u32)>> {
        let env = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Ok(Task::resolve(task, num_tasks, true, env)?.map(|task| (task.index, task.count)))
    }

    fn refusal(task: Option<&str>, num_tasks: Option<u32>, env: Env) -> Option<(u8, String)> {
        resolve(task, num_tasks, env).err().map(|e| (e.exit_code(), e.to_string()))
    }

    fn slurm_array<'a>(
        id: &'a str,
        count: &'a str,
        min: &'a str,
        max: &'a str,
    ) -> [(&'a str, &'a str); 5] {
        [
            ("SLURM_JOB_ID", "77"),
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_COUNT", count),
            ("SLURM_ARRAY_TASK_MIN", min),
            ("SLURM_ARRAY_TASK_MAX", max),
        ]
    }

    #[test]
    fn without_flags_and_variables_there_is_no_task() -> Result<()> {
        assert_eq!(resolve(None, None, &[])?, None);
        assert_eq!(resolve(None, None, &[("SLURM_JOB_ID", "12"), ("SLURM_NTASKS", "4")])?, None);
        Ok(())
    }

    #[test]
    fn flags_win_over_own_variables_and_those_over_the_schedulers() -> Result<()> {
        let own = [("POLYSIFT_TASK", "2"), ("POLYSIFT_NUM_TASKS", "5")];
        let array = slurm_array("7", "9", "0", "8");
        let all = [&own[..], &array[..], &[("JOB_COMPLETION_INDEX", "1")]].concat();
        assert_eq!(resolve(Some("0"), Some(3), &all)?, Some((0, 3)));
        assert_eq!(resolve(None, None, &all)?, Some((2, 5)));
        assert_eq!(resolve(None, None, &all[2..])?, Some((7, 9)));
        Ok(())
    }

    #[test]
    fn half_of_a_pair_may_be_a_flag_and_half_a_variable() -> Result<()> {
        assert_eq!(resolve(Some("1"), None, &[("POLYSIFT_NUM_TASKS", "4")])?, Some((1, 4)));
        assert_eq!(resolve(None, Some(4), &[("POLYSIFT_TASK", "3")])?, Some((3, 4)));
        Ok(())
    }

    #[test]
    fn a_whole_slurm_array_tells_the_share_wherever_it_begins() -> Result<()> {
        assert_eq!(resolve(None, None, &slurm_array("0", "400", "0", "399"))?, Some((0, 400)));
        assert_eq!(resolve(None, None, &slurm_array("400", "400", "1", "400"))?, Some((399, 400)));
        assert_eq!(
            resolve(None, Some(400), &slurm_array("400", "400", "1", "400"))?,
            Some((399, 400))
        );
        assert_eq!(resolve(None, None, &slurm_array("5", "1", "5", "5"))?, Some((0, 1)));
        Ok(())
    }

    #[test]
    fn an_array_with_gaps_needs_the_number_of_tasks() -> Result<()> {
        for gaps in [slurm_array("8", "4", "3", "9"), slurm_array("4", "3", "0", "4")] {
            let message = refusal(None, None, &gaps);
            let told = |(code, text): (u8, String)| {
                code == 2 && text.starts_with("SLURM_ARRAY_TASK_ID") && text.contains("--num-tasks")
            };
            assert!(message.is_some_and(told));
        }
        assert_eq!(resolve(None, Some(400), &slurm_array("8", "4", "3", "9"))?, Some((8, 400)));
        let task = [("SLURM_ARRAY_TASK_ID", "8")];
        assert!(refusal(None, None, &task).is_some(), "the size of the array is not known");
        assert_eq!(resolve(None, Some(400), &task)?, Some((8, 400)));
        Ok(())
    }

    #[test]
    fn a_part_of_an_array_keeps_its_ids_when_the_number_of_tasks_is_given() -> Result<()> {
        assert_eq!(
            resolve(None, Some(400), &slurm_array("150", "100", "100", "199"))?,
            Some((150, 400))
        );
        Ok(())
    }

    #[test]
    fn kubernetes_and_aws_batch_number_their_pods_and_children() -> Result<()> {
        let pod = [("JOB_COMPLETION_INDEX", "3"), ("JOB_COMPLETIONS", "8")];
        assert_eq!(resolve(None, None, &pod)?, Some((3, 8)));
        let own = [("JOB_COMPLETION_INDEX", "3"), ("POLYSIFT_NUM_TASKS", "16")];
        assert_eq!(resolve(None, None, &own)?, Some((3, 16)));
        assert_eq!(resolve(None, Some(8), &pod[..1])?, Some((3, 8)));
        let child = [("AWS_BATCH_JOB_ARRAY_INDEX", "0"), ("AWS_BATCH_JOB_ARRAY_SIZE", "2")];
        assert_eq!(resolve(None, None, &child)?, Some((0, 2)));
        Ok(())
    }

    #[test]
    fn what_is_incomplete_or_wrong_is_refused_with_its_name() {
        let cases: [(Option<&str>, Option<u32>, Env, &str); 13] = [
            (Some("1"), None, &[], "--task: is given without --num-tasks"),
            (None, Some(2), &[], "--num-tasks: is given without --task"),
            (None, None, &[("POLYSIFT_TASK", "1")], "POLYSIFT_TASK: is given without"),
            (None, None, &[("POLYSIFT_NUM_TASKS", "2")], "POLYSIFT_NUM_TASKS: is given without"),
            (
                None,
                None,
                &[("JOB_COMPLETION_INDEX", "0")],
                "JOB_COMPLETION_INDEX: is given without",
            ),
            (
                None,
                None,
                &[("AWS_BATCH_JOB_ARRAY_INDEX", "0")],
                "AWS_BATCH_JOB_ARRAY_INDEX: is given",
            ),
            (Some("4"), Some(4), &[], "--task: is 4, but"),
            (Some("0"), Some(0), &[], "--num-tasks: is 0"),
            (None, Some(8), &[("SLURM_ARRAY_TASK_ID", "8")], "SLURM_ARRAY_TASK_ID: is 8, but"),
            (Some("x"), Some(8), &[], "--task: `x` is neither `auto` nor a number from 0 to"),
            (None, Some(8), &[("POLYSIFT_TASK", "-1")], "POLYSIFT_TASK: `-1` is not a number"),
            (None, Some(8), &[("POLYSIFT_TASK", "")], "POLYSIFT_TASK: `` is not a number"),
            (Some("1"), None, &[("POLYSIFT_NUM_TASKS", "two")], "POLYSIFT_NUM_TASKS: `two` is not"),
        ];
        for (task, num_tasks, env, begins) in cases {
            let refused = refusal(task, num_tasks, env);
            let right = |(code, text): &(u8, String)| *code == 2 && text.starts_with(begins);
            assert!(refused.as_ref().is_some_and(right), "{begins}: {refused:?}");
        }
    }
}
