"""Random ONNX graphs against ONNX Runtime; `cargo xtask fuzz onnx` runs it.

    python tests/fuzz/fuzz.py NIELLO --cases N --seed S --backend llvm --out DIR

Each case is a random model with inputs, an optimisation level and a CPU, all of which follow from the seed and the case's
number. A failure is a result that is farther from a float64 evaluation than rounding explains while ONNX Runtime's is not,
a model that is refused, or a process that ended early. Failures are made smaller and written to DIR as ONNX test cases.
"""

import argparse
import collections
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import generate
import judge
import numpy as np
import onnx
import peer
import shrink
from onnx import helper, numpy_helper

# Cases that are written, compiled and judged together; enough of them to fill processes of one setting.
CHUNK = 1000
# Cases that one process compiles.
BATCH = 64
# Seconds for such a process.
TIMEOUT = 120


@dataclass
class Failure:
    """A case that did not end well: `kind` is wrong, open, refused, crashed or unstable."""

    number: int
    kind: str
    text: str
    setting: tuple
    operators: str = ""
    folder: str = ""

    def group(self):
        """What failures with the same cause have in common, as far as their text tells."""
        if self.kind in ("wrong", "open"):
            return f"{self.kind}: {self.operators}"
        return f"{self.kind}: {plain(self.text)}"


@dataclass
class Report:
    """How the cases of a chunk ended."""

    cases: int = 0
    nodes: int = 0
    # Models that ONNX Runtime does not take say nothing about niello.
    skipped: collections.Counter = field(default_factory=collections.Counter)
    judged: int = 0
    operators: collections.Counter = field(default_factory=collections.Counter)
    failures: list = field(default_factory=list)

    def add(self, other):
        self.cases += other.cases
        self.nodes += other.nodes
        self.skipped += other.skipped
        self.judged += other.judged
        self.operators += other.operators
        self.failures += other.failures


