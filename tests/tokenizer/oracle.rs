//! The engine against the `tokenizers` crate: the same ids for every text.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use polysift::config::{Chunks, EncoderConfig};
use polysift::tokenize::Tokenizer;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::texts;

/// Texts of the run that is part of every test run, for each pipeline.
const QUICK: u64 = 300;
/// Content tokens of the first chunks that are compared: in the first word, some words on, long.
const FIRST: [usize; 3] = [1, 20, 510];

/// One `tokenizer.json` in our hands and in the crate's.
struct Pair {
    name: String,
    oracle: tokenizers::Tokenizer,
    all: Tokenizer,
    first: Vec<(usize, Tokenizer)>,
}

impl Pair {
    fn new(name: &str, json: &[u8]) -> Result<Self> {
        let path = Path::new(name);
        let open = |chunks, max_tokens| {
            let config = EncoderConfig { max_tokens, chunks, ..EncoderConfig::default() };
            Tokenizer::from_bytes(json, path, &config)
        };
        let mut oracle = tokenizers::Tokenizer::from_bytes(json).map_err(anyhow::Error::msg)?;
        oracle.with_truncation(None).map_err(anyhow::Error::msg)?.with_padding(None);
        let all = open(Chunks::All, 512)?;
        ensure!(all.engine().starts_with("polysift"), "{name}: {}", all.engine());
        let first = FIRST.iter().map(|&n| Ok((n, open(Chunks::First, n + 2)?)));
        Ok(Self { name: name.into(), oracle, all, first: first.collect::<Result<_>>()? })
    }

    fn check(&self, text: &str) -> Result<()> {
        let ids = self.oracle.encode_fast(text, false).map_err(anyhow::Error::msg)?;
        let ids = ids.get_ids();
        let tokenized = self.all.tokenize(text)?;
        let ours: Vec<u32> =
            tokenized.chunks.iter().flat_map(|c| c[1..c.len() - 1].iter().copied()).collect();
        ensure!(ours == ids, "{}: {text:?}\nours {ours:?}\nwant {ids:?}", self.name);
        ensure!(tokenized.num_tokens == ids.len() as u64, "{}: {text:?}: count", self.name);
        for (n, first) in &self.first {
            let chunks = first.chunks(text)?;
            ensure!(chunks.len() == 1, "{}: {text:?}: {} chunks", self.name, chunks.len());
            let (ours, want) = (&chunks[0][1..chunks[0].len() - 1], &ids[..ids.len().min(*n)]);
            ensure!(ours == want, "{}: {text:?}\nfirst {n}: {ours:?}\nwant {want:?}", self.name);
        }
        Ok(())
    }

    /// `count` made-up texts and mutations of `texts` from `seed` on.
    fn fuzz(&self, seed: u64, count: u64, texts: &[String]) -> Result<()> {
        (seed..seed + count).into_par_iter().try_for_each(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let text = if rng.random_range(0..2) == 0 {
                texts::made_up(&mut rng)
            } else {
                texts::mutated(&mut rng, texts)
            };
            self.check(&text).with_context(|| format!("seed {seed}"))
        })
    }
}

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/encoder/tokenizer").join(file)
}

/// Texts of the goldens.
fn golden_texts() -> Result<Vec<String>> {
    let lines = std::fs::read_to_string(golden("expected.jsonl"))?;
    let text = |line| Ok(serde_json::from_str::<super::Expected>(line)?.text);
    lines.lines().map(text).collect()
}

/// The `text` of every line of the `.jsonl.zst` files in a directory.
fn read(directory: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let files = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = files.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "zst")) {
        let lines = BufReader::new(zstd::Decoder::new(std::fs::File::open(file)?)?).lines();
        for line in lines {
            let mut line: serde_json::Value = serde_json::from_str(&line?)?;
            if let serde_json::Value::String(text) = line["text"].take() {
                texts.push(text);
            }
        }
    }
    Ok(texts)
}

