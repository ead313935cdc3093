//! PyTorch's state dicts: zip files of one pickle and the bytes of every storage.
//!
//! This module reads them (`.pt`, `.pth`, Lightning's `.ckpt`). It executes nothing in a file and
//! trusts no size in it: entries must be stored uncompressed and lie within the file.

mod pickle;

use std::collections::{BTreeMap, HashSet};
use std::io::{Cursor, copy, sink};
use std::ops::Range;

use candle_core::pickle::Object;
use safetensors::Dtype;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

use super::weights::{HeadWeights, KnownLayers, Stored, not_a_float, parse};

/// Name of the entry that describes the others.
const PICKLE: &str = "data.pkl";
/// Maximum size of the pickle. The pickle of a model with a thousand tensors has about 100 KB.
const MAX_PICKLE_BYTES: usize = 8 << 20;
/// Maximum size of the tensors that are read, in sizes of the file. They take more than the file if
/// they share storages, as tied layers do.
const MAX_FILE_SIZES: usize = 8;
/// Keys under which training loops store the state dict beside other things.
const WRAPPERS: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// Reads the weights of the head in the zip file `bytes`; the error text says what is wrong.
pub(super) fn read(bytes: &[u8], known: KnownLayers) -> Result<HeadWeights, String> {
    let mut file = StateDict::open(bytes)?;
    let names: Vec<String> = file.tensors.keys().cloned().collect();
    parse(&names, &mut |name| file.stored(name), known)
}

struct StateDict<'a> {
    bytes: &'a [u8],
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// Folder of the entries: `archive/` or another.
    folder: String,
    tensors: BTreeMap<String, Description>,
    checked: HashSet<String>,
    /// Bytes left for further tensors, of which several may point to one storage.
    left: usize,
}

struct Description {
    /// Class of the storage, which names the type: `FloatStorage`.
    storage_class: String,
    key: String,
    numel: usize,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// True if PyTorch negates or conjugates the values when it reads them.
    is_lazy: bool,
}

impl<'a> StateDict<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, String> {
        // The file begins with its first entry. If the reader had to find that out, it would
        // mistake the directory's second header for the first when the first has 76 bytes (a name
        // of 21 characters before `.pt`), the size of what PyTorch puts between directory and end.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut archive = ZipArchive::with_config(config, Cursor::new(bytes))
            .map_err(|e| format!("cannot be read as a zip file: {e}"))?;
        let folder = folder(&archive)?;
        if let Some(order) = entry(bytes, &mut archive, &format!("{folder}byteorder"))?
            && bytes[order.clone()] != *b"little"
        {
            return Err("was written on a big-endian machine".into());
        }
        let pickled = entry(bytes, &mut archive, &format!("{folder}{PICKLE}"))?
            .ok_or_else(|| format!("has no entry `{PICKLE}`"))?;
        if pickled.len() > MAX_PICKLE_BYTES {
            return Err(format!("its `{PICKLE}` has {} bytes", pickled.len()));
        }
        let fail = |e| format!("its `{PICKLE}` {e}");
        let tensors = descriptions(pickle::parse(&bytes[pickled]).map_err(fail)?)?;
        let (checked, left) = (HashSet::new(), bytes.len().saturating_mul(MAX_FILE_SIZES));
        Ok(Self { bytes, archive, folder, tensors, checked, left })
    }

    fn stored(&mut self, name: &str) -> Result<Option<Stored<'a>>, String> {
        let Some(description) = self.tensors.get(name) else { return Ok(None) };
        let Description { storage_class, key, numel, offset, shape, strides, is_lazy } =
            description;
        if *is_lazy {
            let reason =
                "is stored negated or conjugated; save `tensor.resolve_conj().resolve_neg()`";
            return Err(format!("tensor `{name}` {reason}"));
        }
        let dtype = match storage_class.as_str() {
            "FloatStorage" => Dtype::F32,
            "DoubleStorage" => Dtype::F64,
            "HalfStorage" => Dtype::F16,
            "BFloat16Storage" => Dtype::BF16,
            other => return Err(not_a_float(name, other)),
        };
        let path = format!("{}data/{key}", self.folder);
        let range = entry(self.bytes, &mut self.archive, &path)?
            .ok_or_else(|| format!("tensor `{name}`: the entry `{path}` is missing"))?;
        if numel.checked_mul(dtype.bitsize() / 8) != Some(range.len()) {
            return Err(format!(
                "tensor `{name}`: its storage is said to have {numel} values, `{path}` has {} bytes",
                range.len()
            ));
        }
        if self.checked.insert(key.clone()) {
            // The zip reader compares the checksum at the end of an entry.
            let fail = |e: &dyn std::fmt::Display| format!("the entry `{path}` is damaged: {e}");
            let mut entry = self.archive.by_name(&path).map_err(|e| fail(&e))?;
            copy(&mut entry, &mut sink()).map_err(|e| fail(&e))?;
        }
        let stored = Stored {
            dtype,
            shape: shape.clone(),
            strides: strides.clone(),
            offset: *offset,
            data: &self.bytes[range],
        };
        let left = stored.num_bytes().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| {
            format!(
                "tensor `{name}`: the shape {shape:?} claims more than the file holds, even if \
                 tensors share its values {MAX_FILE_SIZES} times"
            )
        })?;
        Ok(Some(stored))
    }
}

