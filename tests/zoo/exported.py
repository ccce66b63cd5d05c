"""Writes networks as PyTorch exports them, of random weights and open sizes, with what ONNX Runtime computes.

    python tests/zoo/exported.py OUT [NETWORK...]
    niello test --backend llvm OUT/*/

It needs the packages torch, torchvision and transformers, some gigabytes, so that nothing runs it by itself. Each network is
compiled once for all of its sizes, and run at three of each.
"""

import contextlib
import io
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
import transformers
from onnx import numpy_helper

OPSET = 17
# Bounds of the sizes by their names, and three runs.
SIZES = {
    "batch": ("1..=3", (1, 3, 2)),
    "length": ("1..=24", (7, 24, 1)),
    "others": ("1..=12", (5, 12, 1)),
    "past": ("0..=16", (8, 0, 3)),
    "keys": ("2..=40", (15, 24, 4)),
    "height": ("64..=128", (64, 128, 96)),
    "width": ("64..=128", (64, 96, 128)),
    "flow": ("128..=192", (128, 192, 160)),
    "rows": ("8..=64", (30, 64, 9)),
    "columns": ("8..=64", (37, 64, 8)),
    "samples": ("400..=1600", (800, 1600, 1234)),
}
TEXT = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=64,
)
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=64, patch_size=16)
SPEECH = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    conv_dim=(16, 16, 16),
    conv_stride=(5, 2, 2),
    conv_kernel=(10, 3, 3),
    num_feat_extract_layers=3,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
)
IMAGE = ("x", ("batch", 3, "height", "width"))
WORDS = [("ids", ("batch", "length")), ("mask", ("batch", "length"))]
NETWORKS = {}


def network(*inputs):
    """Adds a function that makes a module, with the names and shapes of its inputs."""

    def add(function):
        NETWORKS[function.__name__] = (function, inputs)
        return function

    return add


