"""Stands in for a server: `refuses.py MODE FILE COMMAND …`. The first call makes FILE, and behaves as MODE says; each later one runs COMMAND.

`connections`: is ready, and does not listen. `exiting`: is ready, and answers each request as a server that ends. Both end after two seconds.
"""

import os
import pathlib
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ENDS_S = 2.0


def answer_http(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    body = b'{"error":"Server exiting"}'
    while True:
        connection, _ = listener.accept()
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n")
        connection.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        connection.close()


def answer_grpc(path):
    # Only here: a server that does not listen needs no second for this import.
    import grpc

    class Exiting(grpc.GenericRpcHandler):
        def service(self, _):
            return grpc.unary_unary_rpc_method_handler(lambda _, context: context.abort(grpc.StatusCode.UNAVAILABLE, "Server exiting"))

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Exiting(),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def main():
    mode, file, *command = sys.argv[1:]
    if os.path.exists(file):
        os.execvp(command[0], command)
    pathlib.Path(file).touch()
    paths = {name: flag.split("unix:", 1)[1] for name in ("http", "grpc") for flag in command if flag.startswith(f"--{name}-address=unix:")}
    if mode == "exiting":
        # Kept until the end.
        server = answer_grpc(paths["grpc"])
        threading.Thread(target=answer_http, args=(paths["http"],), daemon=True).start()
        while not os.path.exists(paths["http"]):
            time.sleep(0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    time.sleep(ENDS_S)
    if mode == "exiting":
        server.stop(0)
    for path in paths.values():
        pathlib.Path(path).unlink(missing_ok=True)
    os._exit(0)


main()
