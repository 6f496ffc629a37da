/** Rewrites the options of perf_analyzer as those of `nereid bench`, so that its command lines work unchanged. */

import { CommandError } from '../../internal.js'

/** Settings that only perf_analyzer has; read under its names. */
export type Extra =
  | 'max-trials'
  | 'measurement-request-count'
  | 'warmup-request-count'
  | 'latency-threshold'
  | 'string-length'
  | 'string-data'
  | 'output-shared-memory-size'
  | 'ssl-grpc-use-ssl'

export interface Rewritten {
  args: string[]
  extras: ReadonlyMap<Extra, string>
  /** The options that the user gave, by our names. */
  given: Given[]
  /** Options without an effect here, with the reason. */
  notes: string[]
}

export interface Given {
  /** Ours, without dashes; `URL` for -u and for a word of its own. */
  name: string
  /** The spelling that was given: `-p`. */
  label: string
  value: string
}

/** How an option is read. Those with `takes` have a value. */
interface Rule {
  takes: boolean
  /** Options of ours that mean the same. */
  args?: (value: string) => string[]
  extra?: Extra
  /** Why it has no effect. */
  note?: string
  /** Why it is an error, and what to use instead. */
  instead?: string
}

const as = (name: string, value: (text: string) => string = (text) => text): Rule => ({
  takes: true,
  args: (text) => [`--${name}=${value(text)}`],
})
const extra = (name: Extra): Rule => ({ takes: true, extra: name })
const noted = (takes: boolean, note: string): Rule => ({ takes, note })
/** An option that may only have the values that are usual here. */
const only = (values: string, error: (text: string) => string): Rule => ({
  takes: true,
  args(text) {
    if (values.split(' ').includes(text)) return []
    throw new CommandError(error(text))
  },
})
const instead = (text: string): Rule => ({ takes: false, instead: text })

const seconds = (ms: string): string => String(number(ms, 'a number of milliseconds') / 1000)
const number = (text: string, what: string): number => {
  const value = Number(text)
  if (text.trim() === '' || !Number.isFinite(value)) throw new CommandError(`'${text}' is not ${what}`)
  return value
}

/** `start:end:step`, whose end may not be open here. */
function range(text: string): string {
  if (text.split(':')[1] !== undefined && Number(text.split(':')[1]) === 0)
    throw new CommandError(
      `the range '${text}' has no end: --goal='p99<20ms' finds the highest rate within a latency, without a range`,
    )
  return text
}

const THREADS = 'one thread keeps any number of requests in flight'
const SEQUENCES = 'sequences are not measured: each request stands alone'
const METRICS = "the table has the server's own times; look at /metrics with Prometheus"
const TRACES = 'set traces on the server: POST /v2/trace/setting'
const TLS_HOST = 'the host of a certificate is always checked; --tls-ca names the certificates to trust'

