//! Chains of multiply-adds that never leave the registers.

use std::arch::x86_64::{
    _mm256_fmadd_ps, _mm256_set1_ps, _mm512_castps_ph, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ph, _mm512_fmadd_ps, _mm512_set1_epi8, _mm512_set1_ps,
};
use std::hint::black_box;

use polysift_kernels::{Isa, Precision};

use super::roofline::{STEPS, SUMS};

macro_rules! chains {
    ($(#[$features:meta] $name:ident: $sum:expr, $factor:expr, |$s:ident, $f:ident| $step:expr;)*) => {$(
        #[$features]
        fn $name() {
            let $f = black_box($factor);
            let mut sums = [black_box($sum); SUMS];
            for _ in 0..STEPS {
                for $s in &mut sums {
                    *$s = $step;
                }
            }
            black_box(sums);
        }
    )*};
}

chains! {
    #[target_feature(enable = "avx2,fma")]
    f32_avx2: _mm256_set1_ps(0.25), _mm256_set1_ps(0.5), |s, f| _mm256_fmadd_ps(*s, f, f);
    #[target_feature(enable = "avx512f")]
    f32_avx512: _mm512_set1_ps(0.25), _mm512_set1_ps(0.5), |s, f| _mm512_fmadd_ps(*s, f, f);
    #[target_feature(enable = "avx512f,avx512bf16")]
    bf16: _mm512_set1_ps(0.25), _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)),
        |s, f| _mm512_dpbf16_ps(*s, f, f);
    #[target_feature(enable = "avx512f,avx512fp16")]
    f16: _mm512_castps_ph(_mm512_set1_ps(0.25)), _mm512_castps_ph(_mm512_set1_ps(0.5)),
        |s, f| _mm512_fmadd_ph(*s, f, f);
    #[target_feature(enable = "avx512f,avx512vnni")]
    int8: _mm512_set1_epi8(1), _mm512_set1_epi8(1), |s, f| _mm512_dpbusd_epi32(*s, f, f);
}

/// Name, code and multiply-adds per instruction of the fastest way to sum products of `precision`.
pub(crate) fn chains(precision: Precision) -> Option<(&'static str, fn(), usize)> {
    let half = Precision::fastest_half(Isa::detect());
    let (wide, f32) = (is_x86_feature_detected!("avx512f"), "f32 multiply-adds in registers");
    let found: (&'static str, fn(), usize) = match precision {
        Precision::F16 if half == Some(precision) => {
            // SAFETY: what `half` says the CPU has.
            ("f16 multiply-adds in registers", || unsafe { f16() }, 32)
        }
        Precision::Bf16 if half == Some(precision) => {
            // SAFETY: what `half` says the CPU has.
            ("bf16 multiply-adds in registers", || unsafe { bf16() }, 32)
        }
        Precision::Int8 if wide && is_x86_feature_detected!("avx512vnni") => {
            // SAFETY: the CPU has the instructions, as was just asked.
            ("8-bit multiply-adds in registers", || unsafe { int8() }, 64)
        }
        // SAFETY: the CPU has the instructions, as was asked above.
        _ if wide => (f32, || unsafe { f32_avx512() }, 16),
        _ if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") => {
            // SAFETY: the CPU has the instructions, as was just asked.
            (f32, || unsafe { f32_avx2() }, 8)
        }
        _ => return None,
    };
    Some(found)
}
