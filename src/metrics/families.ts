/**
 * Converts a snapshot of the core to metric families. Pure: all values come from the arguments, so the counters of a
 * scrape belong to one moment.
 *
 * Names, types, labels and order are Triton's (O 1.5). The texts of HELP are ours and never mention another family,
 * because users test for the absence of a name in the whole exposition.
 */

import type {
  Duration,
  Executions,
  Exemplar,
  Family as CoreFamily,
  Histogram,
  Snapshot,
  VersionHistogram,
  VersionStatistics,
} from '../native/contract.js'
import type { Family, FamilyType, Sample } from './exposition.js'

/** Facts about a version that the core does not have. */
export interface VersionFacts {
  loadSeconds: number
  /** Number of instances; 0 for an ensemble. */
  instances: number
  /** `metric_tags` of the configuration. */
  tags: Readonly<Record<string, string>>
}

export interface StoreFacts {
  /** Name as configured. */
  name: string
  downloadedBytes: number
  /** Error of the last listing, or null. */
  failure: unknown
}

export interface FamilyContext {
  /** Returns null for a version that no longer serves: its counters stay until the core drops them. */
  facts: (key: string, version: number) => VersionFacts | null
  counterLatencies: boolean
  histograms: boolean
  /** Seconds of pending work (`metrics/saturation`). */
  saturation: (statistics: VersionStatistics, instances: number) => number | null
  /** Log lines that could not be written, by reason. */
  logLost: ReadonlyMap<string, number>
  /** Traces that the exporter lost, by reason. */
  tracesLost: ReadonlyMap<string, number>
  /** Repositories in clouds. */
  stores: readonly StoreFacts[]
  /** Versions whose last load failed, by key of the model. */
  failed: ReadonlyMap<string, number>
  host: { utilization: number; memoryTotalBytes: number; memoryUsedBytes: number } | null
}

/** Order of `VersionStatistics.failures`. */
const REASONS = ['REJECTED', 'CANCELED', 'BACKEND', 'OTHER'] as const

/** Families of `VersionStatistics.histograms`. */
const HISTOGRAMS: readonly { of: VersionHistogram['family']; name: string; help: string }[] = [
  { of: 'request', name: 'nereid_request_seconds', help: 'Time from start to end of successful requests, in s.' },
  { of: 'queue', name: 'nereid_queue_seconds', help: 'Time that successful requests waited to be executed, in s.' },
  { of: 'compute', name: 'nereid_compute_seconds', help: 'Time that the model ran for successful requests, in s.' },
  {
    of: 'first_response',
    name: 'nereid_first_response_seconds',
    help: 'Time from the start of a request that may have many responses to the first one, in s.',
  },
  { of: 'rows', name: 'nereid_batch_rows', help: 'Rows of executed batches.' },
  { of: 'tokens', name: 'nereid_batch_tokens', help: 'Tokens of executed batches, padding included.' },
  { of: 'tokenizing', name: 'nereid_tokenizing_seconds', help: 'Time to tokenise the texts of a request, in s.' },
]

/**
 * Buckets in us beside the counters of the same times, whose names guides to Triton use. They are counters, because a
 * histogram cannot share the name of a counter.
 */
const COUNTED_BUCKETS: typeof HISTOGRAMS = [
  {
    of: 'queue',
    name: 'nv_inference_queue_duration_us_bucket',
    help: 'Requests that waited to be executed for at most this time, in us.',
  },
  {
    of: 'compute',
    name: 'nv_inference_compute_infer_duration_us_bucket',
    help: 'Requests for which the model ran for at most this time, in us.',
  },
]

type Labels = Record<string, string>

/** Makes a family of samples of each version. */
type PerVersion = (
  name: string,
  type: FamilyType,
  help: string,
  samples: (s: VersionStatistics, labels: Labels, facts: VersionFacts | null) => Sample[],
) => Family

