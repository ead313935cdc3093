//! The engine with small steps (windows of 48 bytes, pieces long from 24 on), so that short texts
//! reach what otherwise only long ones do; the `tokenizers` crate says what is right.

#[path = "../../tests/tokenizer/texts.rs"]
mod texts;

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::engine::Engine;
use super::unigram::Unigram;

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
            // A piece in small steps has at most a few dozen bytes.
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
    let (mut nodes, mut ids) = (Vec::new(), Vec::new());
    model.forward("abc", 0.0, &mut nodes);
    model.path("abc", 3, &nodes, &mut ids);
    assert_eq!(ids, [1, 5]);
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
    let (mut nodes, mut ids) = (Vec::new(), Vec::new());
    model.forward("xyaz?", 0.0, &mut nodes);
    model.path("xyaz?", 5, &nodes, &mut ids);
    assert_eq!(ids, [0, 3, 0]);
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
