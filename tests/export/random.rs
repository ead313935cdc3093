//! Columns of odd types with pseudo-random values.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, FixedSizeListArray,
    ListArray, MapArray, NullArray, RecordBatch, StringArray, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use arrow::error::ArrowError;
use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};

/// Types that Parquet holds, nested up to three deep.
pub(crate) fn data_type() -> impl Strategy<Value = DataType> {
    let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
    let leaf = proptest::sample::select(vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::UInt16,
        DataType::Int64,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::FixedSizeBinary(3),
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        DataType::Decimal128(20, 4),
        dictionary(DataType::Utf8),
    ]);
    leaf.prop_recursive(3, 8, 3, |inner| {
        let field = |name: &str, data_type, is_nullable| {
            // A column of type Null is all null.
            let is_nullable = is_nullable || data_type == DataType::Null;
            Arc::new(Field::new(name, data_type, is_nullable))
        };
        prop_oneof![
            (inner.clone(), any::<bool>())
                .prop_map(move |(t, n)| DataType::List(field("element", t, n))),
            (inner.clone(), any::<bool>())
                .prop_map(move |(t, n)| DataType::LargeList(field("item", t, n))),
            // The parquet reader refuses fixed lists of required values below a null struct.
            inner.clone().prop_map(move |t| DataType::FixedSizeList(field("element", t, true), 2)),
            proptest::collection::vec((inner.clone(), any::<bool>()), 1..4).prop_map(
                move |children| {
                    let children = children.into_iter().enumerate();
                    DataType::Struct(
                        children.map(|(i, (t, n))| field(&format!("c{i}"), t, n)).collect(),
                    )
                }
            ),
            inner.prop_map(move |t| {
                let entries: Fields =
                    vec![field("key", DataType::Utf8, false), field("value", t, true)].into();
                DataType::Map(
                    Arc::new(Field::new("entries", DataType::Struct(entries), false)),
                    false,
                )
            }),
        ]
    })
}

/// A batch of nullable columns of `types`; the first struct is called `metadata`.
pub(crate) fn batch(
    types: &[DataType],
    num_rows: usize,
    seed: u64,
) -> Result<RecordBatch, ArrowError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let metadata = types.iter().position(|t| matches!(t, DataType::Struct(_)));
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (i, data_type) in types.iter().enumerate() {
        let name = if metadata == Some(i) { "metadata".into() } else { format!("column{i}") };
        let note = [("unit".to_string(), i.to_string())];
        fields.push(Field::new(name, data_type.clone(), true).with_metadata(note));
        columns.push(array(data_type, num_rows, true, &mut rng)?);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn array(
    data_type: &DataType,
    len: usize,
    is_nullable: bool,
    rng: &mut ChaCha8Rng,
) -> Result<ArrayRef, ArrowError> {
    let nulls: Option<NullBuffer> =
        is_nullable.then(|| (0..len).map(|_| rng.random_bool(0.8)).collect());
    let is_valid = |i: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
    Ok(match data_type {
        DataType::Null => Arc::new(NullArray::new(len)),
        DataType::Boolean => {
            Arc::new(BooleanArray::new((0..len).map(|i| i % 3 == 0).collect(), nulls))
        }
        DataType::FixedSizeBinary(size) => {
            let bytes: Vec<u8> = (0..len * 3).map(|_| rng.random()).collect();
            Arc::new(FixedSizeBinaryArray::try_new(*size, bytes.into(), nulls)?)
        }
        DataType::Decimal128(precision, scale) => {
            let values = (0..len).map(|_| i128::from(rng.random::<i64>())).collect();
            let decimals = Decimal128Array::try_new(values, nulls)?;
            Arc::new(decimals.with_precision_and_scale(*precision, *scale)?)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(_, _) => {
            let texts = (0..len).map(|i| is_valid(i).then(|| text(rng)));
            cast(&texts.collect::<StringArray>(), data_type)?
        }
        DataType::Binary => {
            let texts = (0..len).map(|i| is_valid(i).then(|| text(rng)));
            Arc::new(texts.collect::<BinaryArray>())
        }
        DataType::List(field) => Arc::new(list(field, len, nulls, rng)?),
        DataType::LargeList(field) => cast(&list(field, len, nulls, rng)?, data_type)?,
        DataType::FixedSizeList(field, size) => {
            let values = array(field.data_type(), len * 2, field.is_nullable(), rng)?;
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *size, values, nulls)?)
        }
        DataType::Struct(fields) => Arc::new(structs(fields, len, nulls, rng)?),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("entries are structs".into()));
            };
            let (offsets, num_values) = offsets(len, nulls.as_ref(), rng);
            let values = structs(fields, num_values, None, rng)?;
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, values, nulls, false)?)
        }
        // Numbers and what is stored as one.
        DataType::Float16 => {
            let numbers = (0..len).map(|i| is_valid(i).then(|| rng.random_range(0..2048u64)));
            cast(&numbers.collect::<UInt64Array>(), data_type)?
        }
        _ => {
            let numbers = (0..len).map(|i| is_valid(i).then(|| rng.random_range(0..100u64)));
            let numbers = cast(&numbers.collect::<UInt64Array>(), &DataType::Int64)?;
            let width = data_type.primitive_width();
            let numbers =
                if width == Some(4) { cast(&numbers, &DataType::Int32)? } else { numbers };
            cast(&numbers, data_type)?
        }
    })
}

/// `len` printable characters.
pub(crate) fn ascii(seed: u64, len: usize) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| char::from(rng.random_range(b' '..=b'~'))).collect()
}

fn text(rng: &mut ChaCha8Rng) -> String {
    let len = rng.random_range(0..20);
    (0..len).map(|_| ['a', 'é', '日', '🙂', '\n'][rng.next_u32() as usize % 5]).collect()
}

/// Offsets of lists of up to three values and the number of all values; a null list has none.
fn offsets(
    len: usize,
    nulls: Option<&NullBuffer>,
    rng: &mut ChaCha8Rng,
) -> (OffsetBuffer<i32>, usize) {
    let is_valid = |i: usize| nulls.is_none_or(|nulls| nulls.is_valid(i));
    let lengths: Vec<usize> =
        (0..len).map(|i| if is_valid(i) { rng.random_range(0..4) } else { 0 }).collect();
    let num_values = lengths.iter().sum();
    (OffsetBuffer::from_lengths(lengths), num_values)
}

fn list(
    field: &FieldRef,
    len: usize,
    nulls: Option<NullBuffer>,
    rng: &mut ChaCha8Rng,
) -> Result<ListArray, ArrowError> {
    let (offsets, num_values) = offsets(len, nulls.as_ref(), rng);
    let values = array(field.data_type(), num_values, field.is_nullable(), rng)?;
    // Some values before the first list, as a slice of a longer array has them.
    let before = array(field.data_type(), 2, field.is_nullable(), rng)?;
    let values = concat(&[before.as_ref(), values.as_ref()])?;
    let offsets = OffsetBuffer::new(offsets.iter().map(|offset| offset + 2).collect());
    ListArray::try_new(Arc::clone(field), offsets, values, nulls)
}

fn structs(
    fields: &Fields,
    len: usize,
    nulls: Option<NullBuffer>,
    rng: &mut ChaCha8Rng,
) -> Result<StructArray, ArrowError> {
    let children = fields
        .iter()
        .map(|field| array(field.data_type(), len, field.is_nullable(), rng))
        .collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new(fields.clone(), children, nulls)
}
