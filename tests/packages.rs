//! The packages that the program is made of: their licences and where they come from, held to
//! `.deny.toml` without a network (`make deny` looks at advisories too).

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::process::Command;

use serde_json::Value;

use crate::util::{TestResult, root};

/// Whether the SPDX expression that `words` begin with can be met with the licences that are `allowed`.
fn is_met(words: &mut Peekable<impl Iterator<Item = String>>, allowed: &BTreeSet<String>) -> bool {
    let mut any = false;
    loop {
        let mut all = true;
        loop {
            all &= match words.next() {
                Some(word) if word == "(" => {
                    let met = is_met(words, allowed);
                    words.next();
                    met
                }
                Some(mut word) => {
                    if words.next_if(|next| next == "WITH").is_some() {
                        word += " WITH ";
                        word += &words.next().unwrap_or_default();
                    }
                    allowed.contains(&word)
                }
                None => false,
            };
            if words.next_if(|next| next == "AND").is_none() {
                break;
            }
        }
        any |= all;
        if words.next_if(|next| next == "OR").is_none() {
            return any;
        }
    }
}

/// As [`is_met`], of the text of a manifest.
fn can_be_used(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    is_met(&mut spaced.split_whitespace().map(str::to_owned).peekable(), allowed)
}

#[test]
fn licences_and_sources_are_those_that_are_allowed() -> TestResult {
    let rules: toml::Table = std::fs::read_to_string(root().join(".deny.toml"))?.parse()?;
    let licences = rules["licenses"]["allow"].as_array().ok_or("no licences")?;
    let allowed: BTreeSet<String> =
        licences.iter().filter_map(|licence| Some(licence.as_str()?.to_owned())).collect();
    let mut exceptions = BTreeSet::new();
    for exception in rules["licenses"]["exceptions"].as_array().unwrap_or(&vec![]) {
        exceptions.insert(exception["crate"].as_str().unwrap_or_default().to_owned());
    }
    let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    assert!(packages.len() > 50);
    let mut refused = vec![];
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let source = package["source"].as_str();
        if source
            .is_some_and(|source| !source.starts_with("registry+https://github.com/rust-lang/"))
        {
            refused.push(format!("{name} comes from {source:?}"));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        if !can_be_used(licence, &allowed) && !exceptions.contains(name) {
            refused.push(format!("{name} is under `{licence}`"));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

#[test]
fn unsafe_code_is_where_security_md_says() -> TestResult {
    let text = std::fs::read_to_string(root().join("SECURITY.md"))?;
    let code = text.split_once("## Code").ok_or("no section")?.1;
    let places: Vec<&str> = code.split('`').skip(1).step_by(2).collect();
    let mut folders: Vec<_> = ["src", "kernels"].map(|folder| root().join(folder)).into();
    let mut unnamed = vec![];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root())?.display().to_string();
                let is_unsafe = std::fs::read_to_string(&path)?.contains("unsafe {");
                if is_unsafe && !places.iter().any(|place| name.starts_with(place)) {
                    unnamed.push(name);
                }
            }
        }
    }
    assert!(unnamed.is_empty(), "{unnamed:?}");
    Ok(())
}

#[test]
fn advisories_are_ignored_with_a_reason_and_while_the_package_is_there() -> TestResult {
    let rules: toml::Table = std::fs::read_to_string(root().join(".deny.toml"))?.parse()?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock"))?;
    for ignored in rules["advisories"]["ignore"].as_array().ok_or("none is ignored")? {
        let reason = ignored["reason"].as_str().ok_or("no reason")?;
        let package = reason.split(' ').next().unwrap_or_default();
        assert!(lock.contains(&format!("name = \"{package}\"\n")), "{ignored}");
    }
    Ok(())
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).into();
    for met in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "MIT AND MIT",
    ] {
        assert!(can_be_used(met, &allowed), "{met}");
    }
    for unmet in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0"] {
        assert!(!can_be_used(unmet, &allowed), "{unmet}");
    }
}
