//! Tests of GPUs, memory and graphs, and of the errors when something is missing.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use half::bf16;
use polysift_kernels::cuda::{
    Buffer, CudaError, Device, Norm, NormInput, Output, PooledTokens, Stream, devices, glu,
    layer_norm, max_sequences, pool,
};

use crate::common::{Random, TestResult, download, is_simulated, poisoned, staged, starts, stream};

/// A small operation: GELU of ones.
struct Gate {
    x: Buffer<bf16>,
    out: Buffer<bf16>,
}

impl Gate {
    fn new(stream: &Stream) -> Result<Self, CudaError> {
        let x = stream.to_device(&[bf16::ONE; 128], "a test")?;
        Ok(Self { x, out: stream.device().alloc(64, "a test")? })
    }

    fn run(&mut self, stream: &Stream) -> Result<(), CudaError> {
        glu(stream, &self.x, &Output::Bf16(&mut self.out), (1, 64))
    }
}

#[test]
fn a_gpu_says_what_it_is() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let info = stream.device().info();
    assert!(info.ordinal == 0 && !info.name.is_empty() && info.multiprocessors > 0);
    assert!(info.compute_capability >= (8, 0));
    let before = stream.device().free_bytes()?;
    assert!(0 < before && before <= info.total_bytes);
    // This is more than the other tests hold and may free meanwhile.
    let held: Buffer<f32> = stream.device().alloc(128 << 20, "a test")?;
    assert!(stream.device().free_bytes()? < before);
    assert_eq!(held.len(), 128 << 20);
    Ok(())
}

#[test]
fn a_gpu_that_is_not_there_is_named() -> TestResult {
    if stream()?.is_none() {
        return Ok(());
    }
    let count = devices()?.len();
    let error = Device::open(count + 3).err();
    assert_eq!(error, Some(CudaError::NoDevice { ordinal: count + 3, count }));
    Ok(())
}

#[test]
fn memory_that_is_not_there_is_named_with_its_purpose() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (len, needed_bytes) in [(1usize << 50, 1u64 << 52), (usize::MAX, u64::MAX)] {
        let error = stream.device().alloc::<f32>(len, "a test").err();
        let purpose = "a test";
        assert_eq!(error, Some(CudaError::OutOfMemory { ordinal: 0, needed_bytes, purpose }));
    }
    Ok(())
}

#[test]
fn values_come_back_as_they_went_in_and_never_past_the_end() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let values = Random(1).values(1_000, 1.0);
    let mut buffer: Buffer<f32> = poisoned(&stream, 1_010)?;
    stream.upload(&mut buffer, 7, &values)?;
    let back = download(&stream, &buffer)?;
    assert_eq!(back[7..1_007], values);
    assert!(back[..7].iter().chain(&back[1_007..]).all(|x| x.is_nan()));
    for at in [11, usize::MAX] {
        let error = stream.upload(&mut buffer, at, &values).err();
        assert!(matches!(error, Some(CudaError::Shape { .. })), "{error:?}");
    }
    assert!(stream.download(&buffer, 0, &mut [0.0; 1_011]).is_err());
    let mut pinned = stream.device().alloc_pinned(1_010)?;
    stream.copy_out(&buffer, &mut pinned, 1_010)?;
    assert_eq!(pinned.values()?[7..1_007], values);
    pinned.values_mut()?.fill(2.5);
    stream.copy_in(&mut pinned, &mut buffer)?;
    let mut short: Buffer<f32> = poisoned(&stream, 1_009)?;
    assert!(stream.copy_in(&mut pinned, &mut short).is_err());
    assert_eq!(download(&stream, &buffer)?, [2.5; 1_010]);
    assert!(stream.copy_out(&buffer, &mut pinned, 1_011).is_err());
    Ok(())
}

#[test]
fn a_graph_does_again_what_was_recorded_on_what_is_there_now() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let width = 16;
    let mut batch = staged(&stream, &[3, 5])?;
    let states = Random(2).bf16_values(batch.tokens() * width, 1.0);
    let hidden = stream.to_device(&states, "a test")?;
    let mut embeddings = poisoned(&stream, max_sequences(batch.tokens()) * width)?;
    let graph = {
        let work = |stream: &Stream| {
            pool(stream, &batch, &hidden, &mut embeddings, width, PooledTokens::All)
        };
        stream.record(work)?
    };
    assert!(download(&stream, &embeddings)?.iter().all(|x| x.is_nan()), "recorded, not run");
    graph.launch()?;
    let first = download(&stream, &embeddings)?;
    assert_eq!(first.iter().filter(|x| x.is_finite()).count(), 2 * width);
    batch.put(&stream, &[5; 7], [], &starts(&[1, 4, 2]))?;
    graph.launch()?;
    let second = download(&stream, &embeddings)?;
    assert_eq!(second.iter().filter(|x| x.is_finite()).count(), 3 * width);
    let expected: Vec<f32> = states[..width].iter().map(|x| x.to_f32()).collect();
    assert_eq!(second[..width], expected);
    Ok(())
}

#[test]
fn a_graph_keeps_the_memory_that_it_uses() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut hidden = stream.to_device(&Random(3).bf16_values(64, 1.0), "a test")?;
    let graph = {
        let x = stream.to_device(&Random(4).bf16_values(64, 1.0), "a test")?;
        let norm = Norm::new(&stream, &[1.0; 64], &[0.0; 64], 1e-5)?;
        stream
            .record(|stream| layer_norm(stream, NormInput::Rows(&x), &norm, &mut hidden, None, 1))?
    };
    // The graph's input is dropped; if it were freed, this allocation would take its place.
    let _other = poisoned::<bf16>(&stream, 64)?;
    graph.launch()?;
    assert!(download(&stream, &hidden)?.iter().all(|x| x.is_finite()));
    Ok(())
}

