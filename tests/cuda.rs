//! The encoder on GPUs against the one on the CPU, on real GPUs or on those of `cuda_sim`. Without
//! any the tests are skipped, or fail where `POLYSIFT_REQUIRE_CUDA=1` says that there must be one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use polysift::Error;
use polysift::batch::PackedBatch;
use polysift::config::{DeviceChoice, EncoderConfig, EncoderPrecision, Pooling};
use polysift::encoder::{CudaEncoder, Encoder, HubSettings, load, open_gpus, resolve};
use polysift::progress::Stop;
use polysift_kernels::cuda::{CudaError, DeviceInfo, devices};
use safetensors::{Dtype, tensor::TensorView};

const MINI: &str = "polysift-mini";

/// What the distances to f32 may be: relative L2 of the worst embedding, its mean over all, and the
/// smallest cosine. Rounding to bf16 is off by 2^-8 at most and about 2^-9.5 as a rule; it happens
/// some six times a layer, adds up as the root of that number, and layer norm passes it on as it
/// is: 12 layers are about 72 roundings, 8.5 times 1.4e-3, before pooling averages it out.
const WORST: f64 = 2e-2;
const MEAN: f64 = 5e-3;
const COSINE: f64 = 0.9995;
/// [`MEAN`] of single states, which nothing averages. PyTorch in bf16 is off by 9e-3 and 1e-2 on
/// the models here.
const MEAN_OF_STATES: f64 = 1e-2;

/// The GPUs; `None`, and a line that says so, if there are none.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn gpus() -> Result<Option<Vec<DeviceInfo>>> {
    match devices() {
        Ok(gpus) if !gpus.is_empty() => return Ok(Some(gpus)),
        Ok(_) | Err(CudaError::NoDriver) => {}
        Err(error) => return Err(error.into()),
    }
    if std::env::var("POLYSIFT_REQUIRE_CUDA").is_ok_and(|value| value == "1") {
        bail!("POLYSIFT_REQUIRE_CUDA is 1, and there is no CUDA device");
    }
    eprintln!("skipped: no CUDA device");
    Ok(None)
}

fn golden(name: &str) -> PathBuf {
    crate::util::root().join("tests/golden/encoder").join(name)
}

fn config(model: &str, pooling: Pooling) -> EncoderConfig {
    let device = DeviceChoice::Cpu;
    EncoderConfig {
        model: model.into(),
        pooling: Some(pooling),
        max_tokens: 100,
        device,
        precision: EncoderPrecision::F32,
        ..EncoderConfig::default()
    }
}

fn offline() -> HubSettings {
    let cache = PathBuf::from("no-such-cache");
    HubSettings { cache, token: None, endpoint: String::new(), offline: true }
}

fn open(model: &str, pooling: Pooling, ordinals: &[usize]) -> Result<CudaEncoder, Error> {
    open_in(model, pooling, EncoderPrecision::Bf16, ordinals)
}

fn open_in(
    model: &str,
    pooling: Pooling,
    precision: EncoderPrecision,
    ordinals: &[usize],
) -> Result<CudaEncoder, Error> {
    let batch_tokens = Some(1_056);
    let settings = EncoderConfig { precision, batch_tokens, ..config(model, pooling) };
    CudaEncoder::load(&resolve(&settings, &offline())?, &settings, &open_gpus(ordinals)?)
}

/// Chunks of mixed lengths: `n` of them, the lengths walking through 1 to `longest`.
fn chunks(n: usize, longest: usize, vocab_size: usize) -> Vec<Vec<u32>> {
    let mut state = 1u64;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let edges = [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, longest];
    (0..n)
        .map(|i| {
            let length = edges.get(i).map_or_else(|| 1 + next(longest), |&l| l.min(longest));
            (0..length).map(|_| next(vocab_size) as u32).collect()
        })
        .collect()
}