/// The pipelines that tokenizers of the XLM-RoBERTa family come with, from one that has all steps.
fn pipelines(json: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let whole: Value = serde_json::from_slice(json)?;
    let steps = &whole["normalizer"]["normalizers"];
    let (map, strip, replace) = (steps[0].clone(), steps[1].clone(), steps[2].clone());
    let metaspace = whole["pre_tokenizer"].clone();
    let split =
        json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]});
    let token = |content: &str, id: u32, normalized: bool, lstrip: bool, rstrip: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": lstrip,
               "rstrip": rstrip, "normalized": normalized, "special": false})
    };
    let mask = whole["added_tokens"][4]["id"].as_u64().context("id of <mask>")? as u32;
    let with = |normalizer: Value, pre_tokenizer: &Value, tokens: &[Value]| {
        let mut json = whole.clone();
        json["normalizer"] = normalizer;
        json["pre_tokenizer"] = pre_tokenizer.clone();
        if let Some(added) = json["added_tokens"].as_array_mut() {
            added.truncate(4);
            added.extend_from_slice(tokens);
        }
        serde_json::to_vec(&json)
    };
    let all = json!({"type": "Sequence", "normalizers": [map, strip, replace]});
    let no_replace = json!({"type": "Sequence", "normalizers": [map, strip]});
    let strips = [
        token("<mask>", mask, false, true, true),
        token("[A]", mask + 1, false, false, true),
        token("[B]", mask + 2, false, true, false),
    ];
    let in_normalized = |strips| {
        [
            token("<mask>", mask, true, strips, false),
            token("[A]", mask + 1, true, false, strips),
            token("a", mask + 2, true, false, false),
        ]
    };
    Ok(vec![
        ("as converted today", json.to_vec()),
        ("as published in 2020", with(map.clone(), &split, &in_normalized(true))?),
        ("map, metaspace", with(map.clone(), &metaspace, &strips)?),
        ("map, strip, metaspace", with(no_replace, &metaspace, &strips)?),
        ("all steps, normalized tokens", with(all, &metaspace, &in_normalized(false))?),
        ("metaspace", with(Value::Null, &metaspace, &strips)?),
        ("white space, metaspace", with(Value::Null, &split, &in_normalized(true))?),
        ("strip", with(strip, &metaspace, &[])?),
    ])
}

/// Pipelines like Gemma's, from one of them.
fn gemma_pipelines(json: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let whole: Value = serde_json::from_slice(json)?;
    let mut takes_spaces = whole.clone();
    for token in takes_spaces["added_tokens"].as_array_mut().into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        let (takes_before, takes_after) = (content.contains('u'), content.ends_with('>'));
        token["lstrip"] = takes_before.into();
        token["rstrip"] = takes_after.into();
    }
    let mut bare = whole.clone();
    bare["pre_tokenizer"] = Value::Null;
    bare["added_tokens"] = json!([]);
    bare["post_processor"] =
        json!({"type": "BertProcessing", "sep": ["<eos>", 1], "cls": ["<bos>", 2]});
    Ok(vec![
        ("as it is", json.to_vec()),
        ("added tokens take spaces", serde_json::to_vec(&takes_spaces)?),
        ("no added tokens", serde_json::to_vec(&bare)?),
    ])
}

#[test]
fn every_pipeline_gives_the_ids_of_the_crate() -> Result<()> {
    let texts = golden_texts()?;
    let xlmr = pipelines(&std::fs::read(golden("tokenizer.json"))?)?;
    let gemma = gemma_pipelines(&std::fs::read(golden("gemma.json"))?)?;
    for (name, json) in xlmr.into_iter().chain(gemma) {
        let pair = Pair::new(name, &json)?;
        texts.par_iter().try_for_each(|text| pair.check(text))?;
        pair.fuzz(0, QUICK, &texts)?;
    }
    Ok(())
}

/// Texts whose first chunk ends, or whose run of plain characters is passed on, at an awkward place.
fn awkward() -> Vec<String> {
    let fill = |text: &str, bytes: usize| text.repeat(bytes / text.len());
    let long = [
        "the fox ",
        "狐狸跳过懒狗",
        "กินข้าวแล้ว",
        "x",
        "aa",
        " ",
        "\r\n",
        "a\r\n",
        "\u{301}",
        "a \u{301}",
        "👩‍👩‍👧‍👦",
        "🇨🇭",
        "▁",
        "a▁",
        "\u{200B}",
        "क्षि",
        "<mask>",
        "a <mask> ",
        "<mask",
        "[A] ",
        "ﷺ",
        "\0",
    ];
    let mut texts: Vec<String> = long.iter().map(|text| fill(text, 20_000)).collect();
    // What may not be torn apart, around the place where the second run of plain characters ends.
    for border in [
        "<mask>",
        "  <mask>",
        "a\u{301}\u{302}",
        "\r\n",
        " \u{301}",
        "👍🏽",
        "각ᆨ",
        "   b",
        "½\u{301}",
    ] {
        for before in 1024 - border.len()..=1024 + 1 {
            for filler in ["word ", "字"] {
                let mut text = fill(filler, before);
                text.extend(std::iter::repeat_n('x', before - text.len()));
                texts.push(text + border + "end of the text");
            }
        }
    }
    texts
}

