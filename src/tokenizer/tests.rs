//! Tests of the engine with small steps (words long from 24 bytes on), so that short texts reach code
//! that otherwise only long ones reach. The `tokenizers` crate is the oracle.

#[path = "../../tests/tokenizer/texts.rs"]
mod texts;

use std::path::Path;

use anyhow::{Result, ensure};
use proptest::prelude::*;
use proptest::sample::Index;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokenizers::Model as _;

use super::Tokenizer;
use super::file;
use super::pipeline::Engine;
use super::unigram::{Lattice, Unigram};
use polysift_config::{Chunks, EncoderConfig};

const TOKENIZER: &str = include_str!("../../tests/golden/encoder/tokenizer/tokenizer.json");
const GEMMA: &str = include_str!("../../tests/golden/encoder/tokenizer/gemma.json");

fn open(json: &Value) -> Result<tokenizers::Tokenizer> {
    let mut tokenizer: tokenizers::Tokenizer =
        json.to_string().parse().map_err(anyhow::Error::msg)?;
    tokenizer.with_truncation(None).map_err(anyhow::Error::msg)?.with_padding(None);
    Ok(tokenizer)
}

/// Returns our engine for the tokenizer, or why there is none.
fn engine(json: &Value) -> Result<Engine, String> {
    let json = json.to_string();
    match file::read_unigram(json.as_bytes()) {
        Some((tokenizer, model)) => Engine::new(&tokenizer, Some(&model)),
        None => Engine::new(&file::read_whole(json.as_bytes())?, None),
    }
    .map_err(String::from)
}

/// Returns the golden tokenizer; XLM-RoBERTa as published, with added tokens in normalized text;
/// and Gemma's.
fn pipelines() -> Result<[Value; 3]> {
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
    Ok([today, published, serde_json::from_str(GEMMA)?])
}

fn golden_texts() -> Result<Vec<String>> {
    let lines = include_str!("../../tests/golden/encoder/tokenizer/expected.jsonl").lines();
    let real = lines.map(|line| {
        let line: Value = serde_json::from_str(line)?;
        Ok(line["text"].as_str().unwrap_or_default().to_owned())
    });
    real.collect()
}

/// Checks that all ids, and the first ones, equal those of the crate.
fn check(engine: &Engine, oracle: &tokenizers::Tokenizer, text: &str, limit: usize) -> Result<()> {
    let want = oracle.encode_fast(text, false).map_err(anyhow::Error::msg)?;
    let want = want.get_ids();
    engine.encode(text, usize::MAX, |ids| {
        ensure!(ids == want, "{text:?}\n{ids:?}\n{want:?}");
        Ok(())
    })?;
    engine.encode(text, limit, |ids| {
        let enough = ids.len() == want.len() || ids.len() >= limit;
        ensure!(enough && want.starts_with(ids), "the first {limit}: {text:?}");
        Ok(())
    })
}

#[test]
fn small_steps_change_no_id() -> Result<()> {
    let real = golden_texts()?;
    for json in pipelines()? {
        let oracle = open(&json)?;
        let engine = engine(&json).map_err(anyhow::Error::msg)?;
        for seed in 0..2000 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let text = if rng.random_range(0..2) == 0 {
                texts::made_up(&mut rng)
            } else {
                texts::mutated(&mut rng, &real)
            };
            check(&engine, &oracle, &text, rng.random_range(1..40))?;
        }
    }
    Ok(())
}

#[test]
fn the_first_ids_of_a_long_text_are_had_without_reading_it() -> Result<()> {
    for json in pipelines()? {
        let engine = engine(&json).map_err(anyhow::Error::msg)?;
        for text in
            ["the quick brown fox ", "狐狸跳过懒狗", "thequickbrownfox", "a\u{301}\u{302} b\n"]
        {
            let text = text.repeat(50_000);
            let read = engine.encode(&text, 510, <[u32]>::len);
            // A word has at most a few dozen bytes in small steps, and a stretch a few characters.
            assert!((510..560).contains(&read), "{read} ids of {:?}", &text[..30]);
        }
    }
    Ok(())
}

