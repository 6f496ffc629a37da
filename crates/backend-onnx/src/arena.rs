//! Returns the arena of a session whose shapes vary when its model has nothing to do, or requests wait for memory.
//!
//! An arena keeps what the largest runs needed, with fragments of all shapes that were there. Without an arena, each
//! run takes fresh pages; with shrinkage after each run, most. A model at rest needs no arena: the runtime shrinks it
//! at the end of a run, also of one that was stopped before its first node. So runs cost what they did, and the first
//! one after a rest takes fresh pages. Models of fixed shapes keep their arena, because they need the same again.
//!
//! Recipes (`recipe`) are not counted: their runs are small.

use crate::ffi::{CName, Session, Value};
use crate::graph::Graph;
use backend::now_ns;
use bytes::Bytes;
use memory::Budget;
use memory::reclaim::Trimmed;
use parking_lot::Mutex;
use smallvec::smallvec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use tensor::{Data, DataType, Result, Shape, element_count};

/// Time without a run after which an arena is returned; also the least time between two times.
const REST_NS: u64 = 5_000_000_000;
/// Inputs of a run that is stopped at once may have so many bytes: dimensions that vary are 1.
const INPUT_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Arena {
    session: Weak<Session>,
    inputs: Vec<(CName, DataType, Shape)>,
    output: CName,
    /// There was a run since the last look.
    has_run: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// When the arena grew at the latest; `None` if it has been returned since.
    ran: Option<u64>,
    returned: u64,
}

static ARENAS: Trimmed<Arena> = Trimmed::new();

impl Arena {
    /// `None` for a session whose arena is not returned. `names` are those of the graph's inputs.
    pub(crate) fn of(
        session: &Arc<Session>,
        graph: &Graph,
        names: Vec<CName>,
        output: CName,
        batching: bool,
    ) -> Option<Arc<Self>> {
        let varies = graph.inputs.iter().any(|t| t.shape.iter().skip(usize::from(batching)).any(|&dim| dim < 0));
        if !varies || session.device().is_some() || names.len() != graph.inputs.len() {
            return None;
        }
        let one = |shape: &Shape| shape.iter().map(|&dim| if dim < 0 { 1 } else { dim }).collect();
        let inputs = names.into_iter().zip(&graph.inputs).map(|(name, t)| Some((name, t.datatype?, one(&t.shape))));
        let times = Mutex::default();
        let (session, inputs) = (Arc::downgrade(session), inputs.collect::<Option<_>>()?);
        let arena = Arc::new(Self { session, inputs, output, has_run: AtomicBool::new(false), times });
        ARENAS.watch(Arc::downgrade(&arena), return_all);
        Some(arena)
    }

    /// Notes a run.
    pub(crate) fn runs(&self) {
        if !self.has_run.load(Relaxed) {
            self.has_run.store(true, Relaxed);
        }
    }

    fn look(&self, now: u64) {
        let mut times = self.times.lock();
        if self.has_run.swap(false, Relaxed) {
            times.ran = Some(now);
        }
        let Some(ran) = times.ran else { return };
        let is_needed = Budget::global().is_short() && now.saturating_sub(times.returned) >= REST_NS;
        if is_needed || now.saturating_sub(ran) >= REST_NS {
            *times = Times { ran: None, returned: now };
            // It ends with an error in any case.
            let _ = self.give_back();
        }
    }

    fn give_back(&self) -> Result<()> {
        let Some(session) = self.session.upgrade() else { return Ok(()) };
        // Strings have no size.
        let bytes = |(_, datatype, shape): &(CName, DataType, Shape)| {
            let count = element_count(shape).and_then(|count| usize::try_from(count).ok());
            count.zip(datatype.byte_size()).and_then(|(count, size)| count.checked_mul(size)).unwrap_or(usize::MAX)
        };
        let most = self.inputs.iter().map(bytes).max().unwrap_or(0);
        if most > INPUT_BYTES_MAX {
            return Ok(());
        }
        let zeros = Bytes::from(vec![0; most]);
        let contents: Vec<Data> = self.inputs.iter().map(|input| Data::Bytes(zeros.slice(..bytes(input)))).collect();
        let values = self.inputs.iter().zip(&contents);
        let values = values.map(|((_, datatype, shape), data)| Value::input(session.runtime(), *datatype, shape, data));
        let values = values.collect::<Result<Vec<_>>>()?;
        let names: Vec<CName> = self.inputs.iter().map(|&(name, ..)| name).collect();
        let options = session.run_options(&[("memory.enable_memory_arena_shrinkage".into(), "cpu:0".into())])?;
        options.terminate();
        session.run(&options, &names, &values, &[self.output], smallvec![None]).map(drop)
    }
}

fn return_all() -> usize {
    let now = now_ns();
    ARENAS.living().iter().for_each(|arena| arena.look(now));
    0
}
