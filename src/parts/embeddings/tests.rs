use std::error::Error as StdError;

use parquet::file::metadata::RowGroupMetaData;
use proptest::prelude::*;
use serde::Deserialize;

use super::writer::GROUP_ROWS;
use super::*;
use crate::parts::write_scores;

const DTYPES: [EmbeddingDtype; 3] =
    [EmbeddingDtype::F32, EmbeddingDtype::F16, EmbeddingDtype::Bf16InF32];

/// Documents with the given numbers of chunks; the values of a chunk are `bits` from there on.
fn rows_of(num_chunks: &[usize], hidden_size: usize, bits: &[u32]) -> EmbeddingRows {
    let mut rows =
        EmbeddingRows { hidden_size, chunk_offsets: vec![0], ..EmbeddingRows::default() };
    for (i, &n) in num_chunks.iter().enumerate() {
        rows.rows.push(i as u64 * 3);
        rows.ids.push(format!("<urn:uuid:{i}>"));
        rows.languages.push("deu_Latn".into());
        rows.num_bytes.push(n as u64 * 2000);
        rows.num_tokens.get_or_insert_default().push(n as u64 * 510);
        rows.chunk_offsets.push(rows.chunk_offsets[i] + n);
    }
    let num_values = rows.chunk_offsets[num_chunks.len()] * hidden_size;
    rows.values = bits.iter().cycle().take(num_values).map(|&b| f32::from_bits(b)).collect();
    rows
}

fn to_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn embeddings_come_back_bit_for_bit_after_rounding(
        num_chunks in proptest::collection::vec(0usize..4, 0..60),
        hidden_size in 1usize..40,
        bits in proptest::collection::vec(any::<u32>(), 1..500),
        dtype in proptest::sample::select(&DTYPES[..]),
    ) {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let mut rows = rows_of(&num_chunks, hidden_size, &bits);
        round_to(&mut rows.values, dtype);
        let written = write_embeddings(&path, &rows, dtype, 1)?;
        let read = read_embeddings(&path)?;
        prop_assert_eq!(to_bits(&read.values), to_bits(&rows.values));
        prop_assert_eq!(&read.chunk_offsets, &rows.chunk_offsets);
        prop_assert_eq!((read.rows, read.ids), (rows.rows.clone(), rows.ids.clone()));
        prop_assert_eq!(written, write_embeddings(&path, &rows, dtype, 1)?, "not deterministic");
    }

    #[test]
    fn rounding_twice_is_rounding_once(bits: u32, dtype in proptest::sample::select(&DTYPES[..])) {
        let mut once = [f32::from_bits(bits)];
        round_to(&mut once, dtype);
        let mut twice = once;
        round_to(&mut twice, dtype);
        prop_assert_eq!(to_bits(&once), to_bits(&twice));
    }
}

/// Bit patterns of f32 values and of what torch rounds them to (`tests/golden/export.py`).
#[derive(Deserialize)]
struct Rounding {
    input: Vec<u32>,
    bf16_in_f32: Vec<u32>,
    f16: Vec<u32>,
}

#[test]
fn rounding_is_that_of_torch() -> Result<(), Box<dyn StdError>> {
    let golden: Rounding =
        serde_json::from_str(include_str!("../../../tests/golden/export/rounding.json"))?;
    assert!(golden.input.len() > 1000);
    for (dtype, expected) in
        [(EmbeddingDtype::Bf16InF32, &golden.bf16_in_f32), (EmbeddingDtype::F16, &golden.f16)]
    {
        let mut values: Vec<f32> = golden.input.iter().map(|&b| f32::from_bits(b)).collect();
        round_to(&mut values, dtype);
        for ((value, &expected), &input) in values.iter().zip(expected).zip(&golden.input) {
            // The payload of a NaN has no meaning, and torch's differs between its code paths.
            let same = value.to_bits() == expected
                || (value.is_nan() && f32::from_bits(expected).is_nan());
            assert!(same, "{dtype:?} of {input:#010x}: {:#010x}", value.to_bits());
        }
    }
    Ok(())
}

#[test]
fn a_document_without_text_is_null_and_keeps_its_row() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let rows = rows_of(&[1, 0, 2], 2, &[0x3f80_0000]);
    write_embeddings(&path, &rows, EmbeddingDtype::F32, 3)?;
    columns::for_each_batch(columns::open(&path)?, &path, &[EMBEDDINGS], 10, |batch| {
        let column = columns::column(batch, EMBEDDINGS, &path)?;
        assert_eq!([0, 1, 2].map(|i| column.is_null(i)), [false, true, false]);
        Ok(())
    })?;
    let read = read_embeddings(&path)?;
    assert_eq!((read.len(), read.chunks(1)), (3, &[][..]));
    assert_eq!(read.chunks(2), [1.0; 4]);
    assert!(!read.is_empty());
    Ok(())
}

#[test]
fn row_groups_end_at_25_000_rows() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let rows = rows_of(&vec![1; GROUP_ROWS + 1], 1, &[0]);
    write_embeddings(&path, &rows, EmbeddingDtype::F32, 1)?;
    let builder = columns::open(&path)?;
    let lens = builder.metadata().row_groups().iter().map(RowGroupMetaData::num_rows);
    assert!(lens.eq([25_000, 1]));
    assert_eq!(read_embeddings(&path)?, rows);
    Ok(())
}

#[test]
fn embedding_values_are_stream_split_without_a_dictionary() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    for dtype in DTYPES {
        write_embeddings(&path, &rows_of(&[3; 40], 16, &[1, 2, 3]), dtype, 1)?;
        let builder = columns::open(&path)?;
        let group = builder.metadata().row_group(0);
        let leaf = group.columns().last().ok_or("no columns")?;
        assert_eq!(leaf.column_path().string(), "embeddings.list.element.list.element");
        assert!(leaf.encodings().any(|e| e == parquet::basic::Encoding::BYTE_STREAM_SPLIT));
        assert!(leaf.dictionary_page_offset().is_none());
    }
    Ok(())
}

#[test]
fn columns_that_do_not_fit_together_are_refused() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let good = rows_of(&[1, 1], 2, &[0]);
    let breaks: [fn(&mut EmbeddingRows); 5] = [
        |r| r.values.truncate(3),
        |r| r.chunk_offsets.truncate(2),
        |r| r.chunk_offsets.clear(),
        |r| r.chunk_offsets[1] = 3,
        |r| r.ids.truncate(1),
    ];
    for break_it in breaks {
        let mut rows = good.clone();
        break_it(&mut rows);
        let result = write_embeddings(&path, &rows, EmbeddingDtype::F32, 1);
        assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
        assert!(!path.exists());
    }
    Ok(())
}

#[test]
fn a_file_that_is_no_embedding_part_is_an_error_that_names_it() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    assert!(matches!(read_embeddings(&path), Err(Error::Missing { .. })));
    std::fs::write(&path, b"PAR1 not really")?;
    assert!(matches!(read_embeddings(&path), Err(Error::Decode { .. })));
    write_scores(&path, &crate::parts::ScoreRows::default(), 1)?;
    assert!(matches!(read_embeddings(&path), Err(Error::Corrupt { .. })));
    let rows = rows_of(&[1; 100], 8, &[1, 2, 3, 4]);
    write_embeddings(&path, &rows, EmbeddingDtype::F32, 1)?;
    let whole = std::fs::read(&path)?;
    for len in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..len])?;
        assert!(read_embeddings(&path).is_err(), "truncated to {len} bytes");
    }
    Ok(())
}
