//! Reads PyTorch's pickles without executing or trusting them.
//!
//! candle's machine turns instructions into [`Object`]s and calls nothing, but it believes what it
//! reads. So [`Guard`] checks every instruction first: candle would allocate the length that a
//! string claims, overflow on a long integer, copy on every use of its memo (a few dozen bytes can
//! then ask for any amount of memory) and drop nested objects by recursion.

use std::collections::HashMap;

use candle_core::pickle::{Object, OpCode, Stack};

/// Maximum nesting. A state dict has less than ten levels; each takes a call to drop.
const MAX_DEPTH: u32 = 64;
/// Maximum number of objects made or copied, about 64 bytes each; a tensor needs about a hundred.
const MAX_NODES: u64 = 1 << 21;
const NODE_BYTES: u64 = 64;
/// Maximum characters of a message of candle, which can contain whole objects.
const MESSAGE_CHARS: usize = 200;

/// Names allowed in a state dict, as with `torch.load(weights_only=True)`.
const CLASSES: [(&str, &str); 3] = [
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
];

/// Parses the object that the pickle `bytes` describes; the error text says what is wrong.
pub(super) fn parse(bytes: &[u8]) -> Result<Object, String> {
    let short = |error: candle_core::Error| -> String {
        message(&error).chars().take(MESSAGE_CHARS).collect()
    };
    let mut guard = Guard::default();
    let mut stack = Stack::empty();
    let mut rest = bytes;
    loop {
        guard.admit(rest)?;
        if stack.read(&mut rest).map_err(short)? {
            return stack.finalize().map_err(short);
        }
    }
}

/// Returns candle's message without the backtrace that it adds if `RUST_BACKTRACE` is set.
fn message(error: &candle_core::Error) -> String {
    use candle_core::Error as E;
    match error {
        E::WithBacktrace { inner, .. } | E::WithPath { inner, .. } => message(inner),
        E::Context { inner, context } => format!("{context}: {}", message(inner)),
        other => other.to_string(),
    }
}

/// Size of an object on the machine's stack.
#[derive(Debug, Clone, Copy)]
struct ObjectSize {
    depth: u32,
    /// Number of objects, itself included.
    nodes: u64,
    mark: bool,
}

/// Size of an object that holds no others.
const LEAF: ObjectSize = ObjectSize { depth: 1, nodes: 1, mark: false };

/// Sizes of the objects on the machine's stack and in its memo.
#[derive(Debug, Default)]
struct Guard {
    stack: Vec<ObjectSize>,
    memo: HashMap<u32, ObjectSize>,
    spent: u64,
}

impl Guard {
    /// Checks the instruction at the start of `rest` and applies it to the sizes.
    fn admit(&mut self, rest: &[u8]) -> Result<(), String> {
        let (&code, operand) = rest.split_first().ok_or_else(cut)?;
        let code = OpCode::try_from(code)
            .map_err(|code| format!("has the instruction {code:#04x}, which no state dict has"))?;
        match code {
            OpCode::Proto | OpCode::Stop => Ok(()),
            OpCode::Mark => self.push(ObjectSize { mark: true, ..LEAF }),
            OpCode::Global => {
                check_class(operand)?;
                self.push(LEAF)
            }
            OpCode::BinUnicode => {
                let length = u64::from(u32_at(operand)?);
                if length > operand.len() as u64 - 4 {
                    return Err(cut());
                }
                self.push(ObjectSize { nodes: 1 + length / NODE_BYTES, ..LEAF })
            }
            OpCode::Long1 => match operand.first() {
                Some(0..=8) => self.push(LEAF),
                Some(bytes) => Err(format!("has an integer of {bytes} bytes")),
                None => Err(cut()),
            },
            OpCode::BinInt
            | OpCode::BinInt1
            | OpCode::BinInt2
            | OpCode::BinFloat
            | OpCode::NewTrue
            | OpCode::NewFalse
            | OpCode::None
            | OpCode::EmptyTuple
            | OpCode::EmptyDict
            | OpCode::EmptyList => self.push(LEAF),
            OpCode::Tuple1 | OpCode::BinPersId => self.nest(1),
            OpCode::Tuple2 | OpCode::Reduce | OpCode::NewObj | OpCode::Build => self.nest(2),
            OpCode::Tuple3 => self.nest(3),
            OpCode::Tuple | OpCode::Dict => self.since_mark().and_then(|count| self.nest(count)),
            OpCode::Append => self.absorb(1),
            OpCode::SetItem => self.absorb(2),
            OpCode::Appends | OpCode::SetItems => {
                self.since_mark().and_then(|count| self.absorb(count))
            }
            OpCode::BinPut => self.put(u32::from(*operand.first().ok_or_else(cut)?)),
            OpCode::LongBinPut => self.put(u32_at(operand)?),
            OpCode::BinGet => self.get(u32::from(*operand.first().ok_or_else(cut)?)),
            OpCode::LongBinGet => self.get(u32_at(operand)?),
        }
    }