/** Rules by the names that an option has. */
const TABLE: readonly (readonly [names: string, rule: Rule])[] = [
  ['m', as('model')],
  ['x', as('version')],
  ['u', { takes: true, args: (text) => [text] }],
  ['i', as('protocol', (text) => text.toLowerCase())],
  ['b', as('batch')],
  ['f', as('csv')],
  ['H', as('header')],
  ['p measurement-interval', as('seconds', seconds)],
  ['s stability-percentage', as('stop-within')],
  ['r max-trials', extra('max-trials')],
  ['l latency-threshold', extra('latency-threshold')],
  ['measurement-request-count', extra('measurement-request-count')],
  [
    'measurement-mode',
    only('time_windows count_windows', (text) => `--measurement-mode is time_windows or count_windows; got '${text}'`),
  ],
  ['request-count', as('requests')],
  ['warmup-request-count', extra('warmup-request-count')],
  ['t concurrency-range', as('concurrency', range)],
  ['request-rate-range', as('rate', range)],
  ['request-distribution', as('arrivals')],
  ['input-data data-directory', as('data')],
  ['z', { takes: false, args: () => ['--data=zero'] }],
  ['string-length', extra('string-length')],
  ['string-data', extra('string-data')],
  ['output-shared-memory-size', extra('output-shared-memory-size')],
  ['streaming', { takes: false, args: () => ['--endpoint=stream'] }],
  [
    'service-kind',
    only('triton', (text) =>
      text === 'triton_c_api'
        ? '--service-kind=triton_c_api: start the server and give its URL instead'
        : `--service-kind=${text}: nereid bench measures servers of the v2 protocol, and openai measures /v1`,
    ),
  ],
  [
    'grpc-compression-algorithm',
    only('none', (text) => `--grpc-compression-algorithm=${text}: nereid bench sends uncompressed requests`),
  ],
  ['ssl-grpc-use-ssl', extra('ssl-grpc-use-ssl')],
  ['ssl-grpc-root-certifications-file ssl-https-ca-certificates-file', as('tls-ca')],
  ['ssl-grpc-private-key-file ssl-https-private-key-file', as('tls-key')],
  ['ssl-grpc-certificate-chain-file ssl-https-client-certificate-file', as('tls-cert')],
  ['ssl-https-verify-peer ssl-https-verify-host', noted(true, TLS_HOST)],
  ['ssl-https-client-certificate-type ssl-https-private-key-type', noted(true, 'certificates and keys are PEM files')],
  ['input-tensor-format', as('tensors')],
  ['output-tensor-format', noted(true, '--input-tensor-format decides for inputs and outputs')],
  ['a async sync', noted(false, THREADS)],
  ['max-threads', noted(true, THREADS)],
  ['v verbose-csv', noted(false, 'the table has the usual columns; --json prints more')],
  ['d', noted(false, 'nereid bench ends after the given loads')],
  ['model-signature-name', noted(true, 'it is for TensorFlow Serving')],
  ['bls-composing-models', noted(true, 'statistics are those of the model itself; --model measures another one')],
  ['num-of-sequences sequence-length sequence-length-variation sequence-id-range', noted(true, SEQUENCES)],
  ['serial-sequences', noted(false, SEQUENCES)],
  ['collect-metrics', noted(false, METRICS)],
  ['metrics-url metrics-interval', noted(true, METRICS)],
  ['trace-level trace-rate trace-count log-frequency', noted(true, TRACES)],
  ['c', instead("-c is a maximum of concurrency: use --concurrency-range=1:N, or --goal='p99<20ms'")],
  ['binary-search', instead("--binary-search: --goal='p99<20ms' searches the highest rate within a latency")],
  ['periodic-concurrency-range request-period', instead('periodic concurrency: use --concurrency-range')],
  [
    'enable-mpi',
    instead('--enable-mpi: nereid bench runs on one machine: start it on each, with its part of the rate'),
  ],
  [
    'session-concurrency',
    instead('--session-concurrency: sessions are not measured; --endpoint=chat measures chats of one message'),
  ],
  [
    'request-intervals fixed-schedule',
    instead('own schedules of requests are not sent: use --request-rate-range with --request-distribution=poisson'),
  ],
  ['profile-export-file', instead('--profile-export-file: --json=FILE has the percentiles, histograms and curves')],
  ['grpc-method', instead('--grpc-method: nereid bench calls ModelInfer, and ModelStreamInfer with --streaming')],
  ['triton-server-directory model-repository', instead('the in-process API: start the server, and give its URL')],
]
const RULES = new Map(TABLE.flatMap(([names, rule]) => names.split(' ').map((name) => [name, rule] as const)))

/** Names of the options that are rewritten, without dashes. */
export const REWRITTEN: readonly string[] = [...RULES.keys()]

/** Options of perf_analyzer that only a command line for it has: its defaults apply then. */
const TELLING = new Set([
  'm',
  'u',
  'i',
  'p',
  's',
  'measurement-interval',
  'stability-percentage',
  'concurrency-range',
  'request-rate-range',
  'measurement-mode',
])

/** Values of perf_analyzer's `--endpoint`, which follows `--service-kind=openai`, by ours. */
const OPENAI = new Map([
  ['v1/embeddings', 'embeddings'],
  ['v1/rerank', 'rerank'],
  ['v1/chat/completions', 'chat'],
  ['v1/completions', 'completions'],
])

