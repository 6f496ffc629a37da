#!/usr/bin/env python3
"""Writes seeds/: one small example of everything a target reads, from which the fuzzers start.

Requests are for the model of src/model.rs: an optional input and an output of each datatype, I1 (BOOL) to I14 (BF16).
Run again after adding an example; the files are committed.
"""
import base64
import gzip
import hashlib
import json
import shutil
import struct
import zlib
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
TYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16"]
SIZES = dict(zip(TYPES, [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, None, 2]))


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def tensor(datatype, shape, data=None, **parameters):
    made = {"name": f"I{TYPES.index(datatype) + 1}", "shape": shape, "datatype": datatype}
    if parameters:
        made["parameters"] = parameters
    if data is not None:
        made["data"] = data
    return made


def strings(*items):
    return b"".join(struct.pack("<I", len(i)) + i for i in items)


# --- http_head: size of the pieces, then what a connection brings

def head(line, *fields, body=b""):
    return b"\x06" + "\r\n".join([line, *fields, "", ""]).encode() + body


HOST = "Host: localhost:8000"
HTTP_HEAD = {
    "live": head("GET /v2/health/live HTTP/1.1", HOST, "User-Agent: curl/8.5.0", "Accept: */*"),
    "infer": head("POST /v2/models/m/versions/1/infer HTTP/1.1", HOST, "Content-Type: application/octet-stream",
                  "Inference-Header-Content-Length: 2", "Content-Length: 4", "Accept-Encoding: gzip;q=0.5, deflate", body=b"{}ab"),
    "chunked": head("POST http://h:1/v2/models/m/generate_stream?a=b HTTP/1.1", "host:x", "Transfer-Encoding: chunked", "Expect: 100-continue",
                    body=b"3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /"),
    "http10": head("GET /v2/models/m/stats HTTP/1.0", "Connection: keep-alive, x"),
    "close": head("HEAD /v2 HTTP/1.1", HOST, "Connection: Close", "X-Forwarded-For:\t1.2.3.4 ", "Empty:"),
    "repository": head("POST /v2/repository/r/models/m/load HTTP/1.1", HOST, "Content-Length: 2", "content-length: 2", body=b"{}"),
    "region": head("POST /v2/systemsharedmemory/region/r/register HTTP/1.1", HOST, "Content-Length: 0"),
    "trace": head("POST /v2/models/m/trace/setting HTTP/1.1", HOST, "Content-Length: 0"),
}

# --- http_body: bit 0 batching, bits 1-2 how the head ends (no length, eight digits, behind the last brace), bit 3 packed, bit 4 one input, bit 5 generate


def body(mode, top, tail=b""):
    return bytes([mode]) + (top if isinstance(top, bytes) else text(top)) + tail


BINARY = {"id": "7", "inputs": [tensor("FP32", [1, 2], binary_data_size=8), tensor("INT16", [1, 4], binary_data_size=8)],
          "outputs": [{"name": "O11", "parameters": {"binary_data": True}}, {"name": "O7", "parameters": {"binary_data": False}}]}
JSON_BODY = {"id": "\u00fc1", "parameters": {"sequence_id": "a", "sequence_start": True, "priority": 1, "timeout": 5, "x": 1.5, "binary_data_output": True},
             "inputs": [tensor("FP32", [1, 2], [1.5, [-2e3]]), tensor("BYTES", [1, 2], ["a", "\n"])],
             "outputs": [{"name": "O11", "parameters": {"classification": 1}}]}
HTTP_BODY = {
    "json": body(1, JSON_BODY),
    "binary": body(5, BINARY, struct.pack("<ff4h", 1, 2, 3, 4, 5, 6)),
    "bytes": body(4, {"inputs": [tensor("BYTES", [2], binary_data_size=11)]}, strings(b"abc", b"")),
    "mixed": body(5, {"inputs": [tensor("INT64", [1, 1], [5]), tensor("BOOL", [1, 2], binary_data_size=2)]}, b"\x00\x01"),
    "region": body(1, {"inputs": [tensor("INT8", [1, 2], shared_memory_region="r", shared_memory_offset=0, shared_memory_byte_size=2)]}),
    "generate": body(32, {"I11": [1, 2], "I13": "text", "id": "1", "parameters": {"I1": True, "p": -1}}),
    "raw": body(18, b"00000000", b"1234"),
    "raw_batch": body(19, b"00000000"),
    "all_types": body(1, {"inputs": [tensor(t, [1, 1], [True] if t == "BOOL" else ["x"] if t == "BYTES" else [1]) for t in TYPES if t not in ("FP16", "BF16")]}),
    "half": body(5, {"inputs": [tensor("FP16", [1, 1], binary_data_size=2), tensor("BF16", [1, 1], binary_data_size=2)], "parameters": {"binary_data_output": True}}, b"\x00\x3c\x80\x3f"),
    "gzip": body(13, gzip.compress(text(BINARY) + struct.pack("<ff4h", 1, 2, 3, 4, 5, 6), mtime=0)),
    "deflate": body(9, zlib.compress(text(JSON_BODY))),
}

