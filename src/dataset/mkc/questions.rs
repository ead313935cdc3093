//! Multiple-choice questions: MMMLU and INCLUDE-base-44.
//!
//! Three layouts are read in either source, told by the columns: `Question`, `A` to `D` and a letter
//! in `Answer` (MMMLU); `question`, a list `choices` and an index in `answer` (INCLUDE of December
//! 2024, and cais/mmlu for English); `question`, `option_a` to `option_d` and an index in `answer`
//! (INCLUDE since March 2025). Indices count from 0.

use super::files::{Columns, Place, Source};
use crate::dataset::key::{key_of, text_key};
use crate::dataset::{Mode, Sample, SourceCard};
use crate::error::{Error, Result};
use crate::input::{Cell, TableFile, TableRow};

const LETTERS: [&str; 4] = ["A", "B", "C", "D"];
const OPTIONS: [&str; 4] = ["option_a", "option_b", "option_c", "option_d"];

/// Which source it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Questions {
    /// Texts are stripped of white space.
    Mmmlu,
    /// Texts are taken as they are; the reference takes the answer before the right one.
    Include,
}

/// Question and right answer of every row, as positives. The files of all languages of MMMLU have the
/// same questions in the same order.
pub(super) fn load(
    source: &Source<'_>,
    kind: Questions,
    card: &mut SourceCard,
    sink: &mut dyn FnMut(Sample),
) -> Result<()> {
    let before = i64::from(kind == Questions::Include && source.mode == Mode::Reference);
    let columns = |file: &TableFile| layout(file).map(|layout| layout.map(Layout::columns));
    source.read(card, &columns, &mut |card, place: Place<'_>, mut row| {
        let (mut question, mut answer) = question_and_answer(&mut row, before)?;
        if kind == Questions::Mmmlu {
            question = question.trim().to_owned();
            answer = answer.trim().to_owned();
        }
        let text = format!("{question} {answer}");
        if source.mode == Mode::Sound && question.trim().is_empty() {
            card.drop_rows("blank", 1);
        } else if kind == Questions::Mmmlu {
            sink(place.translated_sample(text));
        } else {
            sink(place.sample(text, key_of("question", &[&text_key(&question).to_string()])));
        }
        Ok(())
    })?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Layout {
    Letters,
    List,
    Options,
}

/// Layout of a file; `None` for one without rows that could tell.
fn layout(file: &TableFile) -> Result<Option<Layout>> {
    let columns = file.columns()?;
    let has = |name: &str| columns.iter().any(|column| column == name);
    if columns.is_empty() {
        return Ok(None);
    }
    if has("Question") {
        Ok(Some(Layout::Letters))
    } else if has("choices") {
        Ok(Some(Layout::List))
    } else if has(OPTIONS[0]) {
        Ok(Some(Layout::Options))
    } else {
        let reason = format!(
            "and `option_a` and `Question` are not in the file, which has: {}",
            columns.join(", ")
        );
        Err(Error::schema(&file.path, "choices", reason))
    }
}

impl Layout {
    fn columns(self) -> Columns {
        let required = match self {
            Self::Letters => [&["Question", "Answer"][..], &LETTERS].concat(),
            Self::List => vec!["question", "answer", "choices"],
            Self::Options => [&["question", "answer"][..], &OPTIONS].concat(),
        };
        Columns { required, optional: Vec::new() }
    }
}

/// Of a row of any layout: the columns of the others are not there.
fn question_and_answer(row: &mut TableRow<'_>, before: i64) -> Result<(String, String), String> {
    if let Some(question) = row.text("Question")? {
        let letter = row.required_text("Answer")?;
        let column = LETTERS.into_iter().find(|column| *column == letter.trim());
        let column =
            column.ok_or_else(|| format!("`Answer` is {letter:.40?}, not one of A, B, C and D"))?;
        return Ok((question, row.required_text(column)?));
    }
    let question = row.required_text("question")?;
    let answer = row.required_text("answer")?;
    let choices = match row.take("choices") {
        Some(Cell::List(choices)) => choices,
        Some(Cell::Text(_)) => return Err("`choices` is text, not a list".to_owned()),
        None => OPTIONS.iter().map(|name| row.text(name)).collect::<Result<_, _>>()?,
    };
    let at = index(&answer, choices.len(), before).ok_or_else(|| {
        format!("`answer` is {answer:.40?}; there are {} choices, counted from 0", choices.len())
    })?;
    let choice = choices[at].clone();
    choice.map(|choice| (question, choice)).ok_or_else(|| format!("choice {at} is null"))
}

/// Position of the answer among `len` choices; `before` is subtracted as Python does it, where -1
/// is the last.
fn index(answer: &str, len: usize, before: i64) -> Option<usize> {
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
    fn answers_count_from_zero_and_the_reference_takes_the_one_before() {
        let all = |before| ["0", "1", "3", "4", "-1", "x", "2.0"].map(|a| index(a, 4, before));
        assert_eq!(all(0), [Some(0), Some(1), Some(3), None, None, None, Some(2)]);
        assert_eq!(all(1), [Some(3), Some(0), Some(2), Some(3), Some(2), None, Some(1)]);
    }
}
