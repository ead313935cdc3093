// Every kernel in one translation unit: one image to load.
#include "attention.cu"
#include "attention_hopper.cu"
#include "gelu.cu"
#include "layer_norm.cu"
#include "pool.cu"
#include "quantise.cu"
#include "score.cu"