# --- files: bit 0 batching, bit 1 BYTES only, bit 2 binary; then the content type, a line end and the body


def form(mode, *fields, end=b"--b--\r\n"):
    parts = [b"--b\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + contents + b"\r\n" for head, contents in fields]
    return bytes([mode]) + b"multipart/form-data; boundary=b\n" + b"".join(parts) + end


FILES = {
    "jpeg": b"\x02image/jpeg\n\xff\xd8\xff\xe0",
    "octets": b"\x07application/octet-stream\nabc",
    "text": b"\x03text/plain; charset=utf-8\n \xc3\xa4",
    "json": b"\x02text/plain\n {}",
    "two_files": form(3, (b'name="I13"; filename="a.jpg"\r\nContent-Type: image/jpeg', b"ab"), (b'name="I13"; filename="b%22.jpg"', b"")),
    "fields": form(1, (b'name="x"; filename=a', b"\r\n--bb"), (b"name=I11", b"[1.5, 2]"), (b'name="I2"; filename="r"', b"\x00\xff"), (b'name="id"', b"7"),
                   (b'name="priority"', b"1"), (b'name="t\\"x"', b"0.5"), (b'name="binary_data_output"', b"true")),
    "empty": form(2),
    "unended": form(2, (b'name="I13"', b"a"), end=b""),
    "quoted": b'\x02multipart/form-data; charset="a;b"; boundary="a b"\npre\r\n--a b \t\r\n\r\n\r\n--a b--',
}

# --- picture: the small files of crates/vision/fixtures; boxes: a layout, settings, then values

FIXTURES = Path(__file__).parent.parent / "crates" / "vision" / "fixtures"
PICTURE = {file.name: file.read_bytes() for file in sorted(FIXTURES.iterdir())
           if file.suffix in {".jpg", ".png", ".webp", ".gif", ".bmp"} and file.stat().st_size < 2048}
BOXES = {f"layout{i}": bytes([i, 1, 1, 60, 0, 0, 0, 0, 0, 0, 20, 3, 3]) + struct.pack("<120f", *[(k % 17) / 16 for k in range(120)]) for i in range(8)}

# --- chat_template: the templates of crates/chat/tests, a byte 0xFF, a conversation

RECORDS = Path(__file__).parent.parent / "crates" / "chat" / "tests" / "templates"
CONVERSATION = json.loads((RECORDS / "expected.json").read_bytes())["conversations"]["tool_call"]
LANGUAGE = "\n".join(source for source, prompt in json.loads((RECORDS / "language.json").read_bytes())["templates"] if isinstance(prompt, str))
CHAT_TEMPLATE = {file.stem: file.read_bytes() + b"\xff" + text(CONVERSATION) for file in sorted(RECORDS.glob("*.jinja")) if file.stat().st_size < 2048}
CHAT_TEMPLATE["language"] = LANGUAGE.encode() + b"\xff" + text({"messages": [], "variables": json.loads((RECORDS / "language.json").read_bytes())["values"]})

# --- json: a datatype, then a document

DATA = {
    "BOOL": "[true,[false]]", "UINT8": "[0,255,256]", "UINT64": "[18446744073709551615,0]", "INT8": "[-128,127]", "INT32": "[[1,2],[3,-2147483648]]",
    "INT64": "[-9223372036854775808,9223372036854775807]", "FP32": "[0.1,-1.5e3,NaN,-Infinity,3e38,-0.0,1]", "FP64": "[5e-324,1.7976931348623157e308,0.1]",
    "BYTES": '["a\\u00fc\\n",["\\ud83d\\ude00",""]]', "UINT16": ' { "a" : [ 1 , { "b" : null } ] , "a" : "\\\\" , "c":{} } ',
}
JSON = {name.lower(): bytes([TYPES.index(name)]) + data.encode() for name, data in DATA.items()}
JSON["bom"] = b"\x00\xef\xbb\xbf[]\x00rest"
JSON["deep"] = b"\x0a" + b"[" * 98 + b"1" + b"]" * 98

# --- text_forms: a form (embeddings, classify, score, Cohere's embed, rerank, TEI's inputs), then its body

TEXT_FORMS = {
    "embeddings": body(0, {"model": "m:1", "input": ["a", "\u00e9\n", ""], "encoding_format": "base64", "dimensions": 3, "user": "u"}),
    "ids": body(0, {"model": "m", "input": [1, 4294967295], "truncate_prompt_tokens": -1}),
    "lists_of_ids": body(0, {"model": "m", "input": [[1, 2], [3]], "truncation_side": "left"}),
    "classify": body(1, {"input": "a", "truncate": False}),
    "score": body(2, {"text_1": "q", "text_2": ["a", "b"]}),
    "queries": body(2, {"queries": ["q", "r"], "items": ["a", "b"]}),
    "cohere": body(3, {"model": "m", "texts": ["a"], "embedding_types": ["float", "base64"], "truncate": "START", "output_dimension": 2}),
    "rerank": body(4, {"query": "q", "documents": ["a", {"text": "b", "title": [{}]}], "top_n": 1, "return_documents": True}),
    "texts": body(4, {"query": "q", "texts": ["a"], "raw_scores": True, "truncation_direction": "Left", "return_text": True}),
    "inputs": body(5, {"inputs": "a", "normalize": False, "prompt_name": "query", "add_special_tokens": False}),
    "surrogate": body(0, b'{"model":"m","input":["\\ud83d\\ude00","\\ud800"]}'),
}

# --- grpc: a ModelInferRequest


def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def entry(number, key, kind, value):
    """A member of a parameters map: kind 1 bool, 2 int64, 3 string, 4 double."""
    choice = varint(4 << 3 | 1) + struct.pack("<d", value) if kind == 4 else field(kind, value)
    return field(number, field(1, key) + field(2, choice))


def ginput(datatype, shape, contents=None, extra=b""):
    made = field(1, f"I{TYPES.index(datatype) + 1}") + field(2, datatype) + field(3, b"".join(map(varint, shape))) + extra
    return field(5, made + (b"" if contents is None else field(5, contents)))


def packed(number, *values):
    return field(number, b"".join(map(varint, values)))


START = field(1, "m") + field(2, "1") + field(3, "id")


def even(message):
    """The model batches when the length is odd: an unknown field makes it so."""
    return message if len(message) % 2 else message + field(15, "x")


GRPC = {
    "raw": START + ginput("FP32", [1, 2]) + ginput("BYTES", [1, 1]) + field(7, struct.pack("<ff", 1, 2)) + field(7, strings(b"abc")),
    "typed": START + ginput("INT32", [1, 2], packed(2, 1, -2)) + ginput("BYTES", [1, 2], field(8, "a") + field(8, "")) + ginput("BOOL", [1, 2], packed(1, 1, 0)),
    "wide": START + ginput("INT64", [1, 1], packed(3, -1)) + ginput("UINT64", [1, 1], packed(5, -1)) + ginput("UINT8", [1, 1], packed(4, 255)),
    "floats": START + ginput("FP32", [1, 1], field(6, struct.pack("<f", 1))) + ginput("FP64", [1, 1], field(7, struct.pack("<d", 1))),
    "parameters": START + entry(4, "sequence_id", 2, 5) + entry(4, "sequence_start", 1, 1) + entry(4, "k", 3, "v") + entry(4, "d", 4, 1.5)
    + entry(4, "triton_enable_empty_final_response", 1, 1) + ginput("INT8", [1, 1], packed(2, 3)),
    "outputs": START + ginput("FP32", [1, 2]) + field(6, field(1, "O11") + entry(2, "classification", 2, 1)) + field(7, struct.pack("<ff", 1, 2)),
    "region": START + ginput("UINT8", [1, 4], extra=entry(4, "shared_memory_region", 3, "r") + entry(4, "shared_memory_byte_size", 2, 4)),
    "unpacked_and_groups": START + field(5, field(1, "I8") + field(2, "INT32") + field(3, 1) + field(3, 1) + field(5, field(2, 7)))
    + varint(9 << 3 | 3) + field(1, 5) + varint(10 << 3 | 3) + varint(10 << 3 | 4) + varint(9 << 3 | 4),
}
GRPC = {name: even(message) for name, message in GRPC.items()}

# --- http2: pieces and manners, then frames


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*pairs):
    return frame(4, 0, 0, b"".join(struct.pack(">HI", *p) for p in pairs))


