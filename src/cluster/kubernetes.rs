//! Kubernetes: an Indexed Job per stage, with a pod for each task.
//!
//! Jobs do not wait for each other there. All but the first are suspended; who runs them resumes one
//! when the one before is complete.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::per_stage::PerStage;
use super::work::{Needs, StageTasks};
use crate::error::{Error, Result};
use crate::run::Stage;

/// CPUs of a pod unless they are given.
pub const DEFAULT_CPU: &str = "4";
/// Memory of a pod unless it is given.
pub const DEFAULT_MEMORY: &str = "16Gi";
/// Exit codes after which trying again is of no use (docs/exit-codes.md).
const HOPELESS: [u8; 6] = [2, 3, 65, 66, 70, 78];

/// Where a pod may write besides the claim: its root file system is read-only.
const SCRATCH: &str = "/tmp";
/// Longest prefix of a name: what Kubernetes leaves of 63 after stage, task and the pod's own suffix.
const MAX_NAME: usize = 40;
/// Longest DNS label.
const MAX_LABEL: usize = 63;
/// Longest name of most objects.
const MAX_SUBDOMAIN: usize = 253;
/// What an amount may end in: a part or a multiple of 1.
const SUFFIXES: [&str; 14] =
    ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// What the jobs of a run ask Kubernetes for.
#[derive(Debug, Clone)]
pub struct KubernetesSettings {
    /// Prefix of the names of jobs.
    pub name: String,
    /// Namespace; the current one without.
    pub namespace: Option<String>,
    /// Container image with the program in its PATH.
    pub image: String,
    /// Persistent volume claim, writable by many nodes.
    pub claim: String,
    /// Where the claim is mounted.
    pub mount: PathBuf,
    /// The run directory, below `mount`.
    pub run: PathBuf,
    /// Tasks of a stage, and so pods.
    pub num_tasks: u32,
    /// Most pods of a stage at once.
    pub max_running: Option<u32>,
    /// GPUs of a pod in the stages that compute on them.
    pub gpus: u32,
    /// CPUs of a pod; see [`DEFAULT_CPU`].
    pub cpu: PerStage<String>,
    /// Memory of a pod; see [`DEFAULT_MEMORY`].
    pub memory: PerStage<String>,
    /// Secrets whose keys are environment variables of the pods.
    pub secrets: Vec<String>,
    /// User and group that pods run as; never root.
    pub user: (u32, u32),
    /// How often a task is tried again.
    pub retries: u32,
    /// Seconds between TERM and KILL.
    pub grace_secs: u32,
}

/// The jobs for `work` as a Kubernetes `List`; all but the first are suspended.
///
/// A name that Kubernetes does not take, and a run directory that is not below the mount, are [`Error::Config`].
pub fn manifest(settings: &KubernetesSettings, work: &[StageTasks]) -> Result<Value> {
    check(settings)?;
    let jobs = work.iter().enumerate().map(|(i, work)| job(settings, work, i > 0));
    let items: Vec<Value> = jobs.collect::<Result<_>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

fn job(settings: &KubernetesSettings, work: &StageTasks, is_suspended: bool) -> Result<Value> {
    let stage = work.stage;
    // A stage that is one job needs one pod.
    let pods = if work.tasks.is_some() { settings.num_tasks } else { 1 };
    let mut metadata = json!({
        "name": format!("{}-{}", settings.name, stage.name()),
        "labels": {"app.kubernetes.io/name": "polysift", "app.kubernetes.io/instance": settings.name,
                   "app.kubernetes.io/component": stage.name()},
    });
    if let Some(namespace) = &settings.namespace {
        metadata["namespace"] = json!(namespace);
    }
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": settings.max_running.unwrap_or(pods).min(pods),
            "backoffLimitPerIndex": settings.retries,
            "suspend": is_suspended,
            "podFailurePolicy": {"rules": [
                {"action": "FailIndex",
                 "onExitCodes": {"containerName": "polysift", "operator": "In", "values": HOPELESS}},
                {"action": "Ignore",
                 "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]},
            "template": {"spec": pod(settings, work, pods)?},
        },
    }))
}

