"""What the example is checked against: prints ONNX Runtime's eight probabilities for each test sound, by spaces.

    python examples/keywords/train/check.py
"""

import onnxruntime

import dataset


def main():
    """Runs the model sound by sound with no graph optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(dataset.MODEL_FILE), options, providers=["CPUExecutionProvider"])
    features, _ = dataset.read_test_file()
    for sound in features:
        (row,) = session.run(None, {"features": sound[None]})[0]
        print(*(f"{value:.9g}" for value in row))


if __name__ == "__main__":
    main()
