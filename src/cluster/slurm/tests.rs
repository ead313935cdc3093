//! Scripts and dependencies, without Slurm; with it: `tests/slurm/run.sh`.

use super::super::{Needs, StageTasks};
use super::*;
use crate::config::RunConfig;
use crate::run::Stage;

fn settings() -> SlurmSettings {
    SlurmSettings {
        program: "/opt/polysift".into(),
        run: "/scratch/run".into(),
        num_tasks: 8,
        max_running: None,
        max_array_tasks: 1001,
        signal_secs: 180,
        time: PerStage::default(),
        partition: PerStage::default(),
        account: PerStage::default(),
        gpus_per_node: None,
        cpus_per_task: PerStage::default(),
        mem: PerStage::default(),
        whole_nodes: true,
        sbatch: Vec::new(),
    }
}

/// A value of a flag for all stages.
fn all<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<PerStage<T>> {
    PerStage::parse("--flag", &[value.to_owned()])
}

fn array(stage: Stage, tasks: impl IntoIterator<Item = u32>) -> StageTasks {
    StageTasks::of_tasks(&RunConfig::default(), stage, tasks.into_iter().collect())
}

fn single(stage: Stage) -> StageTasks {
    array(stage, [])
}

fn script(settings: &SlurmSettings, work: StageTasks) -> Result<String> {
    let jobs = slurm_jobs(settings, &[work], true)?;
    Ok(jobs.into_iter().map(|job| job.script).collect())
}

fn dependencies(jobs: &[SlurmJob]) -> Vec<Option<String>> {
    let ids: Vec<String> = (0..jobs.len()).map(|i| (100 + i).to_string()).collect();
    jobs.iter().map(|job| job.dependency(&ids)).collect()
}

#[test]
fn the_script_of_an_array_is_what_was_tested_on_a_cluster() -> Result<()> {
    let text = script(&settings(), array(Stage::Embed, 0..8))?;
    let expected = "#!/bin/bash
#SBATCH --job-name=polysift-embed
#SBATCH --array=0-7
#SBATCH --output=/scratch/run/logs/%x_%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --signal=B:USR1@180
#SBATCH --exclusive
#SBATCH --mem=0
export POLYSIFT_REQUEUE=1
export POLYSIFT_NUM_TASKS=8
export POLYSIFT_TASK=$((0 + SLURM_ARRAY_TASK_ID))
exec /opt/polysift embed --run /scratch/run
";
    assert_eq!(text, expected);
    Ok(())
}

#[test]
fn a_single_job_takes_no_share_from_the_shell_that_submits_it() -> Result<()> {
    let text = script(&settings(), single(Stage::Train))?;
    assert!(!text.contains("--array"));
    assert!(text.contains("--output=/scratch/run/logs/%x_%j.log\n"));
    assert!(text.contains("unset POLYSIFT_TASK POLYSIFT_NUM_TASKS SLURM_ARRAY_TASK_ID"));
    assert!(text.ends_with("exec /opt/polysift train --run /scratch/run\n"));
    Ok(())
}

#[test]
fn what_is_asked_for_reaches_sbatch_and_the_users_own_arguments_come_last() -> Result<()> {
    let asked = SlurmSettings {
        max_running: Some(4),
        time: all("12:00:00")?,
        partition: all("gpu")?,
        account: all("a-1")?,
        gpus_per_node: Some(4),
        cpus_per_task: all("72")?,
        mem: all("200G")?,
        whole_nodes: false,
        sbatch: vec!["--constraint=a b".into(), "--nice=5".into()],
        ..settings()
    };
    let text = script(&asked, array(Stage::Embed, 0..8))?;
    for line in [
        "--array=0-7%4",
        "--time=12:00:00",
        "--partition=gpu",
        "--account=a-1",
        "--gpus-per-node=4",
        "--cpus-per-task=72",
        "--mem=200G",
        "\"--constraint=a b\" --nice=5\nexport POLYSIFT_REQUEUE=1",
    ] {
        assert!(text.contains(&format!("#SBATCH {line}\n")), "{line}\n{text}");
    }
    let threads = "export POLYSIFT_THREADS=${POLYSIFT_THREADS:-${SLURM_CPUS_PER_TASK:-72}}\nexec ";
    assert!(text.contains(threads), "{text}");
    assert!(!text.contains("--exclusive"));
    Ok(())
}

