// Chunks of 8 values: 16 bytes of bf16, the widest access of a thread.
#pragma once
#include "device.cuh"

constexpr int CHUNK = 8;

// Adds eight bf16 at `from` to `values`.
DEVICE void add_chunk(float (&values)[CHUNK], const bf16 *from) {
  const uint4 words = *reinterpret_cast<const uint4 *>(from);
  values[0] += first_of(words.x), values[1] += second_of(words.x);
  values[2] += first_of(words.y), values[3] += second_of(words.y);
  values[4] += first_of(words.z), values[5] += second_of(words.z);
  values[6] += first_of(words.w), values[7] += second_of(words.w);
}

DEVICE void load_chunk(float (&values)[CHUNK], const float *from) {
  const float4 low = reinterpret_cast<const float4 *>(from)[0];
  const float4 high = reinterpret_cast<const float4 *>(from)[1];
  values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
  values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

DEVICE void store_chunk(bf16 *to, const float (&values)[CHUNK]) {
  uint4 words;
  words.x = pack_bf16(values[0], values[1]);
  words.y = pack_bf16(values[2], values[3]);
  words.z = pack_bf16(values[4], values[5]);
  words.w = pack_bf16(values[6], values[7]);
  *reinterpret_cast<uint4 *>(to) = words;
}
