use std::error::Error as StdError;

use parquet::file::metadata::RowGroupMetaData;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::parts::write_scores;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};

const DTYPES: [EmbeddingDtype; 3] =
    [EmbeddingDtype::F32, EmbeddingDtype::F16, EmbeddingDtype::Bf16InF32];

/// Returns documents with the given numbers of chunks; the values cycle through `bits`.
fn rows_of(num_chunks: &[usize], hidden_size: usize, bits: &[u32]) -> EmbeddingRows {
    let (mut documents, mut chunk_offsets) = (DocumentBuilder::default(), vec![0]);
    for (i, &n) in num_chunks.iter().enumerate() {
        documents.push(&DocumentInfo {
            row: i as u64 * 3,
            id: &format!("<urn:uuid:{i}>"),
            language: ["deu_Latn", "und"][i % 2],
            num_bytes: n as u64 * 2000,
            num_tokens: Some(n as u64 * 510),
        });
        chunk_offsets.push(chunk_offsets[i] + n);
    }
    let num_values = chunk_offsets[num_chunks.len()] * hidden_size;
    let values = bits.iter().cycle().take(num_values).map(|&b| f32::from_bits(b)).collect();
    EmbeddingRows { documents: documents.finish(), chunk_offsets, values, hidden_size }
}

