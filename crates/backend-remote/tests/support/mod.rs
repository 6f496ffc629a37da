//! A minimal engine that records every call.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(dead_code, missing_docs)] // each test uses its part

pub mod stage;

use backend::{
    Answers, Batch, BatchEntry, Counted, InstanceOffer, Marks, Model, Occupancy, Occupied, Outcome, RemoteModel,
    Responder, RunControl, Stopped,
};
use protocol::{Checked, InferRequest, InputSpec, InputTensor, OutputForm, OutputSpec, Signature};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tensor::{Data, DataType, Error, Shape};

/// Longest wait for an expected event.
pub const LONG: Duration = Duration::from_secs(60);

pub fn signature() -> Arc<Signature> {
    let dims = Shape::from_slice(&[-1]);
    let input = |name: &'static str, datatype| InputSpec {
        name: name.into(),
        datatype,
        dims: dims.clone(),
        reshape: None,
        optional: true,
        allow_ragged_batch: false,
    };
    let output = |name: &'static str, datatype| OutputSpec {
        name: name.into(),
        datatype,
        dims: dims.clone(),
        reshape: None,
        labels: protocol::Labels::default(),
    };
    Arc::new(Signature {
        model: "m".into(),
        version: "1".into(),
        max_batch_size: 0,
        inputs: vec![input("IN", DataType::Uint8), input("IN_S", DataType::Bytes)],
        outputs: vec![output("OUT", DataType::Uint8), output("OUT_S", DataType::Bytes)],
        decoupled: false,
    })
}

/// The remote interface of a model.
pub fn remote(model: &dyn Model) -> &dyn RemoteModel {
    model.remote().expect("it runs elsewhere")
}

pub fn no_host() -> Weak<dyn backend::Host> {
    struct NoHost;
    impl backend::Host for NoHost {
        fn call(
            &self,
            _: backend::ModelCall,
            _: Arc<dyn backend::CallAnswers>,
        ) -> tensor::Result<Box<dyn backend::Call>> {
            Err(Error::unavailable("no server"))
        }
        fn describe(&self, _: &str, _: i64) -> tensor::Result<backend::CallableModel> {
            Err(Error::unavailable("no server"))
        }
        fn control(&self, _: backend::ModelControl, answer: Box<dyn FnOnce(tensor::Result<String>) + Send>) {
            answer(Err(Error::unavailable("no server")));
        }
        fn metrics(&self) -> &Arc<backend::metrics::CustomMetrics> {
            unreachable!("there is no server")
        }
    }
    Weak::<NoHost>::new()
}

/// Event of a request or its batch.
#[derive(Debug)]
pub enum Event {
    Sent(Outcome),
    Failed(Error),
    Ended(Option<Result<Outcome, Error>>, Counted),
    Again(Box<InferRequest>),
    PutBack(Box<InferRequest>),
    Abandoned,
}

/// Submitted requests and their events.
pub struct Ran {
    pub events: Receiver<Event>,
    pub freed: Receiver<Option<Marks>>,
    /// Receives one message if the instance was offered to the next batch while the batch runs.
    pub offer: Receiver<()>,
    /// Receives the time when the batch began, if it was prefetched.
    pub begun: Receiver<u64>,
    pub answers: Vec<Arc<Listener>>,
}

pub struct Listener {
    events: Mutex<Sender<Event>>,
    counted: Mutex<Counted>,
    hooks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    is_over: AtomicBool,
    is_cancelled: AtomicBool,
}

impl Listener {
    fn tell(&self, event: Event) {
        let _ = self.events.lock().expect("no panic").send(event);
    }
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        for hook in std::mem::take(&mut *self.hooks.lock().expect("no panic")) {
            hook();
        }
    }
}

