"""What the features of `datasets` mean for a cache: media, decoding, and their text in the manifest."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import datasets
from datasets.features.features import require_decoding

__all__ = [
    "features_from_text",
    "has_media",
    "is_media",
    "leaves",
    "needs_decoding",
    "text_of_features",
    "without_media",
]

# Not every release of datasets embeds each of them by its own code, but each stores them as bytes and path.
_MEDIA = tuple(getattr(datasets, name) for name in ("Image", "Audio", "Video", "Pdf") if hasattr(datasets, name))


def text_of_features(features: datasets.Features) -> str:
    """The features as JSON, in their order."""
    return json.dumps(features.to_dict(), ensure_ascii=False)


def features_from_text(text: str) -> datasets.Features:
    """The features that `text_of_features` wrote."""
    return datasets.Features.from_dict(json.loads(text))


def is_media(feature: Any) -> bool:
    """Whether a feature is a file's bytes: Image, Audio, Video, Pdf, Nifti and whatever later releases add."""
    return isinstance(feature, _MEDIA) or hasattr(feature, "embed_storage")


def leaves(feature: Any) -> list[Any]:
    """Everything in a feature that holds no further feature."""
    found: list[Any] = []
    map_leaves(feature, found.append)
    return found


def map_leaves(feature: Any, change: Callable[[Any], Any]) -> Any:
    """The feature with `change` applied to everything in it that holds no further feature."""
    if isinstance(feature, dict):
        return {name: map_leaves(child, change) for name, child in feature.items()}
    if isinstance(feature, (datasets.List, datasets.LargeList)):
        changed = copy.copy(feature)
        changed.feature = map_leaves(feature.feature, change)
        return changed
    return change(feature)


def has_media(feature: Any) -> bool:
    """Whether a medium is anywhere in a feature."""
    return any(is_media(leaf) for leaf in leaves(feature))


def without_media(features: datasets.Features) -> datasets.Features:
    """The features with every medium left as the bytes and the path that it is stored as."""

    def undecoded(leaf: Any) -> Any:
        if not is_media(leaf):
            return leaf
        changed = copy.copy(leaf)
        changed.decode = False
        return changed

    return datasets.Features(map_leaves(features, undecoded))


def needs_decoding(feature: Any) -> bool:
    """Whether what Arrow holds is not yet what `datasets` gives."""
    return bool(require_decoding(feature))
