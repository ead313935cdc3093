//! Places in stores belong to one run: two would mix their files.

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::remote;
use crate::run::Stage;
use crate::stage::context::Context;

/// Object that says whose the files beside it are.
const OWNER: &str = "polysift.json";

/// Says so if the store of `to` does not answer, long before there is something to export. No error: who
/// may only write to a store is told nothing by it.
pub(crate) fn warn_of_place(to: &str) {
    match remote::stat(&format!("{}/{OWNER}", to.trim_end_matches('/'))) {
        Ok(_) | Err(Error::Missing { .. }) => {}
        Err(error) => {
            let error = error.report();
            tracing::warn!(to, %error, "the place of the export cannot be looked at");
        }
    }
}

/// Claims the place `to` for the results of this run. A run of the same settings, by which the files
/// are the same, may write there too; `--redo` takes the place over.
///
/// # Errors
/// [`Error::Mismatch`] where another run was first; [`Error::Store`].
pub(super) fn claim(context: Context<'_>, to: &str) -> Result<()> {
    let url = format!("{}/{OWNER}", to.trim_end_matches('/'));
    let mut hasher = blake3::Hasher::new();
    for stage in Stage::ALL {
        let settings = context.run.frozen_settings(stage)?.unwrap_or_default();
        hasher.update(settings.to_string().as_bytes());
    }
    let own = json!({"settings": hasher.finalize().to_hex().to_string()});
    let content = format!("{own}\n");
    if context.redo.is_some() {
        return remote::replace(&url, &content);
    }
    let Some(found) = remote::create(&url, &content)? else { return Ok(()) };
    let found: Value = serde_json::from_slice(&found).unwrap_or_default();
    if found == own {
        return Ok(());
    }
    Err(Error::Mismatch {
        path: to.into(),
        difference: format!("  {OWNER}: is {found}, of this run {own}"),
        hint: "choose another place, or give `--redo export` to replace what is there".into(),
    })
}
