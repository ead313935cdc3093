//! Tests of reads from a store in memory: their bytes, and how many are held.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;

use super::client::wait;
use super::object::Object;
use crate::windows::AHEAD_BYTES;
use crate::{ObjectVersion, RemoteFile};
use polysift_base::error::{Error, Result};

/// Returns a store, an object in it with `length` bytes that do not repeat, and the bytes.
fn object(length: usize) -> Result<(Arc<InMemory>, Object, Vec<u8>)> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    let store = Arc::new(InMemory::new());
    let version = put(&store, &bytes)?;
    let object = Object::of(Arc::clone(&store) as Arc<dyn ObjectStore>, "a", version);
    Ok((store, object, bytes))
}

fn put(store: &InMemory, bytes: &[u8]) -> Result<ObjectVersion> {
    let key = Key::from("a");
    wait(async {
        let failed = |error: object_store::Error| Error::config("test", error.to_string());
        store.put(&key, bytes.to_vec().into()).await.map_err(failed)?;
        store.head(&key).await.map_err(failed)
    })
    .map(|meta| ObjectVersion::of(&meta))
}

/// Reads `step` bytes of each of `streams` in turn and compares them with `bytes`; returns the
/// maximum of bytes that were held.
fn check(file: &RemoteFile, bytes: &[u8], streams: &[Vec<Range<u64>>], step: usize) -> u64 {
    let file = file.reading_ahead(streams);
    let mut most = 0;
    let mut left: Vec<Vec<Range<u64>>> =
        streams.iter().map(|ranges| ranges.iter().rev().cloned().collect()).collect();
    while left.iter().any(|ranges| !ranges.is_empty()) {
        for ranges in &mut left {
            let Some(range) = ranges.pop() else { continue };
            let end = range.end.min(range.start + step as u64);
            let (from, to) = (range.start as usize, end as usize);
            let found = file.bytes(range.start, to - from).map_err(|e| e.to_string());
            assert_eq!(found.as_deref(), Ok(&bytes[from..to]), "{range:?}");
            most = most.max(file.held());
            if end < range.end {
                ranges.push(end..range.end);
            }
        }
    }
    most
}

#[test]
fn columns_of_a_large_object_are_read_within_the_bound() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let (_store, object, bytes) = object(100 * MIB as usize)?;
    let file = RemoteFile::open(object)?;
    // Two row groups have four columns each, laid out as in a file.
    let streams: Vec<Vec<Range<u64>>> = [0..20, 20..21, 21..45, 45..48]
        .map(|column: Range<u64>| {
            let at = |start: u64| (start + column.start) * MIB..(start + column.end) * MIB;
            vec![at(0), at(48)]
        })
        .to_vec();
    let most = check(&file, &bytes, &streams, 300_000);
    assert!(most <= AHEAD_BYTES, "{most}");
    assert!(most > AHEAD_BYTES / 4, "{most} is not ahead");
    Ok(())
}

#[test]
fn a_long_object_is_read_to_its_end_within_two_windows() -> Result<()> {
    let (_store, object, bytes) = object(50 << 20)?;
    let file = RemoteFile::sequential(object);
    let (mut reader, mut read) = (file.reader(0), Vec::new());
    while read.len() < bytes.len() {
        let some = reader.by_ref().take(1 << 20).read_to_end(&mut read);
        assert!(some.map_err(Error::io("a".as_ref(), "read"))? > 0);
        assert!(file.held() <= 2 * (8 << 20), "{}", file.held());
    }
    assert!(read == bytes && reader.read(&mut [0]).is_ok_and(|more| more == 0));
    Ok(())
}

#[test]
fn a_size_that_is_only_claimed_takes_no_memory() {
    for claimed in [1 << 50, u64::MAX] {
        let version = ObjectVersion { bytes: claimed, tag: Some("0".into()) };
        let object = Object::of(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "a", version);
        let file = RemoteFile::sequential(object);
        let columns = [0, 1, 2].map(|at: u64| at << 40..(at + 1) << 40);
        let columns = file.reading_ahead(&columns.map(|column| vec![column]));
        for file in [file, columns] {
            assert!(file.reader(0).read(&mut [0; 9]).is_err());
            assert!(file.bytes(7, 1 << 40).is_err());
        }
    }
}

#[test]
fn an_object_that_changed_is_not_read() -> Result<()> {
    let (store, object, _) = object(1000)?;
    let file = RemoteFile::open(object)?;
    put(&store, &[1; 1000])?;
    // The tail has bytes of the first version; bytes of the second one are refused.
    assert!(file.bytes(0, 1000).is_ok());
    let file = RemoteFile::sequential(file_object(&store, &file));
    let mut read = Vec::new();
    assert!(file.reader(0).read_to_end(&mut read).is_err());
    let failure = file.failure.take_or(Error::Stopped);
    assert!(failure.exit_code() == 65 && failure.to_string().contains("changed"), "{failure}");
    assert!(read.is_empty());
    Ok(())
}

/// Returns an object with the version for which `file` was opened.
fn file_object(store: &Arc<InMemory>, file: &RemoteFile) -> Object {
    let version = ObjectVersion { bytes: file.size, tag: Some("0".into()) };
    Object::of(Arc::clone(store) as Arc<dyn ObjectStore>, "a", version)
}

#[test]
fn what_is_not_in_the_object_is_not_asked_for() -> Result<()> {
    let (_store, object, bytes) = object(200_000)?;
    let file = RemoteFile::open(object)?;
    for (offset, length) in [(200_000, 1), (199_999, 2), (u64::MAX, 1), (0, 200_001)] {
        assert!(file.bytes(offset, length).is_err(), "{offset} {length}");
    }
    assert!(file.bytes(0, 200_000).is_ok_and(|found| found == bytes));
    assert!(file.bytes(200_000, 0).is_ok_and(|found| found.is_empty()));
    Ok(())
}

#[test]
fn an_object_without_bytes_is_an_empty_file() -> Result<()> {
    let (_store, object, _) = object(0)?;
    let mut read = Vec::new();
    let whole = RemoteFile::sequential(object.clone()).reader(0).read_to_end(&mut read);
    assert!(whole.is_ok_and(|length| length == 0));
    assert_eq!(RemoteFile::open(object)?.size, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]
    #[test]
    fn any_ranges_in_any_order_give_their_bytes(
        length in 1usize..700_000,
        streams in proptest::collection::vec(
            proptest::collection::vec((0u64..700_000, 0u64..300_000), 0..5), 0..6),
        step in 1usize..200_000,
    ) {
        let (_store, object, bytes) = object(length)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let file = RemoteFile::open(object).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let inside = |(start, size): &(u64, u64)| {
            let start = start % length as u64;
            start..(start + size).min(length as u64)
        };
        let streams: Vec<Vec<Range<u64>>> =
            streams.iter().map(|ranges| ranges.iter().map(inside).collect()).collect();
        check(&file, &bytes, &streams, step);
    }
}
