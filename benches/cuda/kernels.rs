//! Each operation of the forward pass alone, on random data, and the GPU's own matrix rate.
//!
//! An operation is recorded several times in a graph, so that launching does not show, and runs
//! again and again on the same buffers: what fits into the second-level cache stays there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use half::bf16;
use polysift_kernels::cuda::{
    Bound, Buffer, Device, Embedding, LeftOperand, Limits, Linear, MatmulEpilogue,
    MatrixInstructions, Norm, NormInput, Operands, Output, PooledTokens, Staged, Stream, attention,
    driver_version, has_matmul_norm, layer_norm, matmul, matmul_norm, max_sequences, pool,
};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use serde_json::json;

use crate::Common;
use crate::expected::{Expected, MATRIX_TFLOPS};
use crate::measure::{Sizes, line, median, write_json};

/// Launches of one graph.
const LAUNCHES: usize = 20;
/// How long the product of the matrix rate runs before it counts: in the first moments a GPU is faster
/// than the power that it may draw lets it be.
const SUSTAINED: Duration = Duration::from_secs(1);
/// Random values that are made; longer buffers repeat them.
const BLOCK: usize = 1 << 20;
const SEQUENCE: usize = 512;
/// Scale of states in e4m3: the states lie as far below 448 times it as an encoder's do.
const SCALE: f32 = 1.0 / 16.0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tokens of a batch, each measured
    #[arg(long, value_delimiter = ',', default_value = "4224,8448,16896,33792,67584")]
    batch_tokens: Vec<usize>,
    /// Rows, columns and depth of the matrix product that the GPU's rate is taken from
    #[arg(long, default_value_t = 8192)]
    matrix: usize,
}

/// One operation at one number of tokens.
#[derive(Debug, Serialize)]
struct Timing {
    batch_tokens: usize,
    kernel: String,
    /// The instructions that compute it, where there is a choice.
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    /// How often it runs in a forward pass.
    times: usize,
    microseconds: f64,
    /// Of all its runs in a forward pass.
    nanoseconds_per_token: f64,
    /// For matrix products and attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    tflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Expected>,
}

/// Measures the matrix rate, then every operation at every number of tokens.
pub(crate) fn measure(common: &Common, options: &Options) -> Result<()> {
    let sizes = Sizes::read(&common.data.join("model"))?;
    let device = Device::open(ordinal(&common.device)?)?;
    let warm_up = SUSTAINED;
    let bench = Bench { stream: device.stream()?, repetitions: common.repetitions, warm_up };
    let n = options.matrix;
    let (products, operations) = bench.matmul((n, n, n), Epilogue::Bias, false)?;
    let fastest = products.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    let matrix_tflops = operations / fastest / 1e12;
    let bench = Bench { warm_up: Duration::ZERO, ..bench };
    let expected = if n == 8192 { MATRIX_TFLOPS } else { "" };
    for (by, seconds) in &products {
        let tflops = operations / seconds / 1e12;
        line(&format!("matrix product of {n}³, {by}: {tflops:.1} TFLOP/s{expected}"))?;
    }
    let mut timings = Vec::new();
    for &tokens in &options.batch_tokens {
        for mut timing in bench.forward(&sizes, tokens)? {
            timing.expected = Expected::of(&sizes, tokens, &timing.kernel);
            line(&timing.describe())?;
            timings.push(timing);
        }
        let info = device.info();
        let result = json!({
            "device": info.name, "driver": driver_version()?, "matrix": n, "matrix_tflops": matrix_tflops,
            "kernels": timings,
        });
        write_json(&common.out, &result)?;
    }
    Ok(())
}

/// A [`MatmulEpilogue`] of the tables.
#[derive(Clone, Copy)]
enum Epilogue {
    Bias,
    Gelu,
    Residual,
}

/// Returns the name that the tables give to kernels with these instructions.
fn name(by: MatrixInstructions) -> &'static str {
    match by {
        MatrixInstructions::Warp => "warp",
        MatrixInstructions::Warpgroup => "group",
    }
}

/// N of `cuda:N`; 0 for `cuda`.
fn ordinal(device: &str) -> Result<usize> {
    match device.strip_prefix("cuda:") {
        Some(number) => number.parse().with_context(|| format!("`{device}` is not one GPU")),
        None => Ok(0),
    }
}

