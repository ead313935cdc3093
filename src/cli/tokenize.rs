//! `polysift tokenize`: prints the `input_ids` of every chunk, to compare with other tokenizers.

use serde_json::json;

use polysift::Result;
use polysift::config::{NO_MODEL, RunConfig};
use polysift::corpus::plan::input_files;
use polysift::encoder::{HubSettings, resolve};
use polysift::input::DocumentReader;
use polysift::progress::Stop;

use super::printer;

const BATCH_ROWS: usize = 256;

/// Prints one object per chunk: `file`, `row`, `id`, `chunk`, `input_ids`.
pub(crate) fn print_tokens(config: &RunConfig, hub: &HubSettings, stop: &Stop) -> Result<()> {
    if config.encoder.model == NO_MODEL {
        return Err(RunConfig::no_encoder("`tokenize` prints the tokens of an encoder"));
    }
    let files = input_files(config)?;
    let tokenizer = resolve(&config.encoder, hub)?.tokenizer(&config.encoder)?;
    for file in files {
        let mut reader = DocumentReader::open(&file, &config.input)?;
        while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
            stop.check()?;
            let (places, texts): (Vec<usize>, Vec<&str>) = batch.texts().unzip();
            for (i, chunks) in places.into_iter().zip(tokenizer.chunks_all(&texts)?) {
                for (chunk, input_ids) in chunks.iter().enumerate() {
                    let object = json!({"file": file.name, "row": batch.rows()[i], "id": batch.get(i).id,
                                        "chunk": chunk, "input_ids": input_ids});
                    printer::print_line(&object.to_string());
                }
            }
        }
    }
    Ok(())
}