/// [`chunks`] that begin and end as those of a tokenizer. A trained encoder without `<s>` to attend
/// to magnifies rounding: PyTorch's bf16 of the bundled one is up to 3.6e-2 off, and 6e-3 with it.
fn whole_chunks(n: usize, longest: usize, vocab_size: usize) -> Vec<Vec<u32>> {
    let mut chunks = chunks(n, longest, vocab_size);
    for chunk in &mut chunks {
        let last = chunk.len() - 1;
        chunk[last] = 2;
        chunk[0] = 0;
    }
    chunks
}

fn encode(encoder: &dyn Encoder, chunks: &[&[u32]]) -> Result<Vec<f32>, Error> {
    let mut batch = PackedBatch::default();
    for chunk in chunks {
        batch.push(chunk);
    }
    // Poison: the result must be all there.
    let mut rows = vec![f32::NAN; chunks.len() * encoder.info().embedding_size];
    encoder.encode(&batch, &mut rows, &Stop::default())?;
    Ok(rows)
}

/// Embeds `chunks` in batches, several at once.
fn embed(encoder: &dyn Encoder, chunks: &[Vec<u32>]) -> Result<Vec<f32>, Error> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut tokens = usize::MAX;
    for (i, chunk) in chunks.iter().enumerate() {
        tokens = tokens.saturating_add(chunk.len());
        match groups.last_mut() {
            Some(group) if tokens <= 1_000 => group.push(i),
            _ => {
                groups.push(vec![i]);
                tokens = chunk.len();
            }
        }
    }
    let width = encoder.info().embedding_size;
    let mut rows = vec![f32::NAN; chunks.len() * width];
    for groups in groups.chunks(encoder.info().in_flight) {
        let of_group = |group: &Vec<usize>| {
            let chunks: Vec<&[u32]> = group.iter().map(|&i| chunks[i].as_slice()).collect();
            encode(encoder, &chunks)
        };
        let results: Vec<Result<Vec<f32>, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                groups.iter().map(|group| scope.spawn(move || of_group(group))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        for (group, result) in groups.iter().zip(results) {
            for (&i, row) in group.iter().zip(result?.chunks(width)) {
                rows[i * width..][..width].copy_from_slice(row);
            }
        }
    }
    Ok(rows)
}

/// Relative L2 distance and cosine of each row of `actual` and `expected`.
fn distances(actual: &[f32], expected: &[f32], width: usize) -> Vec<(f64, f64)> {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>()
    };
    let distance = |(a, e): (&[f32], &[f32])| {
        let difference: Vec<f32> = a.iter().zip(e).map(|(a, e)| a - e).collect();
        let norm = dot(e, e).sqrt();
        (dot(&difference, &difference).sqrt() / norm, dot(a, e) / (dot(a, a).sqrt() * norm))
    };
    actual.chunks(width).zip(expected.chunks(width)).map(distance).collect()
}

/// Checks the distances and gives the worst, the mean and the smallest cosine.
fn check(
    actual: &[f32],
    expected: &[f32],
    width: usize,
    pooling: Pooling,
) -> Result<(f64, f64, f64)> {
    ensure!(actual.len() == expected.len() && actual.iter().all(|x| x.is_finite()));
    let all = distances(actual, expected, width);
    let worst = all.iter().map(|&(d, _)| d).fold(0.0, f64::max);
    let mean = all.iter().map(|&(d, _)| d).sum::<f64>() / all.len() as f64;
    let cosine = all.iter().map(|&(_, c)| c).fold(1.0, f64::min);
    let largest_mean = if pooling == Pooling::Mean { MEAN } else { MEAN_OF_STATES };
    ensure!(
        worst <= WORST && mean <= largest_mean && cosine >= COSINE,
        "worst {worst:e}, mean {mean:e}, cosine {cosine}"
    );
    Ok((worst, mean, cosine))
}

/// A copy of a golden model of XLM-R as the BERT of its weights, whose positions count from 0.
fn as_bert(name: &str) -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(golden(name).join(file), directory.path().join(file))?;
    }
    let path = directory.path().join("config.json");
    let config = std::fs::read_to_string(&path)?;
    std::fs::write(path, config.replace("\"xlm-roberta\"", "\"bert\""))?;
    Ok(directory)
}

