"""Runs ONNX Runtime and OpenVINO for a program that measures its own code in turns with them.

Each line of the input is a request, each line of the output the answer to it, both JSON:

    {"do": "load", "model": FILE, "inputs": [FILE...], "outputs": FOLDER, "threads": N}
        The engines make the model ready, run it on inputs (raw elements) and write their first output (raw elements)
        to FOLDER/ENGINE.bin. Answers for each engine null, or why it cannot run the model.
    {"do": "time", "engine": NAME, "seconds": S}
        The engine runs for about that long. Answers {"us": median time of a call}.
    {"do": "drop"}
        Forgets the model. Answers {}.
"""

import json
import math
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import onnx

import engines

ENGINES = {"onnxruntime": engines.onnxruntime_call, "openvino": engines.openvino_call}

# Seconds that calls are timed together.
BATCH = 300e-6


class Peers:
    def __init__(self):
        self.calls = {}
        self.kept = []

    def load(self, request):
        self.drop(request)
        ports = onnx.load(request["model"], load_external_data=False).graph.input
        inputs = [read(path, port.type.tensor_type) for path, port in zip(request["inputs"], ports, strict=True)]
        # Engines write to these arrays as long as they run.
        self.kept.append(inputs)
        answer = {}
        for name, make in ENGINES.items():
            try:
                outputs, self.calls[name] = make(request["model"], inputs, request["threads"])
            except Exception as error:
                # One that is not installed, too.
                answer[name] = engines.reason(error)
                continue
            self.kept.append(outputs)
            outputs[0].tofile(pathlib.Path(request["outputs"]) / f"{name}.bin")
            answer[name] = None
        return answer

    def time(self, request):
        call = self.calls[request["engine"]]
        clock = time.perf_counter
        begin, times, count = clock(), [], 1
        while True:
            start = clock()
            for _ in range(count):
                call()
            end = clock()
            each = (end - start) / count
            if end - start >= BATCH or end - begin >= request["seconds"]:
                times.append(each)
            else:
                # Too short to be told apart from the looks at the clock.
                count = math.ceil(BATCH / max(each, 1e-9))
            if end - begin >= request["seconds"] and times:
                return {"us": statistics.median(times) * 1e6}

    def drop(self, _request):
        self.calls.clear()
        self.kept.clear()
        return {}


def read(path, kind):
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return np.fromfile(path, dtype).reshape([dim.dim_value for dim in kind.shape.dim])


def main():
    # What an engine prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peers = Peers()
    actions = {"load": peers.load, "time": peers.time, "drop": peers.drop}
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(actions[request["do"]](request)), file=answers, flush=True)


main()
