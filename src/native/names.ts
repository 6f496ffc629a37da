/**
 * Names that cross to Rust as plain text or JSON: crates/node/src use them in `ts_type`,
 * and src/native/generated imports them from here.
 */

export type { ErrorCode, Fault } from './errors.js'

export type VersionState = 'UNKNOWN' | 'READY' | 'UNAVAILABLE' | 'UNLOADED' | 'LOADING' | 'UNLOADING'

/** The index prints UNLOADED, which is no failure, as UNAVAILABLE. */
export type IndexState = Exclude<VersionState, 'UNLOADED'>

/** `loading` is `initializing` with open ports: live but not ready. */
export type ServerState = 'initializing' | 'loading' | 'ready' | 'exiting' | 'failed'

/** Operations that arrive at a Rust listener and are decided in TypeScript. */
export type ControlOperation =
  | 'repository_index'
  | 'repository_load'
  | 'repository_unload'
  | 'repository_poll'
  | 'repository_register'
  | 'repository_unregister'
  | 'metrics'
  | 'trace_get'
  | 'trace_update'
  | 'log_get'
  | 'log_update'
  | 'openapi'
  | 'page'
  | 'console'

/** A row of the core's routing table. */
export interface Route {
  method: 'GET' | 'POST'
  /** Paths with names in braces: `{model}`, `{version}`, `{region}`. Of two paths, the second has a version. */
  paths: string[]
  /** Name in `--http-restricted-api`. Absent for pages, which hold nothing of the server: nothing restricts them. */
  category?: string
  /** Absent for routes that are not documented. */
  documentation?: RouteDocumentation
}

/** OpenAPI documentation of a route. `request` and `response` are names of schemas; absent = no body. */
export interface RouteDocumentation {
  id: string
  summary: string
  request?: string
  response?: string
  /** `optional-body`: the body may be absent. `tensors`: binary tensors may follow the JSON. `page`: HTML. */
  form: 'json' | 'optional-body' | 'tensors' | 'events' | 'page'
}

/** Number of a call whose end is reported later with a `T` or an error. The property exists only for the compiler. */
export type Ticket<T> = number & { readonly settlesWith: T }
