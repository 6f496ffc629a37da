//! Serves one connection: its LOAD, its batches, and what comes on its side socket.

#![allow(unsafe_code)] // requests that a library is given

use crate::abi::instance::Instance;
use crate::abi::request::Request;
use crate::answer::Answer;
use crate::library::Start;
use crate::link::{Link, Way};
use crate::models::Role;
use crate::receive::{Handed, Incoming};
use crate::segments::{Allocated, Flags, Segments};
use crate::ticket::{Ticket, too_long, work_for, work_is_done};
use frames::generated::{Frame, INLINE_BYTES_MAX, ResultHead};
use frames::{ExecuteRef, InstanceId, ToRunner, is_ready_result, read_request, write};
use serde_json::{Value, json};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use tensor::Error;

/// The descriptors of a connection, in the order of their numbers in shm/README.md.
pub(crate) struct Descriptors {
    pub(crate) work: OwnedFd,
    pub(crate) side: OwnedFd,
    pub(crate) requests: OwnedFd,
    pub(crate) responses: OwnedFd,
    pub(crate) flags: OwnedFd,
}

/// A message over a socket that hands over connections.
pub(crate) enum Received {
    Connection(Descriptors),
    /// Why there is none.
    Text(String),
    End,
}

impl Descriptors {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// The socket fails, or descriptors are missing.
    pub(crate) fn receive(control: &mut Incoming) -> io::Result<Received> {
        let mut all = Vec::new();
        while all.len() < 5 {
            match control.handed(all.len() as u8)? {
                Handed::Descriptor(descriptor) => all.push(descriptor),
                Handed::Text(text) => return Ok(Received::Text(text)),
                Handed::End if all.is_empty() => return Ok(Received::End),
                Handed::End => break,
            }
        }
        let all = <[OwnedFd; 5]>::try_from(all).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let [work, side, requests, responses, flags] = all;
        Ok(Received::Connection(Self { work, side, requests, responses, flags }))
    }
}

/// Makes what a LOAD asks for, and the members of READY.
pub(crate) type Loader = fn(&str, &Arc<Link>) -> tensor::Result<(Role, Value)>;

/// Serves a connection on threads of its own.
///
/// # Errors
/// A descriptor cannot be duplicated or mapped.
pub(crate) fn serve(of: Descriptors, load: Loader) -> io::Result<Arc<Link>> {
    let Descriptors { work, side, requests, responses, flags } = of;
    let (work, side) = (UnixStream::from(work), UnixStream::from(side));
    let (reads_work, reads_side) = (work.try_clone()?, side.try_clone()?);
    let link = Link::new(work, side, Segments::new(&requests, &responses)?, Flags::new(&flags)?);
    let served = Arc::new(Mutex::new(None));
    let (beside, its, worker) = (Arc::clone(&link), Arc::clone(&served), Arc::clone(&link));
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    named("side").spawn(move || {
        let _ = read_side(&beside, Incoming::new(reads_side), &its);
        beside.close();
    })?;
    named("work").spawn(move || {
        let link = worker;
        let _ = read_work(&link, Incoming::new(reads_work), &served, load);
        // Before the sockets are closed: the server takes that for the end of the instance.
        let role = served.lock().ok().and_then(|mut served| served.take());
        if matches!(role, Some(Role::Program)) {
            // The last responses may be unread; the server closes the side socket behind them.
            return link.end_work();
        }
        drop(role);
        link.close();
    })?;
    Ok(link)
}

/// The purpose of the connection, once it is loaded.
type ServedRole = Arc<Mutex<Option<Role>>>;

fn instance_of(served: &ServedRole) -> Option<Arc<Instance>> {
    match served.lock().ok()?.as_ref()? {
        Role::Instance(instance, _) => Some(Arc::clone(instance)),
        Role::Model(_) | Role::Program => None,
    }
}

