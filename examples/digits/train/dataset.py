"""The handwritten digits: scikit-learn's copy of the UCI set, and the test file that the example reads.

The set has 1797 images of 8 x 8 pixels, each a count from 0 to 16. In their given order the first 1437 train the
model and the last 360 test it; those come from other writers, so a network cannot pass by remembering hands.

`digits-test.bin` is 360 x 64 bytes of pixels (image by image, row by row, one byte each, 0 to 16) and then 360 bytes
of labels (0 to 9): 23,400 bytes, no header.

    python examples/digits/train/dataset.py            writes examples/digits/data/digits-test.bin
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

EXAMPLE = Path(__file__).resolve().parent.parent
TEST_FILE = EXAMPLE / "data" / "digits-test.bin"
MODEL_FILE = EXAMPLE / "models" / "digits.onnx"

TRAIN_IMAGES = 1437
TEST_IMAGES = 360


def load():
    """Returns (train images, train labels, test images, test labels); images are uint8 [N, 8, 8]."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    assert images.shape == (TRAIN_IMAGES + TEST_IMAGES, 8, 8), images.shape
    assert np.array_equal(images, digits.images), "pixels are expected to be whole numbers"
    return images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES], images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:]


def encode_test_set():
    """Returns the bytes of the test file."""
    _, _, images, labels = load()
    return images.tobytes() + labels.tobytes()


def read_test_file(path=TEST_FILE):
    """Returns (images, labels) as the example reads them from the file."""
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    pixels = TEST_IMAGES * 64
    assert data.size == pixels + TEST_IMAGES, f"{path} has {data.size} bytes"
    return data[:pixels].reshape(TEST_IMAGES, 8, 8), data[pixels:]


def to_input(images):
    """Returns the images as the model takes them: float32 [N, 1, 8, 8], pixels divided by 16."""
    return images.astype(np.float32)[:, None] / np.float32(16)


if __name__ == "__main__":
    TEST_FILE.parent.mkdir(exist_ok=True)
    TEST_FILE.write_bytes(encode_test_set())
    print(f"{TEST_FILE.relative_to(EXAMPLE)}: {TEST_FILE.stat().st_size} bytes")
