"""Started by the server: `python <this file>`, with its sockets and memory at descriptors 3 to 7 (shm/README.md)."""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# This file's directory is removed from the search path; its parent comes first.
sys.path[:] = [os.path.dirname(_HERE)] + [p for p in sys.path if p and os.path.abspath(p) not in (_HERE,
    os.path.dirname(_HERE))]


def _unheard(number, frame):
    """Handler of signals for other processes."""


def _let_forks_hear(signal, threading):
    """Restores usual signals in processes that the model forks, unless it set others, and ends them with this one."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    masks = threading.local()

    def before():
        # Blocked, because a signal to the child before its handlers are set must wait, not be lost.
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        # To the kernel the parent is the forking thread, which must not take its children with it when it ends.
        masks.parent = os.getpid() if threading.current_thread() is threading.main_thread() else None

    def after():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def after_in_child():
        for number in numbers:
            if signal.getsignal(number) is _unheard:
                signal.signal(number, signal.SIG_DFL)
        if masks.parent is not None:
            _die_with(masks.parent, signal.SIGKILL)
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)


def _die_with(parent, number):
    """Requests a signal when the parent ends (B-PYR-09)."""
    import ctypes

    ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def main():
    import atexit
    import faulthandler
    import json
    import signal
    import socket
    import threading

    from nereid_runner import _protocol as protocol
    from nereid_runner.channel import Side, Work

    # Only the server ends this process; Ctrl-C in its terminal must not. Not SIG_IGN, which child processes would
    # inherit: callers that end them (`Popen.terminate`, `multiprocessing.Pool`) would wait for ever.
    signal.signal(signal.SIGINT, _unheard)
    signal.signal(signal.SIGTERM, _unheard)
    _let_forks_hear(signal, threading)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    # Not inherited by processes that a model starts.
    for descriptor in range(protocol.FD_WORK, protocol.FD_FLAGS + 1):
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            pass
    work = Work(socket.socket(fileno=protocol.FD_WORK))
    side = Side(socket.socket(fileno=protocol.FD_SIDE))
    _, frame, version, _, model, instance = work.peek()

    def refuse(text, missing=None):
        body = json.dumps({"text": text, "source": None, "missing": missing}).encode()
        work.send(protocol.HEADER.pack(len(body), protocol.FRAME_FAILED, protocol.VERSION, 0, model, instance) + body)
        os._exit(1)

    if frame != protocol.FRAME_LOAD or version != protocol.VERSION:
        # The first version had 0 there.
        refuse(f"the server speaks version {version or 1} of the runner protocol, this runtime {protocol.VERSION}")
    _, buf, start, end = work.read()
    told = json.loads(bytes(buf[start:end]))
    try:
        from nereid_runner import arena, run, server, wire
    except ImportError as e:
        refuse(f"{type(e).__name__}: {e}", getattr(e, "name", None) if isinstance(e, ModuleNotFoundError) else None)
    wire.instance = model, instance
    segments = None
    if told["segments"] is not None:
        sizes = told["segments"]
        segments = (
            arena.mapped(protocol.FD_REQUEST_SEGMENT, sizes["request"]),
            arena.mapped(protocol.FD_RESPONSE_SEGMENT, sizes["response"]),
            arena.mapped_to_read(protocol.FD_FLAGS, sizes["slots"]),
        )
    import triton_python_backend_utils  # noqa: F401  before anything of the model can be found under its name

    # A byte code file would outlive a model.py that is replaced within the second.
    sys.dont_write_bytecode = True
    sys.path.extend(told["paths"])
    sys.argv[:] = [""]
    status = run.run(server.listening(work, side, told, segments), told)
    # Running threads of the model would block an ordinary exit.
    atexit._run_exitfuncs()
    side.settle()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(status)


if __name__ == "__main__":
    main()
