"""The Python engines: they embed what standard input names, until it ends.

    python engines.py NAME DATA MODEL [--threads 2] [--batch 4]

NAME is one of ENGINES. Speaks lines of JSON, as `peers serve` does (`main.rs`): `{"engine", "dtype",
"version"}` once it is loaded; for each `{"workload": NAME, "documents": N or null, "out": FILE or null}`
it embeds (the first N of) `DATA/NAME`, answers `{"secs"}`, and writes the embeddings to `out` as .npy.
Timed are padding, forward pass and mean pooling, documents sorted by length, `--batch` at a time.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np

from workload import batches, padded, read


def torch_engine(args, dtype, quantise=False):
    import torch
    from transformers import XLMRobertaModel

    torch.set_num_threads(args.threads)
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    model = XLMRobertaModel.from_pretrained(
        args.model, attn_implementation="sdpa", add_pooling_layer=False, dtype=types[dtype]
    ).eval()
    if quantise:
        torch.backends.quantized.engine = "onednn"
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)

    @torch.inference_mode()
    def embed(ids, mask):
        ids, mask = torch.from_numpy(ids), torch.from_numpy(mask)
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        mask = mask.unsqueeze(-1)
        return ((states * mask).sum(1) / mask.sum(1)).numpy()

    return embed, torch.__version__


def mean(states, mask):
    """Mean of the real tokens: [B, T, H] and [B, T] to [B, H]."""
    weights = (mask / mask.sum(1, keepdims=True)).astype(np.float32)
    return np.matmul(weights[:, None], states.astype(np.float32, copy=False))[:, 0]


def onnx_engine(args, graph):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    path = args.data / "onnx" / f"{graph}.onnx"
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def embed(ids, mask):
        return mean(session.run(None, {"input_ids": ids, "attention_mask": mask})[0], mask)

    return embed, onnxruntime.__version__


def openvino_engine(args, graph, hint):
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": args.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": hint,
        "ENABLE_CPU_PINNING": False,
    }
    path = args.data / "ov" / f"{graph}.xml"
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()

    def embed(ids, mask):
        inputs = {"input_ids": ids, "attention_mask": mask}
        return mean(request.infer(inputs, share_inputs=True, share_outputs=True)[0], mask)

    return embed, openvino.__version__.split("-")[0]


# The type as the table shows it, and what loads the engine.
ENGINES = {
    "torch-f32": ("f32", lambda a: torch_engine(a, "f32")),
    "torch-bf16": ("bf16", lambda a: torch_engine(a, "bf16")),
    "torch-f16": ("f16", lambda a: torch_engine(a, "f16")),
    "torch-int8": ("int8, dynamic", lambda a: torch_engine(a, "f32", quantise=True)),
    "ort-f32": ("f32", lambda a: onnx_engine(a, "f32")),
    "ort-int8": ("int8, dynamic", lambda a: onnx_engine(a, "int8")),
    "ov-f32": ("f32", lambda a: openvino_engine(a, "f32", "f32")),
    "ov-bf16": ("bf16", lambda a: openvino_engine(a, "f32", "bf16")),
    "ov-f16": ("f16", lambda a: openvino_engine(a, "f32", "f16")),
    "ov-int8": ("int8, static", lambda a: openvino_engine(a, "int8", "f32")),
    "ov-int8-bf16": ("int8, static, bf16", lambda a: openvino_engine(a, "int8", "bf16")),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=ENGINES)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    # Libraries print to standard output; only answers may go there.
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(**values):
        print(json.dumps(values), file=answers, flush=True)

    dtype, load = ENGINES[args.name]
    embed, version = load(args)
    answer(engine=args.name, dtype=dtype, version=version)
    for line in sys.stdin:
        request = json.loads(line)
        documents = read(args.data, request["workload"])[: request["documents"]]
        start = time.perf_counter()
        rows = [None] * len(documents)
        for group in batches(documents, args.batch):
            for i, row in zip(group, embed(*padded(documents, group))):
                rows[i] = row
        secs = time.perf_counter() - start
        if request["out"]:
            np.save(request["out"], np.stack(rows).astype(np.float32))
        answer(secs=secs)


if __name__ == "__main__":
    main()