def update(stream, more):
    return frame(8, 0, stream, struct.pack(">I", more))


def literal(name, value, kept=True):
    return bytes([0x40 if kept else 0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


# :method POST, :scheme http, :path /
POST = bytes([0x83, 0x86, 0x84])
PACKED = bytes([0x41, 0x8C]) + bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff") + bytes([0x40, 0x88]) + bytes.fromhex("25a849e95ba97d7f8925a849e95bb8e8b4bf")
HTTP2 = {
    "call": b"\x08" + settings() + frame(1, 4, 1, POST + literal("te", "trailers")) + frame(0, 1, 1, b"\0\0\0\0\x02hi"),
    "two": b"\x3f" + settings((4, 10), (5, 20000)) + frame(4, 1, 0) + frame(1, 4, 1, POST + literal("k", "v")) + frame(1, 5, 3, POST + b"\xbe")
    + frame(0, 1, 1, b"x" * 100) + update(1, 5000) + update(0, 100000) + update(3, 7000) + settings((4, 3)),
    "padded": b"\x43" + settings((1, 0)) + frame(1, 0x2C, 1, b"\x02" + b"\0\0\0\0\x09" + POST + PACKED + b"\0\0") + frame(0, 8, 1, b"\x03abcXXX")
    + frame(2, 0, 5, bytes(5)) + frame(6, 0, 0, b"12345678") + frame(1, 5, 1, literal("t", "v", False)),
    "continued": b"\x85" + settings((3, 100)) + frame(1, 0, 1, POST[:2]) + frame(9, 0, 1, POST[2:] + b"\x20"[:0]) + frame(9, 4, 1, literal("k", "v"))
    + frame(0, 0, 1, b"abc") + frame(0x20, 0xFF, 1, b"unknown") + frame(3, 0, 1, bytes([0, 0, 0, 8])) + frame(1, 5, 3, POST + b"\xbe"),
    "length": b"\xc1" + settings() + frame(1, 4, 1, b"\x20\x3f\xe1\x1f" + POST + literal("content-length", "5")) + frame(0, 1, 1, b"hello")
    + frame(7, 0, 0, bytes(8)),
    "large": b"\x3f" + settings((5, 1 << 20)) + update(0, 1 << 20) + frame(1, 4, 1, POST) + frame(0, 0, 1, b"l" * 19000) * 3 + update(1, 1 << 20) + frame(0, 1, 1, b""),
}

# --- http2_direct: where reads end, padding, half the body's length; then what follows the head of its call


def direct(how, pad, length, *frames):
    return bytes([how, pad]) + struct.pack("<H", length // 2) + b"".join(frames)


def body(length, size, flags=0):
    text = bytes(range(251)) * (length // 251 + 1)
    return b"".join(frame(0, flags, 1, text[at : at + size][: length - at]) for at in range(0, length, size))


HTTP2_DIRECT = {
    "frames": direct(0, 27, 100000, body(100000, 16384), frame(0, 1, 1)),
    "pieces": direct(8 + 5, 0, 60000, body(60000, 16384), frame(0, 1, 1), frame(1, 5, 3, POST)),
    "small": direct(16 + 6, 63, 30000, body(40000, 5000)),
    "between": direct(24 + 3, 5, 90000, body(32768, 16384), frame(6, 0, 0, b"12345678"), frame(1, 5, 3, POST), body(50000, 16384), frame(0, 9, 1, b"\x04abcdXXXX")),
    "padded": direct(4, 1, 50000, body(16384, 16384), frame(0, 8, 1, b"\x07" + b"p" * 16000 + bytes(7)), body(20000, 16384), frame(3, 0, 1, bytes([0, 0, 0, 8]))),
    "early": direct(2, 0, 80000, body(32768, 16384), frame(0, 1, 1, b"end"), body(16384, 16384)),
    "others": direct(1, 9, 50000, frame(1, 4, 3, POST), body(16384, 16384), frame(0, 0, 3, b"o" * 16384), body(33616, 16384), frame(0, 1, 3, b"o" * 5000)),
}

# --- onnx: a ModelProto; field numbers are those of onnx.proto


def part(number, *contents):
    contents = b"".join(c.encode() if isinstance(c, str) else c for c in contents)
    return field(number, contents)


def onnx_node(operator, inputs, outputs, *more):
    return part(1, *[part(1, i) for i in inputs], *[part(2, o) for o in outputs], part(4, operator), *more)


def onnx_model(*graph, more=b""):
    return b"\x08\x09" + part(7, *graph, part(11, part(1, "X")), part(12, part(1, "Y"))) + part(8, part(1, ""), b"\x10\x11") + more


CONSTANT = part(5, b"\x08\x01\x10\x07", part(8, "k"), part(9, bytes(8)))
ONNX = {
    "add": onnx_model(onnx_node("Add", ["X", "k"], ["Y"]), CONSTANT),
    "reshape": onnx_model(onnx_node("Shape", ["X"], ["s"]), onnx_node("Concat", ["s", "k"], ["t"], part(5, part(1, "axis"), b"\x18\0\xa0\x01\x02")),
                          onnx_node("Reshape", ["X", "t"], ["Y"]), CONSTANT),
    "dynamic": onnx_model(onnx_node("NonZero", ["X"], ["Y"])),
    "loop": onnx_model(onnx_node("Loop", ["k", "", "X"], ["Y"], part(5, part(1, "body"), part(6, onnx_node("Identity", ["a"], ["b"]))))),
    "function": onnx_model(onnx_node("F", ["X"], ["Y"], part(7, "d")),
                           more=part(25, part(1, "F"), part(4, "x"), part(5, "y"), part(7, onnx_node("Relu", ["x"], ["y"])[2:]), part(10, "d"))),
    "weights": onnx_model(onnx_node("Gemm", ["X", "k", ""], ["Y"]), part(5, part(9, bytes(3000)), part(8, "k")), CONSTANT),
}

# --- visible: CUDA_VISIBLE_DEVICES, then uuids, each ended by a zero

UUIDS = b"GPU-a0000000-1\0GPU-a1000000-2\0MIG-b1000000-2\0"
VISIBLE = {
    "indices": b"1,0,7,2\0" + UUIDS,
    "uuids": b"GPU-a1,mig-B1,GPU-a,0\0" + UUIDS,
    "old": b"MIG-GPU-a1000000-2/1/0,NoDevFiles\0" + UUIDS,
}

# --- elf: a library that is nothing but its tables


def elf_library(names, *dynamic):
    """`names` are loaded at 0x10000, and stand behind the program headers."""
    at = 64 + 2 * 56
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<QQIHHHHHH", 64, 0, 0, 64, 56, 2, 0, 0, 0)
    segment = lambda kind, offset, address, size: struct.pack("<IIQQQQQQ", kind, 0, offset, address, 0, size, size, 8)
    tables = b"".join(struct.pack("<QQ", tag, value) for tag, value in dynamic)
    return head + segment(1, at, 0x10000, len(names)) + segment(2, at + len(names), 0, len(tables)) + names + tables


NAMES = b"\0libcublas.so.13\0libme.so.1\0VERS_1.30.0\0"
ELF = {
    "library": elf_library(NAMES, (1, 1), (14, 17), (5, 0x10000), (10, len(NAMES)), (0, 0)),
    "many": elf_library(NAMES, *[(1, 1 + i) for i in range(16)], (5, 0x10000), (10, len(NAMES))),
    "outside": elf_library(NAMES, (1, 1), (5, 0x10010), (10, 1 << 40)),
}

for old in SEEDS.iterdir():
    # Written by shm/vectors/make.py.
    if old.name not in ("runner_frames", "worker"):
        shutil.rmtree(old)
# --- cache_entry: the form is that of crates/cache/src/stored.rs; the target puts the checksum in
def cache_entry(asked, *outputs):
    numbers = lambda form, values: b"".join(struct.pack(form, v) for v in values)
    heads = b"".join(struct.pack("<HBB", i, t, len(shape)) + numbers("<q", shape) + struct.pack("<Q", len(data)) for i, t, shape, data in outputs)
    return b"NRDC\x01" + bytes(16) + struct.pack("<H", len(asked)) + numbers("<H", asked) + struct.pack("<H", len(outputs)) + heads + b"".join(o[3] for o in outputs)


CACHE_ENTRY = {
    "none": cache_entry([]),
    "floats": cache_entry([0], (0, 11, [1, 4], bytes(range(16)))),
    "strings": cache_entry([0, 2], (0, 13, [2], b"\x01\0\0\0a\0\0\0\0"), (2, 9, [0, 7], b"")),
    "many": cache_entry(range(9), *[(i, 2, [i], bytes(i)) for i in range(9)]),
}


# --- trace_context: traceparent, then a tracestate a line

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_CONTEXT = {
    "parent": PARENT,
    "states": PARENT + b"\nvendor=1,other=x:y\n b=2 ",
    "newer": b"cc" + PARENT[2:] + b"-more\na=1",
}

# --- tls_front: what and how, then a client's bytes or the steps of a conversation

def client_hello(*extensions):
    extension = lambda kind, data: struct.pack(">HH", kind, len(data)) + data
    listed = lambda data: struct.pack(">H", len(data)) + data
    offered = b"".join(extension(kind, data) for kind, data in extensions)
    body = b"\x03\x03" + bytes(range(32)) + b"\x20" + bytes(32) + listed(bytes.fromhex("130113021303c02bc02fc02cc030cca9cca8")) + b"\x01\0" + listed(offered)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + listed(message)


SNI = (0, b"\0\x0c\0\0\x09localhost")
GROUPS, SCHEMES = (10, bytes.fromhex("0006001d00170018")), (13, bytes.fromhex("000a0403080405030806080a"))
ALPN, VERSIONS = (16, b"\0\x0c\x02h2\x08http/1.1"), (43, b"\x04\x03\x04\x03\x03")
KEY_SHARE = (51, b"\0\x24\0\x1d\0\x20" + bytes([9]) + bytes(31))
MODERN = client_hello(SNI, GROUPS, SCHEMES, ALPN, VERSIONS, (45, b"\x01\x01"), KEY_SHARE)


def tls_steps(how, *steps):
    return bytes([how]) + b"".join(bytes([what]) + struct.pack(">H", n) + more for what, n, *rest in steps for more in [b"".join(rest)])


SHAKEN = [(0, 0)] * 3
TLS_FRONT = {
    "hello": b"\xe0" + MODERN,
    "hello_pieces": b"\x20" + MODERN + b"\x14\x03\x03\0\x01\x01" + b"\x17\x03\x03\0\x20" + bytes(32),
    "hello_again": b"\x40" + client_hello(SNI, GROUPS, SCHEMES, VERSIONS, (51, b"\0\0")) + MODERN,
    "hello_12": b"\x60" + client_hello(GROUPS, (11, b"\x01\0"), SCHEMES, (23, b""), (0xFF01, b"\0")),
    "alerts": b"\x80" + b"\x15\x03\x01\0\x02\x01\x5a" * 6 + MODERN,
    "empty": b"\xa0" + b"\x16\x03\x01\0\0" * 40,
    "http": b"\0GET / HTTP/1.1\r\n\r\n",
    "talk_13": tls_steps(0xE3, *SHAKEN, (1, 300), (2, 900), (0x22, 40_000), (1, 50_000), (4, 0)),
    "talk_12": tls_steps(0x61, *SHAKEN, (1, 300), (0x52, 20_000), (1, 20_000), (2, 5)),
    "bytes": tls_steps(0x03, *SHAKEN, (1, 20), (2, 20), (1, 1)),
    "keys": tls_steps(0x83, *SHAKEN, (3, 0), (1, 10), (2, 10), (3, 0), (3, 0), (1, 30_000), (2, 30_000), (4, 0), (2, 100)),
    "flipped": tls_steps(0xE3, *SHAKEN, (1, 300), (0x15, 100), (1, 300)),
    "flipped_hello": tls_steps(0xE3, (0x25, 60), *SHAKEN),
    "cut": tls_steps(0x63, *SHAKEN, (6, 40), (1, 3000), (1, 3000)),
    "twice": tls_steps(0xE3, *SHAKEN, (7, 0), (1, 100)),
    "before": tls_steps(0xE1, *SHAKEN, (8, 7 << 8, b"\x15\x03\x03\0\x02\x01\x5a"), (1, 100)),
    "before_hello": tls_steps(0xE3, (8, 6 << 8, b"\x14\x03\x03\0\x01\x01"), *SHAKEN),
}

# --- keys_file: a key and a model, then the file

def keys_file(key, model, file):
    return f"{key} {model}\n{json.dumps(file)}".encode()


HASH = hashlib.sha256(b"secret").hexdigest()
QUOTA = {"concurrency": 1, "bytes_per_second": 1000000, "requests_per_second": 0.5, "burst": 2}
KEYS_FILE = {
    "empty": b"\n{}",
    "anonymous": keys_file("", "m", {"anonymous": {"scopes": [{"verbs": ["inference", "trace:read"], "models": ["m*", "a?c"]}], "quota": QUOTA}}),
    "key": keys_file("secret", "resnet50", {"keys": [{"name": "ci", "sha256": HASH, "scopes": [{"verbs": ["all"]}, {"verbs": ["metadata"], "models": ["*"]}], "quota": QUOTA, "expires": "2099-01-31T12:00:00Z", "enabled": True}]}),
    "hashes": keys_file("secret", "a/b", {"keys": [{"name": "ci", "sha256": [HASH[::-1], HASH], "scopes": [{"verbs": ["all:read"], "models": ["a/*b*"]}]}]}),
    "oidc": keys_file("", "", {"oidc": {"rules": [{"name": "people", "claim": "realm.roles", "value": "ml", "scopes": []}]}}),
}

# --- token: a JWK set or nothing, then the token

def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ed25519(secret, message):
    """RFC 8032, 5.1.6."""
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p
    sha = lambda data: int.from_bytes(hashlib.sha512(data).digest(), "little")

    def add(a, b):
        x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + d * a[0] * b[0] * a[1] * b[1], -1, p)
        y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - d * a[0] * b[0] * a[1] * b[1], -1, p)
        return x % p, y % p

    def times(n, point):
        sum = (0, 1)
        while n:
            sum, point, n = add(sum, point) if n & 1 else sum, add(point, point), n >> 1
        return sum

    encode = lambda point: (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")
    base = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, -1, p) % p)
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254
    nonce = sha(digest[32:] + message) % order
    commitment = encode(times(nonce, base))
    proof = (nonce + sha(commitment + encode(times(scalar, base)) + message) * scalar) % order
    return commitment + proof.to_bytes(32, "little")


def token(header, claims, keys=""):
    message = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
    # The private key of RFC 8037, A.1.
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    return f"{keys}\n{message}.{base64url(ed25519(secret, message.encode()))}".encode()


CLAIMS = {"iss": "https://issuer", "aud": "nereid", "sub": "ann", "exp": 1900000000, "nbf": 1700000000}
EDDSA = {"alg": "EdDSA", "kid": "rfc"}
OKP = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
TOKEN = {
    "good": token(EDDSA, CLAIMS),
    "audiences": token({"alg": "EdDSA"}, {**CLAIMS, "aud": ["a", "nereid"], "exp": 1.9e9}),
    "set": token({"alg": "EdDSA"}, CLAIMS, json.dumps({"keys": [OKP, {"kty": "oct", "k": "AAAA"}]})),
    "expired": token(EDDSA, {**CLAIMS, "exp": 1}),
    "none": token({"alg": "none"}, CLAIMS),
}

# --- archive: entries as the target reads them, or a whole archive behind an r

def entries(*items):
    part = lambda data: bytes([len(data)]) + data
    return b"".join(kind + part(name) + part(link) + part(data) for kind, name, link, data in items)


ARCHIVE = {
    "environment": entries((b"5", b"bin/", b"", b""), (b"0", b"bin/python3", b"", b"program"), (b"2", b"bin/python", b"python3", b""), (b"1", b"lib/x", b"bin/python3", b"")),
    "up": entries((b"0", b"a/b/x", b"", b""), (b"2", b"a/b/l", b"../..", b""), (b"2", b"m", b"a/b/l/..", b"")),
    "evil": entries((b"2", b"d", b"e", b""), (b"0", b"d/../../x", b"", b"x"), (b"3", b"tty", b"", b"")),
    "raw": b"r" + b"a".ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"00000000000\0" * 2 + b"006005\0 0" + bytes(355),
}

# --- certificate: chains of test/attacks/lib/tls/version1, each certificate behind its length

def chain(*names):
    der = [base64.b64decode("".join((TLS / f"{name}.pem").read_text().split("\n")[1:-2])) for name in names]
    return b"".join(len(one).to_bytes(2, "big") + one for one in der)


TLS = Path(__file__).parent.parent / "test/attacks/lib/tls/version1"
CERTIFICATE = {
    "client": chain("client"),
    "below": chain("below", "middle"),
    "authority": chain("below_old", "old"),
    "foreign": chain("foreign", "root"),
    "version_3": chain("new_below_old", "old", "root"),
}

# --- trees_*: models of crates/trees, the small ones

def models(*names):
    return {name: (MODELS / name).read_bytes() for name in names}


MODELS = Path(__file__).parent.parent / "crates/trees/tests/models"
TREES = {
    "trees_json": models("count_poisson.json", "dart.json", "onehot.json"),
    "trees_ubjson": models("logistic.ubj", "dart.ubj", "categories.ubj"),
    "trees_binary": models("bin_logistic.model", "bin_dart.model", "bin_softprob.model"),
    "trees_lightgbm": models("lgb_poisson.txt", "lgb_categories.txt", "lgb_zero.txt", "lgb_forest.txt"),
    "trees_treelite": models("tl_logistic.tl", "tl_categories.tl", "tl_doubles.tl"),
}

# --- cache_messages: an answer and a request, each with contents, and lengths that nothing has
def cache_message(head, *parts):
    return head + b"".join(parts)


CACHE_MESSAGES = {
    "answers": cache_message(struct.pack("<QBQ", 7, 0, 5), b"found") + struct.pack("<QBQ", 8, 1, 0),
    "requests": cache_message(struct.pack("<BQIQ", 0, 0, 0, 2), b"{}") + cache_message(struct.pack("<BQIQ", 2, 9, 3, 4), b"key", b"\0\1\2\3"),
    "long": struct.pack("<QBQ", 7, 0, 1 << 30) + b"x",
}

# --- load_response: replies of a server to the load generator
LOAD_RESPONSE = {
    "length": b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"error":"no"}',
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
    "events": b'HTTP/1.0 200 OK\r\n\r\ndata: {"OUT":1}\n\ndata: {"error":"no"}\r\n\r\ndata: [DONE]\n\n',
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nbusy",
}

