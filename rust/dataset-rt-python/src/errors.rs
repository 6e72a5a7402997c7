//! Errors of the core become the exceptions of `dataset_rt.errors`.

use dataset_rt_core::Error;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

/// The Python exception for an error of the core, with the error's parts as attributes.
pub fn exception(error: Error) -> PyErr {
    Python::attach(|py| build(py, error).unwrap_or_else(|failure| failure))
}

/// The exception that Python raised while the core waited, if that is why it stopped; otherwise the core's own error.
pub fn raised_or(raised: Option<PyErr>, error: Error) -> PyErr {
    match (raised, error) {
        (Some(raised), Error::Interrupted) => raised,
        (_, error) => exception(error),
    }
}

/// The same for callers that tell an error from what is raised while its exception is made.
pub fn build(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let message = error.to_string();
    if let Some(fault) = error.fault() {
        let attributes = [("file", fault.file.into_pyobject(py)?.into_any())].into_py_dict(py)?;
        attributes.set_item("sample", fault.sample)?;
        attributes.set_item("expected", fault.expected)?;
        attributes.set_item("found", fault.found)?;
        let advice = match error {
            Error::FileForeign { .. } => "move it elsewhere",
            _ => "restore the cache from a copy, or remove its folder and write it again",
        };
        let message = format!("{message}; {advice}");
        return construct(py, "CacheCorruptError", message, &attributes);
    }
    let attributes = PyDict::new(py);
    let name = match error {
        Error::CacheNotFound { path, .. } => {
            attributes.set_item("path", path)?;
            "CacheNotFoundError"
        }
        Error::Version { file, expected, found } => {
            attributes.set_item("file", file)?;
            attributes.set_item("expected", expected)?;
            attributes.set_item("found", found)?;
            "CacheVersionError"
        }
        Error::Metadata { .. } => "MetadataError",
        Error::Source { source_name, sample, field, .. } => {
            attributes.set_item("source_name", source_name)?;
            attributes.set_item("sample", sample)?;
            attributes.set_item("field", field)?;
            "SourceError"
        }
        Error::StateMismatch { field, expected, found, .. } => {
            attributes.set_item("field", field)?;
            attributes.set_item("expected", expected)?;
            attributes.set_item("found", found)?;
            "StateMismatchError"
        }
        Error::Config { .. } => "ConfigError",
        Error::Io { path, operation, bytes, source } => {
            attributes.set_item("path", path)?;
            attributes.set_item("operation", operation)?;
            attributes.set_item("bytes", bytes)?;
            attributes.set_item("errno", source.raw_os_error())?;
            "CacheIOError"
        }
        _ => "DatasetRTError",
    };
    construct(py, name, message, &attributes)
}

fn construct(py: Python<'_>, name: &str, message: String, attributes: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import("dataset_rt.errors")?.getattr(name)?;
    Ok(PyErr::from_value(class.call((message,), Some(attributes))?))
}