/** All families of one scrape: in Triton's order, followed by ours. */
export function buildFamilies(snapshot: Snapshot, context: FamilyContext): Family[] {
  const versions = snapshot.versions.map((statistics) => {
    const labels = labelsOf(statistics, context)
    const facts = context.facts(keyOf(statistics), statistics.version)
    return { statistics, labels, facts, parts: partsOf(statistics, labels, snapshot.gpuUuids) }
  })
  const perVersion: PerVersion = (name, type, help, samples) => ({
    name,
    help,
    type,
    samples: versions.flatMap((v) => samples(v.statistics, v.labels, v.facts)),
  })
  const counter = (name: string, help: string, value: (s: VersionStatistics) => bigint): Family => {
    const samples = versions.flatMap(({ parts }) =>
      parts.map(({ statistics, labels }) => ({ labels, value: value(statistics) })),
    )
    return { name, help, type: 'counter', samples }
  }
  /** Gauge of the whole version; in series with `gpu_uuid` it is 0, as in Triton (O 1.4). */
  const gauge = (
    name: string,
    help: string,
    value: (s: VersionStatistics, facts: VersionFacts | null) => number | bigint | null,
  ): Family => {
    const samples = versions.flatMap(({ statistics, facts, parts }) => {
      const of = value(statistics, facts)
      return of === null ? [] : parts.map(({ labels }, i) => ({ labels, value: i === 0 ? of : 0 }))
    })
    return { name, help, type: 'gauge', samples }
  }
  const ofCached = (name: string, help: string, value: (s: VersionStatistics) => bigint): Family =>
    perVersion(name, 'counter', help, (s, labels) => (s.cached ? [{ labels, value: value(s) }] : []))
  const one = (name: string, help: string, value: number): Family => ({
    name,
    help,
    type: 'gauge',
    samples: [{ labels: {}, value }],
  })

  const families: Family[] = [
    counter('nv_inference_request_success', 'Successful requests.', (s) => s.success.count),
    {
      name: 'nv_inference_request_failure',
      help: 'Requests that failed, by reason.',
      type: 'counter',
      samples: versions.flatMap(({ parts }) =>
        parts.flatMap(({ statistics, labels }) =>
          REASONS.map((reason, i) => ({ labels: { ...labels, reason }, value: statistics.failures[i] ?? 0n })),
        ),
      ),
    },
    counter('nv_inference_count', 'Inferences executed; a request of batch n counts n.', (s) => s.inferenceCount),
    counter('nv_inference_exec_count', 'Batches executed.', (s) => s.executionCount),
  ]
  if (context.counterLatencies) {
    families.push(
      counter('nv_inference_request_duration_us', 'Time from start to end of requests, in us.', (s) =>
        us(s.success.ns),
      ),
      counter('nv_inference_queue_duration_us', 'Time requests waited to be executed, in us.', (s) => us(s.queue.ns)),
      counter('nv_inference_compute_input_duration_us', 'Time to prepare inputs, in us.', (s) => us(s.computeInput.ns)),
      counter('nv_inference_compute_infer_duration_us', 'Time to run the model, in us.', (s) => us(s.computeInfer.ns)),
      counter('nv_inference_compute_output_duration_us', 'Time to deliver outputs, in us.', (s) =>
        us(s.computeOutput.ns),
      ),
      ofCached('nv_cache_num_hits_per_model', 'Requests served from the response cache.', (s) => s.cacheHit.count),
      ofCached('nv_cache_hit_duration_per_model', 'Time to find responses in the response cache, in us.', (s) =>
        us(s.cacheHit.ns),
      ),
      ofCached(
        'nv_cache_num_misses_per_model',
        'Requests whose response was not in the response cache.',
        (s) => s.cacheMiss.count,
      ),
      ofCached('nv_cache_miss_duration_per_model', 'Time to look for such responses and to store them, in us.', (s) =>
        us(s.cacheMiss.ns),
      ),
    )
  }
  families.push(
    gauge('nv_inference_pending_request_count', 'Requests waiting to be executed.', (s) => s.pending),
    gauge(
      'nv_model_load_duration_secs',
      'Time the version took to load, in s.',
      (_, facts) => facts?.loadSeconds ?? null,
    ),
  )
  // Triton has those of the host between those of GPUs and of the cache.
  const ofTriton = snapshot.triton.map(familyOf)
  const cache = ofTriton.findIndex(({ name }) => name.startsWith('nv_cache_'))
  families.push(...ofTriton.slice(0, cache === -1 ? undefined : cache))
  if (context.host !== null) {
    families.push(
      one('nv_cpu_utilization', 'Share of the CPUs of the host in use, 0 to 1.', context.host.utilization),
      one('nv_cpu_memory_total_bytes', 'Memory of the host, in bytes.', context.host.memoryTotalBytes),
      one('nv_cpu_memory_used_bytes', 'Memory of the host in use, in bytes.', context.host.memoryUsedBytes),
    )
  }
  if (cache !== -1) families.push(...ofTriton.slice(cache))
  families.push(...customFamilies(versions))
  const firstResponse = 'Time from the start of a request to its first response, in ms.'
  families.push(perVersion('nv_inference_first_response_histogram_ms', 'histogram', firstResponse, histogramSamples))
  for (const family of ['request', 'queue', 'compute_input', 'compute_infer', 'compute_output']) {
    const help = `Quantiles of the ${family} time, in us.`
    const samples = (s: VersionStatistics, labels: Labels): Sample[] => summarySamples(s, family, labels)
    families.push(perVersion(`nv_inference_${family}_summary_us`, 'summary', help, samples))
  }
  for (const family of ['hit', 'miss']) {
    const help = `Quantiles of the time of a ${family} of the response cache, in us.`
    const samples = (s: VersionStatistics, labels: Labels): Sample[] => summarySamples(s, `cache_${family}`, labels)
    families.push(perVersion(`nv_cache_${family}_summary_per_model`, 'summary', help, samples))
  }
  if (context.histograms) families.push(...histogramFamilies(perVersion, context.counterLatencies))
  const saturation =
    'Estimated seconds that the instances of a version need for all waiting and running requests, from the ' +
    'durations of the last minute.'
  families.push(
    perVersion('nereid_saturation', 'gauge', saturation, (s, labels, facts) => {
      const value = facts === null ? null : context.saturation(s, facts.instances)
      return value === null ? [] : [{ labels, value }]
    }),
    perVersion('nereid_requests_cancelled_total', 'counter', 'Requests that their clients cancelled.', (s, labels) => [
      { labels, value: s.cancelled },
    ]),
    {
      name: 'nereid_log_lines_lost_total',
      help: 'Log lines that were not written, by reason: too many waited (queue_full), or the error of the system.',
      type: 'counter',
      samples: lossSamples(snapshot.logRecordsDropped, context.logLost),
    },
    {
      name: 'nereid_trace_records_lost_total',
      help:
        'Traces, or spans of traces, that were not exported, by reason: too many waited (queue_full), ' +
        'or the exporter lost them.',
      type: 'counter',
      samples: lossSamples(snapshot.traceRecordsDropped, context.tracesLost),
    },
    failedFamily(context.failed),
    ...storeFamilies(context.stores),
  )
  addFamilies(families, snapshot.families)
  return families
}