class Call(torch.nn.Module):
    """A module as a function of its tensors."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *tensors):
        return self.function(self.module, *tensors)


def encoder(name, attention="sdpa", **more):
    """The first output of a model of text by words and a mask."""
    config = getattr(transformers, f"{name}Config")(**TEXT | more)
    config._attn_implementation, config.use_cache = attention, False
    model = getattr(transformers, f"{name}Model")(config)
    return Call(model, lambda model, ids, mask: model(input_ids=ids, attention_mask=mask)[0])


def add_encoders():
    grouped = dict(num_key_value_heads=2)
    for name, attention, more in [
        ("Bert", "sdpa", {}),
        ("Bert", "eager", {}),
        ("Roberta", "sdpa", {}),
        ("MPNet", "eager", {}),
        ("Electra", "sdpa", dict(embedding_size=16)),
        ("Albert", "sdpa", dict(embedding_size=16)),
        ("DebertaV2", "eager", dict(relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"])),
        ("ModernBert", "sdpa", dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)),
        ("Llama", "sdpa", grouped),
        ("Mistral", "sdpa", dict(sliding_window=None) | grouped),
        ("Qwen2", "sdpa", grouped),
        ("Gemma", "sdpa", dict(head_dim=8) | grouped),
        ("Phi", "sdpa", {}),
    ]:
        NETWORKS[f"{name.lower()}_{attention}"] = (lambda *of, more=more: encoder(*of, **more), WORDS, (name, attention))


@network(*WORDS, ("others", ("batch", "others")))
def t5():
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
    model = transformers.T5ForConditionalGeneration(config)
    return Call(
        model,
        lambda model, ids, mask, others: model(
            input_ids=ids, attention_mask=mask, decoder_input_ids=others, use_cache=False
        )[0],
    )


@network(
    ("ids", ("batch", "length")),
    ("mask", ("batch", "keys")),
    *((name, ("batch", 2, "past", 8)) for name in ("key0", "value0", "key1", "value1")),
)
def llama_with_a_cache():
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config)

    def call(model, ids, mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        layers = result.past_key_values.layers
        return result[0], *(tensor for layer in layers for tensor in (layer.keys, layer.values))

    return Call(model, call)


@network(("x", ("batch", "samples")))
def wav2vec2():
    config = transformers.Wav2Vec2Config(vocab_size=32, **SPEECH)
    return Call(transformers.Wav2Vec2ForCTC(config), lambda model, x: model(x)[0])


@network(IMAGE)
def vit():
    model = transformers.ViTModel(transformers.ViTConfig(**VISION))
    return Call(model, lambda model, x: model(x, interpolate_pos_encoding=True)[0])


@network(IMAGE)
def swin():
    config = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4
    )
    return Call(transformers.SwinModel(config), lambda model, x: model(x)[0])


@network(IMAGE)
def segformer():
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16
    )
    return Call(transformers.SegformerForSemanticSegmentation(config), lambda model, x: model(x)[0])


@network(("x", ("batch", 3, "rows", "columns")))
def unet():
    return Unet()


class Unet(torch.nn.Module):
    """Images are padded to whole blocks of four, and what comes out is cut to what they were."""

    def __init__(self):
        super().__init__()
        conv, up = torch.nn.Conv2d, torch.nn.ConvTranspose2d
        self.down = torch.nn.ModuleList([conv(3, 8, 3, 1, 1), conv(8, 16, 3, 2, 1), conv(16, 24, 3, 2, 1)])
        self.up = torch.nn.ModuleList([up(24, 16, 2, 2), up(16, 8, 2, 2)])
        self.out = conv(8, 1, 1)

    def forward(self, x):
        height, width = x.shape[-2:]
        x = torch.nn.functional.pad(x, (0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
        whole, half, quarter = self.down
        whole = torch.relu(whole(x))
        half = torch.relu(half(whole))
        half = half + self.up[0](torch.relu(quarter(half)))
        return self.out(whole + self.up[1](half))[..., :height, :width]


def add_images():
    models = torchvision.models
    for name in ["resnet18", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_0", "densenet121", "regnet_y_400mf"]:
        NETWORKS[name] = (getattr(models, name), [IMAGE], ())
    flow = [("x", (1, 3, 128, "flow"))]
    NETWORKS["raft_small"] = (
        lambda: Call(models.optical_flow.raft_small(), lambda model, x: model(x, x * 0.5, num_flow_updates=2)[-1]),
        flow,
        (),
    )
    for name, side in [("fasterrcnn_mobilenet_v3_large_320_fpn", 320), ("fcos_resnet50_fpn", 128)]:
        NETWORKS[name] = (detector, [("x", (1, 3, side, side))], (name,))


def detector(name):
    """As many boxes as there are."""
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)
    return Call(model, lambda model, x: tuple(model([x[0]])[0].values()))


def feed(inputs, run, random):
    """The inputs of a run, by their names."""
    arrays = {}
    for name, shape in inputs:
        shape = [SIZES[size][1][run] if isinstance(size, str) else size for size in shape]
        if name == "mask":
            arrays[name] = np.ones(shape, np.int64)
            # The end of a text that others are longer than.
            arrays[name][1:, 2:][:, -1:] = 0
        elif name in ("ids", "others"):
            arrays[name] = random.integers(0, 90, shape)
        else:
            arrays[name] = random.standard_normal(shape).astype(np.float32)
    return arrays


def write(folder, function, inputs, arguments=()):
    """One case. Returns how far elements may be apart that are nearly zero, as `zoo.write` does."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    module = function(*arguments).eval()
    folder.mkdir(parents=True)
    # Of two of everything, so that nothing is taken for one.
    first = feed(inputs, 0, random)
    example = [np.concatenate([array] * 2) if shape[0] == "batch" else array for (_, shape), array in zip(inputs, first.values())]
    axes = {
        name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)} for name, shape in inputs
    }
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(
            module,
            tuple(map(torch.from_numpy, example)),
            folder / "model.onnx",
            input_names=[name for name, _ in inputs],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
    sizes = sorted({size for _, shape in inputs for size in shape if isinstance(size, str)})
    if sizes:
        (folder / "dims.json").write_text(json.dumps({size: SIZES[size][0] for size in sizes}))
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    greatest = 0.0
    for run in range(3 if sizes else 1):
        arrays = feed(inputs, run, random)
        data = folder / f"test_data_set_{run}"
        data.mkdir()
        results = dict(zip(names, session.run(None, arrays), strict=True))
        greatest = max([greatest, *(float(np.abs(array).max()) for array in results.values() if array.size)])
        for kind, tensors in (("input", arrays), ("output", results)):
            for position, (name, array) in enumerate(tensors.items()):
                tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
                (data / f"{kind}_{position}.pb").write_bytes(tensor.SerializeToString())
    return 4e-6 * greatest


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    warnings.filterwarnings("ignore")
    logging.disable()
    onnxruntime.set_default_logger_severity(4)
    add_encoders()
    add_images()
    out, asked = Path(sys.argv[1]), sys.argv[2:]
    index = []
    for name in asked or sorted(NETWORKS):
        index.append(dict(name=name, atol=write(out / name, *NETWORKS[name])))
        print(name, (out / name / "model.onnx").stat().st_size, "bytes")
    (out / "index.json").write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