/// Sizes of a random model: width, heads, inner width, layers.
type Sizes = [usize; 4];

/// A random model of a family whose `config.json` has `settings` beside the sizes: the tensors of
/// GTE or of `ModernBERT`. In `ModernBERT`, two of three layers have windows.
///
/// Queries and keys are large enough that another theta moves embeddings by a tenth, as PyTorch
/// shows, and the weights small enough that rounding them moves embeddings by less than [`MEAN`].
fn random_model(
    [width, heads, inner, layers]: Sizes,
    settings: &[(&str, serde_json::Value)],
) -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    std::fs::copy(golden("gte/tokenizer.json"), directory.path().join("tokenizer.json"))?;
    let mut config = serde_json::json!({
        "hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner,
        "num_hidden_layers": layers, "vocab_size": 120, "max_position_embeddings": 300,
    });
    for (key, value) in settings {
        config[*key] = value.clone();
    }
    std::fs::write(directory.path().join("config.json"), config.to_string())?;

    let mut state = 7u64;
    let mut normal = || {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f32 / (1u64 << 31) as f32
        };
        (0..12).map(|_| next()).sum::<f32>() - 6.0
    };
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let mut add = |name: String, shape: &[usize], mean: f32| {
        let spread = if name.to_lowercase().contains("qkv") { 0.1 } else { 0.05 };
        // Sums over more values are as large with smaller weights.
        let spread = spread * (128.0 / width.max(128) as f32).sqrt();
        let values = (0..shape.iter().product()).map(|_| mean + spread * normal());
        tensors.push((name, shape.to_vec(), values.flat_map(f32::to_le_bytes).collect()));
    };
    let is_modern = config["model_type"] == "modernbert";
    if is_modern {
        add("embeddings.tok_embeddings.weight".into(), &[120, width], 0.0);
        add("embeddings.norm.weight".into(), &[width], 1.0);
        add("final_norm.weight".into(), &[width], 1.0);
    } else {
        add("embeddings.word_embeddings.weight".into(), &[120, width], 0.0);
        add("embeddings.token_type_embeddings.weight".into(), &[1, width], 0.0);
        add("embeddings.LayerNorm.weight".into(), &[width], 1.0);
        add("embeddings.LayerNorm.bias".into(), &[width], 0.0);
    }
    for i in 0..layers {
        let maps = [[3 * width, width], [width, width], [2 * inner, width], [width, inner]];
        if is_modern {
            for (name, shape) in ["attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"].into_iter().zip(maps)
            {
                add(format!("layers.{i}.{name}.weight"), &shape, 0.0);
            }
            for name in &["mlp_norm", "attn_norm"][..if i > 0 { 2 } else { 1 }] {
                add(format!("layers.{i}.{name}.weight"), &[width], 1.0);
            }
            continue;
        }
        let names = ["attention.qkv_proj", "attention.o_proj", "mlp.up_gate_proj", "mlp.down_proj"];
        for (name, shape) in names.into_iter().zip(maps) {
            add(format!("encoder.layer.{i}.{name}.weight"), &shape, 0.0);
            if name != "mlp.up_gate_proj" {
                add(format!("encoder.layer.{i}.{name}.bias"), &shape[..1], 0.0);
            }
        }
        for name in ["attn_ln", "mlp_ln"] {
            add(format!("encoder.layer.{i}.{name}.weight"), &[width], 1.0);
            add(format!("encoder.layer.{i}.{name}.bias"), &[width], 0.0);
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>>>()?;
    std::fs::write(
        directory.path().join("model.safetensors"),
        safetensors::serialize(views, None)?,
    )?;
    Ok(directory)
}

fn gte(sizes: Sizes) -> Result<tempfile::TempDir> {
    random_model(sizes, &[("model_type", "gte".into()), ("rope_theta", 500.0.into())])
}

/// With windows of `window` places to either side, and two ropes.
fn modern_bert(sizes: Sizes, window: usize) -> Result<tempfile::TempDir> {
    let settings = [
        ("model_type", "modernbert".into()),
        ("local_attention", (2 * window).into()),
        ("global_rope_theta", 160_000.0.into()),
        ("local_rope_theta", 100.0.into()),
    ];
    random_model(sizes, &settings)
}

#[test]
fn a_gpu_computes_sums_and_norms_of_width_768_in_one_kernel() -> Result<()> {
    if gpus()?.is_none() {
        return Ok(());
    }
    let directory = gte([768, 12, 160, 2])?;
    let model = directory.path().display().to_string();
    let pooling = Pooling::Mean;
    let cpu = load(&EncoderConfig { max_tokens: 300, ..config(&model, pooling) }, &offline())?;
    let chunks = chunks(12, 300, 120);
    let expected = embed(cpu.encoder.as_ref(), &chunks)?;
    let actual = embed(&open(&model, pooling, &[0])?, &chunks)?;
    check(&actual, &expected, 768, pooling)?;
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "how far off is worth knowing")]
fn a_gpu_computes_gte_and_modernbert() -> Result<()> {
    if gpus()?.is_none() {
        return Ok(());
    }
    // Heads of 32 and of 64; widths at the edges of what kernels take.
    for (name, directory) in [
        ("gte, 32", gte([96, 3, 72, 2])?),
        ("gte, 64", gte([128, 2, 96, 2])?),
        ("modernbert, 32, 8", modern_bert([96, 3, 72, 5], 8)?),
        ("modernbert, 64, 64", modern_bert([128, 2, 88, 4], 64)?),
    ] {
        let model = directory.path().display().to_string();
        for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last] {
            let config = EncoderConfig { max_tokens: 300, ..config(&model, pooling) };
            let cpu = load(&config, &offline())?.encoder;
            let gpu = open(&model, pooling, &[0])?;
            let mut chunks = chunks(20, 300, 120);
            for length in [8, 9, 10, 16, 17, 18, 136, 137, 191, 192, 193, 256, 257] {
                chunks.push((0..length).map(|i| (i * 37 % 113) as u32 + 3).collect());
            }
            let expected = embed(cpu.as_ref(), &chunks)?;
            let figures =
                check(&embed(&gpu, &chunks)?, &expected, cpu.info().embedding_size, pooling)
                    .with_context(|| format!("{name}, {pooling:?}"))?;
            eprintln!("{name}, {pooling:?}: worst, mean, cosine {figures:?}");
        }
    }
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "how far off is worth knowing")]
fn a_gpu_computes_the_embeddings_of_the_cpu() -> Result<()> {
    if gpus()?.is_none() {
        return Ok(());
    }
    let bert = as_bert("head32-bf16")?;
    for (model, longest, count) in [
        (golden("head32-bf16").display().to_string(), 258, 60),
        (golden("head64-f16").display().to_string(), 130, 60),
        (bert.path().display().to_string(), 260, 60),
        (MINI.into(), 512, 12),
    ] {
        for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last] {
            let cpu = load(&config(&model, pooling), &offline())?.encoder;
            ensure!(cpu.info().device == "cpu");
            let gpu = open(&model, pooling, &[0])?;
            let chunks = if model == MINI { whole_chunks } else { chunks };
            let chunks = chunks(count, longest, cpu.info().vocab_size);
            let expected = embed(cpu.as_ref(), &chunks)?;
            let actual = embed(&gpu, &chunks)?;
            let figures = check(&actual, &expected, cpu.info().embedding_size, pooling)
                .with_context(|| format!("{model}, {pooling:?}"))?;
            eprintln!("{pooling:?}: worst, mean, cosine {figures:?}");
        }
    }
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "how far off is worth knowing")]
fn a_gpu_computes_in_fp8_what_rounding_to_it_allows() -> Result<()> {
    let Some(gpus) = gpus()? else { return Ok(()) };
    let widths = golden("head64-f16").display().to_string();
    let modern = modern_bert([128, 2, 96, 4], 8)?;
    let modern = modern.path().display().to_string();
    for (model, longest, count) in [(widths, 130, 60), (modern, 300, 24), (MINI.into(), 512, 12)] {
        let opened = open_in(&model, Pooling::Mean, EncoderPrecision::Fp8, &[0]);
        if gpus[0].compute_capability != (9, 0) {
            ensure!(matches!(opened, Err(Error::Device(CudaError::Unsupported { .. }))));
            return Ok(());
        }
        let cpu = load(&config(&model, Pooling::Mean), &offline())?.encoder;
        let (gpu, width) = (opened?, cpu.info().embedding_size);
        let chunks = chunks(count, longest, cpu.info().vocab_size);
        let expected = embed(cpu.as_ref(), &chunks)?;
        let all = distances(&embed(&gpu, &chunks)?, &expected, width);
        let worst = all.iter().map(|&(d, _)| d).fold(0.0, f64::max);
        let mean = all.iter().map(|&(d, _)| d).sum::<f64>() / all.len() as f64;
        eprintln!("{model}: worst {worst:e}, mean {mean:e}");
        // e4m3 has 4 significant bits where bf16 has 8, and so 16 times its roundings. They are no
        // less than a bf16 encoder's: something is computed in fp8.
        ensure!(worst <= 16.0 * WORST && mean <= 16.0 * MEAN && mean > MEAN, "{worst:e}, {mean:e}");
    }
    Ok(())
}

