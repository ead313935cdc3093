//! PyTorch files that are damaged or made to harm: each is an error that names the file, and none
//! is executed, panics or is given the memory that it claims.

use std::io::{Cursor, Write};
use std::path::Path;

use anyhow::{Context, Result};
use polysift::Error;
use polysift::config::HeadConfig;
use polysift::head::Head;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::import::golden;

/// Loads a head from a file of these bytes.
fn load(dir: &Path, bytes: &[u8]) -> Result<polysift::Result<Head>> {
    let path = dir.join("x.pt");
    std::fs::write(&path, bytes)?;
    Ok(Head::load(&path, "quality", &HeadConfig::default()))
}

/// Message of the [`Error::Model`] that a file of these bytes must give.
fn refusal(bytes: &[u8]) -> Result<String> {
    let dir = TempDir::new()?;
    let error = load(dir.path(), bytes)?.err().context("the file was accepted")?;
    assert!(matches!(error, Error::Model { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("x.pt") && message.len() < 600, "{message}");
    Ok(message)
}

/// A zip file of entries.
fn archive(entries: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, SimpleFileOptions::DEFAULT)?;
        writer.write_all(content)?;
    }
    Ok(writer.finish()?.into_inner())
}

/// A zip file of a pickle and one storage of eight f32 values, the numbers from 1 to 8.
fn with_pickle(pickle: &[u8]) -> Result<Vec<u8>> {
    let values: Vec<u8> = (1..=8u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    archive(&[("a/data.pkl", pickle), ("a/data/0", &values)])
}

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn integer(value: i64) -> Vec<u8> {
    [&b"\x8a\x08"[..], &value.to_le_bytes()].concat()
}

fn tuple(items: impl IntoIterator<Item = i64>) -> Vec<u8> {
    [b"(".to_vec(), items.into_iter().flat_map(integer).collect(), b"t".to_vec()].concat()
}

/// A tensor of the storage 0, of which `numel` values are said to be there.
fn tensor(name: &str, numel: i64, offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    [
        text(name),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
        text("0"),
        text("cpu"),
        integer(numel),
        b"tQ".to_vec(),
        integer(offset),
        tuple(shape.iter().copied()),
        tuple(strides.iter().copied()),
        b"\x89NtR".to_vec(),
    ]
    .concat()
}

/// The pickle of a dict of these items.
fn dict(items: &[Vec<u8>]) -> Vec<u8> {
    [b"\x80\x02}(".to_vec(), items.concat(), b"u.".to_vec()].concat()
}

/// A head of one layer of three inputs whose weight is described like this.
fn with_weight(numel: i64, offset: i64, shape: &[i64], strides: &[i64]) -> Result<Vec<u8>> {
    let bias = tensor("0.bias", 8, 0, &[1], &[1]);
    with_pickle(&dict(&[tensor("0.weight", numel, offset, shape, strides), bias]))
}

/// Proves that the helpers make files that are read, so that what is refused below is refused for
/// its one fault.
#[test]
fn strides_and_offsets_are_followed() -> Result<()> {
    let dir = TempDir::new()?;
    for (offset, stride) in [(0, 1), (5, 1), (1, 2), (2, 0)] {
        let head = load(dir.path(), &with_weight(8, offset, &[1, 3], &[7, stride])?)??;
        let logit = head.score(&[1.0, 2.0, 3.0], &[0, 1])?[0].context("no score")?.logit;
        // Weights w, w + s and w + 2s times 1, 2 and 3, and the bias 1: small whole numbers.
        let expected = 6 * (offset + 1) + 8 * stride + 1;
        assert!((logit - expected as f32).abs() < 1e-5, "{offset} {stride}: {logit} {expected}");
    }
    Ok(())
}

#[test]
fn tensors_that_do_not_fit_their_storage_are_refused() -> Result<()> {
    let huge = 1i64 << 40;
    let two = |a: i64, b: i64| vec![a, b];
    for (numel, offset, shape, strides, expected) in [
        (8, 6, two(1, 3), two(3, 1), "do not fit its data"),
        (8, 0, two(1, 3), two(3, 4), "do not fit its data"),
        (8, 0, two(1, 9), two(0, 0), "do not fit its data"),
        (8, 0, two(huge, huge), two(1, 1), "claims more than the file holds"),
        (8, 0, two(huge, 4), two(0, 0), "claims more than the file holds"),
        (8, 0, two(1, 3), two(i64::MAX, i64::MAX), "do not fit its data"),
        (8, i64::MAX, two(1, 3), two(3, 1), "do not fit its data"),
        (8, -1, two(1, 3), two(3, 1), "not described as PyTorch does it"),
        (8, 0, two(1, -3), two(3, 1), "not described as PyTorch does it"),
        (8, 0, two(1, 3), vec![3], "expected a vector or a matrix"),
        (8, 0, two(1, 0), two(1, 1), "expected a matrix"),
        (9, 0, two(1, 3), two(3, 1), "said to have 9 values"),
        (huge, 0, two(1, 3), two(3, 1), "values, `a/data/0` has 32 bytes"),
        (i64::MAX, 0, two(1, 3), two(3, 1), "values, `a/data/0` has 32 bytes"),
    ] {
        let message = refusal(&with_weight(numel, offset, &shape, &strides)?)?;
        assert!(message.contains(expected) && message.contains("0.weight"), "{message}");
    }
    Ok(())
}

#[test]
fn layers_that_share_a_storage_have_no_more_than_a_few_sizes_of_the_file() -> Result<()> {
    // 4 KiB each, all of the same 4 KiB; a description takes some 200 bytes.
    let wide: Vec<Vec<u8>> = (0..200)
        .flat_map(|index| {
            [
                tensor(&format!("{index}.weight"), 1024, 0, &[32, 32], &[32, 1]),
                tensor(&format!("{index}.bias"), 1024, 0, &[32], &[1]),
            ]
        })
        .collect();
    let storage = vec![0; 4096];
    let bytes = archive(&[("a/data.pkl", &dict(&wide)), ("a/data/0", &storage)])?;
    let message = refusal(&bytes)?;
    assert!(
        message
            .contains("claims more than the file holds, even if tensors share its values 8 times"),
        "{message}"
    );
    Ok(())
}

/// The tensors of two layers and of an output share one storage of 4,096 ones and have twice its
/// size. The states are 64 + 1 = 65, then 64 · 65 + 1 = 4161, and the logit is 64 · 4161 + 1.
#[test]
fn layers_with_tied_weights_are_read() -> Result<()> {
    let layers = [(0, 64i64), (2, 64), (4, 1)].into_iter().flat_map(|(index, outputs)| {
        [
            tensor(&format!("{index}.weight"), 4096, 0, &[outputs, 64], &[64, 1]),
            tensor(&format!("{index}.bias"), 4096, 0, &[outputs], &[1]),
        ]
    });
    let pickle = dict(&layers.collect::<Vec<_>>());
    let ones = 1f32.to_le_bytes().repeat(4096);
    let dir = TempDir::new()?;
    let head = load(dir.path(), &archive(&[("a/data.pkl", &pickle), ("a/data/0", &ones)])?)??;
    let logit = head.score(&[1.0; 64], &[0, 1])?[0].context("no score")?.logit;
    assert!((logit - 266_305.0).abs() < 1.0, "{logit}");
    Ok(())
}

/// PyTorch writes `{"neg": True}` for a view whose values it negates when it reads them.
#[test]
fn tensors_that_pytorch_negates_are_refused() -> Result<()> {
    for (bits, is_refused) in [
        ([text("neg"), b"\x88s".to_vec()].concat(), true),
        ([text("conj"), b"\x88s".to_vec()].concat(), true),
        (Vec::new(), false),
    ] {
        let mut weight = tensor("0.weight", 8, 0, &[1, 3], &[3, 1]);
        weight.truncate(weight.len() - b"tR".len());
        weight.extend([b"}".to_vec(), bits, b"tR".to_vec()].concat());
        let bytes = with_pickle(&dict(&[weight, tensor("0.bias", 8, 0, &[1], &[1])]))?;
        if is_refused {
            let message = refusal(&bytes)?;
            assert!(message.contains("stored negated") && message.contains("`0.weight`"));
        } else {
            load(TempDir::new()?.path(), &bytes)??;
        }
    }
    Ok(())
}

#[test]
fn pickles_that_ask_for_too_much_are_refused() -> Result<()> {
    let long_text = [&b"\x80\x02X"[..], &u32::MAX.to_le_bytes(), b"abc"].concat();
    let long_integer = [&b"\x80\x02\x8a\xff"[..], &[0xff; 300]].concat();
    let nested = [b"\x80\x02N".to_vec(), vec![0x85; 1_000_000], b".".to_vec()].concat();
    let nested_lists = [b"\x80\x02".to_vec(), b"]".repeat(500_000), b"a".repeat(499_999)].concat();
    // Every round makes a pair of what the memo holds and puts it there again: 2^60 objects.
    let doubled = [&b"\x80\x02Nq\x00"[..], &b"h\x00h\x00\x86q\x00".repeat(60)[..], b"."].concat();
    // Wide instead of deep, and by long strings.
    let many = b"h\x00".repeat(60_000);
    let wide = [&b"\x80\x02("[..], &b"N".repeat(60_000)[..], b"tq\x00", &many[..]].concat();
    let megabyte = text(&"x".repeat(1 << 20));
    let texts = [&b"\x80\x02"[..], &megabyte[..], b"q\x00", &many[..]].concat();
    let long = [&b"\x80\x02"[..], &b"N".repeat(9 << 20)[..]].concat();
    let objects = [&b"\x80\x02"[..], &b"N".repeat(3 << 20)[..]].concat();
    let parameter = b"ctorch._utils\n_rebuild_parameter\nq\x01".to_vec();
    let (many, calls) = (b"h\x01".repeat(100_000), b"\x85R".repeat(100_001));
    let parameters = dict(&[[text("0.weight"), parameter, many, b"N".to_vec(), calls].concat()]);
    let call = tensor("", 3, 0, &[1, 3], &[3, 1]).split_off(text("").len());
    let classes = b"ctorch._utils\n_rebuild_parameter\n".repeat(2);
    let of_itself = dict(&[[text("0.weight"), classes, call, b"\x85R\x85R".to_vec()].concat()]);
    let in_itself = [&b"\x80\x02}q\x00"[..], &text("model")[..], b"h\x00s."].concat();
    for (pickle, expected) in [
        (long_text, "ends too early"),
        (long_integer, "an integer of 255 bytes"),
        (nested, "not a state dict"),
        (nested_lists, "ends too early"),
        (doubled, "not a state dict"),
        (wide, "ends too early"),
        (texts, "ends too early"),
        (parameters, "not described as PyTorch does it"),
        (of_itself, "not described as PyTorch does it"),
        (in_itself, "holds no tensors"),
        (objects, "more than 2097152 objects"),
        (long, "has 9437186 bytes"),
    ] {
        let message = refusal(&with_pickle(&pickle)?)?;
        // What is parsed to the end is told by its content, not by its file.
        let parsed = ["not a state dict", "not described as PyTorch does it", "holds no tensors"];
        let is_named = message.contains("data.pkl") || parsed.contains(&expected);
        assert!(is_named && message.contains(expected), "{message}");
    }
    Ok(())
}

#[test]
fn pickles_that_make_no_sense_are_refused() -> Result<()> {
    for (pickle, expected) in [
        (&b""[..], "ends too early"),
        (b"\x80\x02", "ends too early"),
        (b"\x80\x02}", "ends too early"),
        (b"\x80\x02.", ""),
        (b"\x80\x02R.", "empty stack"),
        (b"\x80\x02\x86.", "empty stack"),
        (b"\x80\x02q\x00.", "empty stack"),
        (b"\x80\x02h\x00.", "memo"),
        (b"\x80\x02t.", "mark"),
        (b"\x80\x02Na.", "empty stack"),
        (b"\x80\x02NNa.", "not a state dict"),
        (b"\x80\x02}(Nu.", ""),
        (b"\x80\x02X\x02\x00\x00\x00\xff\xff.", "utf-8"),
        (b"\x80\x02cos", "ends too early"),
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", "names `os.system`"),
        (b"\x80\x02cposix\nsystem\n.", "names `posix.system`"),
        (b"\x80\x02c__builtin__\neval\n.", "names `__builtin__.eval`"),
        (b"\x80\x02i.", "0x69"),
        (b"\x80\x02N.", "not a state dict"),
        (b"\x80\x02}.", "holds no tensors"),
        (b"\x80\x02](K\x01K\x02e.", "not a state dict"),
    ] {
        let message = refusal(&with_pickle(pickle)?)?;
        assert!(message.contains(expected), "{pickle:?}: {message}");
    }
    let weight = || tensor("0.weight", 8, 0, &[1, 3], &[3, 1]);
    let twice = [weight(), weight()];
    assert!(refusal(&with_pickle(&dict(&twice))?)?.contains("there twice"));
    let unnamed = [integer(7), tensor("", 8, 0, &[1], &[1])[5..].to_vec()].concat();
    assert!(refusal(&with_pickle(&dict(&[unnamed]))?)?.contains("not a text"));
    Ok(())
}

#[test]
fn zip_files_that_are_not_of_pytorch_are_refused() -> Result<()> {
    let pickle =
        dict(&[tensor("0.weight", 8, 0, &[1, 3], &[3, 1]), tensor("0.bias", 8, 0, &[1], &[1])]);
    let storage = [0; 32];
    for (entries, expected) in [
        (vec![("a/readme", &storage[..])], "without `data.pkl`"),
        (vec![("a/data.pkl", &*pickle)], "the entry `a/data/0` is missing"),
        (vec![("a/data.pkl", &*pickle), ("b/data.pkl", &*pickle)], "several entries"),
        (
            vec![("a/data.pkl", &*pickle), ("a/data/0", &storage), ("a/byteorder", &b"big"[..])],
            "big-endian",
        ),
    ] {
        let message = refusal(&archive(&entries)?)?;
        assert!(message.contains(expected), "{message}");
    }
    let good = with_pickle(&pickle)?;
    let dir = TempDir::new()?;
    load(dir.path(), &good)??;
    // The method and the sizes in the central directory of the storage, the second entry.
    let header = good
        .windows(4)
        .enumerate()
        .filter(|(_, window)| window == b"PK\x01\x02")
        .map(|(at, _)| at)
        .nth(1)
        .context("no header")?;
    for (places, value, expected) in [
        (vec![10], 8u8, "is compressed"),
        (vec![16], !good[header + 16], "is damaged"),
        (vec![23], 0x7f, "is compressed"),
        (vec![23, 27], 0x7f, "reaches beyond the file"),
        (vec![45], 0x7f, "`a/data/0` cannot be read"),
    ] {
        let mut bytes = good.clone();
        for place in &places {
            bytes[header + place] = value;
        }
        let message = refusal(&bytes)?;
        assert!(message.contains(expected), "{places:?}: {message}");
    }
    Ok(())
}

#[test]
fn files_that_pytorch_wrote_but_hold_no_head_are_refused() -> Result<()> {
    for (name, expected) in [
        ("refused_legacy.pt", "nor one of PyTorch 1.6 or later"),
        ("refused_system.pt", "names `posix.system`"),
        ("refused_module.pt", "save `model.state_dict()`"),
        ("refused_expanded.pt", "`classifier.0.bias`: the shape [8]"),
        ("refused_integers.pt", "`classifier.0.bias` is of type torch.LongStorage"),
    ] {
        let message = refusal(&std::fs::read(golden(name))?)?;
        assert!(message.contains(expected), "{name}: {message}");
    }
    assert!(!Path::new("executed").exists());
    Ok(())
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() -> Result<()> {
    let dir = TempDir::new()?;
    let bytes = std::fs::read(golden("deu_Latn.pt"))?;
    for length in (0..bytes.len()).step_by(31).chain([bytes.len() - 1]) {
        let read = load(dir.path(), &bytes[..length])?;
        assert!(matches!(read, Err(Error::Model { .. })), "{length}: {read:?}");
    }
    // Some changes are of a comment or a name that nothing reads; none may panic or hang.
    let lightning = "../heads_published/edu-llama-balanced.ckpt";
    for (name, step) in [("deu_Latn.pt", 1), ("state_dict.pt", 1), (lightning, 3)] {
        let bytes = std::fs::read(golden(name))?;
        for at in (0..bytes.len()).step_by(step) {
            for bit in [0x01, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                let _ = load(dir.path(), &changed)?;
            }
        }
    }
    Ok(())
}
