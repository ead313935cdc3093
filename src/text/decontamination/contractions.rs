//! Splits English contractions without apostrophes, like spaCy, datatrove's tokenizer; datatrove
//! makes `don't` into `don t` before.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Stems, and the possible endings of each, as spaCy 3.8 lists them for English.
const CONTRACTIONS: [(&str, &str); 16] = [
    ("ai are dare has have is was were", "nt"),
    ("ca could did do does had may might must need ought sha should wo would", "nt nt-ve"),
    ("could might must not should would", "ve"),
    ("how there what when where why", "d d-ve ll ll-ve re s ve"),
    ("these they those you", "d d-ve ll ll-ve re ve"),
    ("that this", "d d-ve ll ll-ve s"),
    ("who", "d d-ve ll ll-ve s ve"),
    ("it", "d d-ve ll ll-ve"),
    ("he", "d d-ve ll-ve s"),
    ("she", "d-ve ll-ve s"),
    ("we", "d d-ve ll-ve ve"),
    ("i", "d d-ve ll-ve m m-a ve"),
    ("can", "not"),
    ("gon", "na"),
    ("got", "ta"),
    ("y", "all"),
];

/// Lower-case words that are split, with the lengths of their parts.
pub(super) static WORDS: LazyLock<HashMap<Vec<u8>, Vec<usize>>> = LazyLock::new(|| {
    let words = CONTRACTIONS.iter().flat_map(|(stems, endings)| {
        let endings = endings.split(' ');
        endings.flat_map(|ending| stems.split(' ').map(move |stem| format!("{stem}-{ending}")))
    });
    words
        .map(|word| (word.replace('-', "").into(), word.split('-').map(str::len).collect()))
        .collect()
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Output of `tests/golden/decontamination.py` that this test needs.
    #[derive(Deserialize)]
    struct Golden {
        contractions: BTreeMap<String, Vec<String>>,
    }

    #[test]
    fn contractions_are_those_of_spacy() -> Result<(), Box<dyn std::error::Error>> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let file = std::fs::read(format!("{root}/tests/golden/decontamination/expected.json"))?;
        let Golden { contractions } = serde_json::from_slice(&file)?;
        assert_eq!(WORDS.len(), contractions.len());
        for (word, expected) in contractions {
            let lengths: Vec<usize> = expected.iter().map(String::len).collect();
            assert_eq!(expected.concat(), word);
            assert_eq!(WORDS.get(word.as_bytes()), Some(&lengths), "{word}");
        }
        assert_eq!(WORDS.get(&b"were"[..]), None);
        Ok(())
    }
}
