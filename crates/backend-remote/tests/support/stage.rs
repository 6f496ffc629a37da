//! A runner without processes, sockets or clocks: tests hear its frames and say its answers.

use super::{no_host, signature};
use backend::Model;
use backend_remote::frames::{self, InstanceId};
use backend_remote::generated::{
    ANSWER_FLAG_FINAL, Answer, AnswerHead, Frame, Header, Place, ResultHead, SLOTS_MAX, Segment, TensorHead, VERSION,
};
use backend_remote::{
    Connection, End, Executor, InstanceSpec, Job, Limits, Next, Prefetch, Reading, Receiver, RunnerKind, Segments,
    Spec, Start, Transport, Way,
};
use memory::Memfd;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tensor::{DataType, RegionRef};

/// A fake runner.
#[derive(Default)]
pub struct Played {
    pub receiver: Mutex<Option<Arc<dyn Receiver>>>,
    pub sent: Mutex<Vec<(Way, Vec<u8>)>>,
    pub ends: Mutex<Vec<End>>,
    /// Frames that it sends as soon as the receiver is registered.
    pub greeting: Vec<u8>,
    /// The segments that it has from its start.
    pub segments: Option<Segments>,
}

impl Transport for Played {
    fn send(&self, way: Way, frames: &[u8]) {
        self.sent.lock().push((way, frames.to_vec()));
    }
    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()> {
        *self.receiver.lock() = Some(receiver);
        self.say(Way::Work, &self.greeting);
        Ok(())
    }
    fn end(&self, how: End) {
        self.ends.lock().push(how);
    }
    fn add_segment(&self, segment: Segment) -> Option<RegionRef> {
        Some(region(segment.bytes as usize))
    }
    fn resident_bytes(&self) -> u64 {
        0
    }
}

impl Played {
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        self.receiver.lock().clone().expect("it was started")
    }

    pub fn say(&self, way: Way, bytes: &[u8]) {
        let (receiver, mut rest) = (self.receiver(), bytes);
        let mut reading = Reading { may_copy: false, side_is_read: false };
        while let Some((header, body, behind)) = frames::split(rest).expect("a frame") {
            match Arc::clone(&receiver).frame(way, &header, body, reading) {
                Ok(Next::Go) => rest = behind,
                Ok(Next::Copy) => reading.may_copy = true,
                Ok(Next::ReadSide) => reading.side_is_read = true,
                Err(breach) => return receiver.condemn(breach.0),
            }
        }
    }

    pub fn segments(&self) -> Segments {
        self.segments.clone().expect("it has some")
    }

    /// Last frame of a kind that the runner received.
    pub fn heard(&self, kind: Frame) -> Vec<u8> {
        let sent = self.sent.lock();
        let is_it = |bytes: &&Vec<u8>| bytes[4] == kind as u8;
        sent.iter().rev().map(|(_, bytes)| bytes).find(is_it).unwrap_or_else(|| panic!("no {kind:?}")).clone()
    }

    /// Ends the runner.
    pub fn dies(&self) {
        let receiver = self.receiver.lock().take().expect("it was there");
        receiver.over("was ended by the test");
    }

    /// Ends the last batch with these responses of one byte each.
    pub fn answers(&self, answers: &[u8]) {
        let batch = u64::from_le_bytes(self.heard(Frame::Execute)[Header::BYTES..][..8].try_into().expect("a number"));
        self.say(Way::Work, &result(batch, answers));
    }
}

pub fn region(bytes: usize) -> RegionRef {
    Arc::new(Memfd::new(bytes).expect("memory"))
}

pub fn framed(kind: Frame, flags: u8, count: u16, body: &[u8]) -> Vec<u8> {
    let is_process = matches!(kind, Frame::Pong | Frame::Release);
    let InstanceId { model, instance } = if is_process { InstanceId::PROCESS } else { InstanceId::ONLY };
    let mut out = Vec::new();
    Header { length: body.len() as u32, frame: kind as u8, flags, count, model, instance }.write(&mut out);
    out.extend_from_slice(body);
    out
}

