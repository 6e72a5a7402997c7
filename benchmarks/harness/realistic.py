"""Payloads as users have them: JPEG crops, pickled dictionaries, prose. Needs scikit-learn and Pillow."""

import io
import pickle
import random
from pydoc_data.topics import topics

from PIL import Image
from sklearn.datasets import load_sample_images

from harness.payloads import SEED


def jpeg_crops(count: int) -> list[bytes]:
    """Cut crops of 64 to 320 pixels a side out of two photographs, and keep those that are JPEG of 1 to 30 KB."""
    draw = random.Random(SEED)
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    crops: list[bytes] = []
    while len(crops) < count:
        photograph = draw.choice(photographs)
        side = draw.randrange(64, 320)
        left, top = draw.randrange(photograph.width - side), draw.randrange(photograph.height - side)
        file = io.BytesIO()
        photograph.crop((left, top, left + side, top + side)).save(file, "JPEG", quality=80)
        if 1_000 <= len(file.getvalue()) <= 30_000:
            crops.append(file.getvalue())
    return crops


def pickled_dictionaries(count: int) -> list[bytes]:
    """Pickle dictionaries of a few numbers and words: about 200 bytes each."""
    draw = random.Random(SEED)
    words = sorted({word for text in topics.values() for word in text.split() if word.isalpha()})
    return [
        pickle.dumps(
            {
                "number": number,
                "label": draw.randrange(1000),
                "score": draw.random(),
                "box": [draw.random() for _ in range(4)],
                "caption": " ".join(draw.choices(words, k=14)),
            },
            protocol=pickle.HIGHEST_PROTOCOL,
        )
        for number in range(count)
    ]


def prose(count: int) -> list[bytes]:
    """Cut pieces of 1 to 8 KB out of Python's own reference, which is English text."""
    draw = random.Random(SEED)
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    pieces = []
    for _ in range(count):
        size = draw.randrange(1_000, 8_000)
        begin = draw.randrange(len(text) - size)
        pieces.append(text[begin : begin + size])
    return pieces
