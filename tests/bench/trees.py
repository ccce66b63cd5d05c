"""Forests of compiled trees beside ONNX Runtime and lleaves, in one run.

    trees.py [--rounds N] [--seconds S] [--backend NAME]... [--rows N]... [--case NAME]... [--json FILE] NIELLO

The forests are trained here, by LightGBM, on seeded random numbers; `--case` chooses some of them. lleaves compiles
LightGBM's own file by LLVM, the others take the ONNX model that onnxmltools makes of it. All run on one thread, with the
same inputs on bound memory, in turns of short rounds, so that they see the same machine; the least times are compared,
as what else the machine does only adds to them. No two calls in a row have the same inputs. Outputs must agree first. Prints Markdown.

Needs the packages lightgbm, lleaves, onnx, onnxmltools and onnxruntime.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import lightgbm
import lleaves
import numpy as np
import onnx
import onnxmltools
from onnxmltools.convert.common.data_types import FloatTensorType

import engines

FEATURES = 30

# Of each forest: trees, most leaves, most depth (-1: no bound), and what it is trained for.
CASES = {
    "1 tree, depth 5": (1, 32, 5, "regression"),
    "100 trees, depth 3": (100, 8, 3, "regression"),
    "100 trees, depth 6": (100, 64, 6, "regression"),
    "500 trees, depth 8": (500, 256, 8, "regression"),
    "500 trees, depth 8, 2 classes": (500, 256, 8, "binary"),
    "100 trees, 64 leaves, any depth": (100, 64, -1, "regression"),
}

TRAINING_ROWS = 50_000

# Different inputs that calls are timed with, and the fewest calls of a round.
INPUTS, LEAST_CALLS = 512, 3

# Outputs of these sums of a few hundred floats may differ by the order of the sums.
TOLERANCE = 1e-4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("niello")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--rows", action="append", type=int)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    parser.add_argument("--json", type=pathlib.Path, help="file for the times, too")
    parser.add_argument("--models", type=pathlib.Path, help="folder that keeps what is trained and compiled by lleaves")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.backend = options.backend or ["c", "llvm"]
    options.rows = options.rows or [1, 1000]
    options.case = options.case or list(CASES)
    return options


def train(name):
    """A forest of LightGBM."""
    trees, leaves, depth, objective = CASES[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((TRAINING_ROWS, FEATURES)).astype(np.float32)
    y = np.sin(x @ rng.standard_normal(FEATURES)) + x[:, 0] * x[:, 1] + rng.standard_normal(TRAINING_ROWS)
    if objective == "binary":
        y = y > 0
    settings = {
        "objective": objective,
        "num_leaves": leaves,
        "max_depth": depth,
        "learning_rate": 0.1,
        "num_threads": 1,
        "verbose": -1,
    }
    return lightgbm.train(settings, lightgbm.Dataset(x, y), num_boost_round=trees)


def trained(name, folder):
    """Files of a forest, which are made if they are not there: LightGBM's own, and ONNX."""
    stem = name.replace(" ", "-").replace(",", "")
    own, standard = folder / f"{stem}.txt", folder / f"{stem}.onnx"
    if not own.exists() or not standard.exists():
        booster = train(name)
        booster.save_model(own)
        types = [("x", FloatTensorType([None, FEATURES]))]
        onnx.save(onnxmltools.convert_lightgbm(booster, initial_types=types, zipmap=False), standard)
    return own, standard


