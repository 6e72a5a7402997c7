//! `Ticket`: the window that an iterator of an adapter will reserve.

use std::sync::Arc;

use dataset_rt_core::order::{Ticket as CoreTicket, batches_of};
use dataset_rt_core::population::Population;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::shared::Shared;
use crate::standing::Standing;
use crate::state::state_dict;
use crate::window::{Batches, Window};

/// What an iterator remembers from when it was made until its first batch is asked for.
#[pyclass(frozen, module = "dataset_rt._core", name = "Ticket")]
pub struct Ticket {
    pub shared: Arc<Shared>,
    pub standing: Arc<Standing>,
    pub population: Arc<Population>,
    pub ticket: CoreTicket,
    pub batches: Batches,
}

#[pymethods]
impl Ticket {
    /// How many draws the window would have for this rank if it were reserved now.
    #[getter]
    fn num_draws(&self) -> u64 {
        self.standing.count_of(&self.ticket)
    }

    /// How many batches it would have.
    #[getter]
    fn num_batches(&self) -> u64 {
        batches_of(self.num_draws(), self.batches.size, self.batches.drop_last)
    }

    /// Where the stream stands for this iterator, as long as it has not reserved its window.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cursor = self.standing.state_of(&self.ticket);
        state_dict(py, &self.population, cursor)
    }

    /// Reserves the window and moves the dataset past it.
    fn reserve(&self) -> PyResult<Window> {
        let progress = self.standing.reserve(&self.ticket)?;
        Ok(Window::new(Arc::clone(&self.shared), Arc::clone(&self.population), progress, self.batches))
    }
}
