//! Waits and long work without Python's lock.

use dataset_rt_core::runtime::Outside;
use dataset_rt_core::{Error, Result};
use pyo3::prelude::*;

/// Releases the GIL for the core's work and looks at signals after it.
pub struct WithoutGil<'py> {
    py: Python<'py>,
    /// What a signal's handler raised; the core then sees [`Error::Interrupted`].
    pub raised: Option<PyErr>,
}

impl<'py> WithoutGil<'py> {
    pub fn new(py: Python<'py>) -> Self {
        Self { py, raised: None }
    }
}

impl Outside for WithoutGil<'_> {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        self.py.detach(work);
        self.py.check_signals().map_err(|raised| {
            self.raised = Some(raised);
            Error::Interrupted
        })
    }
}