#[test]
fn what_cannot_be_recorded_is_refused_and_the_queue_goes_on() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut gate = Gate::new(&stream)?;
    let refused = stream.record(|stream| stream.upload(&mut gate.x, 0, &[bf16::ONE]));
    assert!(matches!(refused.err(), Some(CudaError::Shape { .. })));
    let refused =
        stream.record(|stream| glu(stream, &gate.x, &Output::Bf16(&mut gate.out), (1, 63)));
    assert!(matches!(refused.err(), Some(CudaError::Shape { .. })));
    gate.run(&stream)?;
    stream.record(|stream| gate.run(stream))?.launch()?;
    stream.synchronize()?;
    Ok(())
}

#[test]
fn what_another_thread_drops_spoils_no_recording() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    // Drops everything that is given back to a GPU: kernels, its memory, page-locked memory.
    let use_and_drop = || -> Result<(), CudaError> {
        let device = Device::open(0)?;
        let stream = device.stream()?;
        let mut gate = Gate::new(&stream)?;
        let mut pinned = device.alloc_pinned(64)?;
        gate.run(&stream)?;
        stream.copy_out(&gate.out, &mut pinned, 64)
    };
    let mut gate = Gate::new(&stream)?;
    let (rounds, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<(), CudaError> {
            while !is_over.load(Ordering::Relaxed) {
                use_and_drop()?;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let mut record = || -> Result<(), CudaError> {
            let graph = stream.record(|stream| {
                gate.run(stream)?;
                // At least one round begins and ends in this recording.
                let enough = rounds.load(Ordering::Relaxed) + 2;
                while rounds.load(Ordering::Relaxed) < enough && !other.is_finished() {
                    std::thread::yield_now();
                }
                gate.run(stream)
            })?;
            graph.launch()
        };
        let recorded = (0..50).try_for_each(|_| record());
        is_over.store(true, Ordering::Relaxed);
        other.join().map_err(|_| "the other thread panicked")??;
        Ok(recorded?)
    })
}

#[test]
fn what_a_recording_drops_is_freed_when_it_ends() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut gate = Gate::new(&stream)?;
    // Together this exceeds the simulated GPU's memory, so that the test sees if one is kept.
    for _ in 0..40 {
        // Memory dropped while another test records is freed when that recording ends.
        let alloc = || stream.device().alloc::<bf16>(32 << 20, "a test");
        let mut large = alloc();
        for _ in 0..100 {
            if large.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            large = alloc();
        }
        let large = large?;
        let pinned = stream.device().alloc_pinned::<u8>(1 << 10)?;
        let graph = stream.record(|stream| {
            gate.run(stream)?;
            drop((large, pinned));
            gate.run(stream)
        })?;
        graph.launch()?;
    }
    stream.synchronize()?;
    Ok(())
}

#[test]
fn a_recording_that_panics_leaves_queue_and_gpu_of_use() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut gate = Gate::new(&stream)?;
    let panics = || stream.record(|_| std::panic::resume_unwind(Box::new(()))).is_ok();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    stream.record(|stream| gate.run(stream))?.launch()?;
    stream.synchronize()?;
    Ok(())
}

/// Returns what opening GPU 0 prints on a simulated machine with the given settings.
fn opened_with(settings: &[(&str, &str)]) -> Result<String, Box<dyn std::error::Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "runtime::open_the_first_gpu", "--ignored", "--nocapture"]);
    let output = command.envs(settings.iter().copied()).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
#[expect(clippy::print_stdout, reason = "for the parent process")]
fn open_the_first_gpu() -> TestResult {
    println!("count: {:?}", devices().map(|gpus| gpus.len()));
    let device = Device::open(0);
    println!("open: {:?}", device.as_ref().map(|_| ()));
    if let Ok(device) = device {
        let stream = device.stream()?;
        let mut gate = Gate::new(&stream)?;
        gate.run(&stream)?;
        println!("gelu: {:?}", download(&stream, &gate.out)?[0]);
        println!("alloc: {:?}", device.alloc::<u8>(1 << 20, "a test").map(|_| ()));
    }
    Ok(())
}

#[test]
fn what_is_missing_is_said() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    if !is_simulated(stream.device()) {
        return Ok(());
    }
    for (settings, expected) in [
        (&[("POLYSIFT_SIM_DEVICES", "0")][..], "count: Ok(0)\nopen: Err(NoDevice { ordinal: 0"),
        (&[("POLYSIFT_SIM_DRIVER", "11080")], "open: Err(DriverTooOld { found: (11, 8)"),
        (&[("POLYSIFT_SIM_CAPABILITY", "7.5")], "count: Ok(1)\nopen: Err(DeviceTooOld"),
        (&[("POLYSIFT_SIM_CAPABILITY", "8.0")], "open: Ok(())\ngelu: 0.83984375"),
        (&[("POLYSIFT_SIM_REJECT_CUBIN", "1")], "open: Ok(())\ngelu: 0.83984375"),
        (&[("POLYSIFT_SIM_DEVICES", "3")], "count: Ok(3)\nopen: Ok(())"),
        (&[("POLYSIFT_SIM_MEMORY_BYTES", "500000")], "alloc: Err(OutOfMemory { ordinal: 0"),
        (&[("POLYSIFT_SIM_FAIL", "0:1")], "open: Ok(())\n"),
    ] {
        let found = opened_with(settings)?;
        assert!(found.contains(expected), "{settings:?}: {found}");
    }
    assert!(!opened_with(&[("POLYSIFT_SIM_FAIL", "0:1")])?.contains("gelu:"));
    Ok(())
}
