//! A saved state as a dict that JSON can hold.

use dataset_rt_core::order::CursorState;
use dataset_rt_core::population::Population;
use dataset_rt_core::{Error, Position, StreamState};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::errors::exception;
use crate::value::shortened;

/// The dict of the state of a stream over `population` that stands at `cursor`.
pub fn state_dict<'py>(py: Python<'py>, population: &Population, cursor: CursorState) -> PyResult<Bound<'py, PyDict>> {
    // Of an unedited table the digest is computed at first use, O(n): without the GIL.
    let state = py.detach(|| StreamState::new(population, cursor));
    let dict = PyDict::new(py);
    dict.set_item("order_version", state.order_version)?;
    dict.set_item("mode", &state.mode)?;
    dict.set_item("seed", state.seed)?;
    dict.set_item("position", state.cursor.position.0)?;
    dict.set_item("epoch_len", state.cursor.epoch_len)?;
    dict.set_item("window", state.cursor.window.map(|(start, end)| vec![start, end]))?;
    dict.set_item("rows", state.rows)?;
    dict.set_item("population", &state.population)?;
    dict.set_item("caches", &state.caches)?;
    Ok(dict)
}

/// The state that a dict holds.
pub fn from_dict(state: &Bound<'_, PyAny>) -> PyResult<StreamState> {
    let mapping = || state.is_instance(&state.py().import("collections.abc")?.getattr("Mapping")?);
    if !mapping()? {
        let message = format!("state must be a dict as state_dict() gave it, got {}", shortened(state));
        return Err(exception(Error::config(message)));
    }
    let copied = state.py().get_type::<PyDict>().call1((state,))?.cast_into::<PyDict>()?;
    let dict = &copied;
    // First of all: another version may mean something else by every other field.
    let order_version = integer(dict, "order_version")?;
    StreamState::check_version(order_version).map_err(exception)?;
    let rule = "null or the window's start and end";
    let window: Option<Vec<Bound<'_, PyAny>>> = field(dict, "window", rule)?;
    let window = match window.as_deref() {
        None => None,
        Some([start, end]) => Some((unsigned(start, "window", rule)?, unsigned(end, "window", rule)?)),
        Some(_) => return Err(mismatch("window", rule, shortened(&dict.as_any().get_item("window")?))),
    };
    Ok(StreamState {
        order_version,
        mode: field(dict, "mode", "a string")?,
        seed: integer(dict, "seed")?,
        rows: integer(dict, "rows")?,
        population: field(dict, "population", "a string")?,
        caches: field(dict, "caches", "a list of strings")?,
        cursor: CursorState {
            position: Position(integer(dict, "position")?),
            epoch_len: integer(dict, "epoch_len")?,
            window,
        },
    })
}

fn integer(dict: &Bound<'_, PyDict>, name: &'static str) -> PyResult<u64> {
    const RULE: &str = "an integer in [0, 2^64)";
    unsigned(&field::<Bound<'_, PyAny>>(dict, name, RULE)?, name, RULE)
}

/// An integer that is no bool.
fn unsigned(value: &Bound<'_, PyAny>, name: &'static str, rule: &str) -> PyResult<u64> {
    let number = if value.is_instance_of::<PyBool>() { None } else { value.extract().ok() };
    number.ok_or_else(|| mismatch(name, rule, shortened(value)))
}

fn field<'py, T: for<'a> FromPyObject<'a, 'py>>(
    dict: &Bound<'py, PyDict>,
    name: &'static str,
    rule: &str,
) -> PyResult<T> {
    match dict.get_item(name)? {
        Some(value) => value.extract().map_err(|_| mismatch(name, rule, shortened(&value))),
        None => Err(mismatch(name, rule, "no such field".to_owned())),
    }
}

fn mismatch(field: &'static str, expected: &str, found: String) -> PyErr {
    let expected = expected.to_owned();
    exception(Error::StateMismatch { field, expected, found, advice: "load a state as state_dict() gave it" })
}
