//! Prompts with their answers: Aya Dataset and Aya Collection.

use super::files::{Columns, Source};
use crate::dataset::key::{key_of, text_key};
use crate::dataset::{Mode, Sample, SourceCard};
use crate::error::Result;
use crate::input::TableFile;

/// What a tokenizer of the translation put where it knew no word.
const UNKNOWN: &str = "<unk>";

/// What is cut off the end of an answer.
const DOTS: &str = "...";

/// Prompt and answer of every row, as positives; rows with `<unk>` are left out where
/// `drop_unknown`.
pub(super) fn load(
    source: &Source<'_>,
    drop_unknown: bool,
    card: &mut SourceCard,
    sink: &mut dyn FnMut(Sample),
) -> Result<()> {
    let columns = |_: &TableFile| {
        Ok(Some(Columns { required: vec!["inputs", "targets"], optional: Vec::new() }))
    };
    source.read(card, &columns, &mut |card, place, mut row| {
        let (Some(inputs), Some(targets)) = (row.text("inputs")?, row.text("targets")?) else {
            card.drop_rows("null", 1);
            return Ok(());
        };
        let text = format!("{inputs} {}", targets.strip_suffix(DOTS).unwrap_or(&targets));
        if source.mode == Mode::Sound && text.trim().is_empty() {
            card.drop_rows("blank", 1);
        } else if drop_unknown && text.contains(UNKNOWN) {
            card.drop_rows(UNKNOWN, 1);
        } else {
            let group = key_of("prompt", &[&text_key(&inputs).to_string()]);
            sink(place.sample(text, group));
        }
        Ok(())
    })?;
    Ok(())
}
