/** What was noted of a traced request, as the parts of TypeScript read it. */

export interface TraceActivity {
  name: string
  /** On the clock of the core. */
  ns: bigint
}

/** A call of a model or an ensemble. */
export interface TraceCall {
  id: bigint
  /** The call it was made for; 0 = none. */
  parentId: bigint
  modelName: string
  modelVersion: bigint
  /** Empty = none. */
  requestId: string
  activities: TraceActivity[]
}

/** A request of a client. */
export interface TraceRecord {
  /** The caller's context, checked; empty = none. */
  traceparent: string
  tracestate: string
  /** Of the front end. */
  activities: TraceActivity[]
  /** The client's first; parents before what was called for them. */
  calls: TraceCall[]
}