impl Answers for Listener {
    fn send(&self, outcome: Outcome) -> Result<(), Stopped> {
        self.tell(Event::Sent(outcome));
        Ok(())
    }
    fn fail(&self, error: Error) {
        self.tell(Event::Failed(error));
    }
    fn skip(&self) {}
    fn output_begins(&self) {}
    fn count_as(&self, counted: Counted) {
        *self.counted.lock().expect("no panic") = counted;
    }
    fn finish(&self, last: Option<Result<Outcome, Error>>) {
        self.is_over.store(true, Ordering::SeqCst);
        self.tell(Event::Ended(last, *self.counted.lock().expect("no panic")));
    }
    fn again(&self, entry: BatchEntry, _: Option<Outcome>) {
        self.tell(Event::Again(entry.request));
    }
    fn put_back(&self, entry: BatchEntry) {
        self.tell(Event::PutBack(entry.request));
    }
    fn abandon(&self) {
        if !self.is_over.load(Ordering::SeqCst) {
            self.tell(Event::Abandoned);
        }
    }
    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
    fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) {
        self.hooks.lock().expect("no panic").push(hook);
    }
}

struct Freed {
    free: Sender<Option<Marks>>,
    offer: Option<Sender<()>>,
    begins: Sender<u64>,
}

impl Occupancy for Freed {
    fn free(self: Box<Self>, marks: Option<Marks>) {
        let _ = self.free.send(marks);
    }
    fn offer(&mut self) -> Option<InstanceOffer> {
        struct Told(Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        Some(InstanceOffer(Box::new(Told(self.offer.take()?))))
    }
    fn waits(&self) {
        let _ = self.begins.send(0);
    }
    fn leaves(&self) {
        let _ = self.begins.send(u64::MAX);
    }
    fn begins(&self, at: u64) {
        let _ = self.begins.send(at);
    }
}

pub fn request(id: &str, inputs: &[(&'static str, DataType, Data, &[i64])]) -> BatchEntry {
    let mut request = InferRequest { id: id.into(), ..InferRequest::default() };
    let mut checked = Checked { outputs: [(0, None), (1, None)].into_iter().collect(), ..Checked::default() };
    request.default_form = OutputForm { binary: true, classification: 0, anywhere: false };
    for (name, datatype, data, dims) in inputs {
        let (name, data) = ((*name).into(), data.clone());
        checked.inputs.push(u16::from(*datatype == DataType::Bytes));
        request.inputs.push(InputTensor { name, datatype: Some(*datatype), shape: Shape::from_slice(dims), data });
    }
    BatchEntry::new(request.into(), checked)
}

/// A request of so many bytes.
pub fn bytes(id: &str, count: usize) -> BatchEntry {
    let data: Vec<u8> = (0..count).map(|n| (n % 251) as u8).collect();
    request(id, &[("IN", DataType::Uint8, Data::Bytes(data.into()), &[count as i64])])
}

pub fn run(model: &dyn Model, instance: u32, mut entries: Vec<BatchEntry>) -> Ran {
    let ((send, events), (free, freed)) = (channel(), channel());
    let ((go, offer), (begins, begun)) = (channel(), channel());
    let mut answers = Vec::new();
    for entry in &mut entries {
        let events = Mutex::new(send.clone());
        let listener = Arc::new(Listener {
            events,
            counted: Mutex::default(),
            hooks: Mutex::default(),
            is_over: AtomicBool::default(),
            is_cancelled: AtomicBool::default(),
        });
        answers.push(Arc::clone(&listener));
        entry.responder = Some(Responder::new(listener));
    }
    let mut batch = Batch::new(&mut entries);
    batch.occupied = Some(Occupied::new(Box::new(Freed { free, offer: Some(go), begins })));
    model.execute(instance, &mut batch, &RunControl::new(1));
    Ran { events, freed, offer, begun, answers }
}

impl Ran {
    pub fn event(&self) -> Event {
        match self.events.recv_timeout(LONG) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was heard"),
            Err(RecvTimeoutError::Disconnected) => panic!("nobody is left to be heard"),
        }
    }
    /// The one answer.
    pub fn answer(&self) -> Result<Outcome, Error> {
        match self.event() {
            Event::Ended(Some(last), _) => last,
            other => panic!("{other:?}"),
        }
    }
    pub fn freed(&self) -> Option<Marks> {
        self.freed.recv_timeout(LONG).expect("the instance is freed")
    }
}

/// Waits for something that must come.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LONG;
    while !holds() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