impl Timing {
    fn new(
        batch_tokens: usize,
        (kernel, times): (&str, usize),
        seconds: f64,
        operations: Option<f64>,
    ) -> Self {
        Self {
            batch_tokens,
            kernel: kernel.to_owned(),
            by: String::new(),
            times,
            microseconds: seconds * 1e6,
            nanoseconds_per_token: seconds * 1e9 * times as f64 / batch_tokens as f64,
            tflops: operations.map(|operations| operations / seconds / 1e12),
            expected: None,
        }
    }

    fn describe(&self) -> String {
        let rate = self.tflops.map_or_else(String::new, |t| format!(" {t:>7.1} TFLOP/s"));
        let (name, expected) = match self.expected {
            Some(Expected { shape, microseconds }) => {
                (format!("{} {shape}", self.kernel), format!("{microseconds} us expected,"))
            }
            None => (self.kernel.clone(), String::new()),
        };
        format!(
            "{:>6} {name:<28} {:<10} {expected:>22} {:>9.1} us measured {:>7.2} ns/token{rate}",
            self.batch_tokens, self.by, self.microseconds, self.nanoseconds_per_token
        )
    }
}

/// The result of a product.
enum Y {
    Bf16(Buffer<bf16>),
    Fp8(Buffer<u8>),
}

impl Y {
    fn result(&mut self) -> Output<'_> {
        match self {
            Self::Bf16(values) => Output::Bf16(values),
            Self::Fp8(values) => Output::Fp8(values, SCALE),
        }
    }
}

struct Bench {
    stream: Stream,
    repetitions: usize,
    /// How long an operation runs before it is timed.
    warm_up: Duration,
}

impl Bench {
    /// Values between -1 and 1, never zeros: a GPU runs faster on those than it ever will.
    fn random(&self, len: usize) -> Result<Buffer<bf16>> {
        let mut buffer = self.stream.device().alloc(len, "the benchmark")?;
        let block = random_values(len.min(BLOCK));
        for at in (0..len).step_by(BLOCK) {
            self.stream.upload(&mut buffer, at, &block[..BLOCK.min(len - at)])?;
        }
        Ok(buffer)
    }

    /// Returns the values of [`Self::random`] in e4m3 with [`SCALE`]; the fraction is cut to 3 bits.
    fn random_fp8(&self, len: usize) -> Result<Buffer<u8>> {
        let byte = |x: &bf16| {
            let (sign, size) = (x.to_bits() >> 8 & 0x80, x.to_bits() >> 4 & 0x7ff);
            (sign | size.saturating_sub((127 - 7 - 4) << 3)) as u8
        };
        let block: Vec<u8> = random_values(len.min(BLOCK)).iter().map(byte).collect();
        Ok(self.stream.to_device(&repeated(&block, len), "the benchmark")?)
    }

    /// Median time of one run of `work`.
    fn time(
        &self,
        mut work: impl FnMut(&Stream) -> polysift_kernels::cuda::Result<()>,
    ) -> Result<f64> {
        work(&self.stream)?;
        self.stream.synchronize()?;
        let graph = self.stream.record(|stream| (0..LAUNCHES).try_for_each(|_| work(stream)))?;
        let launch = || -> Result<f64> {
            let began = Instant::now();
            graph.launch()?;
            self.stream.synchronize()?;
            Ok(began.elapsed().as_secs_f64() / LAUNCHES as f64)
        };
        let began = Instant::now();
        launch()?;
        while began.elapsed() < self.warm_up {
            launch()?;
        }
        let seconds: Vec<f64> = (0..self.repetitions).map(|_| launch()).collect::<Result<_>>()?;
        Ok(median(&seconds))
    }

