//! Requeueing of Slurm jobs after a time limit or a temporary fault.

use std::time::Duration;

use polysift_base::error::Result;

use super::slurm::{REQUEUE_VARIABLE, run_slurm};

/// Maximum number of restarts after a fault; restarts after a time limit are not limited.
const MAX_RESTARTS_AFTER_FAULT: u32 = 5;
/// A job that reaches its time limit earlier than this is not requeued: the limit is too short.
const MIN_UPTIME: Duration = Duration::from_secs(10);

/// The Slurm job of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    /// Job id for `scontrol`: `77`, or `77_3` for a task of an array.
    job: String,
    restarts: u32,
}

impl Requeue {
    /// Returns the job of this process; `None` outside of Slurm or if `POLYSIFT_REQUEUE` is not 1.
    pub fn of(env: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if env(REQUEUE_VARIABLE)? != "1" {
            return None;
        }
        let job = env("SLURM_JOB_ID")?;
        // The job id of an array task can be that of the whole array, so the task is named.
        let task = env("SLURM_ARRAY_JOB_ID").zip(env("SLURM_ARRAY_TASK_ID"));
        let restarts = env("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok());
        let job = task.map_or(job, |(array, task)| format!("{array}_{task}"));
        Some(Self { job, restarts: restarts.unwrap_or(0) })
    }

    /// Returns true if the job should be requeued after it ended with `exit_code`: if its time was
    /// up (it was stopped by USR1) and, a few times, after temporary faults. Not if another signal
    /// stopped it: a scheduler requeues pre-empted jobs itself, and cancelled jobs stay cancelled.
    pub fn is_due(&self, exit_code: u8, stopped: bool, time_is_up: bool, uptime: Duration) -> bool {
        match exit_code {
            75 if stopped => time_is_up && uptime >= MIN_UPTIME,
            69 | 71 | 74 | 75 => !stopped && self.restarts < MAX_RESTARTS_AFTER_FAULT,
            _ => false,
        }
    }

    /// Calls `scontrol requeue`; Slurm then ends this process.
    pub fn call(&self) -> Result<()> {
        run_slurm("scontrol", ["requeue", &self.job]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_mins(10);

    fn of(variables: &[(&str, &str)]) -> Option<Requeue> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Requeue::of(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn job(restarts: u32) -> Requeue {
        Requeue { job: "77".into(), restarts }
    }

    #[test]
    fn a_task_of_an_array_is_named_as_such_and_never_by_the_id_of_the_whole_array() {
        let array = [
            ("POLYSIFT_REQUEUE", "1"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_ARRAY_JOB_ID", "77"),
            ("SLURM_ARRAY_TASK_ID", "3"),
            ("SLURM_RESTART_COUNT", "2"),
        ];
        assert_eq!(of(&array), Some(Requeue { job: "77_3".into(), restarts: 2 }));
        assert_eq!(of(&array[..2]), Some(job(0)));
    }

    #[test]
    fn only_a_script_that_asks_for_it_is_requeued() {
        assert_eq!(of(&[("SLURM_JOB_ID", "77")]), None);
        assert_eq!(of(&[("SLURM_JOB_ID", "77"), ("POLYSIFT_REQUEUE", "0")]), None);
        assert_eq!(of(&[("POLYSIFT_REQUEUE", "1")]), None, "outside of Slurm");
    }

    #[test]
    fn a_time_limit_brings_the_job_back_however_often() {
        assert!(job(0).is_due(75, true, true, LATER));
        assert!(job(500).is_due(75, true, true, LATER));
    }

    #[test]
    fn a_time_limit_that_leaves_no_time_to_work_does_not_bring_it_back_for_ever() {
        assert!(!job(0).is_due(75, true, true, Duration::from_secs(1)));
    }

    #[test]
    fn what_another_signal_stopped_stays_away() {
        assert!(!job(0).is_due(75, true, false, LATER));
        assert!(!job(0).is_due(74, true, false, LATER));
    }

    #[test]
    fn faults_that_pass_are_tried_again_a_few_times_and_others_never() {
        for code in [69, 71, 74, 75] {
            assert!(job(4).is_due(code, false, false, LATER), "{code}");
            assert!(!job(5).is_due(code, false, false, LATER), "{code}");
        }
        for code in [0, 2, 3, 65, 66, 70, 78] {
            assert!(!job(0).is_due(code, false, false, LATER), "{code}");
        }
    }
}