/// The pod of one of `pods` tasks.
fn pod(settings: &KubernetesSettings, work: &StageTasks, pods: u32) -> Result<Value> {
    let run = settings.run.to_str().ok_or_else(|| not_text("--run"))?;
    let mount = settings.mount.to_str().ok_or_else(|| not_text("--mount"))?;
    let mut container = json!({
        "name": "polysift",
        "image": settings.image,
        "command": ["polysift", work.stage.name(), "--run", run],
        // Kubernetes gives the index, JOB_COMPLETION_INDEX, and not how many there are.
        "env": [
            {"name": "POLYSIFT_NUM_TASKS", "value": pods.to_string()},
            {"name": "HF_HOME", "value": format!("{SCRATCH}/huggingface")},
            {"name": "XDG_CACHE_HOME", "value": format!("{SCRATCH}/cache")},
        ],
        "resources": resources(settings, work.stage, work.needs),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "data", "mountPath": mount}, {"name": "scratch", "mountPath": SCRATCH}],
    });
    if !settings.secrets.is_empty() {
        let secrets = settings.secrets.iter().map(|name| json!({"secretRef": {"name": name}}));
        container["envFrom"] = secrets.collect();
    }
    let (user, group) = settings.user;
    Ok(json!({
        "restartPolicy": "Never", // as podFailurePolicy wants it: every attempt is a pod
        "terminationGracePeriodSeconds": settings.grace_secs,
        "automountServiceAccountToken": false, // it speaks to no API of the cluster
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": user,
            "runAsGroup": group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }))
}

/// The limits are what is requested: the program starts as many threads as it may use CPUs, and a pod
/// that uses what was promised to it is the last to be evicted.
fn resources(settings: &KubernetesSettings, stage: Stage, needs: Needs) -> Value {
    let cpu = settings.cpu.get(stage).map_or(DEFAULT_CPU, String::as_str);
    let memory = settings.memory.get(stage).map_or(DEFAULT_MEMORY, String::as_str);
    let asked = json!({"cpu": cpu, "memory": memory});
    let mut resources = json!({"requests": asked, "limits": asked});
    if settings.gpus > 0 && needs == Needs::Gpus {
        resources["limits"]["nvidia.com/gpu"] = json!(settings.gpus.to_string());
    }
    resources
}

fn not_text(flag: &str) -> Error {
    Error::config(flag, "holds bytes that are not UTF-8")
}

/// Refuses names, paths and amounts with which no pod could run.
fn check(settings: &KubernetesSettings) -> Result<()> {
    check_name("--name", &settings.name, MAX_NAME)?;
    settings.namespace.iter().try_for_each(|name| check_name("--namespace", name, MAX_LABEL))?;
    check_name("--claim", &settings.claim, MAX_SUBDOMAIN)?;
    settings.secrets.iter().try_for_each(|name| check_name("--secret", name, MAX_SUBDOMAIN))?;
    if settings.image.is_empty() || settings.image.contains(char::is_whitespace) {
        let reason = format!("`{}` is no name of an image", settings.image);
        return Err(Error::config("--image", reason));
    }
    if settings.user.0 == 0 {
        return Err(Error::config("--user", "is root, which pods do not run as"));
    }
    for (flag, count) in
        [("--num-tasks", settings.num_tasks), ("--max-running", settings.max_running.unwrap_or(1))]
    {
        if count == 0 {
            return Err(Error::config(flag, "is 0; no pod could ever run"));
        }
    }
    settings.cpu.values().try_for_each(|cpu| check_amount("--cpu", cpu, false))?;
    settings.memory.values().try_for_each(|memory| check_amount("--memory", memory, true))?;
    check_paths(settings)
}

fn check_paths(settings: &KubernetesSettings) -> Result<()> {
    let (mount, run) = (&settings.mount, &settings.run);
    let shown = mount.display();
    let is_root = mount.parent().is_none();
    let wrong = if !mount.is_absolute() || is_root || shown.to_string().contains(':') {
        format!(
            "{shown} is no place for a volume; it has to be an absolute path below / without `:`"
        )
    } else if mount.as_os_str() == SCRATCH {
        format!("{SCRATCH} is where pods have a volume for temporary files; choose another place")
    } else if !run.starts_with(mount) {
        let run = run.display();
        format!("the run directory {run} is not below {shown}, where the claim is mounted")
    } else {
        return Ok(());
    };
    Err(Error::config("--mount", wrong))
}

/// Checks that `name` is of lower-case letters, digits and inner hyphens (a DNS label, RFC 1123), or of several
/// such with dots between them where it may be longer than one.
fn check_name(flag: &str, name: &str, max_len: usize) -> Result<()> {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(is_inner) && label.trim_matches('-') == label
    };
    let has_dots = max_len > MAX_LABEL;
    let is_right = if has_dots { name.split('.').all(is_label) } else { is_label(name) };
    if is_right && name.len() <= max_len {
        return Ok(());
    }
    let dots = if has_dots { ", with `.` between such" } else { "" };
    let reason = format!(
        "`{name}` has to be at most {max_len} lower-case letters, digits and `-`, the last not at an end{dots}"
    );
    Err(Error::config(flag, reason))
}

