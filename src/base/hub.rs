//! Settings of the Hugging Face hub: its address, the access token and the local cache.

use std::path::PathBuf;

use crate::io::read_text;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Address of the hub, access token and local cache. It has no debug output, for the token's sake.
#[derive(Clone, PartialEq, Eq)]
pub struct HubSettings {
    /// Cache directory, which contains `models--*` and `datasets--*`.
    pub cache: PathBuf,
    /// Access token.
    pub token: Option<String>,
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// If true, files are taken from the cache only.
    pub offline: bool,
}

impl HubSettings {
    /// Reads huggingface_hub's variables: the cache is `HF_HUB_CACHE` or `hub` in `HF_HOME` (by
    /// default `huggingface` in `XDG_CACHE_HOME` or `~/.cache`), the token is `HF_TOKEN` or the
    /// file `HF_HOME/token`; also `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `TRANSFORMERS_OFFLINE`.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let folder = |name: &str| get(name).map(PathBuf::from);
        let home = folder("HF_HOME").unwrap_or_else(|| {
            let cache = folder("XDG_CACHE_HOME");
            let cache = cache.unwrap_or_else(|| folder("HOME").unwrap_or_default().join(".cache"));
            cache.join("huggingface")
        });
        let token_file = || read_text(&home.join("token")).ok();
        let token = get("HF_TOKEN").or_else(token_file).map(|t| t.trim().to_owned());
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        let on = ["1", "ON", "YES", "TRUE"];
        Self {
            cache: folder("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub")),
            token: token.filter(|t| !t.is_empty()),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            offline: ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().any(|name| {
                get(name).is_some_and(|value| on.contains(&value.to_uppercase().as_str()))
            }),
        }
    }
}

/// Returns true if `name` is a valid repository id of the hub: one or two parts of ASCII letters,
/// digits and `-_.`. The first models have no owner, hence one part.
pub fn is_repository_id(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && part != "." && part != ".." && part.chars().all(is_allowed)
    };
    name.split('/').count() <= 2 && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> HubSettings {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name);
        HubSettings::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_cache_is_looked_for_where_huggingface_hub_looks() {
        for (variables, cache) in [
            (&[("HOME", "/h")][..], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/hf")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c"),
            (&[("HF_HOME", " "), ("HOME", "/h")], "/h/.cache/huggingface/hub"),
        ] {
            assert_eq!(settings(variables).cache, PathBuf::from(cache));
        }
    }

    #[test]
    fn the_token_variable_wins_over_the_token_file() -> std::io::Result<()> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("token"), "from_file\n")?;
        let home = home.path().to_str().unwrap_or_default();
        assert_eq!(settings(&[("HF_HOME", home)]).token.as_deref(), Some("from_file"));
        let both = settings(&[("HF_HOME", home), ("HF_TOKEN", "from_env")]);
        assert_eq!(both.token.as_deref(), Some("from_env"));
        Ok(())
    }

    #[test]
    fn endpoint_and_offline_have_their_usual_spellings() {
        let default = settings(&[]);
        assert_eq!((default.endpoint.as_str(), default.offline), (DEFAULT_ENDPOINT, false));
        let set = settings(&[("HF_ENDPOINT", "http://a:1/"), ("HF_HUB_OFFLINE", "true")]);
        assert_eq!((set.endpoint.as_str(), set.offline), ("http://a:1", true));
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).offline);
        assert!(settings(&[("TRANSFORMERS_OFFLINE", "1")]).offline);
    }

    #[test]
    fn repositories_have_an_owner_or_none() {
        for id in ["xlm-roberta-base", "FacebookAI/xlm-roberta-base", "a/b.c_d"] {
            assert!(is_repository_id(id), "{id}");
        }
        for other in ["", "..", "a/..", "a/b/c", "a b", "/a", "a/"] {
            assert!(!is_repository_id(other), "{other}");
        }
    }
}
