//! `dataset_rt._core`: the list of what Python sees of the core.
