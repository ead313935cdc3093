//! Reads PyTorch's state dicts (`.pt`, `.pth`, Lightning's `.ckpt`): zip files of one pickle and
//! the bytes of every storage. It executes nothing in a file and trusts no size in it: entries must
//! be stored uncompressed and lie within the file.

mod pickle;

use std::collections::{BTreeMap, HashSet};
use std::io::{Cursor, copy, sink};
use std::ops::Range;

use safetensors::Dtype;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

use self::pickle::Pickled;
use super::weights::{HeadWeights, KnownLayers, Stored, parse_tensors, wrong_type};

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
    parse_tensors(&names, &mut |name| file.locate(name), known)
}

/// A file of which the pickle is read, and tensors only as they are asked for.
struct StateDict<'a> {
    bytes: &'a [u8],
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// Folder of the entries: `archive/` or another.
    folder: String,
    objects: Vec<Pickled>,
    /// Places of the objects that describe tensors.
    tensors: BTreeMap<String, usize>,
    checked: HashSet<String>,
    /// Bytes left for further tensors, of which several may point to one storage.
    left: usize,
}

impl<'a> StateDict<'a> {
    /// Reads the pickle of the zip file `bytes`. Refuses big-endian files.
    fn open(bytes: &'a [u8]) -> Result<Self, String> {
        // The file begins with its first entry. If the reader had to find that out, it would
        // mistake the directory's second header for the first when the first has 76 bytes (a name
        // of 21 characters before `.pt`), the size of what PyTorch puts between directory and end.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut archive = ZipArchive::with_config(config, Cursor::new(bytes))
            .map_err(|e| format!("cannot be read as a zip file: {e}"))?;
        let folder = find_folder(&archive)?;
        if let Some(order) = entry_range(bytes, &mut archive, &format!("{folder}byteorder"))?
            && bytes[order.clone()] != *b"little"
        {
            return Err("was written on a big-endian machine".into());
        }
        let pickled = entry_range(bytes, &mut archive, &format!("{folder}{PICKLE}"))?
            .ok_or_else(|| format!("has no entry `{PICKLE}`"))?;
        if pickled.len() > MAX_PICKLE_BYTES {
            return Err(format!("its `{PICKLE}` has {} bytes", pickled.len()));
        }
        let fail = |e| format!("its `{PICKLE}` {e}");
        let (objects, place) = pickle::parse(&bytes[pickled]).map_err(fail)?;
        let tensors = find_tensors(&objects, place)?;
        let (checked, left) = (HashSet::new(), bytes.len().saturating_mul(MAX_FILE_SIZES));
        Ok(Self { bytes, archive, folder, objects, tensors, checked, left })
    }

    /// Returns the tensor called `name`, if there is one, after the type, size and checksum of its
    /// storage are checked. Counts its bytes towards [`MAX_FILE_SIZES`].
    fn locate(&mut self, name: &str) -> Result<Option<Stored<'a>>, String> {
        let Some(&place) = self.tensors.get(name) else { return Ok(None) };
        let Some(([class, key], [numel, offset], [shape, strides])) =
            describe_tensor(&self.objects, place)
        else {
            let reason = "is not described as PyTorch does it, or is stored negated (save \
                          `tensor.resolve_conj().resolve_neg()`)";
            return Err(format!("tensor `{name}` {reason}"));
        };
        let dtype = match class {
            "torch.FloatStorage" => Dtype::F32,
            "torch.DoubleStorage" => Dtype::F64,
            "torch.HalfStorage" => Dtype::F16,
            "torch.BFloat16Storage" => Dtype::BF16,
            other => return Err(wrong_type(name, other)),
        };
        let path = format!("{}data/{key}", self.folder);
        let range = entry_range(self.bytes, &mut self.archive, &path)?
            .ok_or_else(|| format!("tensor `{name}`: the entry `{path}` is missing"))?;
        if numel.checked_mul(dtype.bitsize() / 8) != Some(range.len()) {
            return Err(format!(
                "tensor `{name}`: its storage is said to have {numel} values, `{path}` has {} bytes",
                range.len()
            ));
        }
        if self.checked.insert(key.to_owned()) {
            // The zip reader compares the checksum at the end of an entry.
            let fail = |e: &dyn std::fmt::Display| format!("the entry `{path}` is damaged: {e}");
            let mut entry = self.archive.by_name(&path).map_err(|e| fail(&e))?;
            copy(&mut entry, &mut sink()).map_err(|e| fail(&e))?;
        }
        let stored = Stored { dtype, shape, strides, offset, data: &self.bytes[range] };
        let left = stored.num_bytes().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| {
            format!(
                "tensor `{name}`: the shape {:?} claims more than the file holds, even if \
                 tensors share its values {MAX_FILE_SIZES} times",
                stored.shape
            )
        })?;
        Ok(Some(stored))
    }
}

