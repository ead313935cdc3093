//! The two matrices of a model, in rows of floats or of product quantiser codes (`.ftz`).

use std::io::{self, Read, Write};

use super::source::{ModelReader, broken};

/// Number of centroids that a code byte can name.
const CENTROIDS: usize = 256;

#[derive(Debug, Clone)]
pub(super) enum WordMatrix {
    Dense(DenseMatrix),
    Quantised(QuantisedMatrix),
}

#[derive(Debug, Clone)]
pub(super) struct DenseMatrix {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) values: Vec<f32>,
}

impl DenseMatrix {
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.cols..(row + 1) * self.cols]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.cols..(row + 1) * self.cols]
    }
}

/// Rows of codes. Decoded rows are multiplied by their norm, if norms are stored separately.
#[derive(Debug, Clone)]
pub(super) struct QuantisedMatrix {
    rows: usize,
    cols: usize,
    quantiser: Quantiser,
    /// `[rows, quantiser.parts]`.
    codes: Vec<u8>,
    /// Codes of the norms, and their quantiser.
    norms: Option<(Vec<u8>, Quantiser)>,
}

/// Vectors cut into parts; each part is one of 256 centroids.
#[derive(Debug, Clone)]
struct Quantiser {
    parts: usize,
    part_len: usize,
    last_len: usize,
    /// `[parts, 256, part_len]`, the last part `[256, last_len]`.
    centroids: Vec<f32>,
}

impl Quantiser {
    /// Returns the centroid of each part of a row of `codes`, with its start in the vector (C++
    /// `ProductQuantizer::get_centroids`).
    fn decode<'a>(&'a self, codes: &'a [u8]) -> impl Iterator<Item = (usize, &'a [f32])> {
        codes.iter().enumerate().map(|(part, &code)| {
            let len = if part + 1 == self.parts { self.last_len } else { self.part_len };
            let start = part * CENTROIDS * self.part_len + usize::from(code) * len;
            (part * self.part_len, &self.centroids[start..start + len])
        })
    }

    /// Reads a quantiser, which must be for vectors of `dim` values.
    fn read(source: &mut ModelReader<impl Read>, dim: usize) -> io::Result<Self> {
        let mut number = || {
            let value = source.read_i32()?;
            usize::try_from(value).or_else(|_| broken(format!("has a quantiser of {value}")))
        };
        let [own_dim, parts, part_len, last_len] = [number()?, number()?, number()?, number()?];
        let fits = own_dim == dim
            && (1..=dim).contains(&part_len)
            && parts == dim.div_ceil(part_len)
            && last_len == dim - (parts - 1) * part_len;
        if !fits {
            return broken(format!(
                "has a quantiser of {own_dim} values in {parts} parts of {part_len} (the last of \
                 {last_len}) for rows of {dim}"
            ));
        }
        let centroids = source.read_floats(dim * CENTROIDS, "values of centroids")?;
        Ok(Self { parts, part_len, last_len, centroids })
    }
}

impl QuantisedMatrix {
    /// Returns the factor of a decoded row, 1 if norms are not stored.
    fn norm(&self, row: usize) -> f32 {
        self.norms.as_ref().map_or(1.0, |(codes, quantiser)| {
            quantiser.centroids[usize::from(codes[row])] // vectors of one value
        })
    }

    fn codes(&self, row: usize) -> &[u8] {
        &self.codes[row * self.quantiser.parts..(row + 1) * self.quantiser.parts]
    }

    fn read(source: &mut ModelReader<impl Read>) -> io::Result<Self> {
        let has_norms = source.read_bool()?;
        let (rows, cols) = (source.read_count("rows")?, source.read_count("columns")?);
        let code_bytes = usize::try_from(source.read_i32()?).unwrap_or(usize::MAX);
        let codes = source.read_bytes(code_bytes, "codes")?;
        let quantiser = Quantiser::read(source, cols)?;
        if rows.checked_mul(quantiser.parts) != Some(codes.len()) {
            let (len, parts) = (codes.len(), quantiser.parts);
            return broken(format!("has {len} codes for {rows} rows of {parts} parts"));
        }
        let mut norms = None;
        if has_norms {
            norms = Some((source.read_bytes(rows, "codes of norms")?, Quantiser::read(source, 1)?));
        }
        Ok(Self { rows, cols, quantiser, codes, norms })
    }
}

impl WordMatrix {
    /// Returns the numbers of rows and columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        match self {
            Self::Dense(dense) => (dense.rows, dense.cols),
            Self::Quantised(quantised) => (quantised.rows, quantised.cols),
        }
    }

    /// Adds `row` to `sum` in fastText's order, for equal bits (C++ `DenseMatrix::addRowToVector`,
    /// `ProductQuantizer::addcode`).
    pub(super) fn add_row(&self, row: usize, sum: &mut [f32]) {
        match self {
            Self::Dense(dense) => add_scaled(sum, dense.row(row), 1.0),
            Self::Quantised(quantised) => {
                let norm = quantised.norm(row);
                for (start, centroid) in quantised.quantiser.decode(quantised.codes(row)) {
                    add_scaled(&mut sum[start..], centroid, norm);
                }
            }
        }
    }

    /// Multiplies `row` and `vector` (C++ `DenseMatrix::dotRow`, `ProductQuantizer::mulcode`).
    pub(super) fn dot_row(&self, row: usize, vector: &[f32]) -> f32 {
        match self {
            Self::Dense(dense) => dot(dense.row(row), vector),
            Self::Quantised(quantised) => {
                let parts = quantised.quantiser.decode(quantised.codes(row));
                let sum: f32 = parts.map(|(start, centroid)| dot(centroid, &vector[start..])).sum();
                sum * quantised.norm(row)
            }
        }
    }

    pub(super) fn read(
        source: &mut ModelReader<impl Read>,
        is_quantised: bool,
    ) -> io::Result<Self> {
        if is_quantised {
            return QuantisedMatrix::read(source).map(Self::Quantised);
        }
        let (rows, cols) = (source.read_count("rows")?, source.read_count("columns")?);
        let Some(len) = rows.checked_mul(cols) else {
            return broken(format!("has a matrix of {rows} rows of {cols} values"));
        };
        let values = source.read_floats(len, "values of a matrix")?;
        Ok(Self::Dense(DenseMatrix { rows, cols, values }))
    }

    /// Writes the matrix; fails for a quantised one.
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let Self::Dense(DenseMatrix { rows, cols, values }) = self else {
            return Err(io::Error::other("quantised models are not written"));
        };
        for count in [*rows, *cols] {
            let count = i64::try_from(count).map_err(io::Error::other)?;
            file.write_all(&count.to_le_bytes())?;
        }
        values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))
    }
}

/// Multiplies two vectors; sums from first to last.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn add_scaled(sum: &mut [f32], vector: &[f32], factor: f32) {
    sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += factor * value);
}

pub(super) fn scale(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}
