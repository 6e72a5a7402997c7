"""Hugging Face Datasets adapter of dataset-rt: import what you have, lose nothing."""

from dataset_rt_hf.decoding import Decoder, decoder
from dataset_rt_hf.exporting import to_dataset
from dataset_rt_hf.importing import import_dataset
from dataset_rt_hf.source import HFSource

__version__ = "1.0.0"

__all__ = ["Decoder", "HFSource", "decoder", "import_dataset", "to_dataset"]
