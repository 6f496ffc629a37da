/**
 * Converts trace records to OpenTelemetry spans as in Triton (O 3.6). Pure: ids and the clock are arguments.
 *
 *     InferRequest                work of the front end
 *     └ <model>                   a call of a model or an ensemble
 *       ├ compute                 its execution; absent for ensembles
 *       ├ CUSTOM_ACTIVITY …       reported by its backend; may be nested
 *       └ <model of a step> …
 */

import {
  type HrTime,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  createTraceState,
} from '@opentelemetry/api'
import type { Resource } from '@opentelemetry/resources'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import type { TraceActivity, TraceCall, TraceRecord } from '../../native/contract.js'

/** Inputs that all spans of this process share. */
export interface SpanSource {
  resource: Resource
  /** Generates random lower-case hexadecimal digits, not all of them 0. */
  randomHex: (digits: number) => string
  /** Offset from the clock of the records to nanoseconds since 1970. */
  epochOffsetNs: bigint
}

const SCOPE = { name: 'triton-server' }
const REQUEST = new Set(['REQUEST_START', 'QUEUE_START', 'REQUEST_END'])
const COMPUTE = new Set(['COMPUTE_START', 'COMPUTE_INPUT_END', 'COMPUTE_OUTPUT_START', 'COMPUTE_END'])

/** The spans of one request, parents first. */
export function spansOf(record: TraceRecord, source: SpanSource): ReadableSpan[] {
  const caller = callerOf(record)
  // The record may already have ids: its model got them and may have made spans below them.
  const traceId = caller?.traceId ?? (record.traceId || source.randomHex(32))
  const spans: ReadableSpan[] = []
  const add = (
    name: string,
    parent: SpanContext | undefined,
    events: readonly TraceActivity[],
    attributes: ReadableSpan['attributes'] = {},
    spanId = '',
  ): SpanContext => {
    const context: SpanContext = {
      traceId,
      spanId: spanId || source.randomHex(16),
      // As in Triton, the caller's sampled flag is ignored: every recorded trace is exported.
      traceFlags: TraceFlags.SAMPLED,
      ...(caller?.traceState === undefined ? {} : { traceState: caller.traceState }),
    }
    spans.push(spanOf(name, context, parent, events, attributes, source))
    return context
  }

  let root = caller
  // Requests that came through no front end have no such span.
  if (record.activities.length > 0) root = add('InferRequest', caller, record.activities)
  const calls = new Map<number, SpanContext>()
  for (const call of record.calls) {
    const [own, ...custom] = nestedIn(call)
    const context = add(call.model, calls.get(call.parentId) ?? root, own.events, attributesOf(call), call.spanId)
    calls.set(call.id, context)
    const compute = call.activities.filter(({ name }) => COMPUTE.has(name))
    if (compute.length > 0) add('compute', context, compute)
    const contexts = [context]
    for (const { name, parent, events } of custom) contexts.push(add(name, contexts[parent], events))
  }
  return spans
}

/** The number of spans that `spansOf` would return. */
export function spanCount({ activities, calls }: TraceRecord): number {
  const executed = calls.filter((call) => call.activities.some(({ name }) => COMPUTE.has(name))).length
  const custom = calls.reduce((sum, call) => sum + call.activities.filter(opensSpan).length, 0)
  return (activities.length > 0 ? 1 : 0) + calls.length + executed + custom
}

/** Reports whether an activity of a backend opens a span. */
const opensSpan = ({ name }: TraceActivity): boolean =>
  name.endsWith('_START') && !REQUEST.has(name) && !COMPUTE.has(name)
const closesSpan = ({ name }: TraceActivity): boolean => name.endsWith('_END') && !REQUEST.has(name)

interface Nested {
  name: string
  /** Index of the enclosing span. */
  parent: number
  events: TraceActivity[]
}

/**
 * The span of a call followed by the spans that its backend reported: an activity ending in `_START` opens a span
 * inside the open one, one ending in `_END` closes it, and any other is an event of the open span. Parents first.
 */
function nestedIn(call: TraceCall): [Nested, ...Nested[]] {
  const own: Nested = { name: call.model, parent: 0, events: [] }
  const spans: [Nested, ...Nested[]] = [own]
  let open = 0
  for (const activity of call.activities) {
    if (COMPUTE.has(activity.name)) continue
    if (opensSpan(activity)) {
      spans.push({ name: activity.name.slice(0, -'_START'.length), parent: open, events: [] })
      open = spans.length - 1
    }
    const span = REQUEST.has(activity.name) ? own : (spans[open] ?? own)
    span.events.push(activity)
    if (closesSpan(activity)) open = span.parent
  }
  return spans
}

function attributesOf(call: TraceCall): ReadableSpan['attributes'] {
  return {
    'triton.model_name': call.model,
    'triton.model_version': call.version,
    'triton.trace_id': call.id,
    'triton.trace_parent_id': call.parentId,
    ...(call.requestId === '' ? {} : { 'triton.request_id': call.requestId }),
  }
}

/** The span of the client. The core has checked the form of `traceparent`: version, trace, span, flags. */
function callerOf({ context }: TraceRecord): SpanContext | undefined {
  if (context === null) return undefined
  const { traceparent, tracestate } = context
  const [, traceId, spanId, flags] = traceparent.split('-')
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  return {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
    ...(tracestate === '' ? {} : { traceState: createTraceState(tracestate) }),
  }
}

function spanOf(
  name: string,
  context: SpanContext,
  parent: SpanContext | undefined,
  events: readonly TraceActivity[],
  attributes: ReadableSpan['attributes'],
  { resource, epochOffsetNs }: SpanSource,
): ReadableSpan {
  // Events of a stream are not in order: responses are recorded as they are sent, and calls end in between.
  let [start, end] = [events[0]?.ns ?? 0n, events[0]?.ns ?? 0n]
  for (const { ns } of events) {
    if (ns < start) start = ns
    if (ns > end) end = ns
  }
  const kept =
    events.length <= EVENTS_MAX ? events : [...events.slice(0, EVENTS_MAX - EVENTS_LAST), ...events.slice(-EVENTS_LAST)]
  const at = (ns: bigint): HrTime => hrTime(ns + epochOffsetNs)
  return {
    name,
    kind: SpanKind.SERVER,
    spanContext: () => context,
    ...(parent === undefined ? {} : { parentSpanContext: parent }),
    startTime: at(start),
    endTime: at(end),
    duration: hrTime(end - start),
    status: { code: SpanStatusCode.UNSET },
    attributes,
    links: [],
    events: kept.map((event) => ({ name: event.name, time: at(event.ns), attributes: {}, droppedAttributesCount: 0 })),
    ended: true,
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    droppedEventsCount: events.length - kept.length,
    droppedLinksCount: 0,
  }
}

/** Maximum number of events of one span: a stream has three per response. Keeps the first and last; counts the rest. */
const EVENTS_MAX = 128
const EVENTS_LAST = 8

const SECOND = 1_000_000_000n
const hrTime = (ns: bigint): HrTime => [Number(ns / SECOND), Number(ns % SECOND)]