fn write_embeddings(
    path: &Path,
    rows: &EmbeddingRows,
    dtype: EmbeddingDtype,
    zstd: i32,
) -> Result<FileStamp> {
    let mut writer = EmbeddingWriter::create(path, dtype, zstd)?;
    for (i, document) in rows.documents.iter().enumerate() {
        writer.push(&document, rows.chunks(i), rows.hidden_size)?;
    }
    writer.finish()
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
        prop_assert_eq!(&read.documents, &rows.documents);
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

/// Bit patterns of f32 values and of torch's roundings of them (`tests/golden/export.py`).
#[derive(Deserialize)]
struct Rounding {
    input: Vec<u32>,
    bf16_in_f32: Vec<u32>,
    f16: Vec<u32>,
}

#[test]
fn rounding_is_that_of_torch() -> Result<(), Box<dyn StdError>> {
    let golden: Rounding =
        serde_json::from_str(include_str!("../../../../tests/golden/export/rounding.json"))?;
    assert!(golden.input.len() > 1000);
    for (dtype, expected) in
        [(EmbeddingDtype::Bf16InF32, &golden.bf16_in_f32), (EmbeddingDtype::F16, &golden.f16)]
    {
        let mut values: Vec<f32> = golden.input.iter().map(|&b| f32::from_bits(b)).collect();
        round_to(&mut values, dtype);
        for ((value, &expected), &input) in values.iter().zip(expected).zip(&golden.input) {
            // The payload of a NaN has no meaning, and torch's payload depends on its code path.
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
    let batch = PartReader::open(&path)?.read(&[EMBEDDINGS])?;
    assert_eq!([0, 1, 2].map(|i| batch.column(0).is_null(i)), [false, true, false]);
    let read = read_embeddings(&path)?;
    assert_eq!((read.documents.len(), read.chunks(1)), (3, &[][..]));
    assert_eq!(read.chunks(2), [1.0; 4]);
    Ok(())
}

#[test]
fn row_groups_end_at_25_000_rows() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let rows = rows_of(&vec![1; GROUP_ROWS + 1], 1, &[0]);
    write_embeddings(&path, &rows, EmbeddingDtype::F32, 1)?;
    let part = PartReader::open(&path)?;
    let lens = part.footer.metadata().row_groups().iter().map(RowGroupMetaData::num_rows);
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
        let part = PartReader::open(&path)?;
        let group = part.footer.metadata().row_group(0);
        let leaf = group.columns().last().ok_or("no columns")?;
        assert_eq!(leaf.column_path().string(), "embeddings.list.element.list.element");
        assert!(leaf.encodings().any(|e| e == parquet::basic::Encoding::BYTE_STREAM_SPLIT));
        assert!(leaf.dictionary_page_offset().is_none());
    }
    Ok(())
}

#[test]
fn values_that_are_no_embeddings_of_one_width_are_refused() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let rows = rows_of(&[1, 1], 2, &[0]);
    for (values, width) in [(&[0.0; 3][..], 2), (&[0.0; 3], 3), (&[0.0], 0)] {
        let mut writer = EmbeddingWriter::create(&path, EmbeddingDtype::F32, 1)?;
        writer.push(&rows.documents.get(0), rows.chunks(0), 2)?;
        let result = writer.push(&rows.documents.get(1), values, width);
        assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
        drop(writer);
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
    write_scores(&path, &crate::parts::ScoreRows::default(), None, 1)?;
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

/// Returns the values of the column of embeddings as arrow reads them.
fn values_of_lists(path: &Path) -> Result<Vec<u32>> {
    let batch = PartReader::open(path)?.read(&[EMBEDDINGS])?;
    let chunks = batch.column(0).as_list::<i32>().values().clone();
    let values = chunks.as_list::<i32>().values();
    let Some(halves) = values.as_primitive_opt::<Float16Type>() else {
        return Ok(to_bits(values.as_primitive::<Float32Type>().values()));
    };
    Ok(to_bits(halves.unary::<_, Float32Type>(half::f16::to_f32).values()))
}

#[test]
fn blocks_hold_what_the_lists_hold() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let bits: Vec<u32> = (0..9973)
        .map(|i: u16| (f32::from(i).sin() * 2f32.powf(f32::from(i % 40) - 20.0)).to_bits())
        .collect();
    // 3,000 documents with 300 values fill several pages; 25,001 documents fill two row groups.
    for (count, hidden_size) in [(0, 3), (1, 1), (5, 1), (3000, 300), (25_001, 2)] {
        let chunks: Vec<usize> = (0..count).map(|i| [1, 1, 0, 3, 1, 0][i * i % 6]).collect();
        let rows = rows_of(&chunks, hidden_size, &bits);
        for dtype in [EmbeddingDtype::F32, EmbeddingDtype::F16] {
            write_embeddings(&path, &rows, dtype, 1)?;
            let expected = values_of_lists(&path)?;
            for limit in [usize::MAX, 1000, 126, 7] {
                let mut scan = EmbeddingScan::open(&path)?;
                assert_eq!(scan.documents, rows.documents);
                let (mut all_offsets, mut all_values) = (vec![0], Vec::new());
                let (mut offsets, mut values) = (Vec::new(), Vec::new());
                while all_offsets.len() <= count {
                    scan.next(limit, &mut offsets, &mut values)?;
                    assert!((1..=limit).contains(&(offsets.len() - 1)));
                    let before = all_offsets[all_offsets.len() - 1];
                    all_offsets.extend(offsets[1..].iter().map(|offset| before + offset));
                    all_values.extend(to_bits(&values));
                }
                scan.next(limit, &mut offsets, &mut values)?;
                assert_eq!((&offsets[..], &values[..]), (&[0][..], &[][..]));
                assert_eq!(all_offsets, rows.chunk_offsets);
                assert!(all_values == expected, "{count} documents of {hidden_size}, {dtype:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_part_that_holds_more_or_less_than_it_says_is_an_error() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("part");
    let rows = rows_of(&[1, 0, 2], 4, &[0]);
    for hidden_size in ["1", "2", "3", "5", "12"] {
        let mut writer = EmbeddingWriter::create(&path, EmbeddingDtype::F32, 1)?;
        for (i, document) in rows.documents.iter().enumerate() {
            writer.push(&document, rows.chunks(i), 4)?;
        }
        writer.write_slice()?;
        let pair = KeyValue::new(HIDDEN_SIZE.into(), hidden_size.to_owned());
        writer.writer.append_key_value_metadata(pair);
        checked::finish(writer.writer)?;
        let result = read_embeddings(&path);
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{hidden_size}: {result:?}");
    }
    Ok(())
}

#[test]
fn values_that_round_to_infinity_are_not_finite() {
    let bound = 65_520_f32;
    for value in [0.0, 65_504.0, bound.next_down(), bound, bound.next_up(), f32::MAX, f32::NAN] {
        for value in [value, -value] {
            for dtype in [EmbeddingDtype::F32, EmbeddingDtype::F16, EmbeddingDtype::Bf16InF32] {
                let mut rounded = [value];
                round_to(&mut rounded, dtype);
                assert_eq!(is_finite_in(value, dtype), rounded[0].is_finite(), "{value} {dtype:?}");
            }
        }
    }
}
