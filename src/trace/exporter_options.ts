/**
 * Options of the OpenTelemetry exporter, from `--trace-config=opentelemetry,…` and the environment (O 3.1). Does not
 * load the exporter's libraries, because every start with such a flag reads this.
 */

/** How spans are collected and sent. */
export interface ExporterOptions {
  /** URL of the collector with its path; null = from the environment, else `http://localhost:4318/v1/traces`. */
  url: string | null
  /** From the command line; override those of the environment. */
  resource: [key: string, value: string][]
  /** Maximum number of queued spans. */
  queueSpansMax: number
  /** Maximum time that a span waits for a full batch. */
  delayMs: number
  /** Maximum number of spans in one message. */
  batchSpansMax: number
  protocol: 'http/protobuf' | 'http/json'
}

/** Upper limits of the settings: a queued span takes about 2 KiB of memory. */
const QUEUE_SPANS_MAX = 262_144
const DELAY_MS_MAX = 3_600_000
const RESOURCE_PAIRS_MAX = 128

export type Environment = Readonly<Record<string, string | undefined>>

/**
 * Reads the settings of mode opentelemetry, `[key, value]` in the given order; ignores unknown keys, as Triton does.
 *
 * @throws {RangeError} with a text for the user, when a value is out of range.
 */
export function exporterOptions(
  given: readonly (readonly [string, string])[],
  environment: Environment,
): ExporterOptions {
  const last = new Map(given)
  const count = (key: string, variable: string, usual: number, max: number): number => {
    const text = last.get(key)
    if (text !== undefined) {
      if (!/^\d{1,15}$/.test(text) || Number(text) < 1 || Number(text) > max) {
        throw new RangeError(`invalid value for opentelemetry,${key}: ${text}. It is a whole number from 1 to ${max}`)
      }
      return Number(text)
    }
    // By the OpenTelemetry specification, an invalid variable counts as absent.
    const value = Number(environment[variable]?.trim() || Number.NaN)
    return Number.isInteger(value) && value >= 1 ? Math.min(value, max) : usual
  }
  const queueSpansMax = count('bsp_max_queue_size', 'OTEL_BSP_MAX_QUEUE_SIZE', 2048, QUEUE_SPANS_MAX)
  const batchSpansMax = count('bsp_max_export_batch_size', 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512, QUEUE_SPANS_MAX)
  const resource = given.filter(([key]) => key === 'resource').map(([, pair]) => readPair(pair))
  if (resource.length > RESOURCE_PAIRS_MAX)
    throw new RangeError(`at most ${RESOURCE_PAIRS_MAX} opentelemetry,resource values may be given`)
  const url = last.get('url')
  return {
    url: url === undefined ? null : readUrl(url),
    resource,
    queueSpansMax,
    delayMs: count('bsp_schedule_delay', 'OTEL_BSP_SCHEDULE_DELAY', 5000, DELAY_MS_MAX),
    // A batch cannot be larger than the queue.
    batchSpansMax: Math.min(batchSpansMax, queueSpansMax),
    protocol: readProtocol(environment),
  }
}

/** The values that the settings endpoints return: the three numbers always, the others if given (O 3.2). */
export function exporterAnswer(
  options: ExporterOptions,
  given: readonly (readonly [string, string])[],
): [string, string][] {
  const answer = new Map([
    ['bsp_max_queue_size', String(options.queueSpansMax)],
    ['bsp_schedule_delay', String(options.delayMs)],
    ['bsp_max_export_batch_size', String(options.batchSpansMax)],
    ...given,
  ])
  // Triton repeats the member `resource`, of which a JSON parser keeps one.
  if (options.resource.length > 0) answer.set('resource', options.resource.map((pair) => pair.join('=')).join(','))
  return [...answer].sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b))
}

const ORDER = ['url', 'resource', 'bsp_max_queue_size', 'bsp_schedule_delay', 'bsp_max_export_batch_size']

function readPair(pair: string): [string, string] {
  const at = pair.indexOf('=')
  if (at < 1) throw new RangeError(`invalid value for opentelemetry,resource: ${pair}. Its form is <key>=<value>`)
  return [pair.slice(0, at), pair.slice(at + 1)]
}

function readUrl(text: string): string {
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`
  if (!URL.canParse(full) || !/^https?:$/.test(new URL(full).protocol)) {
    throw new RangeError(`invalid value for opentelemetry,url: ${text}. It is a URL of http or https`)
  }
  return full
}

/** JSON only on request; anything else, including gRPC, becomes protobuf over HTTP. */
function readProtocol(environment: Environment): ExporterOptions['protocol'] {
  const protocol = environment['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] ?? environment['OTEL_EXPORTER_OTLP_PROTOCOL']
  return protocol?.trim() === 'http/json' ? 'http/json' : 'http/protobuf'
}
