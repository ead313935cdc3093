//! What Kubernetes would refuse, or take and never run.

use crate::error::{Error, Result};

use super::pod::SCRATCH;
use super::{KubernetesSettings, Quantity};

/// Longest prefix of a name: what Kubernetes leaves of 63 after stage, task and the pod's own suffix.
const MAX_NAME: usize = 40;
/// Longest DNS label.
const MAX_LABEL: usize = 63;
/// Longest name of most objects.
const MAX_SUBDOMAIN: usize = 253;
/// Bytes of memory without which no pod starts; less is a forgotten unit.
const MIN_MEMORY_BYTES: f64 = 1_048_576.0;

/// Refuses names, paths and amounts with which no pod could run.
pub(super) fn check(settings: &KubernetesSettings) -> Result<()> {
    label("--name", &settings.name, MAX_NAME)?;
    settings.namespace.iter().try_for_each(|name| label("--namespace", name, MAX_LABEL))?;
    subdomain("--claim", &settings.claim)?;
    settings.secrets.iter().try_for_each(|name| subdomain("--secret", name))?;
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
    settings.memory.values().try_for_each(memory)?;
    paths(settings)
}

fn memory(memory: &Quantity) -> Result<()> {
    if memory.value() >= MIN_MEMORY_BYTES {
        return Ok(());
    }
    let reason =
        format!("`{memory}` is {} bytes, too few for a pod; did you mean Gi?", memory.value());
    Err(Error::config("--memory", reason))
}

fn paths(settings: &KubernetesSettings) -> Result<()> {
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

/// Whether `name` is a DNS label (RFC 1123): lower-case letters, digits and inner hyphens.
fn is_label(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn label(flag: &str, name: &str, max_len: usize) -> Result<()> {
    if is_label(name) && name.len() <= max_len {
        return Ok(());
    }
    let reason = format!(
        "`{name}` has to be at most {max_len} lower-case letters, digits and `-`, the last not at an end"
    );
    Err(Error::config(flag, reason))
}

fn subdomain(flag: &str, name: &str) -> Result<()> {
    if name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_label) {
        return Ok(());
    }
    let reason = format!(
        "`{name}` has to be at most {MAX_SUBDOMAIN} lower-case letters, digits, `-` and `.`, with a letter or \
         digit at both ends and beside every `.`"
    );
    Err(Error::config(flag, reason))
}
