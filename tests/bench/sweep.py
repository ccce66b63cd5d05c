"""Random small models beside ONNX Runtime and OpenVINO, to find what is slow.

    sweep.py [--cases N] [--seed S] [--first N] [--backend NAME] [--worst N] [--save DIR] [--json FILE] NIELLO

Each case is a model of one to three operators (`workload.py`), which follows from the seed and its number. Where a call is
so short that its own cost shows, all engines run a model of eight copies of it side by side, and times are divided by
eight. Engines take turns on the same inputs in bound memory; outputs must agree first. Only cases count in which some
engine takes more than 20 µs. Prints Markdown: a histogram of the ratios to the best peer, and the worst cases. Fails if
niello does not compile a case that ONNX Runtime takes, or computes something else.
"""

import argparse
import collections
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import onnx

import engines
import latency
import workload

# A case counts if either niello or the best peer takes as long, in µs.
LEAST_US = 20.0

# Models of fewer µs are measured several at a time: as many.
SHORT_US, COPIES = 200.0, 8

# Upper ends of the histogram's bars.
BARS = [0.25, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0]

# Seconds for one case, in a process that measures many.
TIMEOUT = 40

TOLERANCES = {"rtol": 1e-3, "atol": 1e-3}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("niello")
    parser.add_argument("--cases", type=int, default=200, help="how many")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.01, help="of a round")
    parser.add_argument("--worst", type=int, default=30, help="how many cases are listed")
    parser.add_argument("--save", type=pathlib.Path, help="folder for the models of those that are listed")
    parser.add_argument("--json", type=pathlib.Path, help="file for all cases, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def graph_of(options, number):
    return workload.workload(f"{options.seed}/{number}")


def described(options, number):
    """A case without results."""
    g = graph_of(options, number)
    operators = [node.op_type for node in g.nodes if node.op_type != "Constant"]
    return {"case": number, "nodes": workload.described(g), "operators": operators, "us": {}, "failures": {}, "loops": []}


def failed(options, number, why):
    return described(options, number) | {"failures": {"all": why}}


def measure(options, number):
    """What is known of a case after all engines have run it."""
    g, result = graph_of(options, number), described(options, number)
    model, feeds = g.model(), g.feeds
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "model.onnx"
        onnx.save(model, file)
        try:
            # A call writes to what it came with.
            single, call = engines.onnxruntime_call(file, list(feeds.values()), 1)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            count = COPIES if min(times) * 1e6 < SHORT_US else 1
            if count > 1:
                model, feeds = workload.copies(model, feeds, count)
                onnx.save(model, file)
            inputs = list(feeds.values())
            expected, call = engines.onnxruntime_call(file, inputs, 1)
        except engines.Failed as error:
            # A model that the reference does not take says nothing.
            result["failures"]["all"] = str(error)
            return result
        calls, kept = {"onnxruntime": call}, [single, expected]
        reference = [array.copy() for array in expected]

        def attempt(name, start):
            # So that what another engine wrote is not taken for its result.
            for array in expected:
                array[...] = 0
            try:
                outputs, call, *summary = start()
                latency.check(outputs, reference, TOLERANCES)
            except engines.Failed as error:
                result["failures"][name] = str(error)
                return
            kept.append(outputs)
            calls[name] = call
            if summary:
                result["loops"] = summary[0].get("loops", [])

        attempt("openvino", lambda: engines.openvino_call(file, inputs, 1, expected))
        engine, folder = (options.niello, options.backend), pathlib.Path(scratch)
        attempt("niello", lambda: engines.niello_call(*engine, file, inputs, expected, folder, threads=1))
        times = latency.time_in_turns(calls, options.rounds, options.seconds)
        result["us"] = {name: microseconds / count for name, microseconds in times.items()}
    return result


def child(options):
    """Measures case after case, a line of JSON for each."""
    for number in range(options.first, options.first + options.cases):
        try:
            result = measure(options, number)
        except engines.Failed as error:
            result = failed(options, number, str(error))
        print(json.dumps(result), flush=True)


def measured(options):
    """The results of all cases. A process that ends early takes no case with it but its own."""
    number, end = options.first, options.first + options.cases
    while number < end:
        command = [sys.executable, "-B", __file__, "--child", f"--first={number}", f"--cases={end - number}"]
        command += [f"--seed={options.seed}", f"--backend={options.backend}", f"--rounds={options.rounds}"]
        command += [f"--seconds={options.seconds}", options.niello]
        with tempfile.TemporaryFile("w+") as said, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process:
            while True:
                late = threading.Timer(TIMEOUT, process.kill)
                late.start()
                line = process.stdout.readline()
                late.cancel()
                if not line.endswith("\n"):
                    break
                result = json.loads(line)
                number = result["case"] + 1
                yield result
            process.wait()
            said.seek(0)
            last = said.read().strip().splitlines()[-1:]
        if process.returncode != 0:
            slow = -process.returncode == signal.SIGKILL
            ended = f"no result in {TIMEOUT} s" if slow else f"exit status {process.returncode} {last}"
            yield failed(options, number, ended)
            number += 1


def ratio(row):
    """niello's time as a share of the best peer's, for a case that counts."""
    peer = latency.best_peer(row)
    own = row["us"].get("niello")
    return own / peer if own and peer and max(own, peer) >= LEAST_US else None


def rules(row):
    """The rules that made the loops, and what they missed."""
    parts = []
    for loops in row["loops"]:
        missed = f" (missed: {loops['missed']})" if loops.get("missed") else ""
        part = f"{loops['op']}: {loops['rule']}{missed}"
        if part not in parts:
            parts.append(part)
    return "; ".join(parts)


def printed_histogram(counted):
    values = [value for value, _ in counted]
    print("| niello / best peer | cases | share |\n|---|--:|--:|")
    low = 0.0
    for high in [*BARS, float("inf")]:
        inside = sum(low <= value < high for value in values)
        label = f"{low:.2f} to {high:.2f}" if high < float("inf") else f"{low:.2f} and more"
        print(f"| {label} | {inside} | {inside / max(len(values), 1):.1%} |")
        low = high
    print(
        f"\nMedian {statistics.median(values):.2f}, geometric mean {statistics.geometric_mean(values):.2f}, "
        f"the greatest {max(values):.2f}; {sum(value > 1.5 for value in values)} of {len(values)} are above 1.5."
    )


def printed_operators(counted):
    """Cases of one operator each, as what is slow in a chain may be any of its operators."""
    groups = collections.defaultdict(list)
    for value, row in counted:
        if len(row["operators"]) == 1:
            groups[row["operators"][0]].append(value)
    print("\n| operator alone | cases | median | greatest |\n|---|--:|--:|--:|")
    for name, values in sorted(groups.items(), key=lambda group: -max(group[1])):
        print(f"| {name} | {len(values)} | {statistics.median(values):.2f} | {max(values):.2f} |")


def printed_worst(options, counted):
    print("\n| ratio | niello, µs | ONNX Runtime, µs | OpenVINO, µs | case | model | rules |\n|--:|--:|--:|--:|--:|---|---|")
    for value, row in counted[: options.worst]:
        times = [row["us"].get(name) for name in ("niello", "onnxruntime", "openvino")]
        cells = ["–" if time is None else f"{time:.1f}" for time in times]
        print(f"| {value:.2f} | {' | '.join(cells)} | {row['case']} | {row['nodes']} | {rules(row)} |")


def is_refused(row):
    """Whether no engine takes the model."""
    return "all" in row["failures"] and not row["us"]


def is_wrong(row):
    """Whether niello does not do what ONNX Runtime does. Where OpenVINO differs as well, nothing says who is right."""
    own, other = (row["failures"].get(name) for name in ("niello", "openvino"))
    differ = all(why is not None and " differs from " in why for why in (own, other))
    return own is not None and not differ


def main():
    options = arguments()
    if options.child:
        child(options)
        return 0
    rows = []
    for row in measured(options):
        rows.append(row)
        found = ratio(row)
        times = " ".join(f"{name} {value:.1f}" for name, value in row["us"].items()) or row["failures"]
        said = "" if found is None else f" {found:.2f}"
        print(f"{row['case']}:{said} {times} {row['nodes'][:100]}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps([row | {"ratio": ratio(row)} for row in rows], indent=1))
    counted = [(value, row) for row in rows if (value := ratio(row)) is not None]
    counted.sort(key=lambda entry: -entry[0])
    if counted:
        printed_histogram(counted)
        printed_operators(counted)
        printed_worst(options, counted)
    refused, wrong = (sum(map(check, rows)) for check in (is_refused, is_wrong))
    short = len(rows) - len(counted) - refused - wrong
    print(
        f"\nOf {len(rows)} cases {len(counted)} count. {short} take no engine {LEAST_US:.0f} µs, "
        f"{refused} have no time by any engine, {wrong} none by niello."
    )
    for row in rows:
        for who, why in row["failures"].items():
            print(f"\n- case {row['case']}, {'every engine' if who == 'all' else who}: {why}: {row['nodes']}")
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for _, row in counted[: options.worst]:
            onnx.save(graph_of(options, row["case"]).model(), options.save / f"case-{row['case']}.onnx")
    return 1 if any(map(is_wrong, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