/// Handles the frames of the work socket until UNLOAD.
fn read_work(link: &Arc<Link>, mut incoming: Incoming, served: &ServedRole, load: Loader) -> io::Result<()> {
    loop {
        let (header, body) = incoming.frame()?;
        match read_request(&header, &body).map_err(|breach| io::Error::other(breach.0))? {
            ToRunner::Load(text) => {
                let (role, mut ready) = match load(text, link) {
                    Ok(loaded) => loaded,
                    Err(error) => {
                        let (text, code) = (error.message(), error.code().constant());
                        let failed = json!({ "text": text, "source": null, "missing": null, "code": code });
                        send_json(link, Frame::Failed, &failed);
                        return Ok(());
                    }
                };
                if let Ok(mut served) = served.lock() {
                    *served = Some(role);
                }
                ready["runner"] = concat!("backend host ", env!("CARGO_PKG_VERSION")).into();
                ready["pid"] = std::process::id().into();
                send_json(link, Frame::Ready, &ready);
            }
            ToRunner::Execute(batch) => {
                let instance = instance_of(served).ok_or_else(|| io::Error::other("a batch for no instance"))?;
                link.segments.freed(batch.releases.iter());
                link.run(|| execute(&instance, &batch));
            }
            ToRunner::Unload => return Ok(()),
            ToRunner::CallResponse { call, answer } => link.call_response(call, &answer),
            _ => return Err(io::Error::other("a frame that belongs to the other socket")),
        }
    }
}

/// Answers LOAD.
fn send_json(link: &Link, kind: Frame, object: &Value) {
    let mut frame = Vec::new();
    if write::json(&mut frame, InstanceId::ONLY, kind, &object.to_string()).is_ok() {
        link.send(Way::Work, &frame);
    }
}

/// Runs a batch, and sends its result.
fn execute(instance: &Arc<Instance>, batch: &ExecuteRef<'_>) {
    let tickets: Vec<_> = batch.requests.iter().map(|request| Ticket::new(instance, request)).collect();
    let mut errors: Vec<Option<Error>> = Vec::new();
    let may_be_prefetched = instance.model.signature().is_unscheduled;
    let mut requests = Vec::with_capacity(tickets.len());
    for (at, (request, ticket)) in batch.requests.iter().zip(&tickets).enumerate() {
        // It may have been cancelled while another ran.
        let is_over = may_be_prefetched && ticket.is_cancelled();
        let made = Request::new(ticket, request);
        let made = if is_over { made.and(Err(Error::cancelled(""))) } else { made };
        errors.push(made.as_ref().err().cloned());
        requests.extend(made.map(|request| (at, Box::new(request))));
    }
    work_for(&tickets);
    for (at, error) in run(instance, requests) {
        errors[at] = Some(error);
    }
    let mut frame = work_is_done();
    let answers: Vec<_> = tickets.iter().zip(&errors).map(|(ticket, error)| ticket.result(error.as_ref())).collect();
    let link = &instance.link;
    let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Result);
    writing.count(&mut frame, answers.len() as u16);
    let returned = link.segments.returned();
    ResultHead { batch: batch.batch, releases: returned.len() as u32, error_bytes: 0 }.write(&mut frame);
    frame.extend(returned.iter().flat_map(|id| id.to_le_bytes()));
    let mut room = INLINE_BYTES_MAX as usize;
    let mut blocks = Vec::new();
    for answer in answers {
        blocks.extend(answer.write(&mut frame, &mut room, &link.segments));
    }
    if writing.end(&mut frame).is_err() {
        // Too long for a frame: with texts or parameters that no client could get.
        frame.clear();
        let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Result);
        writing.count(&mut frame, tickets.len() as u16);
        ResultHead { batch: batch.batch, ..ResultHead::default() }.write(&mut frame);
        for _ in &tickets {
            Answer::failed(&too_long()).write(&mut frame, &mut 0, &link.segments);
        }
        let _ = writing.end(&mut frame);
        blocks.clear();
        link.segments.keep(returned);
    }
    drop(tickets);
    link.send(Way::Work, &frame);
    blocks.into_iter().for_each(Allocated::sent);
}

