//! Prepares texts for a model: one line of words separated by spaces.

use unicode_segmentation::UnicodeSegmentation;

use polysift_config::{Mode, Preprocessing, Segmenter, TextSpec};

/// Replacement for a newline ([`Preprocessing::NewlineToken`]); the name is FineWeb2-HQ's.
const NEWLINE_TOKEN: &str = "<NEW_LINE>";

/// Returns the line of a text to train on.
pub fn sample_line(spec: &TextSpec, text: &str) -> String {
    let line = match spec.preprocessing {
        Preprocessing::DeleteNewlines => text.replace('\n', "").trim_matches(is_space).to_owned(),
        Preprocessing::Collapse => join_words(text.split(is_space)),
        Preprocessing::NewlineToken => {
            let marked = text.replace('\n', &format!(" {NEWLINE_TOKEN} "));
            join_words(marked.split(is_space))
        }
    };
    segment(spec.segmenter, if spec.lowercase { line.to_lowercase() } else { line })
}

/// Returns the line of a text to score, which published mode prepares in another way.
pub fn document_line(spec: &TextSpec, text: &str) -> String {
    match spec.inference {
        Mode::Default => sample_line(spec, text),
        // It trims before it deletes, so that the line may end with a space.
        Mode::Published => segment(spec.segmenter, text.trim_matches(is_space).replace('\n', "")),
    }
}

/// Equals Python's `str.isspace`: Unicode's white space and four separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Joins the `words` that are not empty by single spaces.
fn join_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Separates the words or graphemes of `line` by spaces, as `segmenter` says.
fn segment(segmenter: Segmenter, line: String) -> String {
    match segmenter {
        // `auto` was resolved when the language was known.
        Segmenter::None | Segmenter::Auto => line,
        Segmenter::Words => join_words(line.split_word_bounds().map(str::trim)),
        Segmenter::Characters => join_words(line.graphemes(true).map(str::trim)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_config::FastTextConfig;

    fn line(config: &FastTextConfig, text: &str) -> String {
        document_line(&config.text_spec("deu_Latn"), text)
    }

    #[test]
    fn the_three_variants_are_those_that_were_published() {
        let config = |preprocessing| FastTextConfig { preprocessing, ..FastTextConfig::default() };
        // `clean_text_for_fasttext` of `preprocess_ft.py` gives these lines for V1, V2 and V3.
        for (preprocessing, text, expected) in [
            (
                Preprocessing::DeleteNewlines,
                " Ein Satz.\nNoch\r\n einer \n",
                "ein satz.noch\r einer",
            ),
            (Preprocessing::Collapse, " Ein Satz.\nNoch\r\n einer \n", "ein satz. noch einer"),
            (
                Preprocessing::NewlineToken,
                " Ein Satz.\nNoch\r\n einer \n",
                "ein satz. <new_line> noch <new_line> einer <new_line>",
            ),
            (Preprocessing::Collapse, "\u{3000}\u{a0}İ\x1cΑΣ\u{2028}ß", "i\u{307} ας ß"),
            (Preprocessing::Collapse, " \n", ""),
        ] {
            assert_eq!(line(&config(preprocessing), text), expected, "{preprocessing:?}");
        }
    }

    #[test]
    fn published_inference_treats_documents_otherwise_than_samples() {
        let config = FastTextConfig {
            preprocessing: Preprocessing::NewlineToken,
            inference: Mode::Published,
            ..FastTextConfig::default()
        };
        let spec = config.text_spec("deu_Latn");
        let text = " Ein\nSatz \n";
        assert_eq!(sample_line(&spec, text), "ein <new_line> satz <new_line>");
        assert_eq!(document_line(&spec, text), "EinSatz");
    }

    #[test]
    fn scripts_without_spaces_fall_into_words() {
        let config = |segmenter| FastTextConfig { segmenter, ..FastTextConfig::default() };
        for (segmenter, expected) in [
            (Segmenter::None, "fasttext很快。 データを!"),
            (Segmenter::Words, "fasttext 很 快 。 データ を !"),
            (Segmenter::Characters, "f a s t t e x t 很 快 。 デ ー タ を !"),
        ] {
            assert_eq!(line(&config(segmenter), "FastText很快。\nデータを!"), expected);
        }
    }
}