/** Options of ours whose value may be missing, with the words that are one; another word is a URL. */
const OPTIONAL = new Map([
  ['shared-memory', /^(none|system|cuda)$/],
  ['json', /\.json$/],
])

/** @throws {CommandError} for an option that has another name or no meaning here; the text says what to use */
export function rewritten(args: readonly string[]): Rewritten {
  const out: string[] = []
  const extras = new Map<Extra, string>()
  const given: Given[] = []
  const notes: string[] = []
  let [isTheirs, isOpenAi] = [false, false]
  const add = (label: string, words: readonly string[]): void => {
    for (const word of words) {
      const [, name = 'URL', value = word] = /^--([\w-]+)(?:=(.*))?$/s.exec(word) ?? []
      given.push({ name, label, value })
    }
    out.push(...words)
  }
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i] ?? ''
    const [, dashes = '', name = '', attachedLong] = /^(--?)([A-Za-z][\w-]*)(?:=(.*))?$/s.exec(arg) ?? []
    // As getopt reads them, a value may follow the letter of an option: -b4.
    const short = dashes === '-' ? arg.slice(1, 2) : ''
    const key = short === '' ? name : short
    const rule = RULES.get(key)
    const label = short === '' ? `--${name}` : `-${short}`
    const attached = short === '' ? attachedLong : arg.length > 2 ? arg.slice(2).replace(/^=/, '') : undefined
    if (dashes === '-' && rule === undefined) throw new CommandError(`bench has no option '${arg}'`)
    if (dashes === '') {
      out.push(arg)
      given.push({ name: 'URL word', label: `'${arg}'`, value: arg })
      continue
    }
    if (rule === undefined) {
      const words = OPTIONAL.get(name)
      const isLast = args[i + 1] === undefined || args[i + 1]?.startsWith('--') === true
      const mayTake = words === undefined ? !isLast : words.test(args[i + 1] ?? '')
      const takes = attached === undefined && mayTake
      const value = takes ? args[(i += 1)] : attached
      if (name === 'endpoint' && value !== undefined) add(label, [`--endpoint=${endpointOf(value)}`])
      else if (name === 'shared-memory' && value === 'cuda')
        throw new CommandError(
          '--shared-memory=cuda: nereid bench puts tensors into system shared memory only: use =system',
        )
      else add(label, [value === undefined ? arg : `--${name}=${value}`])
      continue
    }
    if (TELLING.has(key)) isTheirs = true
    if (rule.instead !== undefined) throw new CommandError(rule.instead)
    let value = ''
    if (rule.takes) {
      const next = attached ?? args[(i += 1)]
      if (next === undefined) throw new CommandError(`${label} needs a value`)
      value = next
    }
    if (rule.note !== undefined) notes.push(`${label} has no effect: ${rule.note}`)
    if (rule.extra !== undefined) extras.set(rule.extra, value)
    if (name === 'service-kind' && value === 'openai') isOpenAi = true
    else add(label, rule.args?.(value) ?? [])
  }
  const has = (name: string): boolean => given.some((one) => one.name === name)
  if (isOpenAi && !has('endpoint'))
    throw new CommandError(`--service-kind=openai needs --endpoint=PATH, of ${[...OPENAI.keys()].join(', ')}`)
  // Streams of chats are the only form that is measured.
  const isStream = (one: Given): boolean => isOpenAi && one.label === '--streaming'
  if (given.some(isStream)) out.splice(out.indexOf('--endpoint=stream'), 1)
  const word = given.find((one) => one.name === 'URL word')
  if (has('URL') && word !== undefined)
    throw new CommandError(`-u and ${word.label} are both a URL: give only one of them`)
  if (isTheirs) {
    if (!has('stop-within') && !has('requests') && !has('goal')) out.push('--stop-within=10')
    if (!has('arrivals')) out.push('--arrivals=constant')
  }
  return {
    args: out,
    extras,
    given: given.filter((one) => one.name !== 'URL word' && !isStream(one)),
    notes: [...new Set(notes)],
  }
}

function endpointOf(text: string): string {
  const path = text.replace(/^\//, '')
  return OPENAI.get(path) ?? text
}
