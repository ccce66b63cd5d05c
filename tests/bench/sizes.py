"""Times one artefact for all sizes of a model at some of them, beside artefacts for these sizes alone and the peers.

    sizes.py [--threads 1] [--rounds 9] --dim NAME=MIN..=MAX ... --at N,N ... NIELLO MODEL

`--dim` are the model's symbols in the order of their names, as niello takes them, `--at` a size for each that is not
fixed; without it, random ones up to the greatest. Random inputs are floats, and integers that are 0 or 1; `--value` is a
scalar that niello compiles in. ONNX Runtime and OpenVINO load the model as it is, with sizes of each run. Prints the
median of the rounds in µs, and how much outputs differ from those of ONNX Runtime, whichever artefact.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

import engines

ROUND = 0.02
ENGINES = {"onnxruntime": engines.onnxruntime_call, "openvino": engines.openvino_call}


def inputs_at(model, at, values, random):
    initialisers = {tensor.name for tensor in model.graph.initializer}
    for port in model.graph.input:
        if port.name in initialisers:
            continue
        tensor = port.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if port.name in values:
            yield port.name, np.asarray(float(values[port.name]), dtype)
            continue
        names = [dim.dim_param or f"{port.name}_{axis}" for axis, dim in enumerate(tensor.shape.dim)]
        shape = [dim.dim_value if dim.dim_value > 0 else at[name] for dim, name in zip(tensor.shape.dim, names)]
        numbers = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        yield port.name, np.asarray(numbers, dtype)


def measured(call):
    call()
    calls, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < ROUND:
        call()
        calls += 1
    return seconds / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dim", action="append", required=True)
    parser.add_argument("--at", action="append", default=[])
    parser.add_argument("--value", action="append", default=[])
    parser.add_argument("--points", type=int, default=8, help="how many random sizes, without --at")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("niello")
    parser.add_argument("model")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    dims = dict(dim.split("=", 1) for dim in args.dim)
    values = dict(value.split("=", 1) for value in args.value)
    pinned = [option for value in args.value for option in ("--input-value", value)]
    known = {name: int(size) for name, size in dims.items() if size.isdigit()}
    names = [name for name in dims if name not in known]
    greatest = [int(re.split("=|,", dims[name])[-1]) for name in names]
    points = [[int(number) for number in at.split(",")] for at in args.at]
    points = points or [[random.integers(1, most + 1) for most in greatest] for _ in range(args.points)]
    model = onnx.load(args.model)
    print(f"{'sizes':>12} {'niello':>9} {'fixed':>9} {'ratio':>6} {'onnxruntime':>12} {'openvino':>9} {'best':>6} {'differ':>8}")
    with tempfile.TemporaryDirectory() as name:
        open_sizes, fixed = Path(name) / "open", Path(name) / "fixed"
        open_sizes.mkdir()
        given = pinned + [option for dim in args.dim for option in ("--dim", dim)]
        library, _ = engines.niello_library(args.niello, args.backend, args.model, open_sizes, args.threads, given)
        for number, point in enumerate(points):
            at = known | dict(zip(names, point, strict=True))
            named = dict(inputs_at(model, at, values, random))
            inputs = list(named.values())
            told = [array for name, array in named.items() if name not in values]
            outputs, calls = {}, {}
            for engine, load in ENGINES.items():
                try:
                    outputs[engine], calls[engine] = load(args.model, inputs, args.threads)
                except engines.Failed as error:
                    print(f"{engine}: {error}", file=sys.stderr)
            like = outputs["onnxruntime"]
            sizes = np.array(point, np.int64)
            own, fixed_own = ([np.empty_like(array) for array in like] for _ in range(2))
            outputs["niello"], calls["niello"] = engines.library_call(library, [*told, sizes], own)
            folder = fixed / str(number)
            folder.mkdir(parents=True)
            fixed_at = pinned + [option for name, size in at.items() for option in ("--dim", f"{name}={size}")]
            alone, _ = engines.niello_library(args.niello, args.backend, args.model, folder, args.threads, fixed_at)
            outputs["fixed"], calls["fixed"] = engines.library_call(alone, told, fixed_own)
            times = {engine: [] for engine in calls}
            order = list(calls)
            for _ in range(args.rounds):
                # What threads of a peer do after a call must not always slow down the same engine.
                random.shuffle(order)
                for engine in order:
                    times[engine].append(measured(calls[engine]))
            us = {engine: statistics.median(all_times) for engine, all_times in times.items()}
            ratio = statistics.median(a / b for a, b in zip(times["niello"], times["fixed"]))
            best = us["niello"] / min(us[engine] for engine in ENGINES if engine in us)
            differ = max(abs(a - b).max() for ours in (outputs["niello"], outputs["fixed"]) for a, b in zip(ours, like))
            peers = [f"{us[engine]:.0f}" if engine in us else "-" for engine in ENGINES]
            print(
                f"{','.join(map(str, point)):>12} {us['niello']:>9.0f} {us['fixed']:>9.0f} {ratio:>6.2f} "
                f"{peers[0]:>12} {peers[1]:>9} {best:>6.2f} {differ:>8.1e}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
