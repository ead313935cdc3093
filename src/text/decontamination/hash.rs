//! Hashes n-grams: a polynomial of the hashes of the tokens. The next one along a text then takes
//! two multiplications, one addition and one subtraction, however long n-grams are.

/// Base of the polynomial: odd, so that no token's hash loses bits; 2^64 over the golden ratio.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the hashes of a text's n-grams from the XXH3 of its tokens: h₁Bⁿ⁻¹ + … + hₙ modulo 2^64.
/// Keeps only the bits of `mask`: all, except in tests that need collisions.
pub(super) fn ngram_hashes(tokens: &[u64], n: u32, mask: u64) -> impl Iterator<Item = u64> {
    let before = n.saturating_sub(1);
    let power = BASE.wrapping_pow(before);
    let (first, rest) = tokens.split_at(tokens.len().min(before as usize));
    // Hash of the n - 1 tokens before the next one.
    let mut hash = first.iter().fold(0, |hash, token| append(hash, *token));
    rest.iter().zip(tokens).map(move |(next, oldest)| {
        let ngram = append(hash, *next);
        hash = ngram.wrapping_sub(oldest.wrapping_mul(power));
        ngram & mask
    })
}

/// Returns the hash of a sequence of tokens and one more.
fn append(hash: u64, token: u64) -> u64 {
    hash.wrapping_mul(BASE).wrapping_add(token)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rolling_gives_the_polynomial(tokens: Vec<u64>, n in 1_u32..6) {
            let rolled: Vec<u64> = ngram_hashes(&tokens, n, u64::MAX).collect();
            let direct: Vec<u64> = tokens
                .windows(n as usize)
                .map(|window| window.iter().fold(0, |hash, token| append(hash, *token)))
                .collect();
            prop_assert_eq!(rolled, direct);
        }
    }
}
