"""Latency of compiled models beside ONNX Runtime and OpenVINO, in one run.

    latency.py [--threads N] [--rounds N] [--seconds S] [--backend NAME]... [--models DIR] NIELLO [MODEL...]

A MODEL is a file, or a folder with `model.onnx` and perhaps recorded inputs (`test_data_set_0`), sizes of symbolic
dimensions (`dims.json`) and, in the folder around it, tolerances (`index.json`). `--models` adds the folders in DIR and
the `light_*` networks of the package `onnx`, whose constant weights are replaced by random ones.

All engines run the same file with the same inputs on bound memory, on as many threads as `--threads` says, in one process for each model, in turns of short
rounds, so that they see the same machine; medians are compared. Before that, their outputs must agree. Prints Markdown.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import numpy_helper

import engines
import randomize

PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}

# Longest that one call may take before a model is given up.
CALL_SECONDS = 20.0

# What is not timed before each turn: no call, as threads that wait for work keep processors busy for a while,
# and calls.
PAUSE_SECONDS = 0.02
WARM_SECONDS = 0.002


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("niello")
    parser.add_argument("model", nargs="*", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--backend", action="append")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round")
    parser.add_argument("--json", type=pathlib.Path, help="file for the ratios to the best peer, too")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.backend = options.backend or ["c"]
    return options


def on_one(backend):
    """The name of a backend's code that runs on one thread beside that on several."""
    return f"{backend}-serial"


def name_of(path):
    return path.parent.name if path.name == "model.onnx" else path.stem


def light_networks():
    folder = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"
    return sorted(folder.glob("light_*.onnx"))


def pinned(path):
    """The model with sizes for symbolic dimensions and without constant weights."""
    model = onnx.load(path)
    if path.name.startswith("light_"):
        randomize.randomize(model)
    dims_file = path.parent / "dims.json"
    dims = json.loads(dims_file.read_text()) if dims_file.exists() else {}
    for port in model.graph.input:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            known = dims.get(dim.dim_param, dims.get(f"{port.name}_{axis}"))
            # One without a name goes by its input's name and its position.
            if not dim.HasField("dim_value") and known is not None:
                dim.dim_value = known
    if dims:
        # What was inferred for other sizes would contradict.
        del model.graph.value_info[:]
        for port in model.graph.output:
            port.type.tensor_type.ClearField("shape")
    return model


def inputs_of(model, folder):
    """The recorded inputs, or seeded random ones."""
    weights = {tensor.name for tensor in model.graph.initializer}
    ports = [port for port in model.graph.input if port.name not in weights]
    rng = np.random.default_rng(0)
    arrays = []
    for index, port in enumerate(ports):
        path = folder / "test_data_set_0" / f"input_{index}.pb"
        if path.exists():
            tensor = onnx.TensorProto()
            tensor.ParseFromString(path.read_bytes())
            # A copy, as what is read from a file cannot be written to, and OpenVINO wants that.
            arrays.append(np.array(numpy_helper.to_array(tensor), order="C"))
            continue
        kind = port.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if any(dim.dim_param for dim in kind.shape.dim):
            raise engines.Failed(f"input `{port.name}` has a size that is not known; dims.json can give it")
        shape = [dim.dim_value for dim in kind.shape.dim]
        if np.issubdtype(dtype, np.floating):
            arrays.append(rng.standard_normal(shape).astype(dtype))
        else:
            arrays.append(rng.integers(0, 2, shape).astype(dtype))
    return arrays