/// Returns the folder, with its `/`, of the archive's only pickle.
fn folder(archive: &ZipArchive<Cursor<&[u8]>>) -> Result<String, String> {
    let mut folders = archive.file_names_raw().filter_map(|name| {
        let folder = std::str::from_utf8(name).ok()?.strip_suffix(PICKLE)?;
        (folder.is_empty() || folder.ends_with('/')).then_some(folder)
    });
    match (folders.next(), folders.next()) {
        (Some(folder), None) => Ok(folder.to_owned()),
        (None, _) => Err(format!("is a zip file without `{PICKLE}`, so not one of PyTorch")),
        (Some(_), Some(_)) => Err(format!("has several entries `{PICKLE}`")),
    }
}

/// Returns the range of the entry `path` in `bytes`; `None` without such an entry.
fn entry(
    bytes: &[u8],
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    path: &str,
) -> Result<Option<Range<usize>>, String> {
    let Some(index) = archive.index_for_name_raw(path.as_bytes()) else { return Ok(None) };
    let fail = |reason: String| format!("the entry `{path}` {reason}");
    let entry = archive.by_index_raw(index).map_err(|e| fail(format!("cannot be read: {e}")))?;
    let stored = entry.compression() == CompressionMethod::Stored && !entry.encrypted();
    if !stored || entry.size() != entry.compressed_size() {
        return Err(fail("is compressed; PyTorch stores its entries as they are".into()));
    }
    let range = entry.data_start().and_then(|start| {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
        (end <= bytes.len()).then_some(start..end)
    });
    range.map(Some).ok_or_else(|| fail("reaches beyond the file, which was cut".into()))
}

/// Returns the tensors of a state dict, or of one under a key of [`WRAPPERS`].
fn descriptions(object: Object) -> Result<BTreeMap<String, Description>, String> {
    let mut items = object.dict().map_err(|_| "is not a state dict but another object")?;
    let wrapped = items.iter().position(|(key, value)| {
        let wraps = |key: &str| WRAPPERS.contains(&key);
        matches!((key, value), (Object::Unicode(key), Object::Dict(_)) if wraps(key))
    });
    if let Some(at) = wrapped {
        return descriptions(items.swap_remove(at).1);
    }
    let mut tensors = BTreeMap::new();
    for (key, value) in items {
        if !matches!(value, Object::Reduce { .. }) {
            continue; // numbers, texts and metadata
        }
        let name = key.unicode().map_err(|_| "has a tensor whose name is not a text")?;
        let description = described(value)
            .ok_or_else(|| format!("tensor `{name}` is not described as PyTorch does it"))?;
        if tensors.insert(name.clone(), description).is_some() {
            return Err(format!("tensor `{name}` is there twice"));
        }
    }
    if tensors.is_empty() {
        return Err(format!("holds no tensors, nor a state dict under {}", WRAPPERS.join(", ")));
    }
    Ok(tensors)
}

/// Parses the arguments of `torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, ...)`,
/// which may be the first argument of `_rebuild_parameter`.
fn described(object: Object) -> Option<Description> {
    let (callable, args) = object.reduce().ok()?;
    let (_, function) = callable.class().ok()?;
    let mut args = args.tuple().ok()?.into_iter();
    if function == "_rebuild_parameter" {
        return described(args.next()?);
    }
    if function != "_rebuild_tensor_v2" {
        return None;
    }
    let storage = args.next()?.persistent_load().ok()?.tuple().ok()?;
    let offset = size(args.next()?)?;
    let shape = sizes(args.next()?)?;
    let strides = sizes(args.next()?)?;
    // After `requires_grad` and `backward_hooks`, a dict or nothing.
    let is_lazy = match args.nth(2) {
        None | Some(Object::None) => false,
        Some(bits) => bits.dict().ok()?.iter().any(|(bit, value)| {
            let is_known = matches!(bit, Object::Unicode(bit) if bit == "neg" || bit == "conj");
            is_known && matches!(value, Object::Bool(true))
        }),
    };
    // ("storage", class, key, device, number of values)
    let [_, class, key, _, numel] = <[Object; 5]>::try_from(storage).ok()?;
    Some(Description {
        storage_class: class.class().ok()?.1,
        key: key.unicode().ok()?,
        numel: size(numel)?,
        offset,
        shape,
        strides,
        is_lazy,
    })
}

fn size(object: Object) -> Option<usize> {
    usize::try_from(object.int_or_long().ok()?).ok()
}

fn sizes(object: Object) -> Option<Vec<usize>> {
    object.tuple().ok()?.into_iter().map(size).collect()
}
