/** Command-line options of the bench. One table: it is the parser and the help. */

/** Minutes a suite takes on two cores: with everything, and in a quick run. */
const MINUTES = {
  peers: [11, 2.5],
  front: [5, 0.7],
  sizes: [5.5, 0.2],
  curves: [8, 0.1],
  stream: [2.5, 0.5],
  cache: [1.5, 0.15],
  tls: [1.5, 0.3],
  unix: [1, 0.2],
  embed: [1.5, 0.4],
  sequence: [3, 0.4],
  pipeline: [5, 0.5],
  python: [8, 1],
  frameworks: [5, 1.5],
  client: [4, 1],
  scale: [3.5, 0.5],
  text: [13, 1.5],
  batching: [10, 0.15],
  compute: [12, 0.5],
  crosscheck: [2, 0],
  counts: [1, 0.15],
  isolation: [6, 1],
  memory: [12, 0.2],
}
export const SUITES = Object.keys(MINUTES)

/** How long a run will take, roughly: what it does before the suites included. */
export const minutesOf = ({ suites, quick }) =>
  suites.reduce((sum, suite) => sum + MINUTES[suite][quick ? 1 : 0], quick ? 0.2 : 1)

const OPTIONS = {
  quick: 'four minutes: fewer cells, 3 short repetitions',
  peers: 'also measure what .venv-bench holds in a quick run; full runs always do (--peers=false: no Triton)',
  triton: 'PATH of a tritonserver to compare with',
  'triton-backends': 'DIR of its backends; with onnxruntime in it, the models are the same as ours',
  'triton-caches': 'DIR of its caches',
  python:
    'PATHS of Python interpreters with torch, openvino, or xgboost and treelite, joined by commas, for the ' +
    'suite frameworks (default NEREID_TEST_PYTHON)',
  text: 'DIR of all-MiniLM-L6-v2 with model.onnx, for the suites text and peers (default: weights that are noise)',
  compute:
    'DIR of networks that bench/models/compute.py wrote, for the suite compute (default: weights that are noise)',
  'compute-baseline':
    'SETTINGS, key=value or --flag=value, joined by commas: the suite compute measures this server beside itself ' +
    'with them, beside busy processes and under quotas of CPU time',
  'compute-init': 'WORDS for nereid init in the suite compute, such as --batch=8, joined by blanks',
  only: 'NAMES of networks of the suite compute, joined by commas',
  filter: 'TEXT: only cells whose name contains it',
  suite: `NAMES, joined by commas: ${SUITES.join(', ')}`,
  merge: 'with --suite: keep the other suites of the last whole run, each with its commit',
  out: 'DIR for the results (default bench/results)',
  repetitions: 'N (default 3 quick, 5 full)',
  seconds: 'S per cell and repetition',
  micro: 'run the micro benchmarks instead',
  guard: 'count instructions per request instead, and compare them with the record',
  record: 'with --guard: write the record',
  setup: 'false: measure what is built already, without looking for changes',
  help: 'print this',
}

export class UsageError extends Error {}

/** `--name=value`, `--name value` where a value is needed, and bare `--name` for true; a bare word is a suite. */
export function parseOptions(words) {
  const found = {}
  const named = []
  const takesValue = (name) => /^[A-Z]/.test(OPTIONS[name] ?? '') || name === 'seconds'
  for (let i = 0; i < words.length; i += 1) {
    if (SUITES.includes(words[i])) {
      named.push(words[i])
      continue
    }
    const match = /^--([\w-]+)(?:=(.*))?$/s.exec(words[i])
    const name = match?.[1]
    if (name === undefined || !(name in OPTIONS)) throw new UsageError(`unknown option ${words[i]}\n${help()}`)
    found[name] = match[2] ?? (takesValue(name) ? words[(i += 1)] : 'true')
    if (found[name] === undefined) throw new UsageError(`--${name} needs a value`)
  }
  const isTrue = (name) => found[name] === 'true'
  const positive = (name, fallback) => {
    const number = Number(found[name] ?? fallback)
    if (!(number > 0)) throw new UsageError(`--${name}=${found[name]}: a positive number is needed`)
    return number
  }
  const quick = isTrue('quick')
  // A quick run needs nothing that is downloaded.
  const usual = SUITES.filter((suite) => suite !== 'peers' || !quick || isTrue('peers'))
  const suites =
    found.suite === undefined && named.length > 0 ? named : [...(found.suite ?? usual.join(',')).split(','), ...named]
  for (const suite of suites)
    if (!SUITES.includes(suite)) throw new UsageError(`--suite=${suite}: there are ${SUITES.join(', ')}`)
  return {
    quick,
    help: isTrue('help'),
    micro: isTrue('micro'),
    guard: isTrue('guard'),
    record: isTrue('record'),
    merge: isTrue('merge'),
    setup: found.setup !== 'false',
    peers: quick ? isTrue('peers') : found.peers !== 'false',
    triton: found.triton ?? null,
    tritonBackends: found['triton-backends'] ?? null,
    tritonCaches: found['triton-caches'] ?? null,
    python: found.python ?? null,
    text: found.text ?? null,
    compute: found.compute ?? null,
    computeBaseline: found['compute-baseline'] ?? null,
    computeInit: found['compute-init']?.split(' ') ?? [],
    only: found.only?.split(',') ?? null,
    filter: found.filter ?? '',
    suites,
    isWhole: suites.length >= usual.length,
    out: found.out ?? null,
    repetitions: positive('repetitions', quick ? 3 : 5),
    seconds: positive('seconds', quick ? 0.5 : 1.5),
  }
}

export const help = () =>
  `npm run bench [-- OPTIONS]\n${Object.entries(OPTIONS)
    .map(([name, what]) => `  --${name.padEnd(16)} ${what}`)
    .join('\n')}`
