//! The engine with small steps (windows of 48 bytes, words long from 24 on), so that short texts
//! reach what otherwise only long ones do; the `tokenizers` crate says what is right.

#[path = "../../tests/tokenizer/texts.rs"]
mod texts;

use anyhow::{Result, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokenizers::Model as _;

use super::engine::Engine;
use super::unigram::{Lattice, Unigram};

const TOKENIZER: &str = include_str!("../../tests/golden/encoder/tokenizer/tokenizer.json");

fn open(json: &Value) -> Result<tokenizers::Tokenizer> {
    let mut tokenizer: tokenizers::Tokenizer =
        json.to_string().parse().map_err(anyhow::Error::msg)?;
    tokenizer.with_truncation(None).map_err(anyhow::Error::msg)?.with_padding(None);
    Ok(tokenizer)
}

/// The golden tokenizer; and as XLM-RoBERTa was published, with added tokens in normalized text.
fn pipelines() -> Result<[Value; 2]> {
    let today: Value = serde_json::from_str(TOKENIZER)?;
    let mut published = today.clone();
    published["normalizer"] = today["normalizer"]["normalizers"][0].clone();
    published["pre_tokenizer"] = json!({
        "type": "Sequence",
        "pretokenizers": [{"type": "WhitespaceSplit"}, today["pre_tokenizer"]],
    });
    for (i, content) in [(3, "<unk>"), (4, "<mask>")] {
        published["added_tokens"][i]["normalized"] = true.into();
        published["added_tokens"][i]["content"] = content.into();
    }
    Ok([today, published])
}

#[test]
fn small_steps_change_no_id() -> Result<()> {
    let lines = include_str!("../../tests/golden/encoder/tokenizer/expected.jsonl").lines();
    let real = lines.map(|line| {
        let line: Value = serde_json::from_str(line)?;
        Ok(line["text"].as_str().unwrap_or_default().to_owned())
    });
    let real = real.collect::<Result<Vec<_>>>()?;
    for json in pipelines()? {
        let oracle = open(&json)?;
        let engine = Engine::new(&oracle).map_err(anyhow::Error::msg)?;
        for seed in 0..2000 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let text = if rng.random_range(0..2) == 0 {
                texts::made_up(&mut rng)
            } else {
                texts::mutated(&mut rng, &real)
            };
            let want = oracle.encode_fast(&*text, false).map_err(anyhow::Error::msg)?;
            let want = want.get_ids();
            engine.encode(&text, usize::MAX, |ids| {
                ensure!(ids == want, "seed {seed}: {text:?}\n{ids:?}\n{want:?}");
                Ok(())
            })?;
            let limit = rng.random_range(1..40);
            engine.encode(&text, limit, |ids| {
                let enough = ids.len() == want.len() || ids.len() >= limit;
                ensure!(enough && want.starts_with(ids), "seed {seed}, {limit}: {text:?}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn the_first_ids_of_a_long_text_are_had_without_reading_it() -> Result<()> {
    for json in pipelines()? {
        let engine = Engine::new(&open(&json)?).map_err(anyhow::Error::msg)?;
        for text in
            ["the quick brown fox ", "狐狸跳过懒狗", "thequickbrownfox", "a\u{301}\u{302} b\n"]
        {
            let text = text.repeat(50_000);
            let read = engine.encode(&text, 510, <[u32]>::len);
            // A word in small steps has at most a few dozen bytes.
            assert!((510..560).contains(&read), "{read} ids of {:?}", &text[..30]);
        }
    }
    Ok(())
}

#[test]
fn of_equal_scores_the_token_that_starts_first_wins() -> Result<()> {
    // `ab` + `c` and `a` + `bc` weigh the same.
    let vocabulary =
        [("?", 0.0), ("a", -1.0), ("b", -9.0), ("c", -1.0), ("ab", -2.0), ("bc", -2.0)];
    let model = Unigram::new(&vocabulary, 0).ok_or_else(|| anyhow::anyhow!("no model"))?;
    assert_eq!(best(&model, "abc", usize::MAX), [1, 5]);
    let vocabulary = vocabulary.map(|(text, score)| (text.to_owned(), score)).to_vec();
    let theirs = tokenizers::models::unigram::Unigram::from(vocabulary, Some(0), false)
        .map_err(anyhow::Error::msg)?;
    assert_eq!(theirs.encode("abc").map_err(anyhow::Error::msg)?, ["a", "bc"]);
    Ok(())
}

#[test]
fn unknown_characters_side_by_side_are_one_token_and_a_later_equal_token_counts() -> Result<()> {
    let vocabulary = [("?", 0.0), ("a", -1.0), ("", 0.0), ("a", -2.0)];
    let model = Unigram::new(&vocabulary, 0).ok_or_else(|| anyhow::anyhow!("no model"))?;
    assert_eq!(best(&model, "xyaz?", usize::MAX), [0, 3, 0]);
    Ok(())
}

/// The ids of the best segmentation of a whole text, or the first ones.
fn best(model: &Unigram, text: &str, limit: usize) -> Vec<u32> {
    let (mut lattice, mut ids) = (Lattice::default(), Vec::new());
    // As a text that grows.
    for part in 1..=3 {
        model.forward(&text[..text.floor_char_boundary(text.len() / 3 * part)], &mut lattice);
    }
    model.forward(text, &mut lattice);
    model.path(text, text.len(), &mut lattice, limit, &mut ids);
    ids
}

#[test]
fn texts_of_many_blocks_have_the_segmentation_of_the_crate() -> Result<()> {
    let vocabulary = [
        ("?", 0.0),
        ("a", -3.0),
        ("aa", -5.5),
        ("aaaaaaa", -6.1),
        ("b", -4.0),
        ("bab", -4.7),
        ("狐", -3.3),
        ("狐狸狐狸狐狸狐狸狐狸", -9.0),
        ("abababababababababababababababababab", -7.0),
    ];
    let model = Unigram::new(&vocabulary, 0).ok_or_else(|| anyhow::anyhow!("no model"))?;
    let vocabulary = vocabulary.map(|(text, score)| (text.to_owned(), score)).to_vec();
    let theirs = tokenizers::models::unigram::Unigram::from(vocabulary, Some(0), false)
        .map_err(anyhow::Error::msg)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..300 {
        let units = [&["a"][..], &["a", "b"], &["狐", "狸"], &["狐", "a", "€"], &["é", "😀"]];
        let units = units[round % units.len()];
        let mut text = String::new();
        for _ in 0..rng.random_range(1..1500) {
            let unit = units[rng.random_range(0..units.len())];
            text.push_str(&unit.repeat(rng.random_range(1..4)));
        }
        let want = theirs.tokenize(&text).map_err(anyhow::Error::msg)?;
        let want: Vec<u32> = want.into_iter().map(|token| token.id).collect();
        ensure!(best(&model, &text, usize::MAX) == want, "{round}: {text:?}");
        let limit = rng.random_range(1..200);
        let first = best(&model, &text, limit);
        ensure!(first.len() >= want.len().min(limit) && want.starts_with(&first), "{round}");
    }
    Ok(())
}

#[test]
fn runs_without_white_space_have_the_ids_of_the_crate() -> Result<()> {
    for json in pipelines()? {
        let oracle = open(&json)?;
        let engine = Engine::new(&oracle).map_err(anyhow::Error::msg)?;
        let (mixed, unknown) = ("狐狸aaaaaaaab", "\u{10FFFD}");
        for unit in ["a", "ab", "狐", "ー", "=", "\u{301}", mixed, unknown, "<mask>", "aaa<unk>"]
        {
            for count in [1, 7, 95, 96, 97, 500, 1001, 9000] {
                let text = unit.repeat(count);
                let want = oracle.encode_fast(&*text, false).map_err(anyhow::Error::msg)?;
                let want = want.get_ids();
                engine.encode(&text, usize::MAX, |ids| {
                    ensure!(ids == want, "{count} of {unit:?}\n{ids:?}\n{want:?}");
                    Ok(())
                })?;
                engine.encode(&text, 510, |ids| {
                    let enough = ids.len() == want.len() || ids.len() >= 510;
                    ensure!(enough && want.starts_with(ids), "the first of {count} of {unit:?}");
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_pipeline_with_other_parts_is_refused_with_the_reason() -> Result<()> {
    let whole = pipelines()?[0].clone();
    let with = |path: &str, value: Value| {
        let mut json = whole.clone();
        if let Some(part) = json.pointer_mut(path) {
            *part = value;
        }
        json
    };
    let cases = [
        (with("/normalizer", json!({"type": "NFKC"})), "normalizer"),
        (with("/normalizer/normalizers/2/content", " ".into()), "normalizer"),
        (with("/normalizer/normalizers/1/strip_left", true.into()), "normalizer"),
        (with("/pre_tokenizer", json!({"type": "Whitespace"})), "pre-tokenizer"),
        (with("/pre_tokenizer/prepend_scheme", "first".into()), "Metaspace"),
        (with("/pre_tokenizer/split", false.into()), "Metaspace"),
        (with("/model/byte_fallback", true.into()), "bytes"),
        (with("/model/unk_id", Value::Null), "unknown"),
        (with("/added_tokens/4/single_word", true.into()), "single word"),
        (with("/added_tokens/4/normalized", true.into()), "white space"),
    ];
    for (json, reason) in cases {
        let refused = Engine::new(&open(&json)?).err();
        assert!(refused.is_some_and(|why| why.contains(reason)), "{reason}: {refused:?}");
    }
    Ok(())
}
