"""What the example is checked against: scikit-learn's images and ONNX Runtime's predictions.

    python examples/digits/train/check.py images               fails unless the test file is scikit-learn's data
    python examples/digits/train/check.py predict [MODEL]      prints ONNX Runtime's class for each test image
    python examples/digits/train/check.py probabilities [MODEL]    prints its ten probabilities for each, by spaces
"""

import sys

import numpy as np

import dataset


def check_images():
    if dataset.TEST_FILE.read_bytes() != dataset.encode_test_set():
        sys.exit(f"{dataset.TEST_FILE.name} differs from scikit-learn's last {dataset.TEST_IMAGES} images")


def probabilities(model):
    """Returns ONNX Runtime's float32 [360, 10] for the test file, image by image with no graph optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    images, _ = dataset.read_test_file()
    inputs = dataset.to_input(images)
    return np.concatenate([session.run(None, {"image": image[None]})[0] for image in inputs])


def main():
    match sys.argv[1:]:
        case ["images"]:
            check_images()
        case ["predict", *model] if len(model) < 2:
            for row in probabilities(*model or [str(dataset.MODEL_FILE)]):
                print(row.argmax())
        case ["probabilities", *model] if len(model) < 2:
            for row in probabilities(*model or [str(dataset.MODEL_FILE)]):
                print(*(f"{value:.9g}" for value in row))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