#[test]
fn the_bits_of_an_embedding_do_not_depend_on_the_batch() -> Result<()> {
    let Some(gpus) = gpus()? else { return Ok(()) };
    let chunks = chunks(30, 100, 120);
    for (model, precision) in [
        ("head32-bf16", EncoderPrecision::Bf16),
        ("head64-f16", EncoderPrecision::Bf16),
        ("head64-f16", EncoderPrecision::Fp8),
    ] {
        if precision == EncoderPrecision::Fp8 && gpus[0].compute_capability != (9, 0) {
            continue;
        }
        let gpu = open_in(&golden(model).display().to_string(), Pooling::Mean, precision, &[0])?;
        let company = embed(&gpu, &chunks)?;
        let alone: Result<Vec<_>, _> = chunks.iter().map(|chunk| encode(&gpu, &[chunk])).collect();
        ensure!(alone?.concat() == company, "{model} in {precision}");
        ensure!(embed(&gpu, &chunks)? == company, "{model} in {precision}, twice");
    }
    Ok(())
}

#[test]
fn the_information_is_that_of_the_model_and_the_gpu() -> Result<()> {
    let Some(gpus) = gpus()? else { return Ok(()) };
    let model = golden("head32-bf16").display().to_string();
    let cpu = load(&config(&model, Pooling::Mean), &offline())?.encoder;
    let gpu = open(&model, Pooling::Mean, &[0])?;
    let device = format!("cuda:0 ({})", gpus[0].name);
    let expected = polysift::encoder::EncoderInfo {
        device,
        in_flight: 4,
        batch_tokens: Some(1_056),
        max_sequences: 264,
        ..cpu.info().clone()
    };
    assert_eq!(gpu.info(), &expected);
    Ok(())
}

