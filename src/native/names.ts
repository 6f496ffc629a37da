/**
 * Names and options that cross to Rust as plain text or JSON: crates/node/src/{objects,core}.rs use them in `ts_type`,
 * and src/native/generated imports them from here.
 */

export type { ErrorCode } from './errors.js'

export type VersionState = 'UNKNOWN' | 'READY' | 'UNAVAILABLE' | 'LOADING' | 'UNLOADING'

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

export type TraceMode = 'triton' | 'opentelemetry'

/** One group of `--http-restricted-api` or `--grpc-restricted-protocol`. */
export interface Restriction {
  /**
   * Any of `health`, `metadata`, `inference`, `shared-memory`, `model-config`, `model-repository`, `statistics`,
   * `trace`, `logging`.
   */
  apis: string[]
  key: string
  value: string
}

/** PEM files of a TLS listener; reread when they change. */
export interface TlsOptions {
  /** The server's certificate chain. */
  certificate: string
  key: string
  /** Root certificates for clients; empty = none. */
  roots: string
  /** True if clients must present a certificate that leads to one of the roots. */
  mutual: boolean
}

/** The listener of `--control-address`. */
export interface ControlOptions {
  /** A host, or `unix:` and a path. */
  address: string
  port: number
  /** null = plain text. */
  tls: TlsOptions | null
}

/** A front end. Also has the flags that are passed on unchanged (`to` in src/cli/flags.ts; frontend/src/options.rs). */
export interface FrontendOptions extends ControlOptions {
  /** Descriptor of an inherited socket; null = bind. For HTTP and gRPC the core owns it from `bind` on. */
  givenFd: number | null
  restrictions: Restriction[]
}

export interface ListenOptions {
  http: FrontendOptions | null
  grpc: FrontendOptions | null
  /** null = management operations share the other listeners. */
  control: ControlOptions | null
  /** Mode of Unix socket files, 0 to 0o777. */
  unixSocketMode: number
  gate: {
    /** Allow changes of settings from anywhere; else only from this machine or with a secret. */
    allowRemoteSettings: boolean
  }
  /** Reactor threads; 0 = one up to 4 cores, then one per 4 cores. */
  reactorThreads: number
}

/** Logs of requests and of control operations. */
export interface RequestLogOptions {
  /** A file, or `-` for standard output; empty = no access log. */
  access: string
  /** Share of the successful requests that are logged, from 0 to 1. */
  accessRate: number
  /** Audit log, as `access`. */
  audit: string
}

/** A row of the core's routing table. */
export interface Route {
  method: 'GET' | 'POST'
  /** Paths with names in braces: `{model}`, `{version}`, `{region}`. Of two paths, the second has a version. */
  paths: string[]
  /** Name in `--http-restricted-api`. */
  category: string
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
