//! Kubernetes: an Indexed Job per stage, whose pods take a share each.
//!
//! Jobs do not wait for each other there. All but the first are suspended; who runs them resumes one
//! when the one before is complete.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::run::Stage;

/// Exit codes after which trying again is of no use (the README's table).
const HOPELESS: [u8; 6] = [2, 3, 65, 66, 70, 78];
/// Longest prefix of a name: what Kubernetes leaves of 63 after stage, share and the pod's own suffix.
const MAX_NAME: usize = 40;

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
    /// Shares of a stage, and so pods.
    pub num_shards: u32,
    /// Most pods of a stage at once.
    pub max_running: Option<u32>,
    /// GPUs of a pod in the stages that encode.
    pub gpus: u32,
    /// CPUs of a pod, as a quantity.
    pub cpu: Option<String>,
    /// Memory of a pod, as a quantity.
    pub memory: Option<String>,
    /// How often a share is tried again.
    pub retries: u32,
    /// Seconds between TERM and KILL.
    pub grace_secs: u32,
}

/// The jobs of `stages` as a Kubernetes `List`; all but the first are suspended.
///
/// A name that Kubernetes does not take, and a run directory that is not below the mount, are [`Error::Config`].
pub fn manifest(settings: &KubernetesSettings, stages: &[Stage]) -> Result<Value> {
    check(settings)?;
    let jobs = stages.iter().enumerate().map(|(i, stage)| job(settings, *stage, i > 0));
    let items: Vec<Value> = jobs.collect::<Result<_>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// A manifest as YAML.
pub fn to_yaml(manifest: &Value) -> Result<String> {
    serde_saphyr::to_string(manifest).map_err(|e| Error::config("kubernetes", e.to_string()))
}

fn job(settings: &KubernetesSettings, stage: Stage, is_suspended: bool) -> Result<Value> {
    // What is one piece of work needs one pod.
    let pods = if super::slurm::is_array(stage) { settings.num_shards } else { 1 };
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
            "template": {"spec": pod(settings, stage, pods)?},
        },
    }))
}

fn pod(settings: &KubernetesSettings, stage: Stage, pods: u32) -> Result<Value> {
    let run = settings.run.to_str().ok_or_else(|| not_text("--run"))?;
    let mount = settings.mount.to_str().ok_or_else(|| not_text("--mount"))?;
    let mut container = json!({
        "name": "polysift",
        "image": settings.image,
        "command": ["polysift", stage.name(), "--run", run],
        // Kubernetes gives the index, JOB_COMPLETION_INDEX, and not how many there are.
        "env": [{"name": "POLYSIFT_NUM_SHARDS", "value": pods.to_string()}],
        "volumeMounts": [{"name": "data", "mountPath": mount}],
    });
    let resources = resources(settings, stage);
    if resources.as_object().is_some_and(|resources| !resources.is_empty()) {
        container["resources"] = resources;
    }
    Ok(json!({
        "restartPolicy": "Never", // as podFailurePolicy wants it: every attempt is a pod
        "terminationGracePeriodSeconds": settings.grace_secs,
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}}],
    }))
}

fn resources(settings: &KubernetesSettings, stage: Stage) -> Value {
    let mut resources = json!({});
    if let Some(cpu) = &settings.cpu {
        resources["requests"]["cpu"] = json!(cpu);
    }
    if let Some(memory) = &settings.memory {
        resources["requests"]["memory"] = json!(memory);
        resources["limits"]["memory"] = json!(memory);
    }
    let encodes = matches!(stage, Stage::Embed | Stage::Train | Stage::Refine);
    if settings.gpus > 0 && encodes {
        resources["limits"]["nvidia.com/gpu"] = json!(settings.gpus.to_string());
    }
    resources
}

fn not_text(flag: &str) -> Error {
    Error::config(flag, "holds bytes that are not UTF-8")
}

