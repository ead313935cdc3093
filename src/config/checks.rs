//! Checks of sections of several kinds, such as filters.

use serde::Serialize;

use polysift_base::error::{Error, Result};

/// A key of a section, and what is wrong with it.
pub(super) type Wrong = (&'static str, &'static str);

/// Keys of a section, with the kinds that they are for; without kinds, they are for all.
pub(super) type KindKeys<K> = [(&'static [K], &'static [&'static str])];

/// Checks that the section `place`, as in `filters.hosts`, sets only keys for its `kind`.
pub(super) fn check_keys<K: PartialEq + Serialize>(
    place: &str,
    settings: &impl Serialize,
    kind: &K,
    keys: &KindKeys<K>,
) -> Result<()> {
    let wrong = |error: toml::ser::Error| Error::config(place, error.to_string());
    let written = toml::Table::try_from(settings).map_err(wrong)?;
    let is_set = |key: &&&str| match written.get(**key) {
        Some(toml::Value::Table(table)) => !table.is_empty(),
        value => value.is_some(),
    };
    let is_for_kind = |kinds: &[K]| kinds.is_empty() || kinds.contains(kind);
    let (own, foreign): (Vec<_>, Vec<_>) = keys.iter().partition(|(kinds, _)| is_for_kind(kinds));
    let foreign = foreign.iter().find_map(|(kinds, keys)| Some((kinds, keys.iter().find(is_set)?)));
    let Some((kinds, key)) = foreign else { return Ok(()) };
    let own: Vec<&str> = own.iter().flat_map(|(_, keys)| *keys).copied().collect();
    let reason = format!(
        "is not for {} of the kind {}, which have the keys {}; it is for {}",
        place.split('.').next().unwrap_or_default(),
        written["kind"],
        own.join(", "),
        toml::Value::try_from(kinds).map_err(wrong)?.to_string().trim_matches(['[', ']']),
    );
    Err(Error::config(format!("{place}.{key}"), reason))
}
