//! Starts processes; public functions of this crate.

use crate::guardian::{self, Guarded};
use crate::handle::ProcessHandle;
use crate::hub::Hub;
use crate::link::Link;
use crate::output::Printed;
use crate::process::Process;
use crate::spec::{Command, Instance, OutputTarget, RunnerLimits, SharedMemory};
use crate::sys::{self, Program};
use backend::{Host, Model};
use backend_remote::generated::SLOTS_MAX;
use backend_remote::{Completed, Connection, Executor, Failure, Job, RunnerGuard, Segments, Spec, Start};
use memory::Memfd;
use protocol::Signature;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Fault, Name, RegionRef};

/// Bytes at the beginning of each first segment whose pages are faulted in at once.
const POPULATED_BYTES: usize = 256 << 10;

/// Starts the process of an instance.
pub(crate) struct Starter {
    /// Name before the lines that it prints.
    pub(crate) name: Name,
    pub(crate) command: Command,
    pub(crate) limits: RunnerLimits,
    pub(crate) output: OutputTarget,
}

/// An instance of a model that is served by a process.
pub fn hosted(instance: Instance, limits: &RunnerLimits, output: OutputTarget) -> backend_remote::InstanceSpec {
    let Instance { name, kind, command, load } = instance;
    let load = load_of(&load, limits);
    let start = Arc::new(Starter { name: name.clone(), command, limits: limits.clone(), output });
    backend_remote::InstanceSpec { name, kind, start, load }
}