    fn spend(&mut self, nodes: u64) -> Result<(), String> {
        self.spent = self.spent.saturating_add(nodes);
        if self.spent > MAX_NODES {
            return Err(format!("describes more than {MAX_NODES} objects"));
        }
        Ok(())
    }

    fn push(&mut self, weight: ObjectSize) -> Result<(), String> {
        self.stack.push(weight);
        self.spend(weight.nodes)
    }

    /// Replaces the top `count` objects by one that holds them.
    fn nest(&mut self, count: usize) -> Result<(), String> {
        let parts = self.pop(count)?;
        self.hold(LEAF, &parts)?;
        self.spend(1)
    }

    /// Moves the top `count` objects into the object below.
    fn absorb(&mut self, count: usize) -> Result<(), String> {
        let parts = self.pop(count)?;
        let below = self.pop(1)?;
        self.hold(below.first().copied().unwrap_or(LEAF), &parts)
    }

    /// Pushes `whole` with `parts` in it.
    fn hold(&mut self, whole: ObjectSize, parts: &[ObjectSize]) -> Result<(), String> {
        let inner = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        let depth = whole.depth.max(inner + 1);
        if depth > MAX_DEPTH {
            return Err(format!("nests objects more than {MAX_DEPTH} deep"));
        }
        let nodes = parts.iter().fold(whole.nodes, |sum, part| sum.saturating_add(part.nodes));
        self.stack.push(ObjectSize { depth, nodes, mark: false });
        Ok(())
    }

    fn pop(&mut self, count: usize) -> Result<Vec<ObjectSize>, String> {
        let left = self.stack.len().checked_sub(count);
        left.map(|left| self.stack.split_off(left))
            .ok_or_else(|| "takes from an empty stack".into())
    }

    /// Returns the number of objects since the last mark, itself included.
    fn since_mark(&self) -> Result<usize, String> {
        let above = self.stack.iter().rev().position(|weight| weight.mark);
        above.map(|above| above + 1).ok_or_else(|| "has no mark where one is needed".into())
    }

    fn put(&mut self, id: u32) -> Result<(), String> {
        let top = *self.stack.last().ok_or("takes from an empty stack")?;
        self.memo.insert(id, top);
        self.spend(top.nodes)
    }

    fn get(&mut self, id: u32) -> Result<(), String> {
        let weight =
            *self.memo.get(&id).ok_or_else(|| format!("has no object {id} in its memo"))?;
        self.push(weight)
    }
}

/// Refuses a class or function that a state dict does not need.
fn check_class(operand: &[u8]) -> Result<(), String> {
    let mut lines = operand.splitn(3, |&byte| byte == b'\n');
    let (Some(module), Some(name), Some(_)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(cut());
    };
    let (module, name) = (String::from_utf8_lossy(module), String::from_utf8_lossy(name));
    let storage = module == "torch" && name.ends_with("Storage");
    if storage || CLASSES.iter().any(|&(m, n)| m == module && n == name) {
        return Ok(());
    }
    let named: String = format!("{module}.{name}").chars().take(MESSAGE_CHARS).collect();
    Err(format!(
        "names `{named}`, which is not part of a state dict of tensors; save \
         `model.state_dict()` with torch.save"
    ))
}

fn u32_at(operand: &[u8]) -> Result<u32, String> {
    operand.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(cut)
}

fn cut() -> String {
    "ends too early".to_owned()
}