def with_rows(path, rows, to):
    """Gives the first axis of inputs and outputs a size."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for port in [*model.graph.input, *model.graph.output]:
        port.type.tensor_type.shape.dim[0].dim_value = rows
    onnx.save(model, to)


def lleaves_call(path, inputs, rows):
    """What lleaves predicts, and a call of what it compiled without the layers of Python around it."""
    trees = lleaves.Model(path)
    # One row has no use for blocks of trees, says its documentation; but as one block, large forests take hours.
    is_block = rows == 1 and trees.num_trees() <= 100
    blocks = {"fblocksize": trees.num_trees()} if is_block else {}
    cache = path.with_name(f"{path.stem}-{is_block}.lleaves")
    trees.compile(cache=cache, use_fp64=False, **blocks)
    pointer = ctypes.POINTER(ctypes.c_float)
    output = np.empty(rows, np.float32)
    given, taken = inputs.ctypes.data_as(pointer), output.ctypes.data_as(pointer)
    entry = trees._c_entry_func
    begin, end = ctypes.c_int32(0), ctypes.c_int32(rows)
    entry(given, taken, begin, end)
    return (output, trees), lambda: entry(given, taken, begin, end)


def check(name, found, expected):
    """Raises if what was computed differs by more than rounding."""
    bound = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    # A comparison with a threshold of 64 bits, rounded to 32, may go the other way for a row.
    share = float(np.mean(np.abs(found - expected) > bound))
    if share > 0.002:
        raise engines.Failed(f"{name} differs in {share:.1%} of the rows")


def least_times(calls, inputs, pool, rounds, seconds):
    """The least time of each call in µs, in turns: a round is the mean of calls with other inputs each.

    With the same inputs again and again, processors learn by heart where branches lead.
    """
    counts, best = {}, dict.fromkeys(calls, float("inf"))
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        counts[name] = min(max(LEAST_CALLS, int(seconds / max(once, 1e-6))), len(pool))
    for number in range(rounds):
        for name, call in calls.items():
            total = 0.0
            for index in range(counts[name]):
                inputs[...] = pool[(number * counts[name] + index) % len(pool)]
                start = time.perf_counter()
                call()
                total += time.perf_counter() - start
            best[name] = min(best[name], total / counts[name])
    return {name: value * 1e6 for name, value in best.items()}


def measure(options, name, rows, folder, scratch):
    """The least times of all engines for a forest and a number of rows."""
    own, standard = trained(name, folder)
    file = scratch / "model.onnx"
    with_rows(standard, rows, file)
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    expected, onnxruntime = engines.onnxruntime_call(file, [inputs], 1)
    # Of a classifier, labels come first, and lleaves has the probability of the second class alone.
    reference = expected[-1].reshape(rows, -1)[:, -1].copy()
    # What calls run, and the arrays they write to, must live as long as these.
    kept = [lleaves_call(own, inputs, rows)]
    (compiled, _), call = kept[0]
    check("lleaves", compiled, reference)
    calls = {"onnxruntime": onnxruntime, "lleaves": call}
    for backend in options.backend:
        target = scratch / backend
        target.mkdir()
        into = [np.empty_like(array) for array in expected]
        made = engines.niello_call(options.niello, backend, file, [inputs], into, target, 1)
        kept.append(made)
        outputs, calls[backend], _summary = made
        check(backend, outputs[-1].reshape(rows, -1)[:, -1], reference)
    pool = [rng.standard_normal(inputs.shape).astype(np.float32) for _ in range(INPUTS)]
    return least_times(calls, inputs, pool, options.rounds, options.seconds)


def run_child(options, name, rows, folder):
    """Measures in a process of its own, as all engines put code into it."""
    command = [sys.executable, "-B", __file__, "--one", options.niello, f"--case={name}", f"--rows={rows}"]
    command += [f"--models={folder}", f"--rounds={options.rounds}", f"--seconds={options.seconds}"]
    command += [f"--backend={backend}" for backend in options.backend]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        sys.exit(f"{name} of {rows} rows was not measured")


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        folder = options.models or place
        folder.mkdir(parents=True, exist_ok=True)
        if options.one:
            print(json.dumps(measure(options, options.case[0], options.rows[0], folder, place)))
            return
        results = []
        titles = [f"niello {backend}, µs" for backend in options.backend] + ["ONNX Runtime, µs", "lleaves, µs"]
        titles += ["worst / ONNX Runtime", "worst / lleaves"]
        print(f"| forest | rows | {' | '.join(titles)} |")
        print(f"|---|--:|{'--:|' * len(titles)}")
        for name in options.case:
            for rows in options.rows:
                times = run_child(options, name, rows, folder)
                results.append({"forest": name, "rows": rows, "us": times})
                worst = max(times[backend] for backend in options.backend)
                cells = [f"{times[engine]:.1f}" for engine in [*options.backend, "onnxruntime", "lleaves"]]
                cells += [f"{worst / times[peer]:.2f}" for peer in ["onnxruntime", "lleaves"]]
                print(f"| {name} | {rows} | {' | '.join(cells)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
