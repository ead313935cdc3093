//! Chunks of token ids against transformers' fast tokenizer (`golden/tokenizer.py`).

mod damaged;
mod oracle;
mod texts;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use polysift::config::{Chunks, EncoderConfig};
use polysift::tokenize::Tokenizer;

use crate::util::root;

/// One line of a golden.
#[derive(serde::Deserialize)]
struct Expected {
    max_tokens: usize,
    text: String,
    chunks: Vec<Vec<u32>>,
}

fn golden(file: &str) -> PathBuf {
    root().join("tests/golden/encoder/tokenizer").join(file)
}

fn open(path: &Path, config: &EncoderConfig) -> Result<Tokenizer> {
    Ok(Tokenizer::from_bytes(&std::fs::read(path)?, path, config)?)
}

fn all(max_tokens: usize) -> EncoderConfig {
    EncoderConfig { max_tokens, chunks: Chunks::All, ..EncoderConfig::default() }
}

/// Compares all lines of `expected`; returns how many.
fn check(tokenizer: &Path, expected: &Path) -> Result<usize> {
    let file = BufReader::new(std::fs::File::open(expected)?);
    let lines = file.lines().map(|line| Ok(serde_json::from_str::<Expected>(&line?)?));
    let mut lines = lines.collect::<Result<Vec<_>>>()?;
    lines.sort_by_key(|line| line.max_tokens);
    for group in lines.chunk_by(|a, b| a.max_tokens == b.max_tokens) {
        let tokenizer = open(tokenizer, &all(group[0].max_tokens))?;
        for line in group {
            let tokenized = tokenizer.tokenize(&line.text)?;
            ensure!(tokenized.chunks == line.chunks, "{:?}", line.text);
            let content: usize = line.chunks.iter().map(|chunk| chunk.len() - 2).sum();
            ensure!(tokenized.num_tokens == content as u64, "{:?}", line.text);
        }
    }
    Ok(lines.len())
}

#[test]
fn golden_chunks() -> Result<()> {
    let count = check(&golden("tokenizer.json"), &golden("expected.jsonl"))?;
    assert_eq!(count, 44);
    let count = check(&golden("gemma.json"), &golden("gemma.jsonl"))?;
    assert_eq!(count, 44);
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped check says why")]
fn golden_chunks_of_the_xlm_roberta_tokenizer() -> Result<()> {
    let Some(tokenizer) = std::env::var_os("POLYSIFT_XLMR_TOKENIZER") else {
        eprintln!(
            "skipped: POLYSIFT_XLMR_TOKENIZER is not set (tokenizer.json of xlm-roberta-base, with \
             the output of golden/tokenizer.py expect in POLYSIFT_XLMR_EXPECTED)"
        );
        return Ok(());
    };
    let expected = std::env::var_os("POLYSIFT_XLMR_EXPECTED").context("POLYSIFT_XLMR_EXPECTED")?;
    let count = check(Path::new(&tokenizer), Path::new(&expected))?;
    eprintln!("{count} texts as transformers");
    Ok(())
}

#[test]
fn text_without_content_is_one_chunk_of_special_tokens() -> Result<()> {
    let tokenizer = open(&golden("tokenizer.json"), &all(512))?;
    for text in ["", " ", "\n\t  \n"] {
        let tokenized = tokenizer.tokenize(text)?;
        assert_eq!((tokenized.chunks, tokenized.num_tokens), (vec![vec![0, 2]], 0), "{text:?}");
    }
    Ok(())
}

#[test]
fn the_first_chunk_alone_still_counts_the_whole_text() -> Result<()> {
    let config = EncoderConfig { max_tokens: 16, ..EncoderConfig::default() };
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(5);
    let first = open(&golden("tokenizer.json"), &config)?.tokenize(&text)?;
    let all = open(&golden("tokenizer.json"), &all(16))?.tokenize(&text)?;
    assert!(all.chunks.len() > 1);
    assert_eq!((&first.chunks[..], first.num_tokens), (&all.chunks[..1], all.num_tokens));
    Ok(())
}

#[test]
fn a_prompt_is_tokenized_with_the_text_but_not_counted() -> Result<()> {
    let prompted = EncoderConfig { prompt: Some("query: ".into()), ..all(512) };
    let with = open(&golden("tokenizer.json"), &prompted)?;
    let without = open(&golden("tokenizer.json"), &all(512))?;
    let text = "Hello brave new world";
    assert_eq!(with.tokenize(text)?.chunks, without.tokenize(&format!("query: {text}"))?.chunks);
    assert_eq!(with.tokenize(text)?.num_tokens, without.tokenize(text)?.num_tokens);
    assert_eq!(with.tokenize(" ")?.num_tokens, 0);
    // Texts whose first token is a lone ▁, which the space of the prompt becomes part of.
    for text in ["狐狸跳过懒狗。", "😀", "(a", "\u{301}x", "ß"] {
        for file in ["tokenizer.json", "gemma.json"] {
            let count = |config: &EncoderConfig| -> Result<u64> {
                Ok(open(&golden(file), config)?.tokenize(text)?.num_tokens)
            };
            assert_eq!(count(&prompted)?, count(&all(512))?, "{file} {text}");
        }
    }
    Ok(())
}

#[test]
fn the_first_characters_alone_are_in_the_chunks_and_all_are_counted() -> Result<()> {
    let text = "Füchse 狐狸跳过懒狗。 e\u{301} 😀 and more ".repeat(4);
    for file in ["tokenizer.json", "gemma.json"] {
        for chunks in [Chunks::First, Chunks::All] {
            let whole = EncoderConfig {
                chunks,
                max_tokens: 16,
                prompt: Some("query: ".into()),
                ..EncoderConfig::default()
            };
            let without = open(&golden(file), &whole)?;
            for max_chars in [1, 9, 20, 41, text.chars().count(), 1000] {
                let cut = EncoderConfig { max_chars: Some(max_chars), ..whole.clone() };
                let cut = open(&golden(file), &cut)?;
                let first: String = text.chars().take(max_chars).collect();
                assert_eq!(cut.chunks(&text)?, without.chunks(&first)?, "{file} {max_chars}");
                let tokenized = cut.tokenize(&text)?;
                assert_eq!(tokenized.chunks, without.chunks(&first)?, "{file} {max_chars}");
                assert_eq!(tokenized.num_tokens, without.tokenize(&text)?.num_tokens);
            }
        }
    }
    Ok(())
}

#[test]
fn a_file_that_is_no_tokenizer_and_a_length_without_room_are_errors() -> Result<()> {
    let error = Tokenizer::from_bytes(b"{}", Path::new("t.json"), &all(512)).err();
    assert!(error.context("accepted")?.to_string().starts_with("t.json: is not a tokenizer"));
    let path = golden("tokenizer.json");
    let error = Tokenizer::from_bytes(&std::fs::read(&path)?, &path, &all(2)).err();
    assert_eq!(error.context("accepted")?.exit_code(), 2);
    Ok(())
}
