//! System calls without a safe form in std: epoll, starting a process, sending a descriptor.

#![allow(unsafe_code)] // epoll, eventfd, clone, waitid, kill, sendmsg, fcntl

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Events of a descriptor to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    ReadWrite,
}

/// Waits for descriptors; level-triggered. All methods but `wait` may be called from any thread.
pub(crate) struct Epoll(OwnedFd);

/// An event of the descriptor with this token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub token: u64,
    /// The descriptor is readable, or the other side is closed.
    pub readable: bool,
    pub writable: bool,
}

const EVENTS_MAX: usize = 64;

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    pub(crate) fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // It may be absent, which is the desired result.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::Read);
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let wanted = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::Write => libc::EPOLLOUT,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: wanted as u32, u64: token };
        // SAFETY: both descriptors are open; the event is only read.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) })
    }

    /// Waits at most `timeout_ms`; -1 = no limit.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, timeout_ms: i32) {
        let mut found = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: room for as many events as the count.
        let count =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), found.as_mut_ptr(), EVENTS_MAX as libc::c_int, timeout_ms) };
        events.clear();
        // An interrupted wait has no events.
        for event in found.iter().take(usize::try_from(count).unwrap_or(0)) {
            let (bits, token) = (event.events, event.u64);
            let readable = bits & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
            events.push(Event { token, readable, writable: bits & libc::EPOLLOUT as u32 != 0 });
        }
    }
}

pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Self)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of our own. A counter that is full has rung already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: as above.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// A copy of a descriptor, which no program that is started inherits.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a number, and a copy that is ours.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })
}

/// Writes as much as the socket accepts, with a descriptor beside its first byte. Never blocks, never raises SIGPIPE.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let Some(descriptor) = descriptor else {
        // SAFETY: `bytes` is readable for its length.
        let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        return usize::try_from(sent).map_err(|_| io::Error::last_os_error());
    };
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: plain numbers and null pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `control` has more room than one descriptor needs and is aligned for a header, which is in it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
    }
    // SAFETY: everything the message points to lives until the call returns.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends a byte or more with a descriptor, and waits at most `longest` while the socket has no room.
///
/// # Errors
/// TimedOut, or the system's.
pub(crate) fn send_waiting(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
    longest: Duration,
) -> io::Result<()> {
    let until = Instant::now() + longest;
    loop {
        match send(socket, bytes, Some(descriptor)) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut waits = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, ours.
        unsafe { libc::poll(&raw mut waits, 1, i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)) };
    }
}

