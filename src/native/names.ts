/**
 * Names and options that Rust has as plain text or as JSON: crates/node/src/{objects,core}.rs write them in `ts_type`, and
 * src/native/generated imports them from here.
 */

export type { ErrorCode } from './errors.js'

export type VersionState = 'UNKNOWN' | 'READY' | 'UNAVAILABLE' | 'LOADING' | 'UNLOADING'

/** `loading` is `initializing` with open ports: live, and not ready. */
export type ServerState = 'initializing' | 'loading' | 'ready' | 'exiting' | 'failed'

/** Control operations that arrive at a Rust listener and are decided in TypeScript. */
export type ControlOperation =
  | 'repository_index'
  | 'repository_load'
  | 'repository_unload'
  | 'trace_get'
  | 'trace_update'
  | 'log_get'
  | 'log_update'
  | 'openapi'
  | 'page'

export type TraceMode = 'triton' | 'opentelemetry'

/** One `--http-restricted-api` or `--grpc-restricted-protocol` group. */
export interface Restriction {
  /** `health`, `metadata`, `inference`, `shared-memory`, `model-config`, `model-repository`, `statistics`, `trace`, `logging`. */
  apis: string[]
  key: string
  value: string
}

/** Files in PEM of a listener that speaks TLS; read again when they change. */
export interface TlsOptions {
  /** The certificate of the server, and those that lead from it to a root. */
  certificate: string
  key: string
  /** Roots of clients; empty = none. */
  roots: string
  /** Whether clients must show a certificate of one of the roots. */
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

/** A front end. It also has what flags of its part pass on (`to` in src/cli/flags.ts): crates/frontend/src/options.rs reads all of it. */
export interface FrontendOptions extends ControlOptions {
  /** Descriptor of a socket that was given instead of an address to bind; null = bind. Of HTTP and gRPC it is the core's from `bind` on. */
  givenFd: number | null
  restrictions: Restriction[]
}

export interface ListenOptions {
  http: FrontendOptions | null
  grpc: FrontendOptions | null
  /** null = operations that manage the server are answered with the others. */
  control: ControlOptions | null
  /** Mode of the files of Unix sockets, 0 to 0o777. */
  unixSocketMode: number
  gate: {
    /** Take changes of settings from anywhere; otherwise from this machine, and from those who show a secret for them. */
    allowRemoteSettings: boolean
  }
  /** Reactor threads; 0 = one up to 4 cores, then one per 4 cores. */
  reactorThreads: number
}

/** Logs of requests and of control calls. */
export interface RequestLogOptions {
  /** A file, or `-` for standard output; empty = no access log. */
  access: string
  /** Share of the requests that succeed, from 0 to 1. */
  accessRate: number
  /** As `access`. */
  audit: string
}

/** A row of the core's routing table. */
export interface Route {
  method: 'GET' | 'POST'
  /** With names in braces: `{model}`, `{version}`, `{region}`. Where there are two, the second names a version. */
  paths: string[]
  /** What `--http-restricted-api` calls it. */
  category: string
  /** Absent for a route that no document describes. */
  documentation?: RouteDocumentation
}

/** What a document says of a route. `request` and `response` name schemas; without one there is no body. */
export interface RouteDocumentation {
  id: string
  summary: string
  request?: string
  response?: string
  /** `optional-body`: the request may come without its body. `tensors`: they may follow the JSON in binary. `page`: HTML, for clients that ask for it. */
  form: 'json' | 'optional-body' | 'tensors' | 'events' | 'page'
}

/** Number of a call, under which its end is reported: a `T`, or why it failed. The property is there for the compiler only. */
export type Ticket<T> = number & { readonly settlesWith: T }