    /// Time of a matrix product by each kernel, with what computes it, and its operations.
    fn matmul(
        &self,
        (tokens, outputs, inputs): (usize, usize, usize),
        epilogue: Epilogue,
        is_fp8: bool,
    ) -> Result<(Vec<(String, f64)>, f64)> {
        let stream = &self.stream;
        let weight = repeated(&random_values((outputs * inputs).min(BLOCK)), outputs * inputs);
        let bias = random_values(outputs);
        let x = self.random(tokens * inputs)?;
        let linear =
            Linear::new(stream, &weight, &bias, is_fp8.then_some(Bound::Within(448.0 * SCALE)))?;
        let x_fp8 = is_fp8.then(|| self.random_fp8(tokens * inputs)).transpose()?;
        let residual = self.random(tokens * outputs)?;
        let epilogue = match epilogue {
            Epilogue::Bias => MatmulEpilogue::Bias,
            Epilogue::Gelu => MatmulEpilogue::Gelu,
            Epilogue::Residual => MatmulEpilogue::Residual(&residual),
        };
        let mut y = if linear.writes_fp8(epilogue) {
            Y::Fp8(stream.device().alloc(tokens * outputs, "the benchmark")?)
        } else {
            Y::Bf16(self.random(tokens * outputs)?)
        };
        let x = x_fp8.as_ref().map_or(LeftOperand::Bf16(&x), LeftOperand::Fp8);
        let mut seconds = Vec::new();
        for by in self.instructions() {
            if by == MatrixInstructions::Warp && is_fp8 {
                continue;
            }
            let time = self.time(|stream| {
                let operands = Operands { rows: tokens, x, epilogue, y: y.result() };
                matmul(stream, &linear, &operands, by)
            })?;
            seconds.push((name(by).to_owned(), time));
        }
        Ok((seconds, 2.0 * (tokens * outputs) as f64 * inputs as f64))
    }

    /// The instructions that the GPU has kernels for.
    fn instructions(&self) -> Vec<MatrixInstructions> {
        let fastest = MatrixInstructions::fastest(self.stream.device());
        let mut all = vec![fastest, MatrixInstructions::Warp];
        all.dedup();
        all
    }

    /// Every operation of a forward pass over `tokens` tokens in sequences of 512.
    fn forward(&self, sizes: &Sizes, tokens: usize) -> Result<Vec<Timing>> {
        let (h, f, layers) = (sizes.hidden_size, sizes.intermediate_size, sizes.num_hidden_layers);
        ensure!(h.is_multiple_of(sizes.num_attention_heads), "heads of unequal size");
        let stream = &self.stream;
        let mut timings = Vec::new();
        for (name, outputs, inputs, epilogue, is_fp8) in [
            ("qkv", 3 * h, h, Epilogue::Bias, false),
            ("attention output", h, h, Epilogue::Residual, false),
            ("ffn1 + gelu", f, h, Epilogue::Gelu, false),
            ("ffn2", h, f, Epilogue::Residual, false),
            ("qkv, fp8", 3 * h, h, Epilogue::Bias, true),
            ("attention output, fp8", h, h, Epilogue::Residual, true),
            ("ffn1 + gelu, fp8", f, h, Epilogue::Gelu, true),
            ("ffn2, fp8", h, f, Epilogue::Residual, true),
        ] {
            if is_fp8 && stream.device().info().compute_capability != (9, 0) {
                continue;
            }
            let (products, operations) =
                self.matmul((tokens, outputs, inputs), epilogue, is_fp8)?;
            for (by, seconds) in products {
                let timing = Timing::new(tokens, (name, layers), seconds, Some(operations));
                timings.push(Timing { by, ..timing });
            }
        }
        if has_matmul_norm(stream, h) {
            timings.extend(self.normed_products(tokens, (h, f, layers))?);
        }
        let staged = self.batch(sizes, tokens)?;
        let (qkv, mut context) = (self.random(tokens * 3 * h)?, self.random(tokens * h)?);
        let shape = (sizes.num_attention_heads, h / sizes.num_attention_heads);
        let lengths = lengths(tokens).map(|length| length as f64);
        let operations = lengths.map(|length| 4.0 * length * length * h as f64).sum();
        for by in self.instructions() {
            if by == MatrixInstructions::Warpgroup && shape.1 != 64 {
                continue;
            }
            let name = format!("attention, {}", name(by));
            let context = Output::Bf16(&mut context);
            let seconds = self.time(|s| attention(s, &staged, &qkv, &context, shape, None, by))?;
            timings.push(Timing::new(tokens, (&name, layers), seconds, Some(operations)));
        }

        let norm = Norm::new(stream, &vec![1.0; h], &vec![0.1; h], 1e-5)?;
        let (x, mut hidden) = (self.random(tokens * h)?, self.random(tokens * h)?);
        let seconds =
            self.time(|s| layer_norm(s, NormInput::Rows(&x), &norm, &mut hidden, None, tokens))?;
        timings.push(Timing::new(tokens, ("layer norm", 2 * layers), seconds, None));
        if stream.device().info().compute_capability == (9, 0) {
            let mut copy = stream.device().alloc(tokens * h, "the benchmark")?;
            let seconds = self.time(|s| {
                layer_norm(s, NormInput::Rows(&x), &norm, &mut hidden, Some(&mut copy), tokens)
            })?;
            timings.push(Timing::new(tokens, ("layer norm, fp8", 2 * layers), seconds, None));
        }

        let words = repeated(&random_values(BLOCK), sizes.vocab_size * h);
        let positions: Vec<f32> =
            repeated(&random_values(h), NUM_POSITIONS * h).iter().map(|v| v.to_f32()).collect();
        let embedding = Embedding::new(stream, &words, &positions, h)?;
        let seconds = self.time(|s| {
            layer_norm(s, NormInput::Tokens(&staged, &embedding), &norm, &mut hidden, None, tokens)
        })?;
        timings.push(Timing::new(tokens, ("embed + layer norm", 1), seconds, None));

        let rows = max_sequences(tokens);
        let mut pooled = stream.device().alloc(rows * h, "the benchmark")?;
        let seconds =
            self.time(|s| pool(s, &staged, &hidden, &mut pooled, h, PooledTokens::All))?;
        timings.push(Timing::new(tokens, ("pool", 1), seconds, None));
        Ok(timings)
    }

