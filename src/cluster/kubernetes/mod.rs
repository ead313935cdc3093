//! Kubernetes: an Indexed Job per stage, with a pod for each task.
//!
//! Jobs do not wait for each other there. All but the first are suspended; who runs them resumes one
//! when the one before is complete.

mod check;
mod pod;
mod quantity;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{PerStage, StageTasks};
use crate::error::{Error, Result};

pub use quantity::Quantity;

/// CPUs of a pod unless they are given.
pub const DEFAULT_CPU: &str = "4";
/// Memory of a pod unless it is given.
pub const DEFAULT_MEMORY: &str = "16Gi";
/// Exit codes after which trying again is of no use (the README's table).
const HOPELESS: [u8; 6] = [2, 3, 65, 66, 70, 78];

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
    pub cpu: PerStage<Quantity>,
    /// Memory of a pod; see [`DEFAULT_MEMORY`].
    pub memory: PerStage<Quantity>,
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
    check::check(settings)?;
    let jobs = work.iter().enumerate().map(|(i, work)| job(settings, work, i > 0));
    let items: Vec<Value> = jobs.collect::<Result<_>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// A manifest as YAML.
pub fn to_yaml(manifest: &Value) -> Result<String> {
    serde_saphyr::to_string(manifest).map_err(|e| Error::config("kubernetes", e.to_string()))
}

fn job(settings: &KubernetesSettings, work: &StageTasks, is_suspended: bool) -> Result<Value> {
    let stage = work.stage;
    // What is one item of work needs one pod.
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
            "template": {"spec": pod::pod(settings, work, pods)?},
        },
    }))
}
