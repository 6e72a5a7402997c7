//! Metadata values between Python and the core.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use dataset_rt_core::format::{ColumnKind, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyType};

/// Proleptic Gregorian ordinal of 1970-01-01, as Python's `date.toordinal` counts.
const EPOCH_ORDINAL: i32 = 719_163;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Why a value cannot be stored: what was expected and what came.
pub struct Refusal {
    pub expected: String,
    pub found: String,
}

impl Refusal {
    pub fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into() }
    }
}

/// A metadata value of a source as the core takes it. NumPy scalars are taken as their Python kind.
pub fn from_python(value: &Bound<'_, PyAny>) -> PyResult<std::result::Result<Value, Refusal>> {
    let refuse = |expected: &str, found: String| Ok(Err(Refusal::new(expected, found)));
    if value.is_none() {
        return Ok(Ok(Value::Null));
    }
    if let Ok(boolean) = value.cast::<PyBool>() {
        return Ok(Ok(Value::Boolean(boolean.is_true())));
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract::<i64>() {
            Ok(integer) => Ok(Ok(Value::Int64(integer))),
            Err(_) => refuse("an integer in [-2^63, 2^63)", shortened(value)),
        };
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(Ok(Value::Float64(float.value())));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return match text.to_str() {
            Ok(text) => Ok(Ok(Value::String(text.to_owned()))),
            Err(_) => refuse("text that UTF-8 can hold", format!("{} with a lone surrogate", shortened(value))),
        };
    }
    let classes = Classes::get(value.py())?;
    if value.is_instance(classes.datetime.bind(value.py()))? {
        return from_datetime(value, classes);
    }
    if value.is_instance(classes.date.bind(value.py()))? {
        let ordinal: i32 = value.call_method0("toordinal")?.extract()?;
        return Ok(Ok(Value::Date(ordinal - EPOCH_ORDINAL)));
    }
    if value.is_instance(classes.datetime64.bind(value.py()))? {
        return from_datetime64(value, classes);
    }
    if value.is_instance(classes.timedelta64.bind(value.py()))? {
        return refuse("a bool, int, float, str, date, datetime or None", shortened(value));
    }
    if value.is_instance(classes.generic.bind(value.py()))? {
        let item = value.call_method0("item")?;
        // A scalar without a Python kind (a long double, say) gives itself.
        if !item.is_instance(classes.generic.bind(value.py()))? {
            return from_python(&item);
        }
    }
    refuse(
        "a bool, int, float, str, date, datetime or None",
        format!("{} of type {}", shortened(value), type_name(value)),
    )
}

fn from_datetime(value: &Bound<'_, PyAny>, classes: &Classes) -> PyResult<std::result::Result<Value, Refusal>> {
    if value.ne(value)? {
        // pandas' NaT calls itself a datetime, and is not equal to itself.
        return Ok(Ok(Value::Null));
    }
    if !value.getattr("tzinfo")?.is_none() {
        let expected = "a datetime without time zone (convert it to UTC and drop tzinfo)";
        return Ok(Err(Refusal::new(expected, shortened(value))));
    }
    // pandas' Timestamp is a datetime with nanoseconds beside.
    if value.getattr("nanosecond").and_then(|nanosecond| nanosecond.is_truthy()).unwrap_or(false) {
        return Ok(Err(Refusal::new("a datetime that is exact in microseconds", shortened(value))));
    }
    let since = value.sub(classes.epoch.bind(value.py()))?;
    let days: i64 = since.getattr("days")?.extract()?;
    let seconds: i64 = since.getattr("seconds")?.extract()?;
    let micros: i64 = since.getattr("microseconds")?.extract()?;
    Ok(Ok(Value::Datetime(days * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + micros)))
}

/// A NumPy datetime64: a date where its unit is a day or coarser, otherwise a datetime.
fn from_datetime64(value: &Bound<'_, PyAny>, classes: &Classes) -> PyResult<std::result::Result<Value, Refusal>> {
    let py = value.py();
    if value.ne(value)? {
        return Ok(Ok(Value::Null));
    }
    let numpy = py.import("numpy")?;
    let (unit, _): (String, Py<PyAny>) = numpy.call_method1("datetime_data", (value.getattr("dtype")?,))?.extract()?;
    let is_date = matches!(unit.as_str(), "Y" | "M" | "W" | "D");
    let target = if is_date { "datetime64[D]" } else { "datetime64[us]" };
    let converted = value.call_method1("astype", (target,))?;
    let back = converted.call_method1("astype", (value.getattr("dtype")?,))?;
    if back.ne(value)? {
        return Ok(Err(Refusal::new("a datetime64 that is exact in microseconds", shortened(value))));
    }
    // Only what Python can hold comes back out: years 1 to 9999.
    let item = converted.call_method0("item")?;
    if item.is_instance(classes.date.bind(py))? {
        return from_python(&item);
    }
    Ok(Err(Refusal::new("a datetime64 in the years 1 to 9999", shortened(value))))
}

/// The value of an array's row as Python sees it.
pub fn to_python<'py>(py: Python<'py>, kind: ColumnKind, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if row >= array.len() || array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match kind {
        ColumnKind::Boolean => PyBool::new(py, array.as_boolean().value(row)).to_owned().into_any(),
        ColumnKind::Int64 => array.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any(),
        ColumnKind::Float64 => array.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any(),
        // Not interned: Python 3.12 never frees interned strings, and a column may hold a name for each sample.
        ColumnKind::String => PyString::new(py, array.as_string::<i64>().value(row)).into_any(),
        ColumnKind::Date => {
            let ordinal = array.as_primitive::<Date32Type>().value(row).saturating_add(EPOCH_ORDINAL);
            Classes::get(py)?.date.bind(py).call_method1("fromordinal", (ordinal,))?
        }
        ColumnKind::Datetime => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let classes = Classes::get(py)?;
            let since = classes.timedelta.bind(py).call1((0, 0, micros))?;
            classes.epoch.bind(py).add(since)?
        }
    })
}

/// The beginning of a value's repr.
pub fn shortened(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 80;
    let text = value.repr().map_or_else(|_| type_name(value), |text| text.to_string_lossy().into_owned());
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain("…".chars()).collect() }
}

/// The name of a value's type.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// Python classes that values are compared with, looked up once.
struct Classes {
    date: Py<PyType>,
    datetime: Py<PyType>,
    timedelta: Py<PyType>,
    epoch: Py<PyAny>,
    generic: Py<PyType>,
    datetime64: Py<PyType>,
    timedelta64: Py<PyType>,
}

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&'_ Self> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || {
            let datetime = py.import("datetime")?;
            let numpy = py.import("numpy")?;
            let class = |module: &Bound<'_, PyModule>, name: &str| -> PyResult<Py<PyType>> {
                Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                date: class(&datetime, "date")?,
                datetime: class(&datetime, "datetime")?,
                timedelta: class(&datetime, "timedelta")?,
                epoch: datetime.getattr("datetime")?.call1((1970, 1, 1))?.unbind(),
                generic: class(&numpy, "generic")?,
                datetime64: class(&numpy, "datetime64")?,
                timedelta64: class(&numpy, "timedelta64")?,
            })
        })
    }
}