    /// The products that include residual sum and layer norm.
    fn normed_products(
        &self,
        tokens: usize,
        (h, f, layers): (usize, usize, usize),
    ) -> Result<Vec<Timing>> {
        let (stream, device) = (&self.stream, self.stream.device());
        let norm = Norm::new(stream, &vec![1.0; h], &vec![0.1; h], 1e-5)?;
        let mut hidden = self.random(tokens * h)?;
        let mut copy = device.alloc(tokens * h, "the benchmark")?;
        let mut timings = Vec::new();
        for (name, inputs) in [("attention output + norm", h), ("ffn2 + norm", f)] {
            let weight = repeated(&random_values((h * inputs).min(BLOCK)), h * inputs);
            let bias = random_values(h);
            let x = self.random(tokens * inputs)?;
            let linear = Linear::new(stream, &weight, &bias, None)?;
            let left = LeftOperand::Bf16(&x);
            let bf16 =
                self.time(|s| matmul_norm(s, left, &linear, &norm, &mut hidden, None, tokens))?;
            let linear = Linear::new(stream, &weight, &bias, Some(Bound::Within(448.0 * SCALE)))?;
            let x = self.random_fp8(tokens * inputs)?;
            let left = LeftOperand::Fp8(&x);
            let fp8 = self.time(|s| {
                matmul_norm(s, left, &linear, &norm, &mut hidden, Some(&mut copy), tokens)
            })?;
            let operations = Some(2.0 * (tokens * h) as f64 * inputs as f64);
            timings.push(Timing::new(tokens, (name, layers), bf16, operations));
            let name = format!("{name}, fp8");
            timings.push(Timing::new(tokens, (&name, layers), fp8, operations));
        }
        Ok(timings)
    }

    /// A batch that fills `tokens` with random ids.
    fn batch(&self, sizes: &Sizes, tokens: usize) -> Result<Staged> {
        let (vocab_size, num_positions) = (sizes.vocab_size, NUM_POSITIONS);
        let limits = Limits { vocab_size, num_positions, max_tokens: None };
        let mut staged = Staged::new(&self.stream, tokens, limits)?;
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let ids: Vec<u32> =
            (0..tokens).map(|_| rng.random_range(4..sizes.vocab_size as u32)).collect();
        let mut starts = vec![0];
        for length in lengths(tokens) {
            starts.push(starts[starts.len() - 1] + length as u32);
        }
        let positions = lengths(tokens).flat_map(|length| 2..2 + length);
        staged.put(&self.stream, &ids, positions, &starts)?;
        Ok(staged)
    }
}

const NUM_POSITIONS: usize = 514;

/// Sequences of 512 tokens, and what is left.
fn lengths(tokens: usize) -> impl Iterator<Item = usize> {
    (0..tokens).step_by(SEQUENCE).map(move |start| SEQUENCE.min(tokens - start))
}

fn random_values(len: usize) -> Vec<bf16> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    (0..len).map(|_| bf16::from_f32(rng.random_range(-1.0..1.0))).collect()
}

fn repeated<T: Copy>(block: &[T], len: usize) -> Vec<T> {
    block.iter().copied().cycle().take(len).collect()
}
