//! Token ids with the lengths of web documents, in files that NumPy reads.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng, seq::SliceRandom};

/// Ids 0 to 3 are `<s>`, `<pad>`, `</s>` and `<unk>`; the last id is `<mask>`.
const FIRST_ID: u32 = 4;
const BEGIN: u32 = 0;
const END: u32 = 2;
pub(crate) const MAX_TOKENS: usize = 512;
const MIN_TOKENS: f64 = 16.0;
/// Lengths in tokens are log-normal, clipped.
const MEDIAN_TOKENS: f64 = 320.0;
const SIGMA: f64 = 0.9;
/// Ids that are a document's own; they make up half of its tokens.
const OWN_IDS: usize = 48;

/// How long the documents are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths {
    /// All of 512 tokens.
    Full,
    /// Web-like: median 320, 16 to 512.
    Web,
}

/// Sequences of token ids.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) sequences: Vec<Vec<u32>>,
}

/// A standard normal value (Box and Muller's).
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

impl Workload {
    /// Draws `documents` sequences: half of the tokens by Zipf's law from the whole vocabulary, half from
    /// a few ids of the document's own.
    pub(crate) fn draw(
        name: &str,
        lengths: Lengths,
        documents: usize,
        vocab_size: usize,
        seed: u64,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ids: Vec<u32> = (FIRST_ID..vocab_size as u32 - 1).collect();
        ids.shuffle(&mut rng);
        let mut total = 0.0;
        let cumulative: Vec<f64> = (1..=ids.len())
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        let sequences = (0..documents).map(|_| {
            let length = match lengths {
                Lengths::Full => MAX_TOKENS,
                Lengths::Web => {
                    let tokens = MEDIAN_TOKENS * (SIGMA * normal(&mut rng)).exp();
                    tokens.round().clamp(MIN_TOKENS, MAX_TOKENS as f64) as usize
                }
            };
            let own: Vec<u32> = (0..OWN_IDS).map(|_| ids[rng.random_range(0..ids.len())]).collect();
            let mut sequence = vec![BEGIN];
            for _ in 0..length - 2 {
                sequence.push(if rng.random() {
                    let point = rng.random_range(0.0..total);
                    ids[cumulative.partition_point(|&c| c <= point).min(ids.len() - 1)]
                } else {
                    own[rng.random_range(0..OWN_IDS)]
                });
            }
            sequence.push(END);
            sequence
        });
        Self { name: name.into(), sequences: sequences.collect() }
    }

    /// Writes `NAME.ids.npy` and `NAME.lengths.npy`, both i32 `[n]`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let ids: Vec<u32> = self.sequences.concat();
        let lengths: Vec<u32> = self.sequences.iter().map(|s| s.len() as u32).collect();
        let path = |part| folder.join(format!("{}.{part}.npy", self.name));
        let bytes = |values: &[u32]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
        write_npy(&path("ids"), "<i4", &[ids.len()], bytes(&ids))?;
        write_npy(&path("lengths"), "<i4", &[lengths.len()], bytes(&lengths))
    }

    /// Reads what [`Workload::write`] wrote.
    pub(crate) fn read(folder: &Path, name: &str) -> Result<Self> {
        let ids = read_npy(&folder.join(format!("{name}.ids.npy")))?;
        let lengths = read_npy(&folder.join(format!("{name}.lengths.npy")))?;
        let mut rest = ids.as_slice();
        let mut sequences = Vec::new();
        for length in lengths {
            let Some((sequence, after)) = rest.split_at_checked(length as usize) else {
                bail!("{name}: fewer ids than its lengths say");
            };
            sequences.push(sequence.to_vec());
            rest = after;
        }
        ensure!(rest.is_empty(), "{name}: more ids than its lengths say");
        Ok(Self { name: name.into(), sequences })
    }

    /// The sequences, as the encoder takes them.
    pub(crate) fn chunks(&self) -> Vec<&[u32]> {
        self.sequences.iter().map(Vec::as_slice).collect()
    }
}

/// Writes an f32 matrix `[n, width]`.
pub(crate) fn write_embeddings(path: &Path, embeddings: &[f32], width: usize) -> Result<()> {
    let bytes = embeddings.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_npy(path, "<f4", &[embeddings.len() / width, width], bytes)
}

/// Format version 1.0: magic, length of the header, header padded so that the data starts at a
/// multiple of 64.
fn write_npy(path: &Path, descr: &str, shape: &[usize], data: Vec<u8>) -> Result<()> {
    let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let shape = shape.join(", ");
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape},), }}");
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(length)?.to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = length - 1).into_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

/// Values of four bytes of a file that [`write_npy`] wrote.
fn read_npy(path: &Path) -> Result<Vec<u32>> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("{} cannot be read; `prepare` makes it", path.display()))?;
    let length = bytes.get(8..10).context("is no .npy file")?;
    let start = 10 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    let data = bytes.get(start..).context("is no whole .npy file")?;
    Ok(data.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
}