function histogramFamilies(perVersion: PerVersion, counterLatencies: boolean): Family[] {
  const families = (
    rows: typeof HISTOGRAMS,
    type: FamilyType,
    samples: (of: VersionHistogram, labels: Labels) => Sample[],
  ): Family[] =>
    rows.map(({ of, name, help }) =>
      perVersion(name, type, help, ({ histograms }, labels) =>
        histograms.filter(({ family }) => family === of).flatMap((histogram) => samples(histogram, labels)),
      ),
    )
  const counted = families(COUNTED_BUCKETS, 'counter', ({ histogram: { bounds, counts } }, labels) =>
    cumulative(
      bounds.map((seconds) => Math.round(seconds * 1e6)),
      counts,
      labels,
    ),
  )
  const ours = families(HISTOGRAMS, 'histogram', ({ histogram, exemplars }, labels) =>
    bucketSamples(histogram, labels, exemplars),
  )
  return [...(counterLatencies ? counted : []), ...ours]
}

const lossSamples = (dropped: number | bigint, lost: ReadonlyMap<string, number>): Sample[] =>
  [['queue_full', dropped] as const, ...lost].map(([reason, value]) => ({ labels: { reason }, value }))

/** The family of failed loads, by key of the model. */
export function failedFamily(failed: ReadonlyMap<string, number>): Family {
  return {
    name: 'nereid_versions_failed',
    help: 'Versions of a model that failed in its last load; 1 if its configuration could not be read',
    type: 'gauge',
    samples: [...failed].map(([key, value]) => ({ labels: labelsOfKey(key), value })),
  }
}

