"""Asks a server for changes of its settings from both ends of a machine that has an address of the network. Run in a network namespace of its own, in which
`0.0.0.0` is nobody else's: `unshare -rn python far.py REPOSITORY LOG FLAG…`. Prints JSON: what was asked, and the answer."""
import json
import subprocess
import sys
import urllib.error
import urllib.request

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from server import Server

FAR = "10.9.8.7"


def post(host, port, path, body, headers=()):
    request = urllib.request.Request(f"http://{host}:{port}{path}", data=body.encode(), headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return [answer.status, answer.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()]


def call(method, request, metadata=()):
    try:
        method(request, metadata=metadata)
        return ["OK", ""]
    except grpc.RpcError as error:
        return [error.code().name, error.details()]


def main(repository, log, *flags):
    for command in (["ip", "link", "set", "lo", "up"], ["ip", "addr", "add", f"{FAR}/32", "dev", "lo"]):
        subprocess.run(command, check=True)
    server = Server(repository, "--http-address=0.0.0.0", "--grpc-address=0.0.0.0", *flags, log=log)
    found = {}
    try:
        level = service_pb2.LogSettingsRequest()
        level.settings["log_verbose_level"].uint32_param = 0
        rate = service_pb2.TraceSettingRequest()
        rate.settings["trace_rate"].value.append("1000")
        for where, host in (("near", "127.0.0.1"), ("far", FAR)):
            for name, path, body in (
                ("logging", "/v2/logging", '{"log_verbose_level":0}'),
                ("trace", "/v2/trace/setting", '{"trace_rate":"1000"}'),
                ("index", "/v2/repository/index", ""),
                ("load", "/v2/repository/models/simple/load", ""),
                ("region", "/v2/systemsharedmemory/region/r/register", '{"key":"/r","offset":0,"byte_size":4}'),
            ):
                found[f"{where} http {name}"] = post(host, server.http_port, path, body)
            with grpc.insecure_channel(f"{host}:{server.grpc_port}") as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                found[f"{where} grpc read logging"] = call(stub.LogSettings, service_pb2.LogSettingsRequest())
                found[f"{where} grpc read trace"] = call(stub.TraceSetting, service_pb2.TraceSettingRequest())
                found[f"{where} grpc logging"] = call(stub.LogSettings, level)
                found[f"{where} grpc trace"] = call(stub.TraceSetting, rate)
                found[f"{where} grpc secret"] = call(stub.LogSettings, level, [("triton-grpc-protocol-secret", "sesame")])
        forwarded = {"X-Forwarded-For": "127.0.0.1"}
        found["near http forwarded"] = post("127.0.0.1", server.http_port, "/v2/logging", "{}", forwarded)
        found["far http forwarded"] = post(FAR, server.http_port, "/v2/logging", "{}", forwarded)
    finally:
        server.stop()
    print(json.dumps(found))


main(*sys.argv[1:])
