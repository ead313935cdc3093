//! The fuzz targets of `tests/fuzz` on files that are right, and on the same files damaged.

use std::io::Result;
use std::path::Path;

use polysift::config::HeadConfig;
use polysift::head::FastTextHead;

use crate::util::{Random, TestResult, Workspace, root};

#[path = "fuzz/lib.rs"]
#[allow(
    unreachable_pub,
    clippy::unnecessary_wraps,
    reason = "a crate of its own, and targets of one type"
)]
mod targets;

/// Damaged copies of each seed.
const COPIES: usize = 300;

/// `seed` with some bytes changed, inserted, repeated or cut away; sizes and counts are near the
/// beginning and the end of most formats, so half of the changes are there.
fn damaged(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let length = bytes.len();
        let at = match random.below(4) {
            0 => random.below(length.min(64)),
            1 => length - random.below(length.min(64)).min(length),
            _ => random.below(length),
        };
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.below(256) as u8),
            2 => bytes.splice(at..at, seed[at.min(seed.len())..].to_vec()).for_each(drop),
            3 if at < length => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
            _ if at < length => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

/// What fuzzing found of `target`, each input behind its length (u32, little-endian), compressed. `fuzz/all.sh` leaves
/// it in a folder; those of up to 1 KB come from there where `FUZZ_CORPUS` names it.
fn corpus(target: &str) -> Result<Vec<Vec<u8>>> {
    let file = root().join(format!("tests/fuzz/corpus/{target}.zst"));
    if let Some(folder) = std::env::var_os("FUZZ_CORPUS").map(|it| Path::new(&it).join(target)) {
        let mut inputs = std::fs::read_dir(folder)?
            .map(|entry| std::fs::read(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        inputs.retain(|input| input.len() <= 1024);
        inputs.sort();
        let length = |input: &Vec<u8>| (input.len() as u32).to_le_bytes();
        let packed: Vec<u8> =
            inputs.iter().flat_map(|input| [&length(input)[..], input].concat()).collect();
        std::fs::write(&file, zstd::encode_all(&packed[..], 19)?)?;
    }
    let packed = zstd::decode_all(&std::fs::read(file)?[..])?;
    let (mut rest, mut inputs) = (&packed[..], Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (input, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        inputs.push(input.to_vec());
        rest = behind;
    }
    Ok(inputs)
}

/// Runs `target` on the seeds, which it must read, on damaged copies, which it may refuse, on what fuzzing
/// found and on what once crashed it. `fuzz/all.sh` begins with the seeds, which are then written to `FUZZ_SEEDS`.
fn exercise(target: fn(&[u8]) -> Result<bool>, seeds: &[Vec<u8>]) -> TestResult {
    let mut random = Random(seeds.len() as u64);
    let name =
        std::thread::current().name().and_then(|name| Some(name.split_once("::")?.1.to_owned()));
    let name = name.ok_or("a test has its name")?;
    for crash in
        std::fs::read_dir(root().join("tests/fuzz/crashes").join(&name)).into_iter().flatten()
    {
        target(&std::fs::read(crash?.path())?)?;
    }
    for input in corpus(&name)? {
        target(&input)?;
    }
    for (i, seed) in seeds.iter().enumerate() {
        if let Some(folder) = std::env::var_os("FUZZ_SEEDS").map(|it| Path::new(&it).join(&name)) {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(i.to_string()), seed)?;
        }
        assert!(target(seed)?, "seed {i} is not read");
        for _ in 0..COPIES / seeds.len() {
            target(&damaged(seed, &mut random))?;
        }
    }
    target(&[])?;
    Ok(())
}

fn golden(names: &[impl AsRef<Path>]) -> Result<Vec<Vec<u8>>> {
    names.iter().map(|name| std::fs::read(root().join("tests/golden").join(name))).collect()
}

#[test]
fn parquet() -> TestResult {
    let seeds = golden(&["input/nested.parquet", "input/odd.parquet", "input/codec_lz4.parquet"])?;
    exercise(targets::parquet, &seeds)
}

#[test]
fn json_lines() -> TestResult {
    let seed = br#"{"id": "1", "text": "caf\u00e9 \ud83d\ude00", "metadata": {"a": [1, 2.5e3, null, true]}}
{"id": "2", "text": null, "metadata": {"a": []}, "more": {"deep": [[{"x": -0.0}]]}}"#;
    exercise(targets::json_lines, &[[seed.as_slice(), b"\r\n\n"].concat()])
}

#[test]
fn table() -> TestResult {
    let seed = "\u{feff}id,text,label\r\n1,\"a, \"\"b\"\"\nc\",x\r\n2,,\n3,\u{e9},y\n";
    exercise(targets::table, &[seed.replace("2,,", "2,d,").into_bytes()])
}

#[test]
fn encoder() -> TestResult {
    let names = ["config.json", "model.safetensors", "tokenizer.json"];
    let files = golden(&names.map(|name| format!("encoder/head16-prefixed/{name}")))?;
    let seeds: Vec<_> =
        (0..).zip(&files).map(|(which, file)| [&[which], &file[..]].concat()).collect();
    exercise(targets::encoder, &seeds)
}

#[test]
fn part() -> TestResult {
    let work = Workspace::new()?;
    for language in ["fra_Latn", "deu_Latn"] {
        work.write(&format!("words/{language}.txt"), "theorem\n")?;
    }
    let filter = "[filters.words]\nkind = 'words'\nlists = ['words/{lang}.txt']\nmax_share = 0.1\n";
    let settings = std::fs::read_to_string(work.path("run.toml"))? + filter;
    work.write("run.toml", settings)?;
    work.command("run", "out").assert().success();
    let part = "fra_Latn/a/part-00000.parquet";
    let files = [
        format!("embeddings/{part}"),
        format!("scores/quality/{part}"),
        "verdicts/fra_Latn/a.parquet".into(),
    ];
    let seeds = (0u8..).zip(files).map(|(which, file)| {
        Ok([&[which], &std::fs::read(work.path("out").join(file))?[..]].concat())
    });
    exercise(targets::part, &seeds.collect::<Result<Vec<_>>>()?)
}

#[test]
fn lists() -> TestResult {
    let allowed = "[[allow]]\nhost = \"a.org\"\nlicense = \"CC0-1.0\"\n";
    exercise(targets::lists, &[b"a word\n\xe8\xaa\x9e\n".to_vec(), allowed.into()])
}

#[test]
fn card() -> TestResult {
    let model = root().join("tests/golden/fasttext/words.bin");
    let head = FastTextHead::load(&model, "quality", &HeadConfig::default(), "eng_Latn")?;
    exercise(targets::card, &[serde_json::to_vec(&head.card)?])
}

#[test]
fn selection() -> TestResult {
    let numbers = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, 1.0, 1e-45, -3.5];
    let logits: Vec<u8> =
        numbers.iter().cycle().take(70).flat_map(|x: &f32| x.to_le_bytes()).collect();
    let seeds = [[33, 7, 0], [3, 1, 1]].map(|start| [&start[..], &logits].concat());
    exercise(targets::selection, &seeds)
}

#[test]
fn products() -> TestResult {
    let numbers = [0.5, -1.5, 1e-45, 3e-39, 9e16, -9e16, 1e-20, 0.1, -0.0, 7.0];
    let values: Vec<u8> = numbers.iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
    let shapes = [[0, 0, 0], [3, 9, 40], [34, 69, 255]];
    exercise(targets::products, &shapes.map(|shape| [&shape[..], &values].concat()))
}

#[test]
fn safetensors() -> TestResult {
    let names = ["heads/quality.safetensors", "heads_import/net.safetensors"];
    exercise(targets::safetensors, &golden(&names)?)
}

#[test]
fn pytorch() -> TestResult {
    let names = ["deu_Latn.pt", "parameters.pt", "head_f16.pt"];
    let published = ["tanh.pt", "edu-llama-balanced.ckpt"].map(|n| format!("heads_published/{n}"));
    let names = names.map(|n| format!("heads_import/{n}")).into_iter().chain(published);
    exercise(targets::pytorch, &golden(&names.collect::<Vec<_>>())?)
}

#[test]
fn fasttext() -> TestResult {
    let names = ["words.bin", "quantised.ftz", "pruned.ftz"].map(|n| format!("fasttext/{n}"));
    exercise(targets::fasttext, &golden(&names)?)
}

#[test]
fn tokenizer() -> TestResult {
    exercise(targets::tokenizer, &golden(&["encoder/head16-prefixed/tokenizer.json"])?)
}

#[test]
fn text() -> TestResult {
    let texts = [
        "A text.\t\u{a0}\u{feff}\u{200d} ",
        "नमस्ते 你好 สวัสดี \u{1f468}\u{200d}\u{1f469} e\u{301}\u{301}",
    ];
    exercise(targets::text, &texts.map(|text| text.as_bytes().to_vec()))
}

#[test]
fn run_directory() -> TestResult {
    let work = Workspace::new()?;
    work.command("plan", "out").assert().success();
    let plan = std::fs::read(work.path("out/plan.jsonl.zst"))?;
    let marker = br#"{"rows": 3, "files": [], "counts": {"kept": 1}}"#;
    let failure = br#"{"error": "a: open failed", "exit_code": 74}"#;
    let files = [&plan, br#"{"a": 1}"#.as_slice(), marker, failure, b"not zstd"];
    let seeds: Vec<_> = (0..).zip(files).map(|(which, file)| [&[which], file].concat()).collect();
    exercise(targets::run_directory, &seeds)
}

#[test]
fn settings() -> TestResult {
    let seed = std::fs::read(root().join("tests/sample/run.toml"))?;
    exercise(targets::settings, &[seed])
}

#[test]
fn robots() -> TestResult {
    let seed = "\u{feff}User-agent: GPTBot # one\r\nUser-agent: CCBot/2.0\nDisallow: /a*b$\rAllow: /%7Ea\n\n\
                user agent *\nDissallow /é?x=y\nSitemap: https://a.com/s.xml\nCrawl-delay: 1\0";
    exercise(targets::robots, &[seed.as_bytes().to_vec()])
}

#[test]
fn benchmarks() -> TestResult {
    let work = Workspace::new()?;
    let words = (0..20).map(|i| format!("word{i}")).collect::<Vec<_>>().join(" ");
    work.write("items.jsonl", format!("{{\"task\": \"t\", \"text\": \"{words}\"}}\n"))?;
    let mut index = crate::util::polysift();
    index.current_dir(work.dir.path()).args(["dataset", "benchmarks", "--items", "items.jsonl"]);
    index.assert().success();
    exercise(targets::benchmarks, &[std::fs::read(work.path("benchmarks.idx"))?])
}

#[test]
fn pii() -> TestResult {
    let seed = "a@b.co x.a@münchen.de 8.8.8.8 2606:4700::1111 DE89 3704 0044 0532 0130 00 max@[1.2.3.4] ::1";
    exercise(targets::pii, &[seed.as_bytes().to_vec()])
}