#[test]
fn of_equal_scores_the_token_that_starts_first_wins() -> Result<()> {
    // `ab` + `c` and `a` + `bc` have equal scores.
    let vocabulary =
        [("?", 0.0), ("a", -1.0), ("b", -9.0), ("c", -1.0), ("ab", -2.0), ("bc", -2.0)];
    let model = Unigram::new(&vocabulary, 0).ok_or_else(|| anyhow::anyhow!("no model"))?;
    assert_eq!(best(&model, "abc"), [1, 5]);
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
    assert_eq!(best(&model, "xyaz?"), [0, 3, 0]);
    assert!(Unigram::new(&[("?", 1.0)], 0).is_none());
    Ok(())
}

/// Returns the ids of the best segmentation of a whole text.
fn best(model: &Unigram, text: &str) -> Vec<u32> {
    let (mut lattice, mut ids) = (Lattice::default(), Vec::new());
    // The text grows in three steps.
    for part in 1..=3 {
        model.forward(&text[..text.floor_char_boundary(text.len() / 3 * part)], &mut lattice);
    }
    model.forward(text, &mut lattice);
    model.append_path(text.len(), &lattice, &mut ids);
    ids
}

#[test]
fn long_texts_have_the_segmentation_of_the_crate() -> Result<()> {
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
        ("é", -5.0),
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
        ensure!(best(&model, &text) == want, "{round}: {text:?}");
    }
    Ok(())
}