/// The lines of a script that say what a task of a stage with `needs` gets of a node.
fn resources(settings: &SlurmSettings, needs: Needs) -> Result<Vec<String>> {
    let text = script(settings, StageTasks { needs, ..single(Stage::Threshold) })?;
    let is_resource = |option: &&str| {
        ["--exclusive", "--gpus", "--cpus", "--mem"].iter().any(|name| option.starts_with(name))
    };
    let options = text.lines().filter_map(|line| line.strip_prefix("#SBATCH "));
    Ok(options.filter(is_resource).map(str::to_owned).collect())
}

#[test]
fn only_what_computes_on_gpus_gets_them_and_only_what_fills_a_node_gets_it_alone() -> Result<()> {
    let gpus = SlurmSettings { gpus_per_node: Some(4), ..settings() };
    assert_eq!(resources(&gpus, Needs::Gpus)?, ["--exclusive", "--gpus-per-node=4", "--mem=0"]);
    assert_eq!(resources(&gpus, Needs::Node)?, ["--exclusive", "--mem=0"]);
    assert_eq!(resources(&gpus, Needs::Cores)?, ["--cpus-per-task=4"]);
    let partial = SlurmSettings { whole_nodes: false, ..gpus };
    assert_eq!(resources(&partial, Needs::Gpus)?, ["--gpus-per-node=4"]);
    assert_eq!(resources(&partial, Needs::Cores)?, ["--cpus-per-task=4"]);
    Ok(())
}

#[test]
fn a_stage_is_asked_for_with_its_own_values() -> Result<()> {
    let values = |all: &str, export: &str| {
        PerStage::parse("--flag", &[all.to_owned(), format!("export={export}")])
    };
    let asked = SlurmSettings {
        partition: values("gpu", "cpu,long")?,
        account: values("a1", "a2")?,
        time: values("24:00:00", "60")?,
        mem: values("200G", "8G")?,
        cpus_per_task: PerStage::parse("--flag", &["72".to_owned(), "export=2".to_owned()])?,
        ..settings()
    };
    let (embed, export) =
        (script(&asked, array(Stage::Embed, 0..8))?, script(&asked, array(Stage::Export, 0..8))?);
    for (of_embed, of_export) in [
        ("--partition=gpu", "--partition=cpu,long"),
        ("--account=a1", "--account=a2"),
        ("--time=24:00:00", "--time=60"),
        ("--mem=200G", "--mem=8G"),
        ("--cpus-per-task=72", "--cpus-per-task=2"),
    ] {
        assert!(embed.contains(&format!("#SBATCH {of_embed}\n")), "{embed}");
        assert!(export.contains(&format!("#SBATCH {of_export}\n")), "{export}");
    }
    Ok(())
}

#[test]
fn strange_paths_are_quoted_for_the_shell_and_for_sbatch() -> Result<()> {
    let strange = SlurmSettings { run: "/data/it's 100% \"a\" $b #c".into(), ..settings() };
    let text = script(&strange, single(Stage::Threshold))?;
    let log = r#"#SBATCH "--output=/data/it's 100%% \"a\" $b #c/logs/%x_%j.log""#;
    assert!(text.contains(log), "{text}");
    assert!(text.ends_with("--run '/data/it'\\''s 100% \"a\" $b #c'\n"), "{text}");
    for path in ["/a\nb", "/a\\b"] {
        let refused = SlurmSettings { run: path.into(), ..settings() };
        assert!(script(&refused, single(Stage::Train)).is_err_and(|e| e.exit_code() == 2));
    }
    let broken = SlurmSettings { sbatch: vec!["--comment=a\nrm -rf b".into()], ..settings() };
    assert!(script(&broken, single(Stage::Train)).is_err_and(|e| e.exit_code() == 2));
    Ok(())
}