fn check(settings: &KubernetesSettings) -> Result<()> {
    let name = settings.name.as_bytes();
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let is_name = is_edge(name.first()) && is_edge(name.last()) && name.iter().all(is_inner);
    if !is_name || name.len() > MAX_NAME {
        let reason = format!(
            "`{}` has to be at most {MAX_NAME} lower-case letters, digits and `-`, the last not at an end",
            settings.name
        );
        return Err(Error::config("--name", reason));
    }
    for (flag, count) in [
        ("--num-shards", settings.num_shards),
        ("--max-running", settings.max_running.unwrap_or(1)),
    ] {
        if count == 0 {
            return Err(Error::config(flag, "is 0; no pod could ever run"));
        }
    }
    if settings.run.starts_with(&settings.mount) {
        return Ok(());
    }
    let reason = format!(
        "the run directory {} is not below {}, where the claim is mounted",
        settings.run.display(),
        settings.mount.display()
    );
    Err(Error::config("--mount", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> KubernetesSettings {
        KubernetesSettings {
            name: "fineweb2".into(),
            namespace: None,
            image: "registry.example/polysift:1".into(),
            claim: "corpus".into(),
            mount: "/data".into(),
            run: "/data/runs/a b".into(),
            num_shards: 400,
            max_running: Some(100),
            gpus: 8,
            cpu: Some("64".into()),
            memory: Some("256Gi".into()),
            retries: 3,
            grace_secs: 180,
        }
    }

    #[test]
    fn a_stage_that_shards_is_an_indexed_job_with_a_pod_a_share() -> Result<()> {
        let jobs = manifest(&settings(), &[Stage::Embed])?;
        let spec = &jobs["items"][0]["spec"];
        assert_eq!(jobs["items"][0]["metadata"]["name"], "fineweb2-embed");
        assert_eq!((&spec["completionMode"], &spec["suspend"]), (&json!("Indexed"), &json!(false)));
        assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(400), &json!(100)));
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        let container = &pod["containers"][0];
        assert_eq!(container["command"], json!(["polysift", "embed", "--run", "/data/runs/a b"]));
        assert_eq!(container["env"][0], json!({"name": "POLYSIFT_NUM_SHARDS", "value": "400"}));
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
        Ok(())
    }

    #[test]
    fn later_stages_are_suspended_and_what_does_not_encode_asks_for_no_gpu() -> Result<()> {
        let jobs = manifest(&settings(), &[Stage::Embed, Stage::Threshold, Stage::Export])?;
        let suspended = |i: usize| jobs["items"][i]["spec"]["suspend"].clone();
        assert_eq!([suspended(0), suspended(1), suspended(2)], [false, true, true]);
        let threshold = &jobs["items"][1]["spec"];
        assert_eq!(threshold["completions"], 1);
        let container = &threshold["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["value"], "1");
        assert_eq!(container["resources"]["limits"], json!({"memory": "256Gi"}));
        Ok(())
    }

    #[test]
    fn only_exit_codes_that_no_retry_helps_fail_a_share_at_once() -> Result<()> {
        let jobs = manifest(&settings(), &[Stage::Score])?;
        let rules = &jobs["items"][0]["spec"]["podFailurePolicy"]["rules"];
        assert_eq!(rules[0]["action"], "FailIndex");
        assert_eq!(rules[0]["onExitCodes"]["values"], json!([2, 3, 65, 66, 70, 78]));
        assert_eq!(rules[1]["action"], "Ignore");
        assert_eq!(rules[1]["onPodConditions"][0]["type"], "DisruptionTarget");
        assert_eq!(rules.as_array().map(Vec::len), Some(2), "all others count");
        Ok(())
    }

    #[test]
    fn names_and_paths_that_kubernetes_does_not_take_are_refused() {
        let long = "a".repeat(41);
        for name in ["", "A", "a_b", "-a", "a-", &long] {
            let refused = manifest(&KubernetesSettings { name: name.into(), ..settings() }, &[]);
            assert!(refused.is_err_and(|e| e.to_string().starts_with("--name")), "{name}");
        }
        let elsewhere = KubernetesSettings { run: "/database/a".into(), ..settings() };
        let refused = manifest(&elsewhere, &[]);
        assert!(refused.is_err_and(|e| e.exit_code() == 2 && e.to_string().contains("/data,")));
    }
}
