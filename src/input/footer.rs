//! Footers of Parquet files that the `parquet` crate does not take: those with keys or values of
//! other programs that are not UTF-8, and those of encrypted files.
//!
//! Owns just enough of the Thrift compact protocol to find these. A footer is a Thrift struct, of
//! which field 5 lists keys with values and field 8 names the cipher.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use super::content::Content;

/// Bytes behind the footer: its length, and a magic word.
const TAIL_BYTES: usize = 8;
/// The magic word of a file whose footer is encrypted.
const ENCRYPTED: &[u8] = b"PARE";

/// The key of the schema in Arrow's terms.
const ARROW_SCHEMA: &[u8] = b"ARROW:schema";

/// What a message says of an encrypted file.
pub(super) const IS_ENCRYPTED: &str =
    "it is encrypted, which polysift cannot read; decrypt it first";

const KEY_VALUES: i64 = 5;
const CIPHER: i64 = 8;

/// What ends a struct, in place of a field's kind.
const STOP: u8 = 0;

/// Deepest nesting that is followed; Parquet's own is less than ten.
const MAX_DEPTH: usize = 32;

/// The footer of `content`, with `?` for what is not UTF-8 in its keys and values.
pub(super) fn load(
    content: &Content,
    options: ArrowReaderOptions,
) -> ParquetResult<ArrowReaderMetadata> {
    ArrowReaderMetadata::load(content, options.clone()).or_else(|error| match repaired(content) {
        Some(metadata) => ArrowReaderMetadata::try_new(Arc::new(metadata), options),
        None if is_encrypted(content) => Err(ParquetError::General(IS_ENCRYPTED.into())),
        None => Err(error),
    })
}

/// The footer of `content` if it can be read once its keys and values are mended.
fn repaired(content: &Content) -> Option<ParquetMetaData> {
    let mut footer = bytes(content)?.0;
    let fields = top_level(&footer)?.into_iter().filter(|field| field.id == KEY_VALUES);
    let strings: Vec<Range<usize>> = fields.flat_map(|field| field.strings).collect();
    let mut mended = Vec::new();
    for at in &strings {
        let text = &mut footer[at.clone()];
        let bad = not_utf8(text);
        if !bad.is_empty() {
            let before = text.to_vec();
            for byte in bad {
                text[byte] = b'?';
            }
            mended.push((before, text.to_vec()));
        }
    }
    let is_schema = |pair: &&[Range<usize>]| &footer[pair[0].clone()] == ARROW_SCHEMA;
    if let Some([_, schema]) = strings.windows(2).find(is_schema) {
        let schema = schema.clone();
        let arrow = mended_schema(&footer[schema.clone()], &mended).unwrap_or_default();
        if arrow.len() == schema.len() {
            footer[schema].copy_from_slice(arrow.as_bytes());
        }
    }
    (!mended.is_empty()).then(|| ParquetMetaDataReader::decode_metadata(&footer).ok())?
}

/// Arrow's own schema in base64, which holds the keys and values once more.
fn mended_schema(base64: &[u8], mended: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    let mut schema = BASE64_STANDARD.decode(base64).ok()?;
    for (before, after) in mended {
        // As a flatbuffer writes strings, so that nothing else is taken for one.
        let written = [&(before.len() as u32).to_le_bytes(), &before[..]].concat();
        let found: Vec<usize> =
            memmem(&schema, &written).map(|at| at + written.len() - before.len()).collect();
        for at in found {
            schema[at..at + after.len()].copy_from_slice(after);
        }
    }
    Some(BASE64_STANDARD.encode(schema))
}

/// Where `part` is in `bytes`.
fn memmem<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes
        .windows(part.len())
        .enumerate()
        .filter(move |(_, window)| *window == part)
        .map(|(at, _)| at)
}

/// Whether the footer of `content` or columns of it are encrypted.
pub(super) fn is_encrypted(content: &Content) -> bool {
    bytes(content).is_some_and(|(footer, magic)| {
        magic == ENCRYPTED
            || top_level(&footer).is_some_and(|fields| fields.iter().any(|f| f.id == CIPHER))
    })
}

/// The footer, and the magic word behind it.
fn bytes(content: &Content) -> Option<(Vec<u8>, Vec<u8>)> {
    let file_bytes = content.len();
    let tail_at = file_bytes.checked_sub(TAIL_BYTES as u64)?;
    let tail = content.get_bytes(tail_at, TAIL_BYTES).ok()?;
    let (length, magic) = tail.split_first_chunk()?;
    let length = u32::from_le_bytes(*length);
    let footer = content.get_bytes(tail_at.checked_sub(length.into())?, length as usize).ok()?;
    Some((footer.to_vec(), magic.to_vec()))
}

/// The bytes of `text` that are not UTF-8.
fn not_utf8(text: &[u8]) -> Vec<usize> {
    let (mut bad, mut end) = (Vec::new(), 0);
    for chunk in text.utf8_chunks() {
        end += chunk.valid().len();
        bad.extend(end..end + chunk.invalid().len());
        end += chunk.invalid().len();
    }
    bad
}

/// A field of a struct.
struct ThriftField {
    id: i64,
    /// Where the strings in it lie.
    strings: Vec<Range<usize>>,
}

/// The fields of the struct that `bytes` begin with.
fn top_level(bytes: &[u8]) -> Option<Vec<ThriftField>> {
    let mut thrift = Thrift { bytes, at: 0, strings: Vec::new() };
    let mut fields = Vec::new();
    thrift.fields(0, |thrift, id| {
        fields.push(ThriftField { id, strings: std::mem::take(&mut thrift.strings) });
    })?;
    Some(fields)
}

/// Goes over values of the compact protocol; `None` where they are not such.
struct Thrift<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Where the strings lie so far.
    strings: Vec<Range<usize>>,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn jump(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        self.at = end;
        (end <= self.bytes.len()).then_some(())
    }

    /// Id and kind of the next field of a struct; the kind is [`STOP`] at its end.
    fn field(&mut self, last_id: i64) -> Option<(i64, u8)> {
        let header = self.byte()?;
        if header == STOP {
            return Some((last_id, STOP));
        }
        let id = match header >> 4 {
            0 => {
                let zigzag = self.varint()?;
                let id = i64::try_from(zigzag >> 1).ok()?;
                if zigzag & 1 == 0 { id } else { !id }
            }
            more => last_id.checked_add(more.into())?,
        };
        Some((id, header & 0xF))
    }

    /// Goes over the fields of a struct, each of which `each` is called after.
    fn fields(&mut self, depth: usize, mut each: impl FnMut(&mut Self, i64)) -> Option<()> {
        let mut last_id = 0;
        loop {
            let (id, kind) = self.field(last_id)?;
            if kind == STOP {
                return Some(());
            }
            self.skip(kind, depth)?;
            each(self, id);
            last_id = id;
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth == MAX_DEPTH {
            return None;
        }
        match kind {
            1 | 2 => Some(()), // a boolean, which the kind tells
            3 => self.jump(1),
            4..=6 => self.varint().map(drop),
            7 => self.jump(8),
            8 => {
                let length = self.varint()?;
                let start = self.at;
                self.jump(length)?;
                self.strings.push(start..self.at);
                Some(())
            }
            9 | 10 => {
                let header = self.byte()?;
                let len = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
                // A boolean among others takes a byte.
                let item = if matches!(header & 0xF, 1 | 2) { 3 } else { header & 0xF };
                (0..len).try_for_each(|_| self.skip(item, depth + 1))
            }
            12 => self.fields(depth + 1, |_, _| ()),
            // Parquet has no maps.
            _ => None,
        }
    }
}
