//! `polysift kubernetes`: the jobs of a planned run as a manifest.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use polysift::cluster::PerStage;
use polysift::cluster::kubernetes::{KubernetesSettings, manifest};
use polysift::{Error, Result};

use super::planned::{Planned, StageArgs};
use super::summary;

/// User and group of pods where the run directory is root's.
const FALLBACK_USER: (u32, u32) = (1000, 1000);

/// What is done with Kubernetes.
#[derive(Debug, Subcommand)]
pub(crate) enum KubernetesCommand {
    /// Print an Indexed Job per stage as JSON, for kubectl apply; all but the first are suspended. Pods pass the restricted
    /// Pod Security Standard; they write to the claim and to /tmp, where the hub's files go too
    Manifest(Box<ManifestArgs>),
}

/// What the jobs ask for.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    #[command(flatten)]
    stages: StageArgs,
    /// Container image with polysift in its PATH
    #[arg(long)]
    image: String,
    /// Persistent volume claim that holds the run directory and the input; many nodes have to be able to write
    #[arg(long, value_name = "PVC")]
    claim: String,
    /// Where the claim is mounted; the run directory is below it
    #[arg(long, value_name = "PATH", default_value = "/data")]
    mount: PathBuf,
    /// The run directory as pods see it [default: as it is named here]
    #[arg(long, value_name = "PATH")]
    run_in_pod: Option<PathBuf>,
    /// Prefix of the names of jobs
    #[arg(long, default_value = "polysift")]
    name: String,
    /// Namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Pods of a stage, no more than there are shards [default: one per shard, at most 100]
    #[arg(long, value_name = "N")]
    num_tasks: Option<u32>,
    /// Most pods of a stage at once
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// GPUs of a pod in the stages that compute on them
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,
    /// CPUs of a pod, requested and at most, of all stages or of one: `--cpu 8 --cpu embed=64` [default: 4]
    #[arg(long, value_name = "[STAGE=]QUANTITY")]
    cpu: Vec<String>,
    /// Memory of a pod, requested and at most, as in 256Gi, of all stages or of one [default: 16Gi]
    #[arg(long, value_name = "[STAGE=]QUANTITY")]
    memory: Vec<String>,
    /// Secret whose keys are environment variables of the pods, such as `HF_TOKEN` or `AWS_ACCESS_KEY_ID`; may be repeated
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// User that pods run as, never root [default: the owner of the run directory]
    #[arg(long, value_name = "UID[:GID]", value_parser = user)]
    user: Option<(u32, u32)>,
    /// How often a task is tried again after a fault that may pass
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// Seconds that a pod has to save its work when it is told to end
    #[arg(long, value_name = "SECS", default_value_t = 180)]
    grace_secs: u32,
}

/// Runs `command`.
pub(crate) fn run(command: &KubernetesCommand) -> Result<()> {
    let KubernetesCommand::Manifest(args) = command;
    let planned = Planned::open(&args.stages)?;
    let settings = KubernetesSettings {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        claim: args.claim.clone(),
        mount: args.mount.clone(),
        run: args.run_in_pod.clone().unwrap_or_else(|| planned.root.clone()),
        num_tasks: planned.num_tasks(args.num_tasks),
        max_running: args.max_running,
        gpus: args.gpus,
        cpu: PerStage::parse("--cpu", &args.cpu)?,
        memory: PerStage::parse("--memory", &args.memory)?,
        secrets: args.secret.clone(),
        user: args.user.map_or_else(|| owner(&planned.root), Ok)?,
        retries: args.retries,
        grace_secs: args.grace_secs,
    };
    let jobs = manifest(&settings, &planned.all(settings.num_tasks))?;
    warn_of_outsiders(&planned, &args.mount);
    summary::print_json(&jobs);
    Ok(())
}

/// `UID` or `UID:GID`; without a group, that of the user's number.
fn user(text: &str) -> std::result::Result<(u32, u32), String> {
    let number = |part: &str| part.parse::<u32>().map_err(|e| format!("`{part}`: {e}"));
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    Ok((number(user)?, number(group)?))
}

/// Who owns the run directory `root`, and so may write there.
fn owner(root: &Path) -> Result<(u32, u32)> {
    let metadata = std::fs::metadata(root).map_err(Error::io(root, "look at"))?;
    if metadata.uid() != 0 {
        return Ok((metadata.uid(), metadata.gid()));
    }
    let (user, group) = FALLBACK_USER;
    tracing::warn!(
        "the run directory belongs to root, and pods do not run as root: they run as {user}:{group}, who \
         has to be allowed to write there (--user names another)"
    );
    Ok(FALLBACK_USER)
}

/// Tells of files that pods do not see.
fn warn_of_outsiders(planned: &Planned, mount: &Path) {
    let outside = planned.read_outside(mount);
    if let Some(first) = outside.first() {
        tracing::warn!(
            "{} of the run's files or patterns are not below {}, where pods see the claim, {first} for one: \
             pods will not find them (plan where the claim is mounted at the same path, or say with --mount \
             where it is)",
            outside.len(),
            mount.display(),
        );
    }
}