# --- redis_reply: replies of a Redis, good, an error, and a length that no value has
REDIS_REPLY = {
    "replies": b"+PONG\r\n+OK\r\n:7\r\n$-1\r\n$4\r\na\r\nb\r\n",
    "error": b"-NOAUTH Authentication required.\r\n$0\r\n\r\n",
    "long": b"+OK\r\n$18446744073709551615\r\n",
}

# --- text: a text, then files of a folder, each between bytes 0xFF
def special(ident, content):
    return {"id": ident, "content": content, "single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False, "special": True}


def tokenizer(model, tokens, **steps):
    around = [{"SpecialToken": {"id": tokens[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": tokens[1], "type_id": 0}}]
    named = {name: {"id": name, "ids": [at], "tokens": [name]} for at, name in enumerate(tokens[:2])}
    template = {"type": "TemplateProcessing", "single": around, "pair": around + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": named}
    return {"version": "1.0", "added_tokens": [special(at, name) for at, name in enumerate(tokens)], "post_processor": template, "model": model, **steps}


def vocabulary(*words):
    return {word: at for at, word in enumerate(words)}


def folder(line, **files):
    return line.encode() + b"\n" + b"".join(f"{name}.json".encode() + b"\xff" + text(value) + b"\xff" for name, value in files.items())


BERT = ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+|\s+(?!\S)"}, "behavior": "Isolated", "invert": False}
TEXT = {
    "word_piece": folder(
        "The foxes jump. Thé" + " fox" * 150,
        tokenizer=tokenizer(
            {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary(*BERT, "the", "fox", "##es", ".")},
            BERT, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, pre_tokenizer={"type": "BertPreTokenizer"},
        ),
        tokenizer_config={"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512},
        config={"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 512},
        modules=[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
        **{"1_Pooling/config": {"pooling_mode_mean_tokens": True}, "sentence_bert_config": {"max_seq_length": 256, "do_lower_case": False}},
    ),
    "byte_pairs": folder(
        "a  <mask> ab 1234 <mask>" + "ab " * 200,
        tokenizer=tokenizer(
            {"type": "BPE", "vocab": vocabulary("<s>", "</s>", "<mask>", *"ab1234", "Ġ", "ab"), "merges": ["a b"]}, ("<s>", "</s>", "<mask>"),
            pre_tokenizer={"type": "Sequence", "pretokenizers": [SPLIT, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        ),
        config={"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "max_position_embeddings": 514},
    ),
    "unigram": folder(
        "the ing \u00bd" + " the" * 200,
        tokenizer=tokenizer(
            {"type": "Unigram", "unk_id": 3, "vocab": [["<s>", 0.0], ["</s>", 0.0], ["<pad>", 0.0], ["<unk>", 0.0], ["▁the", -3.0], ["▁", -4.0], ["ing", -5.0], ["t", -9.0]], "byte_fallback": False},
            ("<s>", "</s>", "<pad>", "<unk>"), normalizer={"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
            pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
        ),
        config_sentence_transformers={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    ),
}

# --- chat_tools: parser, size of pieces, longest call; then a text
CALL = '{"name": "f", "parameters": {"a": [1.5e3, null], "b": "\\"\\u00e9"}}'
CHAT_TOOLS = {
    name: bytes([parser, 6, 40]) + text.encode()
    for name, (parser, text) in {
        "llama3": (0, CALL + "; " + CALL),
        "llama3_tag": (0, "<|python_tag|>" + CALL + "assistant\n\nNow"),
        "mistral": (1, "I see [1] [TOOL_CALLS][" + CALL.replace("parameters", "arguments") + ", " + CALL + "]"),
        "mistral_names": (1, '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g[ARGS]{}'),
        "hermes": (2, "Let me see.\n<tool_call>\n" + CALL + "\n</tool_call>\n<tool_call>{\"name\": 1}</tool_call>"),
        "pythonic": (3, "[f(a=1, b='it\\'s', c={'k': [True, None,]}), g()]"),
        "required": (4, "[" + CALL + "," + CALL + "]"),
        "content": (0, '{"answer": {"name": "f"}}'),
    }.items()
}

# --- chat_forms: form, parser, size of pieces, kind of model; then a body, a byte 0xFF, and what a model says
FLAT = {"type": "function", "name": "f", "parameters": {"type": "object"}}
NESTED = [{"type": "function", "function": {"name": "f"}}]
CHAT_FORMS = {
    name: bytes([form, parser, 4, model]) + text(body) + b"\xff" + said.encode()
    for name, (form, parser, model, body, said) in {
        "chat": (0, 5, 2, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "stop": ["w b"], "n": 2, "seed": 5}, "\u00e9 w b"),
        "chat_tools": (0, 2, 4, {"messages": [{"role": "user", "content": "a"}], "tools": NESTED}, "I see.<tool_call>" + CALL + "</tool_call>"),
        "completions": (1, 4, 1, {"model": "m", "prompt": "a", "echo": True, "logit_bias": None, "max_tokens": 5}, " b"),
        "responses": (2, 2, 0, {"input": "a", "instructions": "b", "tools": [FLAT], "text": {"format": {"type": "json_object"}}}, "I see.<tool_call>" + CALL + "</tool_call>\n<tool_call>" + CALL + "</tool_call>"),
        "items": (2, 2, 4, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "b"}], "metadata": {"a": "b"}}, "\n\u00e9"),
    }.items()
}

for target, files in {**TREES, "http_head": HTTP_HEAD, "http_body": HTTP_BODY, "files": FILES, "picture": PICTURE, "boxes": BOXES, "chat_forms": CHAT_FORMS, "chat_template": CHAT_TEMPLATE, "json": JSON, "text_forms": TEXT_FORMS, "grpc": GRPC, "http2": HTTP2, "http2_direct": HTTP2_DIRECT, "onnx": ONNX, "elf": ELF, "visible": VISIBLE, "cache_entry": CACHE_ENTRY, "cache_messages": CACHE_MESSAGES, "tls_front": TLS_FRONT, "keys_file": KEYS_FILE, "token": TOKEN, "trace_context": TRACE_CONTEXT, "archive": ARCHIVE, "certificate": CERTIFICATE, "load_response": LOAD_RESPONSE, "redis_reply": REDIS_REPLY, "text": TEXT, "chat_tools": CHAT_TOOLS}.items():
    (SEEDS / target).mkdir(parents=True)
    for name, data in files.items():
        (SEEDS / target / name).write_bytes(data)