def check(found, expected, tolerances):
    """Raises if the outputs differ by more than the tolerance."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        raise engines.Failed("the outputs have other shapes")
    for position, (a, b) in enumerate(zip(found, expected)):
        if not np.issubdtype(b.dtype, np.floating):
            near = a == b
        else:
            scale = max(1.0, float(np.abs(b).max(initial=0.0)))
            near = np.abs(a - b) <= tolerances["atol"] * scale + tolerances["rtol"] * np.abs(b)
        if not np.all(near | ((a != a) & (b != b))):
            share = 1.0 - np.mean(near)
            raise engines.Failed(f"output {position} differs from ONNX Runtime's in {share:.1%} of its elements")


def tolerances_of(path):
    index = path.parent.parent / "index.json"
    found = {"rtol": 1e-3, "atol": 1e-3}
    if path.name == "model.onnx" and index.exists():
        for case in json.loads(index.read_text()):
            if case.get("name") == path.parent.name:
                found.update({key: case[key] for key in found if key in case})
    return found


def time_in_turns(calls, rounds, seconds):
    """The median time of each call in µs."""
    counts, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once = max(time.perf_counter() - start, 1e-7)
        if once > CALL_SECONDS:
            raise engines.Failed(f"{name} takes {once:.0f} s")
        counts[name] = max(1, int(seconds / once))
    for _ in range(rounds):
        for name, call in calls.items():
            # The threads of the engine before go to sleep, and this one's wake up.
            time.sleep(PAUSE_SECONDS)
            start = time.perf_counter()
            while time.perf_counter() - start < WARM_SECONDS:
                call()
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(samples) * 1e6 for name, samples in times.items()}


def measure(options, path):
    """What is known about one model after all engines have run it."""
    result = {"name": name_of(path), "failures": {}, "compile": {}, "us": {}}
    model = pinned(path)
    result["conv"] = any(node.op_type == "Conv" for node in model.graph.node)
    inputs = inputs_of(model, path.parent)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        file = scratch / "model.onnx"
        onnx.save(model, file)
        del model
        calls = {}
        expected, calls["onnxruntime"] = engines.onnxruntime_call(file, inputs, options.threads)
        # The arrays that calls write to must live as long as these.
        kept = [expected]
        reference = [array.copy() for array in expected]
        tolerances = tolerances_of(path)

        def attempt(name, start):
            # So that what another engine wrote is not taken for its result.
            for array in expected:
                array[...] = 0
            try:
                outputs, call, *summary = start()
                check(outputs, reference, tolerances)
            except engines.Failed as error:
                result["failures"][name] = str(error)
                return
            kept.append(outputs)
            calls[name] = call
            if summary:
                result["compile"][name] = {key: summary[0][key] for key in ("compile_ms", "kernels")}

        attempt("openvino", lambda: engines.openvino_call(file, inputs, options.threads, expected))
        for backend in options.backend:
            for threads in sorted({options.threads, 1}, reverse=True):
                name = backend if threads == options.threads else on_one(backend)
                folder = scratch / name
                folder.mkdir()
                attempt(
                    name,
                    lambda: engines.niello_call(
                        options.niello, backend, file, inputs, expected, folder, threads
                    ),
                )
        result["us"] = time_in_turns(calls, options.rounds, options.seconds)
    return result


def run_child(options, path):
    """Measures in a process of its own, which may crash."""
    command = [sys.executable, "-B", __file__, "--one", options.niello, str(path)]
    command += [f"--threads={options.threads}", f"--rounds={options.rounds}", f"--seconds={options.seconds}"]
    command += [f"--backend={backend}" for backend in options.backend]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        ended = f"signal {-done.returncode}" if done.returncode < 0 else engines.reason(done.stderr[-300:])
        return {"name": name_of(path), "failures": {"all": ended}, "compile": {}, "us": {}, "conv": False}


def best_peer(row):
    return min((row["us"][peer] for peer in PEERS if peer in row["us"]), default=None)


def ratio(row, above, below):
    """The quotient of two times; `below` may be the best peer."""
    bottom = best_peer(row) if below == "peer" else row["us"].get(below)
    return row["us"][above] / bottom if above in row["us"] and bottom else None


def printed_latency(options, rows):
    backends = options.backend
    ratios = [(backend, "peer") for backend in backends]
    if {"c", "llvm"} <= set(backends):
        ratios.append(("c", "llvm"))
    titles = [f"{backend}, µs" for backend in backends] + [f"{PEERS[peer]}, µs" for peer in PEERS]
    titles += [f"{above} / {'best peer' if below == 'peer' else below}" for above, below in ratios]
    speed_ups = [(on_one(backend), backend) for backend in backends if options.threads > 1]
    titles += [f"{backend}, speed-up" for _, backend in speed_ups]
    print(f"| model | {' | '.join(titles)} |")
    print(f"|---|{'--:|' * len(titles)}")
    for row in rows:
        cells = [row["us"].get(name) for name in [*backends, *PEERS]]
        cells = ["–" if cell is None else f"{cell:.1f}" for cell in cells]
        found = [ratio(row, *pair) for pair in ratios + speed_ups]
        cells += ["–" if value is None else f"{value:.2f}" for value in found]
        print(f"| {row['name']} | {' | '.join(cells)} |")
    print()
    for above, below in ratios:
        values = [ratio(row, above, below) for row in rows if row["conv"]]
        values = [value for value in values if value is not None]
        if values:
            other = "the best peer" if below == "peer" else below
            mean = statistics.geometric_mean(values)
            print(
                f"Geometric mean of {above} / {other} over the {len(values)} convolution networks: "
                f"{mean:.2f}, the greatest {max(values):.2f}.  "
            )
    for one, backend in speed_ups:
        values = [value for value in (ratio(row, one, backend) for row in rows) if value is not None]
        if values:
            mean = statistics.geometric_mean(values)
            print(f"Speed-up of {backend} over its code for one thread: {mean:.2f} in the geometric mean.  ")


def printed_compilation(options, rows):
    titles = ["kernels"] + [t for b in options.backend for t in (f"{b}, ms", f"{b}, ms a kernel")]
    print(f"\n| compilation | {' | '.join(titles)} |")
    print(f"|---|{'--:|' * len(titles)}")
    for row in rows:
        if not row["compile"]:
            continue
        kernels = next(iter(row["compile"].values()))["kernels"]
        cells = [str(kernels)]
        for backend in options.backend:
            summary = row["compile"].get(backend)
            if summary is None:
                cells += ["–", "–"]
                continue
            cells.append(f"{summary['compile_ms']:.0f}")
            cells.append(f"{summary['compile_ms'] / max(summary['kernels'], 1):.1f}")
        print(f"| {row['name']} | {' | '.join(cells)} |")


def main():
    options = arguments()
    if options.one:
        try:
            print(json.dumps(measure(options, options.model[0])))
        except engines.Failed as error:
            failed = {"all": str(error)}
            name = name_of(options.model[0])
            print(json.dumps({"name": name, "failures": failed, "compile": {}, "us": {}, "conv": False}))
        return
    paths = [path / "model.onnx" if path.is_dir() else path for path in options.model]
    if options.models:
        paths += sorted(path for path in options.models.glob("*/model.onnx"))
        paths += light_networks()
    rows = []
    for path in paths:
        rows.append(run_child(options, path))
        print(f"{rows[-1]['name']}: {rows[-1]['us'] or rows[-1]['failures']}", file=sys.stderr, flush=True)
    if options.json:
        ratios = {row["name"]: {name: ratio(row, name, "peer") for name in options.backend} for row in rows}
        options.json.write_text(json.dumps({"ratios": ratios}, indent=1))
    printed_latency(options, [row for row in rows if row["us"]])
    printed_compilation(options, rows)
    failures = [(row["name"], who, why) for row in rows for who, why in row["failures"].items()]
    if failures:
        print("\nNot measured:\n")
        for name, who, why in failures:
            print(f"- {name}, {'every engine' if who == 'all' else PEERS.get(who, who)}: {why}")
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    print(f"\nAll engines used {threads}.")


if __name__ == "__main__":
    main()