/// Checks that `text` is an amount as Kubernetes writes it: `500m`, `64`; of memory with a unit, `256Gi`.
fn check_amount(flag: &str, text: &str, needs_unit: bool) -> Result<()> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[number.len()..];
    let is_plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_positive = is_plain && number.parse::<f64>().is_ok_and(|number| number > 0.0);
    let reason = if !is_positive || !SUFFIXES.contains(&suffix) {
        "is no quantity of Kubernetes above 0, such as 500m, 64 or 256Gi"
    } else if needs_unit && matches!(suffix, "" | "m") {
        "has no unit of memory; did you mean Gi?"
    } else {
        return Ok(());
    };
    Err(Error::config(flag, format!("`{text}` {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn settings() -> KubernetesSettings {
        KubernetesSettings {
            name: "fineweb2".into(),
            namespace: None,
            image: "registry.example/polysift:1".into(),
            claim: "corpus".into(),
            mount: "/data".into(),
            run: "/data/runs/a b".into(),
            num_tasks: 400,
            max_running: Some(100),
            gpus: 8,
            cpu: PerStage::default(),
            memory: PerStage::default(),
            secrets: Vec::new(),
            user: (1001, 100),
            retries: 3,
            grace_secs: 180,
        }
    }

    fn jobs(settings: &KubernetesSettings, stages: &[Stage]) -> Result<Value> {
        let config = RunConfig::default();
        let whole = |stage: &Stage| StageTasks::whole(&config, *stage, settings.num_tasks);
        manifest(settings, &stages.iter().map(whole).collect::<Vec<_>>())
    }

    #[test]
    fn a_stage_that_shards_is_an_indexed_job_with_a_pod_for_each_task() -> Result<()> {
        let jobs = jobs(&settings(), &[Stage::Embed])?;
        let spec = &jobs["items"][0]["spec"];
        assert_eq!(jobs["items"][0]["metadata"]["name"], "fineweb2-embed");
        assert_eq!((&spec["completionMode"], &spec["suspend"]), (&json!("Indexed"), &json!(false)));
        assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(400), &json!(100)));
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        let container = &pod["containers"][0];
        assert_eq!(container["command"], json!(["polysift", "embed", "--run", "/data/runs/a b"]));
        assert_eq!(container["env"][0], json!({"name": "POLYSIFT_NUM_TASKS", "value": "400"}));
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
        Ok(())
    }

    #[test]
    fn later_stages_are_suspended_and_what_does_not_encode_asks_for_no_gpu() -> Result<()> {
        let jobs = jobs(&settings(), &[Stage::Embed, Stage::Threshold, Stage::Export])?;
        let suspended = |i: usize| jobs["items"][i]["spec"]["suspend"].clone();
        assert_eq!([suspended(0), suspended(1), suspended(2)], [false, true, true]);
        let threshold = &jobs["items"][1]["spec"];
        assert_eq!(threshold["completions"], 1);
        let container = &threshold["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["value"], "1");
        assert_eq!(container["resources"]["limits"], json!({"cpu": "4", "memory": "16Gi"}));
        Ok(())
    }

    #[test]
    fn only_exit_codes_that_no_retry_helps_fail_a_task_at_once() -> Result<()> {
        let jobs = jobs(&settings(), &[Stage::Score])?;
        let rules = &jobs["items"][0]["spec"]["podFailurePolicy"]["rules"];
        assert_eq!(rules[0]["action"], "FailIndex");
        assert_eq!(rules[0]["onExitCodes"]["values"], json!([2, 3, 65, 66, 70, 78]));
        assert_eq!(rules[1]["action"], "Ignore");
        assert_eq!(rules[1]["onPodConditions"][0]["type"], "DisruptionTarget");
        assert_eq!(rules.as_array().map(Vec::len), Some(2), "all others count");
        Ok(())
    }

    #[test]
    fn a_pod_asks_for_what_its_stage_was_given_and_gets_no_more() -> Result<()> {
        let values = |texts: [&str; 2]| PerStage::parse("--flag", &texts.map(str::to_owned));
        let asked = KubernetesSettings {
            cpu: values(["64", "export=500m"])?,
            memory: values(["embed=256Gi", "export=2Gi"])?,
            ..settings()
        };
        let jobs = jobs(&asked, &[Stage::Embed, Stage::Score, Stage::Export])?;
        for (i, (cpu, memory)) in
            [("64", "256Gi"), ("64", "16Gi"), ("500m", "2Gi")].iter().enumerate()
        {
            let resources =
                &jobs["items"][i]["spec"]["template"]["spec"]["containers"][0]["resources"];
            assert_eq!(resources["requests"], json!({"cpu": cpu, "memory": memory}));
            assert_eq!(
                (&resources["limits"]["cpu"], &resources["limits"]["memory"]),
                (&json!(cpu), &json!(memory))
            );
        }
        Ok(())
    }

    #[test]
    fn pods_pass_the_restricted_pod_security_standard_and_can_write_where_they_have_to()
    -> Result<()> {
        let jobs = jobs(&settings(), &[Stage::Embed])?;
        let pod = &jobs["items"][0]["spec"]["template"]["spec"];
        let expected = json!({"runAsNonRoot": true, "runAsUser": 1001, "runAsGroup": 100,
                          "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(pod["securityContext"], expected);
        let container = &pod["containers"][0];
        let expected = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                          "readOnlyRootFilesystem": true});
        assert_eq!(container["securityContext"], expected);
        assert_eq!(container["volumeMounts"][1], json!({"name": "scratch", "mountPath": "/tmp"}));
        assert_eq!(pod["volumes"][1], json!({"name": "scratch", "emptyDir": {}}));
        assert_eq!(container["env"][1], json!({"name": "HF_HOME", "value": "/tmp/huggingface"}));
        assert!(container.get("envFrom").is_none());
        Ok(())
    }

    #[test]
    fn secrets_are_the_environment_of_the_pods() -> Result<()> {
        let secret =
            KubernetesSettings { secrets: vec!["hub".into(), "s3.keys".into()], ..settings() };
        let jobs = jobs(&secret, &[Stage::Embed])?;
        let container = &jobs["items"][0]["spec"]["template"]["spec"]["containers"][0];
        let expected = json!([{"secretRef": {"name": "hub"}}, {"secretRef": {"name": "s3.keys"}}]);
        assert_eq!(container["envFrom"], expected);
        Ok(())
    }

    /// Whether `settings` are refused with a message that begins with `flag`.
    fn is_refused(settings: &KubernetesSettings, flag: &str) -> bool {
        let refused = manifest(settings, &[]);
        refused.is_err_and(|e| e.exit_code() == 2 && e.to_string().starts_with(flag))
    }

    #[test]
    fn names_that_kubernetes_does_not_take_are_refused() {
        let (long, longer) = ("a".repeat(41), "a".repeat(64));
        for name in ["", "A", "a_b", "-a", "a-", "a.b", &long] {
            let wrong = KubernetesSettings { name: name.into(), ..settings() };
            assert!(is_refused(&wrong, "--name"), "{name}");
        }
        for name in ["", "Team", "a b", "a.b", "-a", &longer] {
            let wrong = KubernetesSettings { namespace: Some(name.into()), ..settings() };
            assert!(is_refused(&wrong, "--namespace"), "{name}");
        }
        for name in ["", "a..b", "a_b", ".a", "a-.b"] {
            let wrong = KubernetesSettings { claim: name.into(), ..settings() };
            assert!(is_refused(&wrong, "--claim"), "{name}");
            let wrong = KubernetesSettings { secrets: vec!["a".into(), name.into()], ..settings() };
            assert!(is_refused(&wrong, "--secret"), "{name}");
        }
        let namespace = Some(long);
        assert!(manifest(&KubernetesSettings { namespace, ..settings() }, &[]).is_ok());
    }

    #[test]
    fn paths_and_amounts_with_which_no_pod_could_work_are_refused() -> Result<()> {
        let memory = |text: &str| PerStage::parse("--memory", &[text.to_owned()]);
        for (wrong, flag) in [
            (
                KubernetesSettings { run: "/database/a".into(), ..settings() },
                "--mount: the run directory",
            ),
            (
                KubernetesSettings { mount: "data".into(), run: "data/a".into(), ..settings() },
                "--mount",
            ),
            (KubernetesSettings { mount: "/".into(), ..settings() }, "--mount"),
            (
                KubernetesSettings { mount: "/tmp".into(), run: "/tmp/a".into(), ..settings() },
                "--mount",
            ),
            (KubernetesSettings { image: String::new(), ..settings() }, "--image"),
            (KubernetesSettings { user: (0, 0), ..settings() }, "--user"),
            (KubernetesSettings { max_running: Some(0), ..settings() }, "--max-running"),
            (
                KubernetesSettings { memory: memory("256")?, ..settings() },
                "--memory: `256` has no unit",
            ),
            (KubernetesSettings { memory: memory("train=512m")?, ..settings() }, "--memory"),
        ] {
            assert!(is_refused(&wrong, flag), "{wrong:?}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_positive_quantity_is_refused() {
        for text in ["64", "500m", "1.5", ".5", "2.", "256Gi", "16G", "1E"] {
            assert!(check_amount("--cpu", text, false).is_ok(), "{text}");
        }
        for text in
            ["", "Gi", "256GB", "256 Gi", "256gi", "-1", "+1", "0", "0Gi", "1.2.3", "1e", "a", "."]
        {
            assert!(check_amount("--cpu", text, false).is_err(), "{text}");
        }
    }
}
