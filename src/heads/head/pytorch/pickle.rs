//! Reads PyTorch's pickles without executing or trusting them.
//!
//! An instruction makes one object at most, and objects name each other by their places. So a
//! pickle takes memory in proportion to its bytes, however often it repeats and nests its objects.

use std::collections::HashMap;

/// Maximum number of objects; a tensor needs about twenty.
const MAX_OBJECTS: usize = 1 << 21;
/// Maximum characters of a name in a message.
const MESSAGE_CHARS: usize = 200;

const ORDERED_DICT: &str = "collections.OrderedDict";
/// Names allowed in a state dict, as with `torch.load(weights_only=True)`.
const CLASSES: [&str; 3] =
    [ORDERED_DICT, "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"];

/// An object of a pickle, with the places of its parts.
#[derive(Debug)]
pub(super) enum Pickled {
    Integer(i64),
    Text(String),
    /// A class or function, by module and name.
    Class(String),
    Tuple(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    /// A call: places of the class or function, and of its arguments.
    Call(usize, usize),
    /// A storage outside the pickle: place of the tuple that names it.
    Stored(usize),
    None,
    /// Nothing that describes a tensor: a bool, a float or a list, whatever it holds.
    Other,
}

/// Returns the objects that the pickle `bytes` makes, and the place of the one that it describes;
/// the error text says what is wrong.
pub(super) fn parse(bytes: &[u8]) -> Result<(Vec<Pickled>, usize), String> {
    let mut machine = Machine { rest: bytes, ..Machine::default() };
    loop {
        let [code] = machine.take_array()?;
        match code {
            b'.' => return machine.pop().map(|place| (machine.objects, place)),
            0x80 => machine.take_array().map(|[_version]| ())?,
            b'(' => machine.marks.push(machine.stack.len()),
            b'q' => machine.take_array().and_then(|[id]| machine.put_memo(u32::from(id)))?,
            b'r' => machine.take_array().and_then(|id| machine.put_memo(u32::from_le_bytes(id)))?,
            b'h' => machine.take_array().and_then(|[id]| machine.get_memo(u32::from(id)))?,
            b'j' => machine.take_array().and_then(|id| machine.get_memo(u32::from_le_bytes(id)))?,
            // Items of a list, and attributes of an object.
            b'a' | b'b' => machine.pop().map(|_| ())?,
            b'e' => machine.pop_to_mark().map(|_| ())?,
            b's' => machine.pop_many(2).and_then(|items| machine.set_items(&items))?,
            b'u' => machine.pop_to_mark().and_then(|items| machine.set_items(&items))?,
            _ => machine.make_object(code).and_then(|object| machine.push_object(object))?,
        }
    }
}

/// The state of the unpickling.
#[derive(Default)]
struct Machine<'a> {
    rest: &'a [u8],
    objects: Vec<Pickled>,
    /// Places of objects.
    stack: Vec<usize>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, usize>,
}

