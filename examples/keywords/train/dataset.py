"""The sounds: words that espeak-ng speaks, in noise, and the test files that the programs read.

A sound is a second at 8 kHz, in 16 bits. A voice of espeak-ng is an accent of English with a variant, which is
somebody's way to speak; variants of the test set have no part in training.

`keywords-test.bin` is 240 x 490 bytes of features (`src/lib.rs`: sound by sound, frame by frame, a byte for each
of ten bands) and then 240 bytes of labels, places in WORDS: 117,840 bytes, no header. `spoken.pcm` is three more
sounds of the test set as they are, "yes", "stop" and "go": 48,000 bytes.

    python examples/keywords/train/dataset.py            writes both to examples/keywords/data

It needs `espeak-ng`. Other versions of it speak a little differently, so the committed files are the reference.
"""

import io
import subprocess
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).resolve().parent.parent
TEST_FILE = EXAMPLE / "data" / "keywords-test.bin"
SPOKEN_FILE = EXAMPLE / "data" / "spoken.pcm"
MODEL_FILE = EXAMPLE / "models" / "keywords.onnx"

WORDS = ["yes", "no", "up", "down", "stop", "go", "another word", "silence"]
OTHERS = (
    "left right on off one two three four five six seven eight nine zero bed bird cat dog happy house tree wow "
    "marvin sheila hello please thanks water light music"
).split()
SPOKEN = ["yes", "stop", "go"]

ACCENTS = ["en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc"]
# Variants that are no voice of a human.
MACHINES = ("robo", "uni", "anikarobot", "announcer", "demonic", "fast", "whisper", "croak", "klatt6")
# Each fifth variant is left for the test.
FIFTH = 5

RATE = 8000
FRAMES, BANDS = 49, 10
TEST_EACH = 30
# Utterances of each word for training, and how many sounds are made of each, with noise and time of their own.
TRAIN_EACH = 400
MIXES = 6
SEED = 2024


def variants():
    """Returns (for training, for the test): names of variants that espeak-ng knows."""
    listed = subprocess.run(["espeak-ng", "--voices=variant"], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[4].removeprefix("!v/") for line in listed.splitlines()[1:]}, key=str.lower)
    names = [name for name in names if not name.lower().startswith(MACHINES)]
    return [name for at, name in enumerate(names) if at % FIFTH], names[::FIFTH]


def speak(text, accent, variant, speed, pitch):
    """Returns float32 samples at 8 kHz, as loud as 1, without the silence around the word."""
    options = ["-v", f"{accent}+{variant}", "-s", str(speed), "-p", str(pitch)]
    sound = subprocess.run(["espeak-ng", *options, "--stdout", text], check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(sound)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float64)
    # Whole tenths of a second, so that the spectrum is cut at 4 kHz exactly.
    tenth = rate // 10
    samples = np.pad(samples, (0, -len(samples) % tenth))
    spectrum = np.fft.rfft(samples)
    count = len(samples) // tenth * RATE // 10
    samples = np.fft.irfft(spectrum[: count // 2 + 1], count)
    loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max())
    samples = samples[loud[0] : loud[-1] + 1]
    return (samples / np.abs(samples).max()).astype(np.float32)


def utterances(rng, voices, each):
    """Returns (samples, label) of `each` utterances of each word, and as many of other words."""
    orders = []
    for label, word in enumerate(WORDS[:-1]):
        for _ in range(each):
            text = str(rng.choice(OTHERS) if word == "another word" else word)
            accent, variant = str(rng.choice(ACCENTS)), str(rng.choice(voices))
            orders.append((text, accent, variant, int(rng.integers(130, 221)), int(rng.integers(20, 81)), label))
    with ThreadPoolExecutor(2) as pool:
        spoken = pool.map(lambda order: speak(*order[:-1]), orders)
        return [(sound, order[-1]) for sound, order in zip(spoken, orders)]


def noise(rng):
    """Returns a second of noise, of which high tones have as much as low ones or less, with a mean square of 1."""
    spectrum = np.fft.rfft(rng.normal(size=RATE))
    spectrum *= (20 + np.arange(len(spectrum))) ** -rng.uniform(0, 1)
    sound = np.fft.irfft(spectrum, RATE)
    return sound / np.sqrt((sound**2).mean())


def mix(rng, word):
    """Returns a sound of 16 bits: the word at some time, if there is one, in noise of 8 to 30 dB less."""
    sound = np.zeros(RATE)
    if word is not None:
        word = word[:RATE]
        begin = rng.integers(0, RATE - len(word) + 1)
        sound[begin : begin + len(word)] = word * 10 ** rng.uniform(-1.3, -0.1)
    if word is not None:
        loudness = np.sqrt((word**2).mean()) * np.abs(sound).max()
    else:
        loudness = 10 ** rng.uniform(-2, -0.7)
    sound += noise(rng) * loudness * 10 ** -rng.uniform(0.4, 1.5)
    return np.clip(np.round(sound * 32767), -32768, 32767).astype("<i2")


def features(sounds):
    """Returns uint8 [N, 1, FRAMES, BANDS] of sounds: the program computes them, as the firmware does."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "keywords", "--bin", "features"]
    data = np.stack(sounds).tobytes()
    out = subprocess.run(command, check=True, input=data, stdout=subprocess.PIPE, cwd=EXAMPLE).stdout
    return np.frombuffer(out, np.uint8).reshape(len(sounds), 1, FRAMES, BANDS)


def sounds(rng, voices, each, mixes):
    """Returns (sounds, labels): `each` of each word, each mixed so often."""
    words = utterances(rng, voices, each) + [(None, len(WORDS) - 1)] * each
    return [mix(rng, word) for word, _ in words for _ in range(mixes)], np.repeat([label for _, label in words], mixes)


def train_set():
    """Returns (features, labels) for training."""
    made, labels = sounds(np.random.default_rng(SEED), variants()[0], TRAIN_EACH, MIXES)
    return features(made), labels


def write_test_files():
    rng = np.random.default_rng(SEED + 1)
    made, labels = sounds(rng, variants()[1], TEST_EACH, 1)
    TEST_FILE.parent.mkdir(exist_ok=True)
    TEST_FILE.write_bytes(features(made).tobytes() + labels.astype(np.uint8).tobytes())
    again, labels = sounds(rng, variants()[1], 1, 1)
    SPOKEN_FILE.write_bytes(b"".join(again[WORDS.index(word)].tobytes() for word in SPOKEN))


def read_test_file():
    """Returns (features, labels) as the programs read them from the file."""
    count = TEST_EACH * len(WORDS)
    data = np.frombuffer(TEST_FILE.read_bytes(), np.uint8)
    return data[:-count].reshape(count, 1, FRAMES, BANDS), data[-count:]


if __name__ == "__main__":
    write_test_files()
    for file in (TEST_FILE, SPOKEN_FILE):
        print(f"{file.relative_to(EXAMPLE)}: {file.stat().st_size} bytes")
