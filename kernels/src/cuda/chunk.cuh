// Chunks of 8 values: 16 bytes of bf16, the widest access of a thread, or 8 bytes of e4m3.
#pragma once
#include "device.cuh"

constexpr int CHUNK = 8;

DEVICE void unpack_chunk(float (&values)[CHUNK], const uint4 &words) {
  values[0] = first_of(words.x), values[1] = second_of(words.x);
  values[2] = first_of(words.y), values[3] = second_of(words.y);
  values[4] = first_of(words.z), values[5] = second_of(words.z);
  values[6] = first_of(words.w), values[7] = second_of(words.w);
}

// Adds the eight bf16 of `words` to `values`.
DEVICE void add_chunk(float (&values)[CHUNK], const uint4 &words) {
  float others[CHUNK];
  unpack_chunk(others, words);
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) values[i] += others[i];
}

DEVICE void unpack_chunk(float (&values)[CHUNK], const uint4 &low, const uint4 &high) {
  values[0] = __uint_as_float(low.x), values[1] = __uint_as_float(low.y);
  values[2] = __uint_as_float(low.z), values[3] = __uint_as_float(low.w);
  values[4] = __uint_as_float(high.x), values[5] = __uint_as_float(high.y);
  values[6] = __uint_as_float(high.z), values[7] = __uint_as_float(high.w);
}

// Rounds the values to bf16 and writes them if `valid`.
DEVICE void store_chunk(bf16 *to, const float (&values)[CHUNK], bool valid) {
  const uint4 words = {pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]),
                       pack_bf16(values[4], values[5]), pack_bf16(values[6], values[7])};
  store_16(to, words, valid);
}

// Rounds the values times `inverse` to e4m3 and writes them if `valid`.
DEVICE void store_chunk(e4m3 *to, const float (&values)[CHUNK], float inverse, bool valid) {
  unsigned pairs[CHUNK / 2];
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i)
    pairs[i] = pack_e4m3(values[2 * i] * inverse, values[2 * i + 1] * inverse);
  if (valid)
    *reinterpret_cast<uint2 *>(to) = {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

// Writes the values in f32 if `valid`.
DEVICE void store_chunk(float *to, const float (&values)[CHUNK], bool valid) {
#pragma unroll
  for (int i = 0; i < CHUNK; i += 4) {
    const uint4 words = {__float_as_uint(values[i]), __float_as_uint(values[i + 1]),
                         __float_as_uint(values[i + 2]), __float_as_uint(values[i + 3])};
    store_16(to + i, words, valid);
  }
}
