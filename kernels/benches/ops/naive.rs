//! What the kernels compute, written as plainly as it can be.

pub(crate) fn gemm(x: &[f32], w: &[f32], bias: &[f32], y: &mut [f32]) {
    let k = w.len() / bias.len();
    for (x, y) in x.chunks_exact(k).zip(y.chunks_exact_mut(bias.len())) {
        for ((y, w), b) in y.iter_mut().zip(w.chunks_exact(k)).zip(bias) {
            *y = dot(x, w) + b;
        }
    }
}

pub(crate) fn attention([q, k, v]: [&[f32]; 3], head_size: usize, out: &mut [f32]) {
    let scale = 1.0 / (head_size as f32).sqrt();
    for (q, out) in q.chunks_exact(head_size).zip(out.chunks_exact_mut(head_size)) {
        let scores = k.chunks_exact(head_size).map(|k| scale * dot(q, k));
        let scores: Vec<f32> = scores.collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        out.fill(0.0);
        for (weight, v) in weights.iter().zip(v.chunks_exact(head_size)) {
            for (out, v) in out.iter_mut().zip(v) {
                *out += weight / sum * v;
            }
        }
    }
}

/// The standard library has no error function: Abramowitz and Stegun's 7.1.26.
pub(crate) fn gelu(values: &mut [f32]) {
    for value in values {
        let z = value.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * z);
        let sum = ((((1.061_405_4 * t - 1.453_152_1) * t + 1.421_413_8) * t - 0.284_496_72) * t
            + 0.254_829_6)
            * t;
        let erf = (1.0 - sum * (-z * z).exp()).copysign(*value);
        *value *= 0.5 * (1.0 + erf);
    }
}

pub(crate) fn layer_norm(x: &[f32], gamma: &[f32], beta: &[f32], eps: f64, out: &mut [f32]) {
    let width = gamma.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / width as f64;
        let squares = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>();
        let inverse = 1.0 / (squares / width as f64 + eps).sqrt();
        for (((out, &x), &g), &b) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
            *out = ((f64::from(x) - mean) * inverse) as f32 * g + b;
        }
    }
}

pub(crate) fn mean_rows(rows: &[f32], out: &mut [f32]) {
    let width = out.len();
    let count = (rows.len() / width) as f64;
    for (i, out) in out.iter_mut().enumerate() {
        let column = rows[i..].iter().step_by(width);
        *out = (column.map(|&v| f64::from(v)).sum::<f64>() / count) as f32;
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
