/**
 * The published vulnerabilities of Triton (docs/spec/memory.md 5.1 has their causes), what becomes of each here, and the tests that show it. A proof is a file
 * and words that stand in it: the name of a test, or an attack. Several CVEs that are one thing here share a class.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../scripts/setup.mjs'

const attack = (file, words) => [`test/attacks/${file}.mjs`, words]
const bulletin = (words) => attack('bulletins', words)
const verb = (words) => ['test/exposed/verbs.mjs', words]

const ELSEWHERE = bulletin('files of load requests that lie elsewhere')
const CONFIGURED = bulletin('labels, models and warm-up data of configurations')
const NUMBERS = bulletin('shapes, sizes and offsets at the ends of 32 and 64 bits')
const KEYS = bulletin('keys of shared memory that are paths')
const STREAMS = bulletin('thousands of streams that are cancelled')
const RACES = bulletin('loads, unloads, settings, registrations')
const CHUNKS = bulletin('three megabytes in chunks of one byte')
const NESTED = bulletin('JSON of 100,000 brackets')
const LIES = ['crates/backend-process/tests/lies.rs', 'a_process_that_lies_is_killed_and_started_again']
const FRAMES = ['crates/backend-process/src/frames/vectors.rs', 'every_lie_is_refused']
const UNNAMED = ['crates/memory/src/memfd.rs', 'it_is_shared_by_descriptor_and_cannot_be_made_smaller']
const RESTRICTED = ['test/exposed/sections.mjs', "title: 'Restricted APIs'"]

const NONE_OF_IT = 'There is no such backend: a model that names it fails its own load.'
const NO_FRONT_END = 'There is no such front end. Restrictions are asked for in one place in front of every route and call.'

export const CLASSES = [
  {
    title: 'Paths over the network',
    cves: ['2023-31036', '2026-24208', '2026-24209', '2026-47606', '2026-47627', '2026-47487'],
    here: 'Models are not loaded over the network unless that is asked for. Then paths of files have to stay in a directory that is new for each load, names of models are no paths, and MLflow\'s plugin is a client like others.',
    proofs: [ELSEWHERE, ['test/repository/store.test.ts', 'R-35: file:%s is refused and leaves nothing behind'], verb("'load a model with files'")],
  },
  {
    title: 'Paths in configurations',
    cves: ['2026-24147'],
    here: 'Labels, model files and warm-up data lie in the directory of the model; no answer has lines of other files.',
    proofs: [CONFIGURED, attack('configuration', 'warm-up data from /etc/passwd'), attack('python', 'configurations of Python models with files and environments elsewhere')],
  },
  {
    title: 'Archives of environments',
    cves: ['2026-47630'],
    here: 'Entries and links stay inside of the archive; nothing is written through a link; devices are refused; sizes have limits.',
    proofs: [attack('python', 'archives of Python environments with names and links that lead out'), ['crates/backend-python/tests/archives.rs', 'b_sec_06_names_that_lead_out_are_refused']],
  },
  {
    title: 'Files that the server writes',
    cves: ['2024-0087', '2024-0100'],
    here: 'No log file and no trace file can be named over the network, by anybody.',
    proofs: [verb("'name a log file'"), verb("'name a trace file'"), ['test/log/settings.test.ts', 'log file location can not be updated through network protocol']],
  },
  {
    title: 'Text of clients in the log',
    cves: ['2024-0095'],
    here: 'A message is one line; control characters are escaped.',
    proofs: [bulletin('ends of lines, escapes of terminals and forged entries'), ['test/log/format.test.ts', 'records of the core go through the same levels and escaping']],
  },
  {
    title: 'Bounds and life of shared memory',
    cves: ['2024-0088', '2024-0116', '2025-23323', '2025-23328', '2026-47478'],
    here: 'Off unless it is asked for. Bounds are checked with overflow in mind when a region is registered and when it is used; objects are opened anew each time; a region stays until its last request is answered.',
    proofs: [KEYS, ['crates/memory/src/region.rs', 'windows_are_relative_to_the_region_and_checked'], ['crates/memory/src/region.rs', 'a_region_in_use_stays_until_its_last_window'], attack('regions', 'a region truncated while requests read and write it')],
  },
  {
    title: 'Memory between the server and processes of models',
    cves: ['2025-23318', '2025-23319', '2025-23320', '2025-23329', '2025-23333', '2025-23334'],
    here: 'That memory has no name: clients cannot register it, and no error names it. It holds bytes of tensors only; what a process says about it is checked, and a process that lies is ended.',
    proofs: [LIES, FRAMES, UNNAMED, ['crates/backend-process/tests/runners.rs', 'a_full_arena_fails_its_request_only'], KEYS],
  },
  {
    title: 'Names that reach a shell',
    cves: ['2025-23316'],
    here: 'No shell is used; names with its characters are refused for Python models.',
    proofs: [bulletin('names of models for a shell'), ['crates/backend-python/src/code.rs', 'b_sec_05_names_with_characters_of_a_shell_are_refused']],
  },
  {
    title: 'Chunks and stacks',
    cves: ['2025-23310', '2025-23311', '2025-23317', '2025-33202', '2026-47476'],
    here: 'Chunks are decoded where they lie, at most 65,536 of them; nothing on a stack has the size of what came.',
    proofs: [CHUNKS, ['test/server/http_wire.test.ts', 'P-003 more than 65536 chunks are refused'], attack('http1', 'a request hidden in the chunk that passes the limit')],
  },
  {
    title: 'Nested JSON',
    cves: ['2025-23325', '2026-47477'],
    here: 'Readers of JSON do not recurse; tensor data nest to 100.',
    proofs: [NESTED, ['crates/protocol/tests/http_properties.rs', 'arbitrary_bytes_never_panic'], attack('commands', 'nereid doctor of YAML')],
  },
  {
    title: 'Numbers that overflow, underflow or divide by zero',
    cves: ['2025-23321', '2025-23324', '2025-23326', '2025-23327', '2025-23335', '2025-33211', '2026-24173', '2026-24174', '2026-24210', '2026-47629'],
    here: 'Sizes are computed in 64 bits with checks, converted at the edge, and compared with the bytes that came before anything is allocated. TensorRT plans are run by ONNX Runtime, with inputs that were checked before.',
    proofs: [NUMBERS, attack('shapes', 'a tensor of 2^62 elements'), ['crates/protocol/tests/http.rs', 'p072_shapes_that_overflow_are_refused'], attack('configuration', 'configurations whose numbers ask for terabytes'), ['crates/protocol/src/grpc/tests/differential.rs', 'arbitrary_bytes_do_no_harm']],
  },
  {
    title: 'Files as base64',
    cves: ['2024-53880'],
    here: 'Files of a load are measured before they are decoded; 256 MiB together.',
    proofs: [attack('repository', 'a load request with a file of 450 MB'), attack('repository', 'load requests with 1,000,000 files')],
  },
  {
    title: 'Memory as large as a client says',
    cves: ['2025-23331', '2025-33201', '2026-47479', '2026-47628'],
    here: 'A body is charged as its bytes arrive, never by what it announces; all requests together stay below `--memory-limit`.',
    proofs: [attack('memory', '40 bodies that announce 2 GiB and send one byte'), attack('memory', 'a body larger than a quarter of the budget'), attack('memory', 'bodies of 60 MiB when the system has 256 MiB')],
  },
  {
    title: 'Very many outputs',
    cves: ['2026-24146'],
    here: 'The number of outputs is bounded before they are stored; one that is named twice is refused.',
    proofs: [bulletin('a million outputs in a request'), ['crates/protocol/src/grpc/tests/decode.rs', 'counts_are_limited_before_they_are_stored']],
  },
  {
    title: 'Packed bodies',
    cves: ['2026-24158', '2026-24264', '2026-47482'],
    here: 'What comes out of a packed body is bounded by its size and by a limit, charged in steps, and given back however the request ends.',
    proofs: [attack('memory', '64 MiB of zeros as 64 KiB of gzip'), attack('hold', 'a body of 60 MiB of gzip members'), bulletin('5,000 packed requests that fail'), ['test/python/test_compression.py', 'test_a_bomb_is_refused_by_its_ratio']],
  },
  {
    title: 'Streams that are given up',
    cves: ['2025-23322', '2026-24266'],
    here: 'A request has one owner, and Rust frees it once; its answers are dropped where nobody waits.',
    proofs: [STREAMS, ['crates/frontend/tests/many.rs', 'a_client_that_leaves_has_its_requests_cancelled_however_it_was_asked'], ['crates/frontend/tests/grpc.rs', 'p2_5_triton_grpc_error_ends_the_stream_with_the_first_failure_after_enqueue']],
  },
  {
    title: 'Races',
    cves: ['2025-33238', '2025-33254'],
    here: 'What changes the server is done by one thread; versions are swapped whole; lock-free parts are tried in every order.',
    proofs: [RACES, ['crates/memory/src/region.rs', 'threads_resolve_and_unregister_at_once'], ['crates/engine/tests/loom.rs', 'fn ']],
  },
  {
    title: 'Memory that shows what was in it',
    cves: ['2024-0103'],
    here: 'A body that is not whole is no request; memory that is used again is written before it is read.',
    proofs: [bulletin('bodies that end early, behind one with a secret'), ['test/python/test_compression.py', 'test_a_truncated_body_is_refused']],
  },
  {
    title: 'Models with mistakes',
    cves: ['2025-23336'],
    here: 'A model that cannot be loaded is told with its reason; the others serve.',
    proofs: [attack('configuration', 'the same configurations in a repository that is loaded at start'), ['crates/engine/tests/panics.rs', 'a_panic_costs_its_own_requests_only']],
  },
  {
    title: 'Exceptions that nobody catches',
    cves: ['2026-24175', '2026-47480'],
    here: 'Headers and files that cannot be read are errors with a status. Nothing that panics ends the process.',
    proofs: [bulletin('headers whose values are no numbers'), attack('repository', 'FIFOs, sockets, devices, directories'), ['crates/protocol/src/http/length.rs', 'p077_header_length_is_read_like_stoi']],
  },
  {
    title: 'Ways around restrictions',
    cves: ['2026-24206', '2026-24207'],
    here: NO_FRONT_END,
    proofs: [RESTRICTED, ['test/exposed/rows.test.ts', 'every route of HTTP has a row'], ['test/exposed/rows.test.ts', 'every call of gRPC has a row']],
  },
  {
    title: 'Parameters that are not for clients',
    cves: ['2026-47481'],
    here: 'Reserved names are refused as parameters, and as headers that are forwarded.',
    proofs: [['test/python/test_access.py', 'test_a_reserved_header_cannot_be_forwarded'], ['test/python/test_infer.py', 'test_reserved_parameters_are_refused']],
  },
  {
    title: 'DALI',
    cves: ['2025-23268', '2026-24213', '2026-24214', '2026-24215'],
    here: NONE_OF_IT,
    proofs: [CONFIGURED],
  },
]

/** The table of docs/spec/memory.md 5.1: CVE → its class (CWE) and cause. */
export function published() {
  const page = readFileSync(join(ROOT, 'docs/spec/memory.md'), 'utf8')
  const part = /### 5\.1 [\s\S]*?\n### 5\.2/.exec(page)?.[0] ?? ''
  return new Map([...part.matchAll(/^\| (\d{4}-\d+) \| [^|]* \| (\d+) \| [^|]* \| ([^|]*) \|/gm)].map(([, cve, cwe, cause]) => [cve, { cwe, cause: cause.trim() }]))
}

/** The part of SECURITY.md about them. */
export function cveText() {
  const known = published()
  const tick = (path) => `\`${path}\``
  const shown = (proofs) => proofs.map(([file, words]) => `${tick(file)}: ${words.replace(/^title: /, '').replaceAll("'", '').replace(/^fn $/, 'all of it')}`).join('<br>')
  const lines = CLASSES.map(({ title, cves, here, proofs }) => {
    const list = cves.map((cve) => `CVE-${cve} (CWE-${known.get(cve)?.cwe}): ${known.get(cve)?.cause}`).join('<br>')
    return `| **${title}**<br>${list} | ${here} | ${shown(proofs)} |`
  })
  const count = CLASSES.reduce((sum, { cves }) => sum + cves.length, 0)
  return `### Known vulnerabilities of Triton\n\n${count} that were published from December 2023 to August 2026, with what becomes of each here.\n\n| in Triton | in Nereid | shown by |\n|---|---|---|\n${lines.join('\n')}\n`
}