/** Families of repositories in clouds; empty if there are none. */
export function storeFamilies(stores: readonly StoreFacts[]): Family[] {
  if (stores.length === 0) return []
  const each = (value: (store: StoreFacts) => number): Sample[] =>
    stores.map((store) => ({ labels: { repository: store.name }, value: value(store) }))
  return [
    {
      name: 'nereid_download_bytes_total',
      help: 'Bytes of models that were downloaded from a cloud.',
      type: 'counter',
      samples: each(({ downloadedBytes }) => downloadedBytes),
    },
    {
      name: 'nereid_repository_readable',
      help: 'Whether the last check of the repository succeeded (1) or failed (0).',
      type: 'gauge',
      samples: each(({ failure }) => (failure === null ? 1 : 0)),
    },
  ]
}

export function familyOf({ name, help, kind, series }: CoreFamily): Family {
  const samples = series.flatMap(({ labels, value, histogram }): Sample[] =>
    histogram === null ? [{ labels, value }] : bucketSamples(histogram, labels),
  )
  return { name, help, type: kind, samples }
}

/**
 * Adds families of the core, of which those of models come last (B-PY-20). One with the name and type of ours adds its
 * series to it, as in Triton; with another type it is left out, because a scrape cannot express both.
 */
function addFamilies(families: Family[], added: readonly CoreFamily[]): void {
  const known = new Map(families.map((family) => [family.name, family]))
  for (const family of added.map(familyOf)) {
    const ours = known.get(family.name)
    if (ours === undefined) {
      families.push(family)
      known.set(family.name, family)
    } else if (ours.type === family.type)
      ours.samples.push(...family.samples.filter((sample) => !ours.samples.some((other) => isSame(other, sample))))
  }
}

/** Reports whether two samples of a family belong to the same series. */
function isSame(a: Sample, b: Sample): boolean {
  const [names, others] = [Object.keys(a.labels), Object.keys(b.labels)]
  if (a.suffix !== b.suffix || a.last?.[1] !== b.last?.[1] || names.length !== others.length) return false
  return names.every((name) => a.labels[name] === b.labels[name])
}

/** Index of backend failures in `failures`. */
const BACKEND = REASONS.indexOf('BACKEND')

/**
 * Splits a version's counters by the labels that they are shown with: executions on a GPU with its `gpu_uuid`, the rest
 * without (O 1.4). One part if no instance is on a GPU or GPU metrics are off.
 */
function partsOf(
  statistics: VersionStatistics,
  labels: Labels,
  uuids: readonly string[],
): { statistics: VersionStatistics; labels: Labels }[] {
  const onGpus = statistics.onDevices.flatMap((ran) => {
    const uuid = uuids[ran.device] ?? ''
    return uuid === '' ? [] : [{ ran, uuid }]
  })
  if (onGpus.length === 0) return [{ statistics, labels }]
  const minus = (of: (s: VersionStatistics | Executions) => Duration): Duration => {
    const subtract = (left: Duration, { ran }: { ran: Executions }): Duration => ({
      count: left.count - of(ran).count,
      ns: left.ns - of(ran).ns,
    })
    const { count, ns } = of(statistics)
    return onGpus.reduce(subtract, { count, ns })
  }
  const sum = (of: (ran: Executions) => bigint): bigint => onGpus.reduce((all, { ran }) => all + of(ran), 0n)
  const rest: VersionStatistics = {
    ...statistics,
    inferenceCount: statistics.inferenceCount - sum((ran) => ran.inferenceCount),
    executionCount: statistics.executionCount - sum((ran) => ran.executionCount),
    success: minus((s) => s.success),
    queue: minus((s) => s.queue),
    computeInput: minus((s) => s.computeInput),
    computeInfer: minus((s) => s.computeInfer),
    computeOutput: minus((s) => s.computeOutput),
    failures: statistics.failures.map((count, i) => (i === BACKEND ? count - sum((ran) => ran.failures) : count)),
  }
  const of = ({ ran, uuid }: { ran: Executions; uuid: string }) => {
    const { device: _, failures, ...counted } = ran
    return {
      statistics: { ...statistics, ...counted, failures: REASONS.map((_, i) => (i === BACKEND ? failures : 0n)) },
      labels: { ...labels, gpu_uuid: uuid },
    }
  }
  return [{ statistics: rest, labels }, ...onGpus.map(of)]
}