#[test]
fn batches_are_checked_as_on_the_cpu_and_for_the_memory_of_the_gpu() -> Result<()> {
    if gpus()?.is_none() {
        return Ok(());
    }
    let gpu = open(&golden("head32-bf16").display().to_string(), Pooling::Mean, &[0])?;
    let refuse = |chunks: &[&[u32]], expected: &str| -> Result<()> {
        let error = encode(&gpu, chunks).err().context("accepted")?;
        ensure!(matches!(error, Error::Shape { .. }), "{error:?}");
        ensure!(error.to_string().contains(expected), "{error}");
        Ok(())
    };
    refuse(&[&[1, 120, 2]], "token id 120 in sequence 0; there are 120")?;
    refuse(&[&[5; 259]], "259 tokens, not 1 to 258")?;
    refuse(&[&[][..]], "0 tokens")?;
    refuse(&[&[5; 258][..]; 5], "1290 tokens in 5 sequences")?;
    refuse(&[&[5; 1][..]; 265], "265 tokens in 265 sequences")?;
    assert!(encode(&gpu, &[])?.is_empty());
    // After all that it still works.
    assert_eq!(encode(&gpu, &[&[5; 1][..]; 264])?.len(), 264 * 64);
    Ok(())
}

#[test]
fn models_without_kernels_are_refused_with_the_limit() -> Result<()> {
    if gpus()?.is_none() {
        return Ok(());
    }
    for (name, expected) in
        [("head20-sharded", "heads of 20 values; [32, 64]"), ("head16-prefixed", "heads of 16")]
    {
        let model = golden(name).display().to_string();
        let error = open(&model, Pooling::Mean, &[0]).err().context("accepted")?;
        assert_eq!(error.exit_code(), 69);
        let Error::Device(cause) = error else { bail!("{error:?}") };
        ensure!(cause.to_string().contains(expected), "{cause}");
    }
    Ok(())
}