impl<'a> Machine<'a> {
    /// Makes the object of the instruction `code`; fails for one that no state dict has. Comments
    /// name the instructions as Python's `pickletools` does.
    fn make_object(&mut self, code: u8) -> Result<Pickled, String> {
        Ok(match code {
            b'K' => self.take_array().map(|[byte]| Pickled::Integer(byte.into()))?, // BININT1
            b'M' => Pickled::Integer(u16::from_le_bytes(self.take_array()?).into()), // BININT2
            b'J' => Pickled::Integer(i32::from_le_bytes(self.take_array()?).into()), // BININT
            // LONG1; the sign of short ones is not read, since no size is negative.
            0x8a => {
                let [len] = self.take_array()?;
                if len > 8 {
                    return Err(format!("has an integer of {len} bytes"));
                }
                let bytes = self.take_bytes(len.into())?.iter().rev();
                Pickled::Integer(bytes.fold(0, |integer, &byte| integer << 8 | i64::from(byte)))
            }
            // BINUNICODE
            b'X' => {
                let len = u32::from_le_bytes(self.take_array()?);
                let text =
                    str::from_utf8(self.take_bytes(len as usize)?).map_err(|e| e.to_string())?;
                Pickled::Text(text.to_owned())
            }
            b'c' => Pickled::Class(checked_class(self.take_line()?, self.take_line()?)?), // GLOBAL
            b'}' => Pickled::Dict(Vec::new()),  // EMPTY_DICT
            b')' => Pickled::Tuple(Vec::new()), // EMPTY_TUPLE
            b't' => Pickled::Tuple(self.pop_to_mark()?), // TUPLE
            // TUPLE1 to TUPLE3
            0x85..=0x87 => Pickled::Tuple(self.pop_many(usize::from(code - 0x84))?),
            b'Q' => Pickled::Stored(self.pop()?), // BINPERSID
            // REDUCE, NEWOBJ
            b'R' | 0x81 => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                match &self.objects[callee] {
                    Pickled::Class(name) if name == ORDERED_DICT => Pickled::Dict(Vec::new()),
                    _ => Pickled::Call(callee, arguments),
                }
            }
            b'G' => self.take_array().map(|_: [u8; 8]| Pickled::Other)?, // BINFLOAT
            b'N' => Pickled::None,                                       // NONE
            0x88 | 0x89 | b']' => Pickled::Other, // NEWTRUE, NEWFALSE, EMPTY_LIST
            _ => return Err(format!("has the instruction {code:#04x}, which no state dict has")),
        })
    }

    /// Takes the next `N` bytes of the pickle.
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or("ends too early")?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take_bytes(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or("ends too early")?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Takes the bytes up to the next newline, and skips the newline.
    fn take_line(&mut self) -> Result<&'a [u8], String> {
        let len = self.rest.iter().position(|&byte| byte == b'\n').ok_or("ends too early")?;
        let line = self.take_bytes(len + 1)?;
        Ok(&line[..len])
    }

    /// Stores `object`, and puts its place on the stack.
    fn push_object(&mut self, object: Pickled) -> Result<(), String> {
        if self.objects.len() == MAX_OBJECTS {
            return Err(format!("describes more than {MAX_OBJECTS} objects"));
        }
        self.stack.push(self.objects.len());
        self.objects.push(object);
        Ok(())
    }

    /// Takes the place on top of the stack.
    fn pop(&mut self) -> Result<usize, String> {
        self.stack.pop().ok_or_else(|| "takes from an empty stack".into())
    }

    /// Takes the `count` places on top of the stack, in the order in which they were put there.
    fn pop_many(&mut self, count: usize) -> Result<Vec<usize>, String> {
        let left = self.stack.len().checked_sub(count).ok_or("takes from an empty stack")?;
        Ok(self.stack.split_off(left))
    }

    /// Takes the last mark, and all places that were put on the stack after it.
    fn pop_to_mark(&mut self) -> Result<Vec<usize>, String> {
        let mark = self.marks.pop().ok_or("has no mark where one is needed")?;
        self.pop_many(self.stack.len().saturating_sub(mark))
    }

    /// Adds `items`, keys and values by turns, to the dict on top of the stack.
    fn set_items(&mut self, items: &[usize]) -> Result<(), String> {
        let dict = *self.stack.last().ok_or("takes from an empty stack")?;
        let Pickled::Dict(known) = &mut self.objects[dict] else {
            return Err("sets items of another object than a dict".into());
        };
        known.extend(items.as_chunks().0.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    /// Remembers the place on top of the stack, which stays there, as `id`.
    fn put_memo(&mut self, id: u32) -> Result<(), String> {
        self.memo.insert(id, *self.stack.last().ok_or("takes from an empty stack")?);
        Ok(())
    }

    /// Puts the place that is remembered as `id` on the stack.
    fn get_memo(&mut self, id: u32) -> Result<(), String> {
        let place = self.memo.get(&id).ok_or_else(|| format!("has no object {id} in its memo"))?;
        self.stack.push(*place);
        Ok(())
    }
}

/// Joins a module and the name of a class; fails for one that a state dict does not need.
fn checked_class(module: &[u8], name: &[u8]) -> Result<String, String> {
    let class = String::from_utf8_lossy(&[module, b".", name].concat()).into_owned();
    let is_storage = module == b"torch" && name.ends_with(b"Storage");
    if is_storage || CLASSES.contains(&class.as_str()) {
        return Ok(class);
    }
    let named: String = class.chars().take(MESSAGE_CHARS).collect();
    Err(format!(
        "names `{named}`, which is not part of a state dict of tensors; save \
         `model.state_dict()` with torch.save"
    ))
}