#[test]
fn runs_without_white_space_have_the_ids_of_the_crate() -> Result<()> {
    for json in pipelines()? {
        let oracle = open(&json)?;
        let engine = engine(&json).map_err(anyhow::Error::msg)?;
        let (mixed, unknown) = ("狐狸aaaaaaaab", "\u{10FFFD}");
        for unit in ["a", "ab", "狐", "ー", "=", "\u{301}", mixed, unknown, "<mask>", "aaa<unk>"]
        {
            for count in [1, 7, 95, 96, 97, 500, 1001, 9000] {
                check(&engine, &oracle, &unit.repeat(count), 510)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_run_of_over_64_kib_goes_on_where_it_is_cut() -> Result<()> {
    for json in &pipelines()?[..2] {
        let oracle = open(json)?;
        let engine = engine(json).map_err(anyhow::Error::msg)?;
        for (unit, count) in [("a", 200_000), ("\u{10FFFD}", 60_000)] {
            let text = unit.repeat(count);
            let want = oracle.encode_fast(text.as_str(), false).map_err(anyhow::Error::msg)?.len();
            engine.encode(&text, usize::MAX, |ids| {
                let cuts = text.len() >> 16;
                ensure!(ids.len().abs_diff(want) <= cuts, "{unit}: {} of {want}", ids.len());
                let spaces = ids.iter().filter_map(|&id| oracle.id_to_token(id));
                let spaces = spaces.filter(|token| token.starts_with('▁')).count();
                ensure!(spaces == 1, "{unit}: {spaces} words");
                Ok(())
            })?;
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
        let refused = engine(&json).err().unwrap_or_default();
        assert!(refused.contains(reason), "{reason}: {refused:?}");
    }
    Ok(())
}

/// Characters of the small vocabularies. The last ones are in none; `▁` stands for a space.
const ALPHABET: [char; 9] = ['a', 'b', '▁', 'é', '字', '<', '\n', '😀', 'c'];

/// Returns Gemma's pipeline with the characters of `known`, merges of the tokens at these indices
/// ranked by `ranks`, and the added tokens of `added`.
fn small_gemma(known: u8, merges: &[(Index, Index)], ranks: &[u32], added: u8) -> Value {
    let bytes = (0..256).map(|byte| format!("<{byte:#04X}>"));
    let known = (0..8).filter(|i| (known | 1) >> i & 1 == 1).map(|i| ALPHABET[i].to_string());
    let mut tokens: Vec<String> = bytes.chain(["<unk>".into()]).chain(known).collect();
    let first = 257;
    let mut ranked = Vec::new();
    for ((a, b), rank) in merges.iter().zip(ranks) {
        let pieces = &tokens[first..];
        let (a, b) = (a.get(pieces).clone(), b.get(pieces).clone());
        let whole = format!("{a}{b}");
        if !tokens.contains(&whole) {
            tokens.push(whole);
        }
        ranked.push((*rank, [a, b]));
    }
    ranked.sort();
    let ranked: Vec<_> = ranked.into_iter().map(|(_, merge)| merge).collect();
    let contents = ["<a", "\n", "▁▁", " b", "\n\n", "字é", "a", "▁a▁"];
    let added = (0..8).filter(|i| added >> i & 1 == 1);
    let added: Vec<_> = added
        .map(|i| {
            json!({"id": 9000 + i, "content": contents[i], "single_word": false, "special": true,
                   "lstrip": i % 3 == 0, "rstrip": i % 4 == 0, "normalized": false})
        })
        .collect();
    let vocabulary: serde_json::Map<_, _> =
        tokens.into_iter().zip((0..).map(Value::from)).collect();
    json!({
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "added_tokens": added,
        "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>",
                  "vocab": vocabulary, "merges": ranked},
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn seams_of_small_vocabularies_change_no_id(
        known in any::<u8>(),
        merges in proptest::collection::vec((any::<Index>(), any::<Index>()), 0..60),
        ranks in proptest::collection::vec(0..40u32, 60),
        added in any::<u8>(),
        texts in proptest::collection::vec("[ab▁é字<😀c ]{0,30}|[ab ]{0,200}|[a\n ▁]{0,90}|.{0,60}", 12),
        limit in 1..40usize,
    ) {
        let json = small_gemma(known, &merges, &ranks, added);
        let oracle = open(&json).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let engine = engine(&json).map_err(TestCaseError::fail)?;
        for text in &texts {
            let checked = check(&engine, &oracle, text, limit);
            prop_assert!(checked.is_ok(), "{:?}", checked);
        }
    }
}

#[test]
fn bpe_that_has_no_seams_is_refused_with_the_reason() -> Result<()> {
    let whole: Value = serde_json::from_str(GEMMA)?;
    let with = |path: &str, value: Value| {
        let mut json = whole.clone();
        if let Some(part) = json.pointer_mut(path) {
            *part = value;
        }
        json
    };
    let mut merges_bytes = whole.clone();
    merges_bytes["model"]["vocab"]["<0x41>a"] = 9000.into();
    if let Some(merges) = merges_bytes["model"]["merges"].as_array_mut() {
        merges.push(json!(["<0x41>", "a"]));
    }
    let mut lacks_a_byte = whole.clone();
    if let Some(tokens) = lacks_a_byte["model"]["vocab"].as_object_mut() {
        tokens.remove("<0xE2>");
    }
    let mut one_id = whole.clone();
    one_id["model"]["vocab"]["another"] = 300.into();
    let cases = [
        (with("/normalizer", json!({"type": "NFC"})), "normalizer"),
        (with("/normalizer/content", "_".into()), "normalizer"),
        (with("/pre_tokenizer", json!({"type": "Whitespace"})), "pre-tokenizer"),
        (with("/pre_tokenizer/invert", true.into()), "pre-tokenizer"),
        (with("/added_tokens/4/normalized", true.into()), "normalized text"),
        (with("/added_tokens/4/single_word", true.into()), "single word"),
        (with("/model/ignore_merges", true.into()), "ignores merges"),
        (with("/model/dropout", json!(0.5)), "drops"),
        (with("/model/end_of_word_suffix", "$".into()), "parts of words"),
        (with("/model/byte_fallback", false.into()), "bytes"),
        (merges_bytes, "merges bytes"),
        (lacks_a_byte, "without tokens for bytes"),
        (one_id, "one id"),
    ];
    for (json, reason) in cases {
        let refused = engine(&json).err().unwrap_or_default();
        assert!(refused.contains(reason), "{reason}: {refused:?}");
    }
    Ok(())
}

/// Returns WordPiece as in BERT, without the token for unknown words if `known_only`.
fn word_piece(known_only: bool) -> Value {
    let letters = ('a'..='z').chain("狐狸はねзв.，。、".chars());
    let mut tokens: Vec<String> = letters.flat_map(|c| [c.to_string(), format!("##{c}")]).collect();
    tokens.extend(["the", "fox", "##ing"].map(String::from));
    if !known_only {
        tokens.push("[UNK]".into());
    }
    let vocabulary: serde_json::Map<_, _> =
        tokens.into_iter().zip((0..).map(Value::from)).collect();
    json!({
        "added_tokens": [{"id": 9000, "content": "[MASK]", "single_word": false, "special": true,
                          "lstrip": true, "rstrip": true, "normalized": false}],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary,
                  "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    })
}

/// Returns byte-level BPE as in GPT-2 and ModernBERT, with added tokens of spaces.
fn byte_level() -> [Value; 2] {
    let mut tokens: Vec<String> = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet()
        .into_iter()
        .map(String::from)
        .collect();
    tokens.sort();
    let merges = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["Ġ", "Ġ"], ["Ċ", "Ċ"], ["Ġ", "a"]];
    tokens.extend(merges.map(|merge| merge.concat()));
    let vocabulary: serde_json::Map<_, _> =
        tokens.into_iter().zip((0..).map(Value::from)).collect();
    let gpt2 = |prefix: bool| {
        json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true,
               "use_regex": true})
    };
    let token = |id: u32, content: &str, normalized: bool| {
        json!({"id": id, "content": content, "single_word": false, "special": false,
               "lstrip": id == 9000, "rstrip": false, "normalized": normalized})
    };
    [gpt2(false), gpt2(true)].map(|pre_tokenizer| {
        json!({
            "added_tokens": [token(9000, "<mask>", false), token(9001, "  ", true),
                             token(9002, "   ", true), token(9003, "<s>", false)],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": pre_tokenizer,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        })
    })
}

/// Returns the tokenizer of `json` for first chunks of `max_tokens`.
fn first(json: &Value, max_tokens: usize) -> Result<Tokenizer> {
    let config = EncoderConfig { max_tokens, chunks: Chunks::First, ..EncoderConfig::default() };
    Ok(Tokenizer::from_bytes(json.to_string().as_bytes(), Path::new("t.json"), &config)?)
}

#[test]
fn the_crate_gives_the_first_ids_of_a_text_from_a_part_of_it() -> Result<()> {
    let real = golden_texts()?;
    for json in byte_level().into_iter().chain([word_piece(false)]) {
        let oracle = open(&json)?;
        let tokenizers = [1, 7, 30].map(|max_tokens| Ok((max_tokens, first(&json, max_tokens)?)));
        let tokenizers = tokenizers.into_iter().collect::<Result<Vec<_>>>()?;
        assert!(!tokenizers[0].1.engine().contains("whole texts"), "{}", tokenizers[0].1.engine());
        for seed in 0..1000 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut text = texts::mutated(&mut rng, &real);
            text.push_str(&texts::made_up(&mut rng));
            let want = oracle.encode_fast(&*text, false).map_err(anyhow::Error::msg)?;
            for (max_tokens, tokenizer) in &tokenizers {
                let want = &want.get_ids()[..want.len().min(*max_tokens)];
                ensure!(tokenizer.chunks(&text)? == [want], "{seed}, {max_tokens}: {text:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_crate_reads_a_whole_text_only_where_nothing_surely_splits_it() -> Result<()> {
    // The crate refuses a text if it sees a character without a token.
    let json = word_piece(true);
    for text in ["the fox ", "狐はね、", "狐狸，"] {
        let text = text.repeat(500) + "€";
        assert!(first(&json, 20)?.chunks(&text).is_ok(), "{text}");
        assert!(first(&json, 20)?.tokenize(&text).is_err(), "{text}");
    }
    let mut others = [json.clone(), json.clone(), json.clone()];
    others[0]["normalizer"] = json!({"type": "NFKC"});
    others[1]["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
    others[2]["added_tokens"][0]["content"] = "the fox".into();
    for json in others {
        let tokenizer = first(&json, 20)?;
        assert!(tokenizer.chunks(&("a fox ".repeat(500) + "€")).is_err(), "{json}");
        assert!(tokenizer.engine().contains("whole texts"), "{}", tokenizer.engine());
    }
    Ok(())
}
