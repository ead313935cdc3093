//! Rows that are samples by themselves: prompts with their answers (Aya Dataset and Aya Collection)
//! and multiple-choice questions (MMMLU and INCLUDE-base-44).
//!
//! Three layouts of questions are read, recognised by their columns: `Question`, `A` to `D` and a
//! letter in `Answer` (MMMLU); `question`, a list `choices` and an index in `answer` (INCLUDE of
//! December 2024, and cais/mmlu for English); `question`, `option_a` to `option_d` and an index in
//! `answer` (INCLUDE since March 2025). Indices start at 0.

use super::reader::{MkcReader, RowPlace, required_columns};
use crate::SourceCard;
use crate::write::DatasetSample;
use polysift_base::error::{Error, Result};
use polysift_base::sample::{key_of, text_key};
use polysift_config::Mode;
use polysift_data::input::{ColumnKind, ColumnRequest, InputFile, TableRow, shown, table_columns};

/// Placeholder for words that the tokenizer of the translation did not know.
const UNKNOWN: &str = "<unk>";
/// Suffix that is removed from answers.
const DOTS: &str = "...";
const LETTERS: [&str; 4] = ["A", "B", "C", "D"];
const OPTIONS: [&str; 4] = ["option_a", "option_b", "option_c", "option_d"];

/// Reads prompt and answer of each row as a positive; skips rows with `<unk>` if `drop_unknown`.
pub(super) fn load_pairs(
    source: &MkcReader<'_>,
    drop_unknown: bool,
    sink: &mut dyn FnMut(DatasetSample),
) -> Result<SourceCard> {
    let columns = |_: &InputFile| Ok(Some(required_columns(&["inputs", "targets"])));
    source.read(&columns, &mut |card, place, row| {
        let (Some(inputs), Some(targets)) = (row.text("inputs"), row.text("targets")) else {
            card.drop_rows("null", 1);
            return Ok(());
        };
        let text = format!("{inputs} {}", targets.strip_suffix(DOTS).unwrap_or(targets));
        if source.rules.mode == Mode::Default && text.trim().is_empty() {
            card.drop_rows("blank", 1);
        } else if drop_unknown && text.contains(UNKNOWN) {
            card.drop_rows(UNKNOWN, 1);
        } else {
            let group = key_of("prompt", &[&text_key(inputs).to_string()]);
            sink(place.sample(text, group));
        }
        Ok(())
    })
}

/// Reads question and correct answer of each row as a positive.
///
/// MMMLU has the same questions in the same order in all languages; their texts are trimmed. For
/// INCLUDE, published mode takes the answer before the correct one.
pub(super) fn load_questions(
    source: &MkcReader<'_>,
    sink: &mut dyn FnMut(DatasetSample),
) -> Result<SourceCard> {
    let is_mmmlu = source.kind.name == "mmmlu";
    let before = i64::from(!is_mmmlu && source.rules.mode == Mode::Published);
    source.read(&question_columns, &mut |card, place: RowPlace<'_>, row| {
        let (mut question, mut answer) = parse_question(row, before)?;
        if is_mmmlu {
            question = question.trim().to_owned();
            answer = answer.trim().to_owned();
        }
        let text = format!("{question} {answer}");
        if source.rules.mode == Mode::Default && question.trim().is_empty() {
            card.drop_rows("blank", 1);
        } else if is_mmmlu {
            sink(place.translated_sample(text));
        } else {
            sink(place.sample(text, key_of("question", &[&text_key(&question).to_string()])));
        }
        Ok(())
    })
}

/// Returns the columns to read of a file, by its layout; `None` if it has no columns.
fn question_columns(file: &InputFile) -> Result<Option<Vec<ColumnRequest>>> {
    let columns = table_columns(file)?;
    let has = |name: &str| columns.iter().any(|column| column == name);
    if columns.is_empty() {
        Ok(None)
    } else if has("Question") {
        Ok(Some(required_columns(&[&["Question", "Answer"][..], &LETTERS].concat())))
    } else if has("choices") {
        let choices = ColumnRequest::new("choices", ColumnKind::ScalarOrList, true);
        Ok(Some([required_columns(&["question", "answer"]), vec![choices]].concat()))
    } else if has(OPTIONS[0]) {
        Ok(Some(required_columns(&[&["question", "answer"][..], &OPTIONS].concat())))
    } else {
        let reason = format!(
            "and `option_a` and `Question` are not in the file, which has: {}",
            columns.join(", ")
        );
        Err(Error::schema(&file.path, "choices", reason))
    }
}

/// Returns question and right answer of a row in any layout; columns of other layouts are absent.
fn parse_question(row: TableRow<'_>, before: i64) -> Result<(String, String), String> {
    if row.text("Question").or(row.text("Answer")).is_some() {
        let question = row.required_text("Question")?;
        let letter = row.required_text("Answer")?;
        let wrong = || format!("`Answer` is {}, not one of A, B, C and D", shown(letter));
        let column = LETTERS.into_iter().find(|column| *column == letter.trim());
        let column = column.ok_or_else(wrong)?;
        return Ok((question.to_owned(), row.required_text(column)?.to_owned()));
    }
    let question = row.required_text("question")?;
    let answer = row.required_text("answer")?;
    let choices: Vec<Option<String>> = match row.text("choices") {
        Some(list) => serde_json::from_str(list).map_err(|_| "`choices` is text, not a list")?,
        None => OPTIONS.iter().map(|name| row.text(name).map(ToOwned::to_owned)).collect(),
    };
    let at = answer_index(answer, choices.len(), before).ok_or_else(|| {
        let (answer, len) = (shown(answer), choices.len());
        format!("`answer` is {answer}; there are {len} choices, counted from 0")
    })?;
    let choice = choices[at].clone();
    choice.map(|choice| (question.to_owned(), choice)).ok_or_else(|| format!("choice {at} is null"))
}

/// Returns the answer less `before`, if it is below `len`. If `before` is above 0, negative answers
/// count from the end, as in Python.
fn answer_index(answer: &str, len: usize, before: i64) -> Option<usize> {
    let answer = answer.trim();
    let answer = answer.strip_suffix(".0").unwrap_or(answer).parse::<i64>().ok()?;
    let len = i64::try_from(len).ok()?;
    let at = answer.checked_sub(before)?;
    let at = if at < 0 && before > 0 { at.checked_add(len)? } else { at };
    (0..len).contains(&at).then_some(at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_from_zero_and_published_mode_takes_the_one_before() {
        let all =
            |before| ["0", "1", "3", "4", "-1", "x", "2.0"].map(|a| answer_index(a, 4, before));
        assert_eq!(all(0), [Some(0), Some(1), Some(3), None, None, None, Some(2)]);
        assert_eq!(all(1), [Some(3), Some(0), Some(2), Some(3), Some(2), None, Some(1)]);
    }
}