/// Returns the folder, with its `/`, of the archive's only pickle.
fn find_folder(archive: &ZipArchive<Cursor<&[u8]>>) -> Result<String, String> {
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

/// Returns the range of the entry `path` in `bytes`; `None` without such an entry. The entry must
/// be stored uncompressed and lie within the file.
fn entry_range(
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

/// Returns the places of the tensors of the state dict at `place`, or of one in it under a key of
/// [`WRAPPERS`].
fn find_tensors(objects: &[Pickled], place: usize) -> Result<BTreeMap<String, usize>, String> {
    let dict = |place: usize| match &objects[place] {
        Pickled::Dict(items) => Some(items),
        _ => None,
    };
    let mut items = dict(place).ok_or("is not a state dict but another object")?;
    // The number of steps is bounded, because a dict may hold itself.
    for _ in WRAPPERS {
        let wrapped = items.iter().find_map(|(key, value)| match &objects[*key] {
            Pickled::Text(key) if WRAPPERS.contains(&key.as_str()) => dict(*value),
            _ => None,
        });
        items = wrapped.unwrap_or(items);
    }
    let mut tensors = BTreeMap::new();
    for &(key, value) in items {
        if !matches!(objects[value], Pickled::Call(..)) {
            continue; // numbers, texts and metadata
        }
        let Pickled::Text(name) = &objects[key] else {
            return Err("has a tensor whose name is not a text".into());
        };
        if tensors.insert(name.clone(), value).is_some() {
            return Err(format!("tensor `{name}` is there twice"));
        }
    }
    if tensors.is_empty() {
        return Err(format!("holds no tensors, nor a state dict under {}", WRAPPERS.join(", ")));
    }
    Ok(tensors)
}

/// Class (such as `torch.FloatStorage`) and key of the storage of a tensor, its number of values
/// and the place of the first, and the shape and strides of the tensor.
type Description<'a> = ([&'a str; 2], [usize; 2], [Vec<usize>; 2]);

/// Parses the call `torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, ...)`, which
/// may be the first argument of `_rebuild_parameter`. Returns `None` for values that PyTorch
/// negates or conjugates when it reads them.
fn describe_tensor(objects: &[Pickled], place: usize) -> Option<Description<'_>> {
    let tuple = |place: usize| match &objects[place] {
        Pickled::Tuple(parts) => Some(parts.as_slice()),
        _ => None,
    };
    let size = |place: usize| match objects[place] {
        Pickled::Integer(size) => usize::try_from(size).ok(),
        _ => None,
    };
    let sizes = |place: usize| -> Option<Vec<usize>> {
        tuple(place)?.iter().map(|&part| size(part)).collect()
    };
    let call = |place: usize| {
        let Pickled::Call(callee, arguments) = objects[place] else { return None };
        let Pickled::Class(function) = &objects[callee] else { return None };
        Some((function.as_str(), tuple(arguments)?))
    };
    let (mut function, mut arguments) = call(place)?;
    if function == "torch._utils._rebuild_parameter" {
        (function, arguments) = call(*arguments.first()?)?;
    }
    if function != "torch._utils._rebuild_tensor_v2" {
        return None;
    }
    let (&[storage, offset, shape, strides], more) = arguments.split_first_chunk()?;
    // After `requires_grad` and `backward_hooks`, `{"neg": True}` or `{"conj": True}`.
    match more.get(2).map(|&bits| &objects[bits]) {
        None | Some(Pickled::None) => {}
        Some(Pickled::Dict(bits)) if bits.is_empty() => {}
        _ => return None,
    }
    let Pickled::Stored(storage) = objects[storage] else { return None };
    // ("storage", class, key, device, number of values)
    let &[_, class, key, _, numel] = tuple(storage)? else { return None };
    let (Pickled::Class(class), Pickled::Text(key)) = (&objects[class], &objects[key]) else {
        return None;
    };
    Some(([class, key], [size(numel)?, size(offset)?], [sizes(shape)?, sizes(strides)?]))
}
