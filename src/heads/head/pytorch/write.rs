//! Writes state dicts that `torch.load(weights_only=True)` reads.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, System, ZipWriter};

use crate::head::weights::{NamedTensor, contiguous_strides, le_bytes};

/// Folder of the entries. PyTorch uses the file's name; the bytes must not depend on it.
const FOLDER: &str = "archive";
const VERSION: &[u8] = b"3\n";
/// Alignment of entries in PyTorch's files, which lets them be mapped into memory.
const ALIGNMENT: u16 = 64;

/// Writes the file of an `OrderedDict` of f32 tensors. The entries have no date and no owner.
pub(in crate::head) fn to_bytes(tensors: &[NamedTensor<'_>]) -> Result<Vec<u8>, String> {
    let mut entries = vec![
        ("data.pkl".to_owned(), pickle(tensors)?),
        ("byteorder".to_owned(), b"little".to_vec()),
        ("version".to_owned(), VERSION.to_vec()),
    ];
    for (key, (_, _, values)) in tensors.iter().enumerate() {
        entries.push((format!("data/{key}"), le_bytes(values)));
    }
    let options = SimpleFileOptions::DEFAULT
        .compression_method(CompressionMethod::Stored)
        .system(System::Unix)
        .with_alignment(ALIGNMENT);
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        let fail = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        writer.start_file(format!("{FOLDER}/{name}"), options).map_err(|e| fail(&e))?;
        writer.write_all(&content).map_err(|e| fail(&e))?;
    }
    writer.finish().map(Cursor::into_inner).map_err(|e| e.to_string())
}

/// Returns the pickle, protocol 2, of an `OrderedDict` of tensors, each with its own storage.
fn pickle(tensors: &[NamedTensor<'_>]) -> Result<Vec<u8>, String> {
    let mut pickle = Pickle(b"\x80\x02".to_vec());
    pickle.ordered_dict();
    pickle.op(b'('); // mark
    for (key, (name, shape, values)) in tensors.iter().enumerate() {
        pickle.text(name)?;
        pickle.global("torch._utils", "_rebuild_tensor_v2");
        pickle.op(b'(');
        pickle.op(b'(');
        pickle.text("storage")?;
        pickle.global("torch", "FloatStorage");
        pickle.text(&key.to_string())?;
        pickle.text("cpu")?;
        pickle.integer(values.len())?;
        pickle.op(b't'); // tuple from the mark on
        pickle.op(b'Q'); // the storage of that name
        pickle.integer(0)?; // offset
        for sizes in [shape.clone(), contiguous_strides(shape)] {
            pickle.op(b'(');
            sizes.into_iter().try_for_each(|size| pickle.integer(size))?;
            pickle.op(b't');
        }
        pickle.op(0x89); // requires no gradient
        pickle.ordered_dict(); // has no hooks
        pickle.op(b't');
        pickle.op(b'R'); // call
    }
    pickle.op(b'u'); // set the items from the mark on
    pickle.op(b'.'); // stop
    Ok(pickle.0)
}

struct Pickle(Vec<u8>);

impl Pickle {
    fn op(&mut self, code: u8) {
        self.0.push(code);
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.extend(format!("c{module}\n{name}\n").into_bytes());
    }

    fn ordered_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.0.extend(b")R");
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        let length = u32::try_from(text.len()).map_err(|e| e.to_string())?;
        self.op(b'X');
        self.0.extend(length.to_le_bytes());
        self.0.extend(text.as_bytes());
        Ok(())
    }

    fn integer(&mut self, value: usize) -> Result<(), String> {
        let value = i32::try_from(value).map_err(|_| format!("{value} values are too many"))?;
        self.op(b'J');
        self.0.extend(value.to_le_bytes());
        Ok(())
    }
}
