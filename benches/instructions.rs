//! Small operations, each run once, for callgrind to count their instructions (`instructions.sh`).
//!
//! `instructions list` names them; `instructions NAME` prepares one, runs it in [`counted`] and prints for
//! how many elements, and of what.

mod values;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use polysift::config::{Chunks, EncoderConfig, HeadConfig};
use polysift::head::Head;
use polysift::tokenize::Tokenizer;
use polysift_kernels::{
    AttentionScratch, Isa, Matrix, MatrixMut, Precision, attention, gelu, layer_norm, mean_rows,
};

use self::values::values;

const WIDTH: usize = 768;
const ROWS: usize = 128;
const HEAD_SIZE: usize = 64;

/// Number and name of the elements, and what is to be counted.
type Prepared = (usize, &'static str, Box<dyn FnMut()>);

type Prepare = fn() -> Result<Prepared>;

const OPS: [(&str, Prepare); 7] = [
    ("layer_norm", || Ok(layer_norms())),
    ("gelu", || Ok(gelus())),
    ("mean_rows", || Ok(pools())),
    ("attention", || Ok(attentions())),
    ("tokenize-first", || tokenizer(Chunks::First)),
    ("tokenize-all", || tokenizer(Chunks::All)),
    ("head", head),
];

fn main() -> Result<()> {
    let name = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let mut out = std::io::stdout().lock();
    match name.as_deref() {
        None => writeln!(out, "instructions: `make bench-callgrind` counts them")?,
        Some("list") => OPS.iter().try_for_each(|(name, _)| writeln!(out, "{name}"))?,
        Some(name) => {
            let Some((_, prepare)) = OPS.iter().find(|op| op.0 == name) else {
                bail!("{name}: no such operation");
            };
            // Callgrind counts in the thread that enters `counted`: it does all the work.
            rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global()?;
            let (count, unit, mut run) = prepare()?;
            run();
            counted(&mut run);
            writeln!(out, "{count} {unit}")?;
        }
    }
    Ok(())
}

/// What `instructions.sh` tells callgrind to count.
#[inline(never)]
fn counted(run: &mut dyn FnMut()) {
    run();
    // Not the last thing, or the call could become a jump.
    black_box(());
}

fn layer_norms() -> Prepared {
    let (isa, x, gamma, beta) = (Isa::detect(), values(ROWS * WIDTH), values(WIDTH), values(WIDTH));
    let mut y = vec![0.0; x.len()];
    (x.len(), "values", Box::new(move || layer_norm(isa, &x, &gamma, &beta, 1e-5, &mut y)))
}

fn gelus() -> Prepared {
    let (isa, mut x) = (Isa::detect(), values(ROWS * WIDTH));
    (x.len(), "values", Box::new(move || gelu(isa, &mut x)))
}

fn pools() -> Prepared {
    let (isa, x, mut y) = (Isa::detect(), values(ROWS * WIDTH), vec![0.0; WIDTH]);
    (x.len(), "values", Box::new(move || mean_rows(isa, &x, &mut y)))
}

fn attentions() -> Prepared {
    let isa = Isa::detect();
    let (states, mut out) = (values(3 * ROWS * HEAD_SIZE), vec![0.0; ROWS * HEAD_SIZE]);
    let mut scratch = AttentionScratch::default();
    let run = move || {
        let part = |i| {
            let part = &states[i * ROWS * HEAD_SIZE..][..ROWS * HEAD_SIZE];
            Matrix::new(part, ROWS, HEAD_SIZE, HEAD_SIZE)
        };
        let mut out = MatrixMut::new(&mut out, ROWS, HEAD_SIZE, HEAD_SIZE);
        attention(isa, Precision::F32, [part(0), part(1), part(2)], None, &mut out, &mut scratch);
    };
    (ROWS * ROWS, "scores", Box::new(run))
}

fn tokenizer(chunks: Chunks) -> Result<Prepared> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("models/polysift-mini/tokenizer.json");
    let config = EncoderConfig { chunks, max_tokens: 512, ..EncoderConfig::default() };
    let tokenizer = Tokenizer::from_bytes(&std::fs::read(&file)?, &file, &config)?;
    let mut texts = Vec::new();
    for language in ["arb_Arab", "cmn_Hani", "eng_Latn", "fra_Latn"] {
        let path = root.join(format!("tests/sample/labelled/quality/{language}.jsonl.zst"));
        let lines = BufReader::new(zstd::Decoder::new(std::fs::File::open(path)?)?).lines();
        let mut text = String::new();
        for line in lines.take(40) {
            let line: serde_json::Value = serde_json::from_str(&line?)?;
            text.push_str(line["text"].as_str().context("text")?);
            text.push('\n');
        }
        texts.push(text);
    }
    let (count, unit) = match chunks {
        Chunks::First => (texts.len(), "documents"),
        Chunks::All => (texts.iter().map(String::len).sum(), "bytes"),
    };
    let run = move || {
        for text in &texts {
            drop(black_box(tokenizer.chunks(text)));
        }
    };
    Ok((count, unit, Box::new(run)))
}

fn head() -> Result<Prepared> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/heads/quality.safetensors");
    let head = Head::load(&path, "quality", &HeadConfig::default())?;
    let (embeddings, offsets) = (values(ROWS * WIDTH), (0..=ROWS).collect::<Vec<_>>());
    let run = move || drop(black_box(head.score(&embeddings, &offsets)));
    Ok((ROWS, "documents", Box::new(run)))
}