pub fn result(batch: u64, answers: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    ResultHead { batch, releases: 0, error_bytes: 0 }.write(&mut body);
    for &byte in answers {
        let (kind, flags) = (Answer::Response as u8, ANSWER_FLAG_FINAL);
        AnswerHead { kind, flags, outputs: 1, ..AnswerHead::default() }.write(&mut body);
        let (datatype, place) = (DataType::Uint8 as u8, Place::Inline as u8);
        TensorHead { name_bytes: 3, datatype, rank: 1, place, bytes: 1, ..TensorHead::default() }.write(&mut body);
        body.extend_from_slice(b"OUT");
        body.extend_from_slice(&1i64.to_le_bytes());
        body.push(byte);
    }
    framed(Frame::Result, 0, answers.len() as u16, &body)
}

pub fn ready(json: &str) -> Vec<u8> {
    framed(Frame::Ready, VERSION as u8, 0, json.as_bytes())
}

/// Starts runners and runs jobs: immediate ones at once, delayed ones when the test calls `pass`.
pub struct Stage {
    pub runners: Mutex<Vec<Arc<Played>>>,
    pub later: Mutex<Vec<(Duration, Job)>>,
    pub flags: RegionRef,
    pub greeting: Mutex<Vec<u8>>,
}

impl Stage {
    pub fn new(greeting: Vec<u8>) -> Arc<Self> {
        let flags = region(SLOTS_MAX as usize);
        Arc::new(Self { runners: Mutex::default(), later: Mutex::default(), flags, greeting: greeting.into() })
    }

    pub fn start(self: &Arc<Self>, limits: Limits) -> Result<Arc<dyn Model>, backend_remote::Failure> {
        self.start_prefetching(limits, Prefetch::Never)
    }

    pub fn start_prefetching(
        self: &Arc<Self>,
        limits: Limits,
        prefetch: Prefetch,
    ) -> Result<Arc<dyn Model>, backend_remote::Failure> {
        let instance = InstanceSpec {
            name: "m_0".into(),
            kind: RunnerKind::StubProcess,
            start: self.clone(),
            load: r#"{"model":"m"}"#.into(),
        };
        let spec = Spec {
            instances: vec![instance],
            further: None,
            decoupled: false,
            iterative: false,
            reports_statistics: false,
            counts_failed: true,
            sends_all_outputs: false,
            prefetch,
            parameter_prefix: "nereid.test.",
            limits,
        };
        backend_remote::start(spec, signature(), no_host(), self.clone())
    }

    /// The runner that was started last.
    pub fn runner(&self) -> Arc<Played> {
        self.runners.lock().last().expect("one was started").clone()
    }

    /// Runs all jobs that are due after this time or earlier.
    pub fn pass(&self, delay: Duration) {
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *self.later.lock()).into_iter().partition(|(after, _)| *after <= delay);
        self.later.lock().extend(rest);
        due.into_iter().for_each(|(_, job)| job());
    }
}

impl Start for Stage {
    fn start(&self) -> io::Result<Connection> {
        let segments = Segments { requests: region(1 << 20), responses: region(1 << 20) };
        let greeting = self.greeting.lock().clone();
        let played = Arc::new(Played { greeting, segments: Some(segments.clone()), ..Played::default() });
        self.runners.lock().push(played.clone());
        Ok(Connection { transport: played, segments: Some(segments), flags: Some(self.flags.clone()) })
    }
}

impl Executor for Stage {
    fn after(&self, delay: Duration, job: Job) {
        self.later.lock().push((delay, job));
    }
    fn copy(&self, job: Job) {
        job();
    }
    fn start(&self, job: Job) {
        job();
    }
}

pub const START: Duration = Duration::from_secs(30);
pub const GRACE: Duration = Duration::from_secs(5);

pub fn limits() -> Limits {
    Limits {
        device_inputs: false,
        growth_bytes: 1 << 20,
        arena_bytes_max: 64 << 20,
        start_timeout: START,
        exit_grace: GRACE,
        execute_timeout: None,
        restart: true,
        restart_wait: Duration::ZERO,
    }
}