/// Hands requests, with their indexes, to the library, in the parts that a batching library makes of them. Returns the
/// indexes of those that it did not take, with its errors.
fn run(instance: &Arc<Instance>, requests: Vec<(usize, Box<Request>)>) -> Vec<(usize, Error)> {
    let (model, mut refused) = (&instance.model, Vec::new());
    let all = requests.iter().map(|(_, request)| &**request);
    let parts = model.strategy().map_or_else(|| vec![requests.len()], |strategy| strategy.divide(all));
    let is_executed = model.backend.library.execute.is_some();
    let mut rest = requests.into_iter();
    for (number, count) in parts.into_iter().enumerate() {
        let (indexes, part): (Vec<usize>, Vec<_>) = rest.by_ref().take(count).unzip();
        if part.is_empty() {
            continue;
        }
        if !is_executed {
            match number {
                0 => part.iter().for_each(|of| of.ticket.answer(Answer::response(String::new(), Vec::new()).ended())),
                _ => refused.extend(indexes.into_iter().map(|at| (at, Error::cancelled("it begins another batch")))),
            }
            continue;
        }
        let mut array: Vec<_> = part.into_iter().map(|request| Box::into_raw(request).cast()).collect();
        let count = array.len() as u32;
        if let Err(error) = model.backend.library.execute((&**instance).into(), Start::from(&mut *array), count) {
            for (at, request) in indexes.into_iter().zip(array) {
                // SAFETY: made above, and after an error still ours.
                drop(unsafe { Box::from_raw(request.cast::<Request>()) });
                refused.push((at, error.clone()));
            }
        }
    }
    refused
}

/// Handles the frames of the side socket until it is closed.
fn read_side(link: &Arc<Link>, mut incoming: Incoming, served: &ServedRole) -> io::Result<()> {
    loop {
        let (header, body) = incoming.frame()?;
        match read_request(&header, &body).map_err(|breach| io::Error::other(breach.0))? {
            ToRunner::Segment(segment) => {
                let descriptor = if segment.refused == 0 { incoming.descriptor() } else { None };
                link.segments.add(&segment, descriptor);
            }
            ToRunner::Release(blocks) => link.segments.freed(blocks.iter()),
            ToRunner::Ping(question) => {
                let mut frame = Vec::new();
                write::question(&mut frame, InstanceId::PROCESS, Frame::Pong, question);
                let mut ids = link.segments.returned();
                while !ids.is_empty() {
                    write::release(&mut frame, &mut ids);
                }
                link.send(Way::Side, &frame);
            }
            ToRunner::IsReady(question) => is_ready(link, served, question),
            ToRunner::CallResponse { call, answer } => link.call_response(call, &answer),
            ToRunner::ControlResult(text) => link.control_result(text),
            ToRunner::Device => {}
            _ => return Err(io::Error::other("a frame that belongs to the other socket")),
        }
    }
}

/// Asks the library whether an instance is ready, on a thread of its own: it may ask the server something.
fn is_ready(link: &Arc<Link>, served: &ServedRole, question: u64) {
    let (instance, link) = (instance_of(served), Arc::clone(link));
    let ask = move || {
        let asked = instance.as_ref().map(|instance| {
            // The library is not asked about an instance that it has finalized, and finalizes none while it is asked.
            let finalized = instance.finalized.read();
            *finalized || link.run(|| instance.model.backend.library.instance_ready((&**instance).into())).is_ok()
        });
        let mut frame = Vec::new();
        is_ready_result(&mut frame, InstanceId::ONLY, question, asked.unwrap_or(true));
        link.send(Way::Side, &frame);
    };
    let _ = std::thread::Builder::new().name("ready".to_owned()).spawn(ask);
}