/// Reads available bytes without blocking.
pub(crate) fn receive(from: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `to` is writable for its length; the descriptor is non-blocking.
    let read = unsafe { libc::read(from.as_raw_fd(), to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// A pipe whose reading end never blocks.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: descriptors that the kernel just gave us.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: our own descriptor; only its mode changes.
    check(unsafe { libc::fcntl(read.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok((read, write))
}

/// A program to start. Everything is prepared before: between clone and exec nothing may be allocated.
pub(crate) struct Program {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Limit of the address space in bytes.
    pub address_space: Option<u64>,
    /// The child outlives the thread that starts it.
    pub outlives: bool,
    /// Set-user-id programs that it starts gain their privileges; otherwise they do not (`no_new_privs`).
    pub new_privileges: bool,
}

impl Program {
    /// `arguments` without the program's name.
    pub(crate) fn new(
        program: &std::path::Path,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let program = text(program.as_os_str().as_bytes().to_vec())?;
        let mut all = vec![program.clone()];
        for argument in arguments {
            all.push(text(argument.as_bytes().to_vec())?);
        }
        let variable = |(name, value): &(OsString, OsString)| text([name.as_bytes(), b"=", value.as_bytes()].concat());
        let environment = environment.iter().map(variable).collect::<io::Result<_>>()?;
        Ok(Self { program, arguments: all, environment, address_space: None, outlives: false, new_privileges: false })
    }
}

/// A process that was not waited for. When dropped, it is killed with its whole group, and waited for.
pub(crate) struct Child {
    pub pid: i32,
    pidfd: OwnedFd,
    /// How it ended, once it was waited for.
    ended: Option<Ended>,
    /// Registers it as serving: loads yield to it.
    _serves: memory::yielding::ServingThread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signalled(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}

/// Shared with the child until exec.
struct SpawnPlan {
    program: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    /// Descriptors that become 0, 1, ….
    descriptors: *const RawFd,
    count: RawFd,
    address_space: Option<u64>,
    outlives: bool,
    new_privileges: bool,
    parent: libc::pid_t,
    /// Why exec failed.
    error: libc::c_int,
}

/// Starts a process with only these descriptors, as 0, 1, …, in a session and a group of its own. Unless `outlives` is
/// set, the kernel kills it when the calling *thread* ends, which so must live as long as the server.
pub(crate) fn spawn(program: &Program, descriptors: &[BorrowedFd<'_>]) -> io::Result<Child> {
    // Away from their final numbers, so that no descriptor overwrites the next one.
    let high: Vec<OwnedFd> = descriptors
        .iter()
        // SAFETY: the descriptor is open; the copy is ours.
        .map(|fd| owned(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64) }))
        .collect::<io::Result<_>>()?;
    let numbers: Vec<RawFd> = high.iter().map(AsRawFd::as_raw_fd).collect();
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(&program.arguments), pointers(&program.environment));
    let mut plan = SpawnPlan {
        program: program.program.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        descriptors: numbers.as_ptr(),
        count: numbers.len() as RawFd,
        address_space: program.address_space,
        outlives: program.outlives,
        new_privileges: program.new_privileges,
        // SAFETY: no arguments.
        parent: unsafe { libc::getpid() },
        error: 0,
    };
    let mut stack = vec![0u128; 4096];
    let mut pidfd: libc::c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the sets are initialised before they are read. As in posix_spawn: no handler of ours may run in the child
    // while it shares our memory, so all signals are blocked until it has none. The child runs `become_program` on a
    // stack of its own, touches `plan` only, and this thread waits until it is done with both (CLONE_VFORK).
    let pid = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let top = stack.as_mut_ptr().add(stack.len());
        let pid = libc::clone(become_program, top.cast(), flags, (&raw mut plan).cast(), &raw mut pidfd);
        let error = *libc::__errno_location();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if pid < 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        pid
    };
    let child = Child { pid, pidfd: owned(pidfd)?, ended: None, _serves: memory::yielding::register_process(pid) };
    // SAFETY: the child, which may have written it, is done with our memory; volatile, as the compiler sees no write.
    let error = unsafe { (&raw const plan.error).read_volatile() };
    // On error the child is waited for when dropped.
    if error == 0 { Ok(child) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Runs between clone and exec: system calls only.
extern "C" fn become_program(plan: *mut libc::c_void) -> libc::c_int {
    let plan = plan.cast::<SpawnPlan>();
    // SAFETY: `spawn` waits with everything that the plan points to. Nothing here allocates, locks or returns.
    unsafe {
        let p = &*plan;
        for signal in 1..65 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::setsid();
        if !p.outlives {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            // The parent may have died before PR_SET_PDEATHSIG.
            if libc::getppid() != p.parent {
                libc::_exit(127);
            }
        }
        if !p.new_privileges {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0);
        }
        if let Some(bytes) = p.address_space {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            if libc::setrlimit(libc::RLIMIT_AS, &raw const limit) != 0 {
                (*plan).error = *libc::__errno_location();
                libc::_exit(127);
            }
        }
        for number in 0..p.count {
            if libc::dup2(*p.descriptors.add(number as usize), number) < 0 {
                (*plan).error = *libc::__errno_location();
                libc::_exit(127);
            }
        }
        // Linux 5.9. On older kernels other descriptors stay if not close-on-exec; ours are.
        libc::syscall(libc::SYS_close_range, p.count as libc::c_uint, libc::c_uint::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(p.program, p.arguments, p.environment);
        (*plan).error = *libc::__errno_location();
        libc::_exit(127)
    }
}

impl Child {
    /// Readable once the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.pidfd)
    }

    /// Sends a signal to the process, unless it was waited for.
    pub(crate) fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: a process of ours that was not waited for, so the pid is its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Kills the process and its whole group.
    pub(crate) fn kill(&self) {
        if self.ended.is_none() {
            // SAFETY: as above; the group has the number of the process, which led it.
            unsafe {
                libc::kill(-self.pid, libc::SIGKILL);
                libc::kill(self.pid, libc::SIGKILL);
            }
        }
    }

    /// Returns how it ended, if it has. Kills the rest of its group before the pid can be reused.
    pub(crate) fn reap(&mut self, block: bool) -> Option<Ended> {
        if self.ended.is_some() {
            return self.ended;
        }
        let mut info: libc::siginfo_t = self.state(libc::WNOWAIT | if block { 0 } else { libc::WNOHANG })?;
        // SAFETY: not waited for yet.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        info = self.state(libc::WNOHANG).unwrap_or(info);
        // SAFETY: filled in by waitid for a child.
        let status = unsafe { info.si_status() };
        let ended = if info.si_code == libc::CLD_EXITED { Ended::Exited(status) } else { Ended::Signalled(status) };
        self.ended = Some(ended);
        self.ended
    }

    fn state(&self, flags: libc::c_int) -> Option<libc::siginfo_t> {
        // SAFETY: numbers only.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: room for the result; a child of ours.
            let found =
                unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &raw mut info, libc::WEXITED | flags) };
            let interrupted = found != 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if !interrupted {
                // SAFETY: zero, or filled in.
                return (found == 0 && unsafe { info.si_pid() } != 0).then_some(info);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
            self.reap(true);
        }
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just gave us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