/// What a child process on a simulated machine says of embedding on the given GPUs.
fn embedded_with(gpus: &str, settings: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "cuda::embed_on_the_gpus", "--ignored", "--nocapture"]);
    let output = command.env("GPUS", gpus).envs(settings.iter().copied()).output()?;
    let lines = String::from_utf8(output.stdout)?;
    let said = |line: &&str| line.starts_with("GPU ");
    Ok(lines.lines().filter(said).map(|line| line["GPU ".len()..].to_owned()).collect())
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
#[expect(clippy::print_stdout, reason = "for the parent process")]
fn embed_on_the_gpus() -> Result<()> {
    let gpus = std::env::var("GPUS")?;
    let ordinals = gpus.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let model = golden("head32-bf16").display().to_string();
    let result = open(&model, Pooling::Mean, &ordinals).and_then(|encoder| {
        let chunks = chunks(200, 200, 120);
        let rows = embed(&encoder, &chunks);
        println!("GPU device: {}", encoder.info().device);
        rows
    });
    match result {
        Ok(rows) => {
            let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
            println!("GPU embeddings: {}", blake3::hash(&bytes));
        }
        Err(Error::Device(error)) => println!("GPU error: {error}"),
        Err(error) => println!("GPU refuses: {error}"),
    }
    Ok(())
}

#[test]
fn several_gpus_compute_what_one_does_and_the_failure_of_a_gpu_costs_no_result() -> Result<()> {
    let Some(gpus) = gpus()? else { return Ok(()) };
    if !gpus[0].name.starts_with("Simulated") {
        return Ok(());
    }
    let run = |gpus: &str, settings: &[(&str, &str)]| {
        embedded_with(gpus, &[&[("POLYSIFT_SIM_DEVICES", "3")], settings].concat())
    };
    let one = run("0", &[])?;
    ensure!(one.len() == 2 && one[0] == format!("device: cuda:0 ({})", gpus[0].name), "{one:?}");
    let several = run("0,2", &[])?;
    ensure!(several[0].starts_with("device: cuda:0,2 ("), "{several:?}");
    ensure!(several[1] == one[1], "one GPU and two: {one:?} {several:?}");
    for fail in ["0:25", "2:9", "2:40"] {
        let failing = run("0,2", &[("POLYSIFT_SIM_FAIL", fail)])?;
        ensure!(failing.get(1) == one.get(1), "{fail}: {failing:?}");
    }
    for fail in ["0:25", "0:1"] {
        let lost = run("0", &[("POLYSIFT_SIM_FAIL", fail)])?;
        let message = lost.last().context("nothing")?;
        ensure!(message.starts_with("error: cuda:0: "), "{lost:?}");
        ensure!(message.contains("CUDA_ERROR_LAUNCH_FAILED"), "{lost:?}");
    }
    let full = run("0", &[("POLYSIFT_SIM_MEMORY_BYTES", "1000000")])?;
    ensure!(full.concat().contains("cuda:0: out of memory, "), "{full:?}");
    let none = run("0,7", &[])?;
    ensure!(none.concat().contains("there is no GPU cuda:7; 3 found"), "{none:?}");
    Ok(())
}