#[test]
fn awkward_texts_give_the_ids_of_the_crate() -> Result<()> {
    let xlmr = pipelines(&std::fs::read(golden("tokenizer.json"))?)?;
    let gemma = gemma_pipelines(&std::fs::read(golden("gemma.json"))?)?;
    for (name, json) in xlmr.iter().take(2).chain(&gemma) {
        let pair = Pair::new(name, json)?;
        awkward().par_iter().try_for_each(|text| pair.check(text))?;
    }
    Ok(())
}

#[test]
fn a_prompt_has_the_ids_of_the_crate_and_is_not_counted() -> Result<()> {
    for file in ["tokenizer.json", "gemma.json"] {
        prompt_is_not_counted(&golden(file)).context(file)?;
    }
    Ok(())
}

fn prompt_is_not_counted(path: &Path) -> Result<()> {
    let json = std::fs::read(path)?;
    let mut oracle = tokenizers::Tokenizer::from_bytes(&json).map_err(anyhow::Error::msg)?;
    oracle.with_truncation(None).map_err(anyhow::Error::msg)?.with_padding(None);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut texts = golden_texts()?;
    texts.extend((0..QUICK).map(|_| texts::made_up(&mut rng)));
    for prompt in ["query: ", "passage:", "\u{200B}▁ <mask>", "指示 "] {
        let config = EncoderConfig {
            prompt: Some(prompt.into()),
            chunks: Chunks::All,
            max_tokens: usize::MAX,
            ..EncoderConfig::default()
        };
        let ours = Tokenizer::from_bytes(&json, path, &config)?;
        for text in &texts {
            let whole = format!("{prompt}{text}");
            let want = oracle.encode(whole, false).map_err(anyhow::Error::msg)?;
            let alone = oracle.encode(text.as_str(), false).map_err(anyhow::Error::msg)?;
            let got = ours.tokenize(text)?;
            let ids = &got.chunks[0][1..got.chunks[0].len() - 1];
            ensure!(ids == want.get_ids(), "{prompt:?}, {text:?}");
            ensure!(got.num_tokens == alone.len() as u64, "{prompt:?}, {text:?}: {got:?}");
            ensure!(ours.chunks(text)? == got.chunks, "{prompt:?}, {text:?}");
        }
    }
    Ok(())
}

#[test]
#[ignore = "takes long: POLYSIFT_TEXTS (a folder of .jsonl.zst with `text`), POLYSIFT_FUZZ (texts to \
            make up for each tokenizer), POLYSIFT_FUZZ_SEED, POLYSIFT_XLMR_TOKENIZER, \
            POLYSIFT_GEMMA_TOKENIZER"]
#[expect(clippy::print_stderr, reason = "says how far it is")]
fn many_texts_give_the_ids_of_the_crate() -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>()).transpose();
    let seed = number("POLYSIFT_FUZZ_SEED")?.unwrap_or(QUICK);
    let count = number("POLYSIFT_FUZZ")?.unwrap_or(1_000_000);
    let texts = std::env::var_os("POLYSIFT_TEXTS").context("POLYSIFT_TEXTS")?;
    let texts = read(Path::new(&texts))?;
    let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/polysift-mini/tokenizer.json");
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let xlmr = [Some(mini), given("POLYSIFT_XLMR_TOKENIZER")];
    let gemma = [Some(golden("gemma.json")), given("POLYSIFT_GEMMA_TOKENIZER")];
    let xlmr = xlmr.into_iter().flatten().map(|file| (file, false));
    for (file, is_gemma) in xlmr.chain(gemma.into_iter().flatten().map(|file| (file, true))) {
        let json = std::fs::read(&file)?;
        let pipelines = if is_gemma { gemma_pipelines(&json)? } else { pipelines(&json)? };
        // Most for what the file is, the rest for what it could be.
        let rest = count / 4 / (pipelines.len() as u64 - 2);
        let shares = [count / 2, count / 4].into_iter().chain(std::iter::repeat(rest));
        for ((name, json), share) in pipelines.into_iter().zip(shares) {
            let pair = Pair::new(name, &json)?;
            drop(json);
            let all = if share >= count / 4 { &texts[..] } else { &[] };
            all.par_iter().try_for_each(|text| pair.check(text))?;
            eprintln!("{}, {name}: {} texts", file.display(), all.len());
            all.chunks(5000).try_for_each(|texts| pair.check(&texts.join("\n")))?;
            pair.fuzz(seed, share, &texts)?;
            eprintln!("{}, {name}: {share} made-up and mutated texts", file.display());
        }
    }
    Ok(())
}
