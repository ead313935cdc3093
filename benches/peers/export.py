"""The model as ONNX Runtime and OpenVINO take it, in f32 and in int8.

    python export.py DATA

reads `DATA/model` and `DATA/CAL.*.npy` (documents that calibrate the static quantisation) and writes

    onnx/f32.onnx    torch.onnx.export, attention, GELU and layer norm fused by ONNX Runtime's optimizer
    onnx/int8.onnx   the same, dynamically quantised: u8 activations, s8 weights per channel
    ov/f32.xml       openvino.convert_model
    ov/int8.xml      the same, statically quantised by NNCF's preset for transformers

below DATA; a file that is there is kept.
"""

import pathlib
import sys

import numpy as np
import torch
from transformers import XLMRobertaModel

from workload import read


class States(torch.nn.Module):
    """`input_ids` and `attention_mask` [B, T] i64 to hidden states [B, T, H]."""

    def __init__(self, directory, attention):
        super().__init__()
        self.model = XLMRobertaModel.from_pretrained(directory, attn_implementation=attention).eval()

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def example():
    ids = torch.randint(4, 999, (2, 16))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def onnx_f32(data, out):
    from onnxruntime.transformers import optimizer

    plain = out.with_suffix(".plain.onnx")
    model = States(data / "model", "eager")
    sizes = {0: "batch", 1: "tokens"}
    torch.onnx.export(
        model, tuple(example().values()), plain, dynamo=False, opset_version=17,
        input_names=["input_ids", "attention_mask"], output_names=["states"],
        dynamic_axes={"input_ids": sizes, "attention_mask": sizes, "states": sizes},
    )
    config = model.model.config
    fused = optimizer.optimize_model(
        str(plain), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    )
    print("fused:", fused.get_fused_operator_statistics())
    fused.save_model_to_file(str(out))
    plain.unlink()


def onnx_int8(data, out):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The type that the fused operators' outputs have; shape inference does not know them.
    quantize_dynamic(
        data / "onnx/f32.onnx", out, per_channel=True, weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": 1},
    )


def ov_f32(data, out):
    import openvino

    model = openvino.convert_model(States(data / "model", "sdpa"), example_input=example())
    openvino.save_model(model, out, compress_to_fp16=False)


def ov_int8(data, out):
    import nncf
    import openvino

    documents = [np.array([ids], np.int64) for ids in read(data, "CAL")]
    inputs = [{"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids in documents]
    model = nncf.quantize(
        openvino.Core().read_model(data / "ov/f32.xml"), nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER, subset_size=len(inputs),
    )
    openvino.save_model(model, out, compress_to_fp16=False)


STEPS = {
    "onnx/f32.onnx": onnx_f32,
    "onnx/int8.onnx": onnx_int8,
    "ov/f32.xml": ov_f32,
    "ov/int8.xml": ov_int8,
}


def main():
    data = pathlib.Path(sys.argv[1])
    for name, make in STEPS.items():
        out = data / name
        if out.is_file():
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        print(f"{out} ...", flush=True)
        unfinished = out.with_stem(f"unfinished-{out.stem}")
        with torch.no_grad():
            make(data, unfinished)
        for part in out.parent.glob(f"unfinished-{out.stem}.*"):
            part.rename(part.with_name(part.name.removeprefix("unfinished-")))


if __name__ == "__main__":
    main()