#[test]
fn stages_wait_for_the_success_of_all_arrays_of_the_stage_before() -> Result<()> {
    let small = SlurmSettings { max_array_tasks: 5, ..settings() };
    let work = [array(Stage::Embed, 0..8), single(Stage::Train), array(Stage::Score, 0..8)];
    let jobs = slurm_jobs(&small, &work, true)?;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["embed-0", "embed-1", "train", "score-0", "score-1"]);
    let expected = [None, None, Some("afterok:100:101"), Some("afterok:102"), Some("afterok:102")];
    assert_eq!(dependencies(&jobs), expected.map(|d| d.map(str::to_owned)));
    let unchained = slurm_jobs(&small, &work, false)?;
    assert!(dependencies(&unchained).iter().all(Option::is_none));
    Ok(())
}

#[test]
fn arrays_of_a_limited_stage_run_one_after_the_other() -> Result<()> {
    let limited = SlurmSettings { max_array_tasks: 5, max_running: Some(2), ..settings() };
    let jobs = slurm_jobs(&limited, &[single(Stage::Train), array(Stage::Score, 0..8)], true)?;
    let expected = [None, Some("afterok:100"), Some("afterok:100,afterany:101")];
    assert_eq!(dependencies(&jobs), expected.map(|d| d.map(str::to_owned)));
    Ok(())
}

#[test]
fn every_share_is_one_task_of_one_array_whatever_the_cluster_takes() -> Result<()> {
    let tasks: Vec<u32> = (0..100).filter(|task| task % 7 != 3).collect();
    for max_array_tasks in [1, 3, 10, 99, 100, 1001] {
        let small = SlurmSettings { max_array_tasks, num_tasks: 100, ..settings() };
        let jobs = slurm_jobs(&small, &[array(Stage::Export, tasks.clone())], true)?;
        let mut seen = Vec::new();
        for job in &jobs {
            let offset = job.script.split("POLYSIFT_TASK=$((").nth(1);
            let offset = offset.and_then(|rest| rest.split(' ').next()).unwrap_or("none");
            let offset: u32 = offset.parse().map_err(|_| Error::config("test", offset))?;
            let tasks = crate::cluster::array_ids("test", job.array.as_deref().unwrap_or(""))?;
            assert!(tasks.iter().all(|task| *task < max_array_tasks));
            assert_eq!(tasks.len(), job.num_tasks);
            seen.extend(tasks.into_iter().map(|task| offset + task));
        }
        assert_eq!(seen, tasks, "{max_array_tasks}");
    }
    Ok(())
}

#[test]
fn limits_under_which_no_task_could_work_are_refused() -> Result<()> {
    let timed = |time: &str| {
        let time = PerStage::parse("--time", &["60".to_owned(), format!("train={time}")])?;
        slurm_jobs(&SlurmSettings { time, ..settings() }, &[single(Stage::Train)], true)
    };
    assert!(timed("4").is_err_and(|e| e.exit_code() == 2 && e.to_string().contains("240 s")));
    assert!(timed("soon").is_err_and(|e| e.exit_code() == 2));
    timed("5")?;
    timed("UNLIMITED")?;
    for wrong in [
        SlurmSettings { num_tasks: 0, ..settings() },
        SlurmSettings { max_running: Some(0), ..settings() },
    ] {
        assert!(slurm_jobs(&wrong, &[], true).is_err_and(|e| e.exit_code() == 2));
    }
    Ok(())
}

#[test]
fn one_job_is_printed_as_its_script_and_several_as_a_script_that_submits_them() -> Result<()> {
    let one = slurm_jobs(&settings(), &[array(Stage::Embed, 0..8)], true)?;
    assert_eq!(driver_script(&one), one[0].script);
    let two = slurm_jobs(&settings(), &[array(Stage::Embed, 0..8), single(Stage::Train)], true)?;
    let driver = driver_script(&two);
    assert!(driver.contains("\njob0=$(sbatch --parsable <<'END_OF_SCRIPT'\n#!/bin/bash\n"));
    assert!(driver.contains("sbatch --parsable --dependency=\"afterok:${job0%%;*}\" <<"));
    Ok(())
}
