//! `polysift tokenize`: the `input_ids` of every chunk as JSON lines, to hold against other tokenizers.

use serde_json::json;

use polysift::config::RunConfig;
use polysift::encoder::{HubSettings, resolve};
use polysift::input::DocumentReader;
use polysift::progress::Stop;
use polysift::stage::plan::input_files;
use polysift::{Error, Result};

use super::printer;

/// Documents tokenized at once.
const BLOCK_ROWS: usize = 256;

/// Prints one object per chunk: `file`, `row`, `id`, `chunk`, `input_ids`.
pub(crate) fn tokenize(config: &RunConfig, hub: &HubSettings, stop: &Stop) -> Result<()> {
    let files = input_files(config)?;
    let tokenizer = resolve(&config.encoder, hub)?.tokenizer(&config.encoder)?;
    for file in files {
        let mut reader = DocumentReader::open(&file, &config.input)?;
        while let Some(mut block) = reader.next_block(BLOCK_ROWS)? {
            stop.check()?;
            block.retain(|document| document.text.is_some());
            let texts: Vec<&str> = block.iter().filter_map(|d| d.text.as_deref()).collect();
            let tokenized = tokenizer.chunks_all(&texts)?;
            if tokenized.len() != block.len() {
                return Err(Error::shape("tokenize", "fewer results than texts"));
            }
            for (document, chunks) in block.iter().zip(tokenized) {
                for (chunk, input_ids) in chunks.iter().enumerate() {
                    let object = json!({"file": file.name, "row": document.row, "id": document.id,
                                        "chunk": chunk, "input_ids": input_ids});
                    printer::line(&object.to_string());
                }
            }
        }
    }
    Ok(())
}
