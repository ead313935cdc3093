//! Damaged tokenizers: refused with the file's name, or they work; none panics.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use polysift::config::EncoderConfig;
use polysift::tokenize::Tokenizer;

use super::golden;
use crate::util::root;

/// Texts with characters that normalizers look up.
const TEXTS: [&str; 4] = ["a plain text", "Ａ ﬁ ｶﾞ \u{1e9b}\u{323}", "é e\u{301} 한국 \u{200d}", ""];

/// Reads a tokenizer of these bytes, and tokenizes if it is one; the message of what it refuses.
fn attempt(json: &[u8]) -> Result<Option<String>> {
    let tokenizer = Tokenizer::from_bytes(json, Path::new("x.json"), &EncoderConfig::default());
    let outcome = tokenizer
        .and_then(|tokenizer| TEXTS.iter().try_for_each(|text| tokenizer.tokenize(text).map(drop)));
    let Err(error) = outcome else { return Ok(None) };
    let message = error.to_string();
    ensure!([2, 65].contains(&error.exit_code()), "{message}");
    ensure!(error.exit_code() == 2 || message.contains("x.json"), "{message}");
    Ok(Some(message))
}

/// A tokenizer of six tokens.
fn small() -> Result<String> {
    let path = root().join("tests/golden/encoder/head16-prefixed/tokenizer.json");
    Ok(std::fs::read_to_string(path)?)
}

#[test]
fn a_post_processor_that_names_an_unknown_token_is_refused() -> Result<()> {
    let damaged = small()?.replace("\"special_tokens\": {\"<s>\"", "\"special_tokens\": {\"<t>\"");
    let message = attempt(damaged.as_bytes())?.context("accepted")?;
    ensure!(message.contains("is not a tokenizer, or is damaged"), "{message}");
    Ok(())
}

#[test]
fn no_changed_or_missing_byte_panics() -> Result<()> {
    let whole = small()?.trim_end().as_bytes().to_vec();
    ensure!(attempt(&whole)?.is_none());
    for at in 0..whole.len() {
        ensure!(attempt(&whole[..at])?.is_some(), "cut at {at}");
        for byte in [b'0', b'-', b'"', b'A', whole[at] ^ 1, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            attempt(&damaged).with_context(|| format!("{byte:#x} at {at}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_damaged_character_map_panics_at_no_text() -> Result<()> {
    let whole = std::fs::read_to_string(golden("tokenizer.json"))?;
    let key = "\"precompiled_charsmap\":";
    let after = whole.find(key).context("no map")? + key.len();
    let start = after + whole[after..].find('"').context("no map")? + 1;
    let end = start + whole[start..].find('"').context("no end")?;
    for kept in [0, 4, 8, 1024, 100_000, end - start - 4] {
        attempt(format!("{}{}", &whole[..start + kept], &whole[end..]).as_bytes())?;
    }
    for at in (start..end).step_by((end - start) / 8) {
        let damaged = format!("{}////{}", &whole[..at], &whole[at + 4..]);
        attempt(damaged.as_bytes()).with_context(|| format!("at {at}"))?;
    }
    Ok(())
}
