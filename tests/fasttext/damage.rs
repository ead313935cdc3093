//! Files that are not what they seem: an error each, no panic, no memory for sizes that are not there.

use std::path::Path;

use polysift::fasttext::FastTextModel;

use super::file;
use crate::util::TestResult;

/// Reads `bytes` as the file `path`.
fn read(path: &Path, bytes: &[u8]) -> Result<polysift::Result<FastTextModel>, std::io::Error> {
    std::fs::write(path, bytes)?;
    Ok(FastTextModel::read(path).map(|(model, _)| model))
}

/// Where the parts of a file without subwords lie.
const MAGIC: usize = 0;
const DIM: usize = 8;
const WORD_NGRAMS: usize = DIM + 5 * 4;
const BUCKETS: usize = DIM + 8 * 4;
const LONGEST_SUBWORD: usize = DIM + 10 * 4;
const DICTIONARY: usize = DIM + 56;

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.bin");
    for name in ["words.bin", "quantised.ftz", "pruned.ftz", "languages.ftz"] {
        let bytes = std::fs::read(file(name))?;
        let lengths = (0..200).chain((200..bytes.len()).step_by(997)).chain([bytes.len() - 1]);
        for length in lengths {
            let error = read(&path, &bytes[..length])?.err().ok_or("was read")?;
            assert_eq!(error.exit_code(), 65, "{name} cut at {length}: {error}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(read(&path, &longer)?.is_err_and(|e| e.to_string().contains("after its end")));
    }
    Ok(())
}

#[test]
fn flipped_bytes_are_an_error_or_another_model_but_never_a_panic() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.bin");
    for name in ["unigrams.bin", "subwords.bin", "pruned.ftz", "hierarchical.bin"] {
        let mut bytes = std::fs::read(file(name))?;
        let places = (0..120).chain((120..bytes.len()).step_by(311));
        let mut refused = 0;
        for place in places {
            for mask in [0x01, 0x80, 0xff] {
                bytes[place] ^= mask;
                match read(&path, &bytes)? {
                    Ok(model) => {
                        super::predict(&model, "every human right </s> __label__x 人人");
                    }
                    Err(error) => {
                        assert_eq!(error.exit_code(), 65, "{error}");
                        refused += 1;
                    }
                }
                bytes[place] ^= mask;
            }
        }
        assert!(refused > 100, "{name}: {refused}");
    }
    Ok(())
}

#[test]
fn sizes_that_the_file_does_not_hold_are_refused_before_memory_is_taken() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.bin");
    let good = std::fs::read(file("unigrams.bin"))?;
    let cases: [(usize, &[u8]); 14] = [
        (MAGIC, b"PK\x03\x04"),
        (4, &13i32.to_le_bytes()),
        (4, &10i32.to_le_bytes()),
        (DIM, &0i32.to_le_bytes()),
        (DIM, &i32::MAX.to_le_bytes()),
        (DIM, &(-1i32).to_le_bytes()),
        (WORD_NGRAMS, &i32::MAX.to_le_bytes()),
        (BUCKETS, &i32::MAX.to_le_bytes()),
        (BUCKETS, &(-1i32).to_le_bytes()),
        (LONGEST_SUBWORD, &i32::MAX.to_le_bytes()),
        (DICTIONARY, &i32::MAX.to_le_bytes()),
        (DICTIONARY + 4, &(-5i32).to_le_bytes()),
        (DICTIONARY + 20, &i64::MAX.to_le_bytes()),
        (DICTIONARY + 20, &0i64.to_le_bytes()),
    ];
    for (place, bytes) in cases {
        let mut bad = good.clone();
        bad[place..place + bytes.len()].copy_from_slice(bytes);
        let error = read(&path, &bad)?.err().ok_or("was read")?;
        assert_eq!(error.exit_code(), 65, "{place}: {error}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
    // Rows and columns of the output matrix, the last in the file: 2 labels of 8 values.
    let shape = good.len() - 2 * 8 * 4 - 16;
    for number in [i64::MAX, -1, 1 << 40, 1] {
        let mut bad = good.clone();
        bad[shape..shape + 8].copy_from_slice(&number.to_le_bytes());
        assert!(read(&path, &bad)?.is_err(), "{number} rows");
        let mut bad = good.clone();
        bad[shape + 8..shape + 16].copy_from_slice(&number.to_le_bytes());
        assert!(read(&path, &bad)?.is_err(), "{number} columns");
    }
    Ok(())
}
