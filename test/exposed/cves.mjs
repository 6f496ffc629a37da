/**
 * The published vulnerabilities of Triton (docs/spec/memory.md 5.1 has their causes), what becomes of each here, and
 * the tests that show it. A proof is a file and words that stand in it: the name of a test, or an attack. Several CVEs
 * that are one thing here share a class.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../scripts/setup.mjs'

const attack = (file, words) => [`test/attacks/${file}.mjs`, words]
const bulletin = (words) => attack('bulletins', words)
const verb = (words) => ['test/exposed/verbs.mjs', words]

const ELSEWHERE = bulletin('files of load requests with paths outside the model')
const CONFIGURED = bulletin('labels, models and warm-up data of configurations')
const NUMBERS = bulletin('shapes, sizes and offsets at the ends of 32 and 64 bits')
const KEYS = bulletin('keys of shared memory that are paths')
const STREAMS = bulletin('thousands of streams that are cancelled')
const RACES = bulletin('loads, unloads, settings, registrations')
const CHUNKS = bulletin('three megabytes in chunks of one byte')
const NESTED = bulletin('JSON of 100,000 brackets')
const LIES = [
  'crates/backend-process/tests/violations.rs',
  'a_process_that_breaks_the_protocol_is_killed_and_restarted',
]
const FRAMES = ['crates/frames/src/vectors.rs', 'invalid_frames_are_rejected_b_sec_04_b_sec_05']
const UNNAMED = ['crates/memory/src/memfd.rs', 'a_memfd_is_shared_by_descriptor_and_cannot_shrink']
const RESTRICTED = ['test/exposed/sections.mjs', "title: 'Restricted APIs'"]

const NONE_OF_IT = 'Nereid does not have this backend: a model that names it fails to load.'
const NO_FRONT_END = 'Nereid does not have this front end. One place checks restrictions for every route and call.'

export const CLASSES = [
  {
    title: 'Paths over the network',
    cves: ['2023-31036', '2026-24208', '2026-24209', '2026-47606', '2026-47627', '2026-47487'],
    here:
      'The network cannot load models unless a flag allows it. File paths must then stay in a directory that ' +
      "is new for each load, a model name must not be a path, and MLflow's plugin is a client like others.",
    proofs: [
      ELSEWHERE,
      ['test/repository/store.test.ts', 'R-35: file:%s is rejected and leaves nothing behind'],
      verb("'load a model with files'"),
    ],
  },
  {
    title: 'Paths in configurations',
    cves: ['2026-24147'],
    here:
      "Labels, model files and warm-up data must be in the model's directory. No answer contains lines of " +
      'other files.',
    proofs: [
      CONFIGURED,
      attack('configuration', 'warm-up data from /etc/passwd'),
      attack('python', 'configurations of Python models with files and environments elsewhere'),
    ],
  },
  {
    title: 'Archives of environments',
    cves: ['2026-47630'],
    here:
      'Entries and links must stay inside the archive, and nothing is written through a link. Devices are ' +
      'rejected, and sizes have limits.',
    proofs: [
      attack('python', 'archives of Python environments with names and links that lead out'),
      ['crates/backend-python/tests/archives.rs', 'b_sec_06_names_that_lead_outside_are_rejected'],
    ],
  },
  {
    title: 'Files that the server writes',
    cves: ['2024-0087', '2024-0100'],
    here: 'No client can set a log file or a trace file over the network.',
    proofs: [
      verb("'name a log file'"),
      verb("'name a trace file'"),
      ['test/log/settings.test.ts', 'log file location can not be updated through network protocol'],
    ],
  },
  {
    title: 'Text of clients in the log',
    cves: ['2024-0095'],
    here: 'A log message is one line, and its control characters are escaped.',
    proofs: [
      bulletin('ends of lines, escapes of terminals and forged entries'),
      ['test/log/format.test.ts', 'records of the core are filtered and escaped, verbose ones were filtered there'],
    ],
  },
  {
    title: 'Bounds and lifetime of shared memory',
    cves: ['2024-0088', '2024-0116', '2025-23323', '2025-23328', '2026-47478'],
    here:
      'Shared memory of clients is off by default. Bounds are checked for overflow when a region is registered ' +
      'and when it is used. Objects are opened anew each time, and a region stays until its last request is ' +
      'answered.',
    proofs: [
      KEYS,
      ['crates/memory/src/region.rs', 'windows_are_relative_to_the_region_and_checked'],
      ['crates/memory/src/region.rs', 'a_region_in_use_stays_until_its_last_window'],
      attack('regions', 'a region truncated while requests read and write it'),
    ],
  },
  {
    title: 'Memory between the server and processes of models',
    cves: ['2025-23318', '2025-23319', '2025-23320', '2025-23329', '2025-23333', '2025-23334'],
    here:
      'This memory has no name: clients cannot register it, and no error names it. It holds tensor bytes only. ' +
      'The server checks each message about it, and ends a process that breaks the protocol.',
    proofs: [
      LIES,
      FRAMES,
      UNNAMED,
      ['crates/backend-process/tests/runners.rs', 'a_full_arena_fails_its_request_only'],
      KEYS,
    ],
  },
  {
    title: 'Names that reach a shell',
    cves: ['2025-23316'],
    here: 'The server uses no shell. Python models whose names have shell characters are rejected.',
    proofs: [
      bulletin('names of models for a shell'),
      ['crates/backend-python/src/code.rs', 'b_sec_05_names_with_shell_characters_are_rejected'],
    ],
  },
  {
    title: 'Chunks and stacks',
    cves: ['2025-23310', '2025-23311', '2025-23317', '2025-33202', '2026-47476'],
    here: 'At most 65,536 chunks are decoded in place. No size on a stack depends on the input.',
    proofs: [
      CHUNKS,
      ['test/server/http_wire.test.ts', 'P-003 more than 65536 chunks are rejected'],
      attack('http1', 'a request hidden in the chunk that passes the limit'),
    ],
  },
  {
    title: 'Nested JSON',
    cves: ['2025-23325', '2026-47477'],
    here: 'JSON readers do not recurse, and tensor data nest to 100.',
    proofs: [
      NESTED,
      ['crates/protocol/tests/http_properties.rs', 'arbitrary_bytes_never_panic'],
      attack('commands', 'nereid doctor of YAML'),
    ],
  },
  {
    title: 'Numbers that overflow, underflow or divide by zero',
    cves: [
      '2025-23321',
      '2025-23324',
      '2025-23326',
      '2025-23327',
      '2025-23335',
      '2025-33211',
      '2026-24173',
      '2026-24174',
      '2026-24210',
      '2026-47629',
    ],
    here:
      'Sizes are computed in 64 bits with checks, and compared with the received bytes before an allocation. ' +
      'ONNX Runtime runs TensorRT plans, with checked inputs.',
    proofs: [
      NUMBERS,
      attack('shapes', 'a tensor of 2^62 elements'),
      ['crates/protocol/tests/http.rs', 'p072_shapes_that_overflow_are_rejected'],
      attack('configuration', 'configurations whose numbers ask for terabytes'),
      ['crates/protocol/src/grpc/tests/differential.rs', 'arbitrary_bytes_do_no_harm'],
    ],
  },
  {
    title: 'Files as base64',
    cves: ['2024-53880'],
    here: 'The files of a load are measured before they are decoded, and have at most 256 MiB together.',
    proofs: [
      attack('repository', 'a load request with a file of 450 MB'),
      attack('repository', 'load requests with 1,000,000 files'),
    ],
  },
  {
    title: 'Allocations of a client-chosen size',
    cves: ['2025-23331', '2025-33201', '2026-47479', '2026-47628'],
    here:
      'A body is charged as its bytes arrive, not by its announced length. All requests together stay below ' +
      '`--memory-limit`.',
    proofs: [
      attack('memory', '40 bodies that announce 2 GiB and send one byte'),
      attack('memory', 'a body larger than a quarter of the budget'),
      attack('memory', 'bodies of 60 MiB when the system has 256 MiB'),
    ],
  },
  {
    title: 'Very many outputs',
    cves: ['2026-24146'],
    here: 'The number of outputs is checked before they are stored, and a duplicate is rejected.',
    proofs: [
      bulletin('a million outputs in a request'),
      [
        'crates/protocol/src/grpc/tests/decode.rs',
        'limits_of_tensors_and_parameters_are_checked_before_they_are_stored',
      ],
    ],
  },
  {
    title: 'Compressed bodies',
    cves: ['2026-24158', '2026-24264', '2026-47482'],
    here:
      'The inflated size is limited by a ratio and by a maximum. It is charged in steps, and released however ' +
      'the request ends.',
    proofs: [
      attack('memory', '64 MiB of zeros as 64 KiB of gzip'),
      attack('hold', 'a body of 60 MiB of gzip members'),
      bulletin('5,000 packed requests that fail'),
      ['test/python/test_compression.py', 'test_a_bomb_is_refused_by_its_ratio'],
    ],
  },
  {
    title: 'Cancelled streams',
    cves: ['2025-23322', '2026-24266'],
    here: 'A request has one owner, and Rust frees it once. Responses to a cancelled request are dropped.',
    proofs: [
      STREAMS,
      ['crates/frontend/tests/many.rs', 'a_client_that_disconnects_cancels_its_requests_over_every_transport'],
      ['crates/frontend/tests/grpc.rs', 'p2_5_triton_grpc_error_ends_the_stream_with_the_first_failure_after_enqueue'],
    ],
  },
  {
    title: 'Races',
    cves: ['2025-33238', '2025-33254'],
    here:
      'One thread changes the server, and versions are replaced as a whole. Tests run the lock-free parts in ' +
      'every interleaving.',
    proofs: [
      RACES,
      ['crates/memory/src/region.rs', 'threads_resolve_and_unregister_at_once'],
      ['crates/engine/tests/loom.rs', 'fn '],
    ],
  },
  {
    title: 'Memory that leaks old data',
    cves: ['2024-0103'],
    here: 'An incomplete body is not a request. Reused memory is written before it is read.',
    proofs: [
      bulletin('bodies that end early, after one with a secret'),
      ['test/python/test_compression.py', 'test_a_truncated_body_is_refused'],
    ],
  },
  {
    title: 'Misconfigured models',
    cves: ['2025-23336'],
    here: 'A model that cannot be loaded is reported with its reason, and the others serve.',
    proofs: [
      attack('configuration', 'the same configurations in a repository that is loaded at start'),
      ['crates/engine/tests/all/panics.rs', 'a_panic_only_fails_its_own_requests'],
    ],
  },
  {
    title: 'Uncaught exceptions',
    cves: ['2026-24175', '2026-47480'],
    here: 'A header or file that cannot be read is an error with a status. A panic does not end the process.',
    proofs: [
      bulletin('headers whose values are not numbers'),
      attack('repository', 'FIFOs, sockets, devices, directories'),
      ['crates/protocol/src/http/length.rs', 'p077_header_length_is_read_like_stoi'],
    ],
  },
  {
    title: 'Bypass of restrictions',
    cves: ['2026-24206', '2026-24207'],
    here: NO_FRONT_END,
    proofs: [
      RESTRICTED,
      ['test/exposed/rows.test.ts', 'every route of HTTP has a row'],
      ['test/exposed/rows.test.ts', 'every call of gRPC has a row'],
    ],
  },
  {
    title: 'Reserved parameters',
    cves: ['2026-47481'],
    here: 'Reserved names are rejected as parameters, and as forwarded headers.',
    proofs: [
      ['test/python/test_access.py', 'test_a_reserved_header_cannot_be_forwarded'],
      ['test/python/test_infer.py', 'test_reserved_parameters_are_refused'],
    ],
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
  return new Map(
    [...part.matchAll(/^\| (\d{4}-\d+) \| [^|]* \| (\d+) \| [^|]* \| ([^|]*) \|/gm)].map(([, cve, cwe, cause]) => [
      cve,
      { cwe, cause: cause.trim() },
    ]),
  )
}

/** The page about them. */
export function cveText() {
  const known = published()
  const tick = (path) => `\`${path}\``
  const shown = (proofs) =>
    proofs
      .map(
        ([file, words]) =>
          `${tick(file)}: ${words
            .replace(/^title: /, '')
            .replaceAll("'", '')
            .replace(/^fn $/, 'all of it')}`,
      )
      .join('<br>')
  const lines = CLASSES.map(({ title, cves, here, proofs }) => {
    const list = cves.map((cve) => `CVE-${cve} (CWE-${known.get(cve)?.cwe}): ${known.get(cve)?.cause}`).join('<br>')
    return `| **${title}**<br>${list} | ${here} | ${shown(proofs)} |`
  })
  const count = CLASSES.reduce((sum, { cves }) => sum + cves.length, 0)
  return (
    `# Known vulnerabilities of Triton\n\nThis page lists the ${count} vulnerabilities of Triton that were ` +
    'published from December 2023 to August 2026, with the behaviour of Nereid for each.\n\n| in Triton | in ' +
    `Nereid | shown by |\n|---|---|---|\n${lines.join('\n')}\n`
  )
}
