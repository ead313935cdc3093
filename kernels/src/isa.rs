//! Which instruction set the kernels use; found at run time.

/// An instruction set that this CPU has: a value exists only after the CPU was asked, which is
/// what makes calling the specialised code sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The fastest instruction set of this CPU.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 {
                return Self(Level::Avx512);
            }
            if avx2 {
                return Self(Level::Avx2);
            }
        }
        Self(Level::Portable)
    }

    /// Every instruction set of this CPU, the portable one first; for tests and benches.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        match Self::detect().0 {
            Level::Portable => {}
            Level::Avx2 => all.push(Self(Level::Avx2)),
            Level::Avx512 => all.extend([Self(Level::Avx2), Self(Level::Avx512)]),
        }
        all
    }

    /// `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

/// Defines a kernel `fn name(isa, ...)` from a portable body that is compiled once per
/// instruction set. The body is marked `#[inline(always)]`, so that the compiler vectorises it
/// with the features of the function it lands in; it may not be a closure.
macro_rules! vectorized {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $type),*) {
                    $body($($arg),*);
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) {
                    $body($($arg),*);
                }
                match isa.level() {
                    // SAFETY: an `Isa` of this level exists only if the CPU has these features.
                    $crate::isa::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::isa::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::isa::Level::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = isa;
            $body($($arg),*);
        }
    };
}
pub(crate) use vectorized;