/** Counters, and bytes in use, that backends keep for their versions, in the order of appearance. */
function customFamilies(versions: readonly { statistics: VersionStatistics; labels: Labels }[]): Family[] {
  const families = new Map<string, Family>()
  for (const { statistics, labels } of versions) {
    for (const { name, help, value } of statistics.custom) {
      // Bytes, and calls in progress, also decrease.
      const type = /_(?:bytes|oldest_execution_seconds|(?:calls|leases)(?:_max)?)$/.test(name) ? 'gauge' : 'counter'
      const family: Family = families.get(name) ?? { name, help, type, samples: [] }
      family.samples.push({ labels, value })
      families.set(name, family)
    }
  }
  return [...families.values()]
}

/** The repository's key of a model. */
export function keyOf({ namespace, name }: VersionStatistics): string {
  return namespace === '' ? name : `${namespace}/${name}`
}

function labelsOfKey(key: string): Labels {
  const slash = key.lastIndexOf('/')
  return { model: key.slice(slash + 1), ...(slash === -1 ? {} : { namespace: key.slice(0, slash) }) }
}

function labelsOf(statistics: VersionStatistics, context: FamilyContext): Labels {
  const { version } = statistics
  const labels: Labels = { ...labelsOfKey(keyOf(statistics)), version: String(version) }
  const tags = context.facts(keyOf(statistics), version)?.tags ?? {}
  for (const [tag, value] of Object.entries(tags)) labels[`_${tag}`] = value
  return labels
}

function histogramSamples(statistics: VersionStatistics, labels: Labels): Sample[] {
  const histogram = statistics.firstResponse
  if (histogram === null) return []
  return bucketSamples(histogram, labels)
}

function bucketSamples({ bounds, counts, sum }: Histogram, labels: Labels, exemplars: Exemplar[] = []): Sample[] {
  const buckets = cumulative(bounds, counts, labels).map((sample): Sample => ({ ...sample, suffix: '_bucket' }))
  for (const exemplar of exemplars) Object.assign(buckets[exemplar.bucket] ?? {}, { exemplar })
  const count = buckets.at(-1)?.value ?? 0
  return [{ suffix: '_count', labels, value: count }, { suffix: '_sum', labels, value: sum }, ...buckets]
}

/** A sample per bucket, with the number of values up to its bound. */
function cumulative(bounds: readonly number[], counts: readonly bigint[], labels: Labels): Sample[] {
  let value = 0n
  return counts.map((count, i): Sample => {
    value += count
    const bound = bounds[i]
    return { labels, last: ['le', bound === undefined ? '+Inf' : formatBound(bound)], value }
  })
}

function summarySamples(statistics: VersionStatistics, family: string, labels: Labels): Sample[] {
  const summary = statistics.summaries?.find((one) => one.family === family)
  if (summary === undefined) return []
  return [
    { suffix: '_count', labels, value: summary.count },
    { suffix: '_sum', labels, value: summary.sumUs },
    ...summary.values.map(({ quantile, value }): Sample => ({
      labels,
      last: ['quantile', formatBound(quantile)],
      value,
    })),
  ]
}

/** Formats as values are: `0.0` prints as `0`, `2.5` as `2.5`. */
function formatBound(bound: number): string {
  return Object.is(bound, -0) ? '0' : String(bound)
}

function us(ns: bigint): bigint {
  return ns / 1000n
}