/// The caller's LOAD object with `segments`, `flags` and `devices` added.
pub fn load_of(load: &str, limits: &RunnerLimits) -> String {
    let rest = load.trim_start().strip_prefix('{').unwrap_or("}").trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    let bytes = limits.segment_bytes;
    let segments = match limits.shared_memory {
        SharedMemory::Tensors => format!(r#"{{"request":{bytes},"response":{bytes},"slots":{SLOTS_MAX}}}"#),
        SharedMemory::Flags => format!(r#"null,"flags":{SLOTS_MAX}"#),
        SharedMemory::None => "null".to_owned(),
    };
    let devices = limits.device_inputs;
    format!(r#"{{"segments":{segments},"devices":{devices}{comma}{rest}"#)
}

/// Starts the processes of a model, which load its code. Blocks until all are ready or one has failed.
///
/// # Errors
/// The error of the first that failed.
pub fn start(spec: Spec, signature: Arc<Signature>, host: Weak<dyn Host>) -> Result<Arc<dyn Model>, Failure> {
    backend_remote::start(spec, signature, host, executor()?)
}

/// Has a process complete the model's configuration; `None` if the code does not change it.
///
/// # Errors
/// The error of the code, or that the process died.
pub fn complete_config(
    instance: &Instance,
    limits: &RunnerLimits,
    output: OutputTarget,
) -> Result<Option<String>, Failure> {
    ask(&hosted(instance.clone(), limits, output), limits)
}

/// Has a runner of any transport complete the model's configuration; `None` if the code does not change it.
///
/// # Errors
/// The error of the code, or that the runner ended.
pub fn ask(instance: &backend_remote::InstanceSpec, limits: &RunnerLimits) -> Result<Option<String>, Failure> {
    backend_remote::ask(instance, &limits.of_runner(), &executor()?)
}

/// Memory that a runner shares with the server from its start.
pub struct Shared {
    /// For tensors; `None` if all are sent inline.
    pub segments: Option<Segments>,
    /// Flags of cancelled requests; `None` if the model does not see cancels.
    pub flags: Option<RegionRef>,
}

/// Memory for a runner in this process.
///
/// # Errors
/// The error of the system call.
pub fn shared(limits: &RunnerLimits) -> io::Result<Shared> {
    Inherited::new(limits).map(Inherited::shared)
}

/// Has a runner of any transport complete the model's configuration, and keeps it. Its code may send requests to
/// `host`, for the model `model`.
///
/// # Errors
/// The error of the code, or that the runner ended.
pub fn ask_and_keep(
    instance: &backend_remote::InstanceSpec,
    limits: &RunnerLimits,
    host: Weak<dyn Host>,
    model: Name,
) -> Result<(Completed, RunnerGuard), Failure> {
    backend_remote::ask_and_keep(instance, &limits.of_runner(), &executor()?, host, model)
}

/// Runs a short job after a delay, on the thread that watches runners.
pub fn after(delay: Duration, job: Job) {
    if let Ok(hub) = Hub::get() {
        hub.after(delay, job);
    }
}

fn executor() -> Result<Arc<dyn Executor>, Failure> {
    match Hub::get() {
        Ok(hub) => Ok(Arc::new(hub)),
        Err(e) => Err(Error::internal(format!("a process could not be started: {e}")).by(Fault::Environment).into()),
    }
}

/// Waits until all processes have ended and what they printed is logged, at most `longest`: for the end of the server,
/// after its models were dropped. False if processes still run.
#[expect(clippy::disallowed_methods, reason = "at the end of the server only, for processes that the hub waits for")]
pub fn wait_for_ends(longest: Duration) -> bool {
    let until = std::time::Instant::now() + longest;
    while Hub::get().is_ok_and(|hub| hub.is_busy()) {
        if std::time::Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    while !Printed::is_idle() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Start for Starter {
    fn start(&self) -> io::Result<Connection> {
        let hub = Hub::get()?;
        let (work, their_work) = UnixStream::pair()?;
        let (side, their_side) = UnixStream::pair()?;
        let id = hub.name();
        let link = Link::new(id, work, side)?;
        let memory = Inherited::new(&self.limits)?;
        let nothing = File::open("/dev/null")?;
        let mut descriptors = vec![their_work.as_fd(), their_side.as_fd()];
        // Their numbers do not depend on what the runner shares.
        if let Some([requests, responses, flags]) = memory.descriptors(&nothing) {
            descriptors.extend([requests, responses, flags]);
        }
        let process = self.process(id, &descriptors)?;
        let transport = Process::new(id, hub, link, process, false)?;
        let Shared { segments, flags } = memory.shared();
        Ok(Connection { transport, segments, flags })
    }
}

impl Starter {
    /// Starts the process, with these descriptors from 3 on.
    pub(crate) fn process(&self, id: u64, descriptors: &[BorrowedFd<'_>]) -> io::Result<Arc<ProcessHandle>> {
        let Self { name, command, limits, output } = self;
        let (out, their_out) = sys::pipe()?;
        let (err, their_err) = sys::pipe()?;
        let nothing = File::open("/dev/null")?;
        let mut environment = command.environment.clone();
        // A server may itself have been started by a model.
        environment.retain(|(name, _)| name != guardian::VARIABLE);
        environment.push(guardian::variable(id));
        let mut program = Program::new(&command.program, &command.arguments, &environment)?;
        program.address_space = limits.memory_bytes_max;
        program.new_privileges = limits.new_privileges;
        let mut all = vec![nothing.as_fd(), their_out.as_fd(), their_err.as_fd()];
        all.extend(descriptors);
        let child = sys::spawn(&program, &all)?;
        let guarded = Guarded::new(id, child.pid);
        let printed = Printed::get()?;
        printed.add(out, name.as_str(), false, *output, limits.output_bytes_per_second)?;
        printed.add(err, name.as_str(), true, *output, limits.output_bytes_per_second)?;
        Ok(Arc::new(ProcessHandle::new(child, guarded)))
    }
}

/// A further segment.
///
/// # Errors
/// The error of the system call.
pub fn segment(bytes: u64) -> io::Result<RegionRef> {
    Ok(Arc::new(Memfd::new(usize::try_from(bytes).unwrap_or(usize::MAX))?))
}

/// Memory that a process inherits.
pub(crate) struct Inherited {
    /// Segments for requests and responses.
    tensors: Option<(Arc<Memfd>, Arc<Memfd>)>,
    flags: Option<Arc<Memfd>>,
}

impl Inherited {
    pub(crate) fn new(limits: &RunnerLimits) -> io::Result<Self> {
        let segment = || {
            let memory = Memfd::new(usize::try_from(limits.segment_bytes).unwrap_or(usize::MAX))?;
            memory.populate(POPULATED_BYTES);
            io::Result::Ok(Arc::new(memory))
        };
        let flags = || io::Result::Ok(Arc::new(Memfd::new(SLOTS_MAX as usize)?));
        Ok(match limits.shared_memory {
            SharedMemory::Tensors => Self { tensors: Some((segment()?, segment()?)), flags: Some(flags()?) },
            SharedMemory::Flags => Self { tensors: None, flags: Some(flags()?) },
            SharedMemory::None => Self { tensors: None, flags: None },
        })
    }

    /// Descriptors of the segments and the flags, with `nothing` in the place of absent segments; `None` without flags.
    pub(crate) fn descriptors<'a>(&'a self, nothing: &'a File) -> Option<[BorrowedFd<'a>; 3]> {
        let flags = self.flags.as_ref()?.as_fd();
        Some(match &self.tensors {
            Some((requests, responses)) => [requests.as_fd(), responses.as_fd(), flags],
            None => [nothing.as_fd(), nothing.as_fd(), flags],
        })
    }

    pub(crate) fn shared(self) -> Shared {
        let segments = self.tensors.map(|(requests, responses)| Segments { requests, responses });
        Shared { segments, flags: self.flags.map(|flags| flags as RegionRef) }
    }
}