def plain(text):
    """A message without names and numbers."""
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", re.sub(r"`[^`]*`", "`…`", text))[:300]


def write_case(folder, model, feeds, outputs):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    for position, value in enumerate(model.graph.input):
        tensor = numpy_helper.from_array(feeds[value.name], value.name)
        (data / f"input_{position}.pb").write_bytes(tensor.SerializeToString())
    for position, (value, array) in enumerate(zip(model.graph.output, outputs, strict=True)):
        tensor = numpy_helper.from_array(array, value.name)
        (data / f"output_{position}.pb").write_bytes(tensor.SerializeToString())


def read_outputs(folder, count):
    """What niello wrote; None if there is nothing."""
    outputs = []
    for position in range(count):
        file = folder / "test_data_set_0" / f"output_{position}.pb"
        if not file.exists():
            return None
        outputs.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())))
    return outputs


class Niello:
    """The command, as it is called for cases of one setting."""

    def __init__(self, program, backend):
        self.program, self.backend = program, backend
        self.out_of_reach = []

    def leave_out_cpus_out_of_reach(self):
        """Finds the CPUs whose code this machine cannot run; what is drawn for them is compiled for `native`."""
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "probe", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        one = np.ones(1, np.float32)
        for cpu in dict.fromkeys(cpu for cpu, _, _ in generate.CPUS):
            with tempfile.TemporaryDirectory() as root:
                write_case(Path(root) / "cases" / "probe", model, {"x": one}, [one])
                try:
                    self.test(Path(root) / "cases", (3, cpu, "", "flush"))
                except RuntimeError as error:
                    if "this machine cannot run" not in str(error):
                        raise
                    print(f"this machine cannot run {cpu}: its cases are compiled for native")
                    self.out_of_reach.append(cpu)

    def setting(self, seed, graph):
        """The setting of a case, within what this machine can run."""
        level, cpu, running, denormals = generate.setting(seed, graph)
        return level, "native" if cpu in self.out_of_reach else cpu, running, denormals

    def test(self, folder, setting):
        """Runs the cases in a folder; returns (reason or None, folder of outputs) for each name."""
        level, cpu, running, denormals = setting
        saved, report = folder.with_name(f"{folder.name}.saved"), folder.with_name(f"{folder.name}.json")
        command = [
            self.program, "test", folder, "--backend", self.backend, f"-O{level}", "--target-cpu", cpu,
            "--denormals", denormals, "--jobs", "1",
            "--batch", str(BATCH), "--timeout", str(TIMEOUT), "--json", report, "--save-outputs", saved,
        ]  # fmt: skip
        environment = dict(os.environ)
        environment.pop("NIELLO_CPU_LEVEL", None)
        if running:
            environment["NIELLO_CPU_LEVEL"] = running
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(f"niello left no report: {result.stderr.strip()}")
        cases = json.loads(report.read_text())["cases"]
        return {case["name"]: (case["reason"] if case["result"] != "pass" else None, saved / case["name"]) for case in cases}

    def outcome(self, model, feeds, expected, reason, saved, setting):
        """Judges one case: (kind, text), or None if it is well; and whether it needed the float64 evaluation."""
        found = read_outputs(saved, len(expected))
        # Code for several CPU levels is run at each, and the outputs are those of the level that the reason names.
        reason = reason and re.sub(r"^at CPU level [^:]*: ", "", reason)
        if reason is not None and reason.startswith("a second run"):
            return ("unstable", reason), False
        if found is None or (reason is not None and not reason.startswith("output ")):
            crashed = re.search("killed by signal|panicked|timeout after|left no result", reason or "")
            return ("crashed" if crashed else "refused", reason or "no outputs"), False
        for position, (mine, theirs) in enumerate(zip(found, expected)):
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
                text = f"output {position} is {mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}"
                return ("wrong", text), False
        if all(judge.near(mine, theirs) for mine, theirs in zip(found, expected)):
            return None, False
        verdict, text = judge.judge(model, feeds, found, expected, flush=setting[3] == "flush")
        return (None if verdict == "right" else (verdict, text)), True

    def single(self, model, feeds, setting):
        """Judges a model by itself."""
        with tempfile.TemporaryDirectory() as folder:
            expected = peer.run(model, feeds)
            case = Path(folder) / "cases"
            write_case(case / "case", model, feeds, expected)
            reason, saved = self.test(case, setting)["case"]
            return self.outcome(model, feeds, expected, reason, saved, setting)[0]


def case_seed(seed, number):
    return f"{seed}/{number}"


def run_chunk(task):
    """Makes, runs and judges the cases of some numbers."""
    niello, seed, numbers = task
    report, cases = Report(), {}
    with tempfile.TemporaryDirectory(prefix="niello-fuzz-") as root:
        root = Path(root)
        for number in numbers:
            report.cases += 1
            graph = generate.graph(case_seed(seed, number))
            model = graph.model()
            try:
                expected = peer.run(model, graph.feeds)
            except Exception as error:  # noqa: BLE001: it has many exceptions
                report.skipped[plain(str(error).split("\n")[0])[:120]] += 1
                continue
            setting = niello.setting(case_seed(seed, number), graph)
            write_case(root / "-".join(map(str, setting)) / f"case_{number}", model, graph.feeds, expected)
            cases.setdefault(setting, {})[number] = model, graph.feeds, expected
            report.nodes += len(graph.values)
            report.operators.update({node.op_type for node in model.graph.node})
        for setting, members in sorted(cases.items()):
            results = niello.test(root / "-".join(map(str, setting)), setting)
            for number, (model, feeds, expected) in members.items():
                failure, judged = niello.outcome(model, feeds, expected, *results[f"case_{number}"], setting)
                report.judged += judged
                if failure:
                    report.failures.append(Failure(number, *failure, setting))
    return report


def run_chunk_or_say_why(task):
    try:
        return run_chunk(task)
    except Exception:
        numbers = task[2]
        raise RuntimeError(f"cases {numbers[0]} to {numbers[-1]}: {traceback.format_exc()}") from None


def keep(task):
    """Makes a failing case smaller and writes it as an ONNX test case."""
    try:
        return shrunk(*task)
    except Exception:
        raise RuntimeError(f"case {task[2].number}: {traceback.format_exc()}") from None


def shrunk(niello, seed, failure, out, tries):
    graph = generate.graph(case_seed(seed, failure.number))
    model, feeds = graph.model(), graph.feeds

    def fails(model, feeds):
        found = niello.single(model, feeds, failure.setting)
        return found is not None and found[0] == failure.kind and (
            found[0] in ("wrong", "open") or plain(found[1]) == plain(failure.text)
        )

    model, feeds = shrink.shrink(model, feeds, fails, tries)
    kind, text = niello.single(model, feeds, failure.setting) or (failure.kind, failure.text)
    failure.text = text
    failure.operators = " ".join(node.op_type for node in model.graph.node)
    name = re.sub(r"[^\w.-]", "_", f"{niello.backend}_{seed}_{failure.number}")
    folder = Path(out) / name
    if folder.exists():
        shutil.rmtree(folder)
    expected = right_outputs(model, feeds)
    write_case(folder, model, feeds, expected)
    (folder / "case.json").write_text(json.dumps({
        "seed": seed, "number": failure.number, "backend": niello.backend, "level": failure.setting[0],
        "target_cpu": failure.setting[1], "cpu_level": failure.setting[2],
        "denormals": failure.setting[3], "kind": kind, "text": text,
    }, indent=1, ensure_ascii=False) + "\n")  # fmt: skip
    failure.folder = str(folder)
    return failure


def right_outputs(model, feeds):
    """The outputs by float64, rounded to their types, or the peer's if there are none."""
    expected = peer.run(model, feeds)
    try:
        with np.errstate(all="ignore"):
            right = judge.Reference(model).run(feeds)
            return [np.asarray(array).astype(old.dtype) for array, old in zip(right, expected)]
    except Exception:  # noqa: BLE001: the package `onnx` fails in many ways
        return expected


def chosen(failures, most):
    """The failures to keep: of every group some, those that are wrong first."""
    order = {"wrong": 0, "unstable": 1, "crashed": 2, "refused": 3, "open": 4}
    groups = collections.Counter()
    kept = []
    for failure in sorted(failures, key=lambda failure: (order[failure.kind], failure.number)):
        groups[failure.group()] += 1
        if failure.kind != "open" and (failure.kind == "wrong" or groups[failure.group()] <= 2):
            kept.append(failure)
    return kept[:most]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("niello")
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--out", required=True, help="folder that failures are written to")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=int, default=40, help="most failures that are made smaller")
    parser.add_argument("--tries", type=int, default=300, help="models that are tried to make one smaller")
    options = parser.parse_args()
    niello = Niello(options.niello, options.backend)
    niello.leave_out_cpus_out_of_reach()
    numbers = range(options.first, options.first + options.cases)
    size = max(1, min(CHUNK, -(-options.cases // options.jobs)))
    tasks = [(niello, options.seed, numbers[at : at + size]) for at in range(0, len(numbers), size)]
    report = Report()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for part in pool.imap(run_chunk_or_say_why, tasks):
            report.add(part)
            for failure in part.failures:
                print(described(failure), flush=True)
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{report.cases} cases, {len(report.failures)} failures", end=end, file=sys.stderr, flush=True)
        picked = chosen(report.failures, options.keep)
        Path(options.out).mkdir(parents=True, exist_ok=True)
        jobs = [(niello, options.seed, failure, options.out, options.tries) for failure in picked]
        for failure in pool.imap(keep, jobs):
            print(f"{failure.folder}: {failure.operators}: {described(failure)}", flush=True)
            replace(report.failures, failure)
    tell(report)
    return 1 if any(failure.kind != "open" for failure in report.failures) else 0


def described(failure):
    level, cpu, running, denormals = failure.setting
    at = f"-O{level} --target-cpu {cpu} --denormals {denormals}" + (f", NIELLO_CPU_LEVEL={running}" if running else "")
    return f"case {failure.number}: {failure.kind}: {at}: {failure.text}"


def replace(failures, shrunk):
    """Puts a failure in the place of that of the same number."""
    for position, failure in enumerate(failures):
        if failure.number == shrunk.number:
            failures[position] = shrunk


def tell(report):
    """Prints groups of failures with how many there are in each, and the counts."""
    for reason, count in report.skipped.most_common():
        print(f"ONNX Runtime did not take {count}: {reason}")
    for kind in ("wrong", "open", "refused", "crashed", "unstable"):
        groups = collections.Counter(failure.group() for failure in report.failures if failure.kind == kind)
        for group, count in groups.most_common(12):
            print(f"{count} {group}")
    counts = collections.Counter(failure.kind for failure in report.failures)
    compared = report.cases - sum(report.skipped.values())
    print(
        f"{report.cases} graphs, {report.nodes} nodes of {len(report.operators)} operators; {compared} compared, "
        f"{report.judged} of them by float64: "
        + ", ".join(f"{counts[kind]} {kind}" for kind in ("wrong", "refused", "crashed", "unstable", "open"))
    )


if __name__ == "__main__":
    sys.exit(main())
