/**
 * Table of all command-line options. The parser, `--help`, `docs/flags.md`, the option types and the in-process options
 * are made from it; an option that is not here does not exist.
 *
 * `state` describes this release: `active` options take effect; `accepted` ones are parsed, checked and named once at
 * start as inactive, so that existing launch scripts work. Rules that span several options (ports that collide,
 * `--load-model` without explicit mode) are in settings.ts.
 */

import { TOOL_PARSERS } from '../config/text.js'

/** Headings of `--help`, in order. */
export const GROUPS = [
  'Global',
  'Server',
  'Logging',
  'Model Repository',
  'HTTP',
  'Chat',
  'GRPC',
  'Metrics',
  'Tracing',
  'Backend',
  'Repository Agent',
  'Response Cache',
  'Rate Limiter',
  'Memory Management',
  'Sagemaker',
  'Vertex',
  'Deprecated',
] as const
export type Group = (typeof GROUPS)[number]

/** Topics of `nereid help TOPIC`. The overview shows the group `Global`. */
export const TOPICS: readonly { name: string; group: Group; about: string }[] = [
  { name: 'server', group: 'Server', about: 'name of the server, start, exit and threads' },
  { name: 'models', group: 'Model Repository', about: 'where models are, and which are loaded when' },
  { name: 'http', group: 'HTTP', about: 'the HTTP port and its limits' },
  { name: 'chat', group: 'Chat', about: 'templates, tool calls and defaults of chat and completions' },
  { name: 'grpc', group: 'GRPC', about: 'the gRPC port, keep-alive, connections' },
  { name: 'metrics', group: 'Metrics', about: 'the port and the contents of Prometheus metrics' },
  { name: 'logging', group: 'Logging', about: 'what is logged, how and where' },
  { name: 'tracing', group: 'Tracing', about: 'traces in files or by OpenTelemetry' },
  { name: 'backends', group: 'Backend', about: 'settings of ONNX Runtime, Python and other backends' },
  { name: 'agents', group: 'Repository Agent', about: 'repository agents' },
  { name: 'cache', group: 'Response Cache', about: 'responses that are kept' },
  { name: 'rate-limiter', group: 'Rate Limiter', about: 'resources that executions share' },
  { name: 'memory', group: 'Memory Management', about: 'limits and pools of memory' },
  { name: 'sagemaker', group: 'Sagemaker', about: 'the Sagemaker endpoint' },
  { name: 'vertex', group: 'Vertex', about: 'the Vertex AI endpoint' },
  { name: 'deprecated', group: 'Deprecated', about: 'older names of options' },
]

interface FlagCommon {
  /** Name without the leading dashes. */
  name: string
  aliases?: readonly string[]
  group: Group
  /** One or two sentences, ASCII, for help and docs. */
  meaning: string
  state: 'active' | 'accepted'
  /** May be given several times; the value is a list, empty by default. */
  list?: true
  /** Sources other than the command line that may set it; absent for both variables and files (sources.ts). */
  outside?: 'nowhere' | 'environment'
  /** The part of a value after its first =, or its last word, is secret and never printed. */
  isSecret?: true
  /** Part of the core, and its field, that receives the value unchanged. */
  to?: `${Part}.${string}`
}

/**
 * Parts of the core that receive values unchanged: `CoreOptions` of crates/options (`engine` and `deviceMemory` in it),
 * and its options of the front ends and of their logs.
 */
type Part = 'core' | 'engine' | 'chat' | 'deviceMemory' | 'listen' | 'http' | 'grpc' | 'log'

/**
 * Bounds of `integer`, `number` and `bytes` (with or without a unit). A value outside them is an error, or is moved to
 * the bound if `clamp` is set.
 */
interface Bounds {
  min?: number
  max?: number
  clamp?: true
  /** Error text that replaces the general one for a value out of bounds. */
  outOfBound?: string
}

export type Flag = FlagCommon &
  (
    | { kind: 'switch'; default: boolean }
    | { kind: 'boolean'; default: boolean | null }
    | ({ kind: 'integer' | 'number' | 'bytes'; default: number | null } & Bounds)
    /** A count, or true / false for 1 / 0. */
    | { kind: 'verbosity'; default: number }
    /** With `words`, the value is so many arguments, which are joined by blanks. */
    | { kind: 'string'; value: string; default: string | null; notEmpty?: string; words?: number }
    | { kind: 'choice'; choices: readonly string[]; default: string | null; anyCase: boolean }
  )

const INT32_MAX = 2147483647

// A table: a flag has a row, not a line for each member.
// oxfmt-ignore
export const FLAGS = [
  // Global
  { name: 'help', kind: 'switch', default: false, outside: 'nowhere', group: 'Global', state: 'active',
    meaning: 'Print this help; -h does the same.' },
  { name: 'version', kind: 'switch', default: false, outside: 'nowhere', group: 'Global', state: 'active',
    meaning: 'Print the version; -v does the same. Not in Triton.' },
  { name: 'config', kind: 'string', value: 'path', default: '', outside: 'environment', group: 'Global',
    state: 'active',
    meaning: 'YAML file of options: their names without dashes, and values. Variables such as NEREID_HTTP_PORT ' +
      'override it, and the command line overrides both. Not in Triton.' },

  // Server
  { name: 'id', kind: 'string', value: 'name', default: 'triton', group: 'Server', state: 'active',
    meaning: 'Name of the server in its metadata.' },
  { name: 'exit-timeout-secs', kind: 'integer', default: 30, min: 0, max: INT32_MAX, clamp: true, group: 'Server',
    state: 'active',
    meaning: 'Time for requests in flight to finish when the server exits, in seconds.' },
  { name: 'exit-grace-secs', kind: 'integer', default: 3, min: 0, max: INT32_MAX, clamp: true, group: 'Server',
    state: 'active',
    meaning: 'Seconds after SIGTERM during which the server reports not ready but still accepts requests and ' +
      'connections, because load balancers keep sending for a moment. They are part of --exit-timeout-secs. SIGINT ' +
      'skips them, and so does a server without a connected client in the last minute. Not in Triton.' },
  { name: 'exit-on-error', kind: 'boolean', default: true, group: 'Server', state: 'active',
    meaning: 'End the process when a model fails to load at start. When false, serve the models that loaded.' },
  { name: 'listen-early', kind: 'boolean', default: false, group: 'Server', state: 'active',
    meaning: 'Open the ports while models load at start: the server is live but not ready, and each model serves ' +
      'requests as soon as it is ready. Otherwise the ports open after the first loads, as in Triton. Not in ' +
      'Triton.' },
  { name: 'exit-on-device-error', kind: 'boolean', default: false, group: 'Server', state: 'active',
    to: 'engine.exitOnDeviceError',
    meaning: 'End the process with code 3 when a GPU fails (an illegal address, an ECC error or the like), because ' +
      'only another process can use that GPU again. The server reports not live at once and completes the requests ' +
      'that do not need the GPU. When false, models of that GPU are not ready and the others are served. Not in ' +
      'Triton.' },
  { name: 'hang-warning-secs', kind: 'integer', default: 60, min: 0, max: INT32_MAX, group: 'Server', state: 'active',
    to: 'engine.hangWarningSecs',
    meaning: 'Log a warning when an execution has neither sent a response nor returned for so many seconds, and ' +
      'again each time this time has doubled. The warning has the stack of a Python or TypeScript model, and names ' +
      'the option that ends such executions. 0 turns it off. Not in Triton.' },
  { name: 'strict-readiness', kind: 'boolean', default: true, group: 'Server', state: 'active',
    to: 'engine.strictReadiness',
    meaning: 'Report ready only while every known model is ready. When false, readiness does not depend on models.' },
  { name: 'allow-client-shm', kind: 'boolean', default: false, group: 'Server', state: 'active',
    to: 'engine.allowClientShm',
    meaning: 'Let clients register regions of shared memory and use them in requests.' },
  { name: 'allow-remote-settings', kind: 'boolean', default: false, group: 'Server', state: 'active',
    meaning: 'Let every client change log and trace settings, as in Triton. Otherwise only clients on this machine ' +
      '(loopback or a Unix socket, without a proxy) and clients with a secret for these APIs may change them. Not in ' +
      'Triton.' },
  { name: 'control-address', kind: 'string', value: 'address', default: '', group: 'Server', state: 'active',
    meaning: 'HOST:PORT or unix:PATH: serve the operations that manage the server (repository, shared memory, log ' +
      'and trace settings) only at this address, over HTTP and gRPC. Inference is served only at the other ports; ' +
      'health, metadata, configurations and statistics are served at both. Not in Triton.' },
  { name: 'unix-socket-mode', kind: 'string', value: 'mode', default: '0660', group: 'Server', state: 'active',
    meaning: 'Mode of Unix socket files, in octal, which decides which users can connect. Not in Triton.' },
  { name: 'reactor-threads', kind: 'integer', default: 0, min: 0, max: 1024, group: 'Server', state: 'active',
    to: 'listen.reactorThreads',
    meaning: 'Threads that own the network connections; 0 starts one per 4 cores, and at least one. Not in Triton.' },
  { name: 'slow-client-bytes-per-sec', kind: 'integer', default: 1024, min: 0, max: 2 ** 30, group: 'Server',
    state: 'active', to: 'listen.slowClientBytesPerSec',
    meaning: 'Smallest rate at which a client sends a body or reads a response, measured over 30 s. Connections of ' +
      'slower clients are closed while more than 80 % of the connections or of --memory-limit are in use; 0 closes ' +
      'none. Not in Triton.' },
  { name: 'keys-file', kind: 'string', value: 'path', default: '', group: 'Server', state: 'active',
    meaning: 'JSON file of keys, written by nereid key and read again when it changes. Both ports accept only ' +
      'requests that a key permits; health needs no key. Not in Triton.' },
  { name: 'oidc-issuer', kind: 'string', value: 'url', default: '', group: 'Server', state: 'active',
    meaning: 'Accept tokens (JWT) with this iss in addition to keys. The keys file has their permissions. Not in ' +
      'Triton.' },
  { name: 'oidc-audience', kind: 'string', value: 'name', default: '', group: 'Server', state: 'active',
    meaning: 'Required aud of the tokens. Not in Triton.' },
  { name: 'oidc-keys', kind: 'string', value: 'path or url', default: '', group: 'Server', state: 'active',
    meaning: 'JWK set of the issuer: a file, which is read again when it changes, or an https URL. Not in Triton.' },
  { name: 'oidc-scopes', kind: 'string', value: 'claim', default: 'scope', group: 'Server', state: 'active',
    meaning: 'Claim that rules of the keys file use if they name none. Not in Triton.' },
  { name: 'enable-peer-access', kind: 'boolean', default: true, group: 'Server', state: 'active',
    to: 'deviceMemory.peerAccess',
    meaning: "Let the used GPUs access each other's memory, if the machine supports it. Otherwise copies between " +
      "them go through the host." },

  // Logging
  { name: 'log-verbose', kind: 'verbosity', default: 0, group: 'Logging', state: 'active',
    meaning: 'Level of verbose lines; 0 or false turns them off, true is 1.' },
  { name: 'log-info', kind: 'boolean', default: true, group: 'Logging', state: 'active',
    meaning: 'Log informational lines.' },
  { name: 'log-warning', kind: 'boolean', default: true, group: 'Logging', state: 'active', meaning: 'Log warnings.' },
  { name: 'log-error', kind: 'boolean', default: true, group: 'Logging', state: 'active', meaning: 'Log errors.' },
  { name: 'log-format', kind: 'choice', choices: ['default', 'ISO8601', 'json'], anyCase: false, default: 'default',
    group: 'Logging', state: 'active',
    meaning: 'Format of log lines. json, one object per line, is not in Triton.' },
  { name: 'log-file', kind: 'string', value: 'path', default: '', group: 'Logging', state: 'active',
    meaning: 'Append log lines to this file instead of writing to the console.' },
  { name: 'access-log', kind: 'string', value: 'path', default: '', group: 'Logging', state: 'active', to: 'log.access',
    meaning: 'Append a line of JSON for each HTTP and gRPC request to this file, with its phases, size and outcome; ' +
      '- is standard output. A file that was moved away is created again. Lines that cannot be written are lost and ' +
      'counted; requests never wait for them. Not in Triton.' },
  { name: 'access-log-rate', kind: 'number', default: 1, min: 0, max: 1, group: 'Logging', state: 'active',
    to: 'log.accessRate',
    meaning: 'Share of successful requests with a line in --access-log, from 0 to 1. Failed requests always have ' +
      'a line. Not in Triton.' },
  { name: 'audit-log', kind: 'string', value: 'path', default: '', group: 'Logging', state: 'active', to: 'log.audit',
    meaning: 'Append a line of JSON for each call that changes the server, including rejected ones: loads, ' +
      'unloads, registered and unregistered memory, settings; - is standard output. Not in Triton.' },

  // Model Repository
  { name: 'model-repository', aliases: ['model-store'], kind: 'string', value: 'path', default: null, list: true,
    group: 'Model Repository', state: 'active',
    meaning: 'Directory whose subdirectories are models; also s3://bucket/path, s3://https://host:port/bucket/path, ' +
      'gs://bucket/path or as://account/container/path.' },
  { name: 'model-control-mode', kind: 'choice', choices: ['none', 'poll', 'explicit'], anyCase: true, default: 'none',
    group: 'Model Repository', state: 'active',
    meaning: 'none: load everything once. poll: follow changes on disk. explicit: load and unload on request only. ' +
      'Load requests may contain files, and the server runs a model.py among them: restrict them ' +
      '(--http-restricted-api) where clients are not trusted.' },
  { name: 'repository-poll-secs', kind: 'integer', default: 15, min: 0, max: INT32_MAX, group: 'Model Repository',
    state: 'active',
    meaning: 'Seconds between two checks of the repository in mode poll; 0 checks it only at the start.' },
  { name: 'repository-cache-directory', kind: 'string', value: 'path', default: '', group: 'Model Repository',
    state: 'active',
    meaning: 'Directory for models that are downloaded from clouds; servers of the same user share it. Default: ' +
      'TRITON_AWS_MOUNT_DIRECTORY, TRITON_GCS_MOUNT_DIRECTORY or TRITON_AZURE_MOUNT_DIRECTORY, else the directory ' +
      'for temporary files.' },
  { name: 'repository-cache-bytes', kind: 'bytes', default: 0, min: 0, group: 'Model Repository', state: 'active',
    meaning: 'Maximum bytes of downloaded models; those that no server uses are removed first. 0 is the size of ' +
      'the file system.' },
  { name: 'repository-stall-secs', kind: 'integer', default: 60, min: 0, group: 'Model Repository', state: 'active',
    meaning: 'A download fails if it receives less than 512 KiB in so many seconds; an object counts as at least ' +
      '2 KiB. 0 means no limit.' },
  { name: 'load-model', kind: 'string', value: 'name', default: null, list: true, group: 'Model Repository',
    state: 'active',
    meaning: 'Model to load at start in mode explicit; * alone loads all.' },
  { name: 'model-config-name', kind: 'string', value: 'name', default: '',
    notEmpty: 'Error: empty argument for --model-config-name', group: 'Model Repository', state: 'active',
    meaning: 'Use configs/<name>.pbtxt of a model, if it exists, instead of config.pbtxt.' },
  { name: 'disable-auto-complete-config', kind: 'switch', default: false, group: 'Model Repository', state: 'active',
    meaning: 'Use configurations as they are written, without completing them from the model file.' },
  { name: 'model-load-thread-count', kind: 'integer', default: 4, min: 1, max: INT32_MAX, clamp: true,
    group: 'Model Repository', state: 'active',
    meaning: 'Versions that load at the same time.' },
  { name: 'model-load-retry-count', kind: 'integer', default: 0, min: 0, max: INT32_MAX, clamp: true,
    group: 'Model Repository', state: 'active',
    meaning: 'Further attempts after a version failed to load.' },
  { name: 'model-namespacing', kind: 'boolean', default: false, group: 'Model Repository', state: 'active',
    meaning: 'Permit models of the same name in several repositories. Clients name such a model ' +
      '<repository>/<name>, over gRPC; ensembles use models of their own repository first.' },
  { name: 'text-alias', kind: 'string', value: 'name=model', default: null, list: true, group: 'Model Repository',
    state: 'active',
    meaning: 'Another name of a text model for clients of /v1/embeddings and the other text endpoints: ' +
      'NAME=MODEL[:VERSION][,tokens=TOKENIZER]. tokens names the tokenizer of the token ids that clients send with ' +
      'this name: own, cl100k_base or o200k_base. It takes precedence over aliases of configurations (nereid.alias). ' +
      'Not in Triton.' },

  // HTTP
  { name: 'allow-http', kind: 'boolean', default: true, group: 'HTTP', state: 'active', meaning: 'Serve HTTP.' },
  { name: 'http-address', kind: 'string', value: 'address', default: '0.0.0.0', group: 'HTTP', state: 'active',
    to: 'http.address',
    meaning: 'Address to bind, or unix:PATH for a Unix socket, which has no port.' },
  { name: 'http-port', kind: 'integer', default: 8000, min: -INT32_MAX, max: INT32_MAX, group: 'HTTP', state: 'active',
    to: 'http.port',
    meaning: 'Port to bind; 0 picks a free one.' },
  { name: 'reuse-http-port', kind: 'boolean', default: false, group: 'HTTP', state: 'active', to: 'http.reusePort',
    meaning: 'Bind with SO_REUSEPORT.' },
  { name: 'http-header-forward-pattern', kind: 'string', value: 'regex', default: '', group: 'HTTP', state: 'active',
    to: 'http.headerForwardPattern',
    meaning: 'Request headers whose names match this pattern become request parameters; case does not matter.' },
  { name: 'http-thread-count', kind: 'integer', default: 8, min: 1, max: INT32_MAX, group: 'HTTP', state: 'accepted',
    meaning: 'Threads; see --reactor-threads.' },
  { name: 'http-max-input-size', kind: 'bytes', default: 67108864, min: 1,
    outOfBound: 'Error: --http-max-input-size must be greater than 0.', group: 'HTTP', state: 'active',
    to: 'engine.httpInputBytesMax',
    meaning: 'Maximum bytes of the JSON of a request, of a tensor in JSON, of a raw binary request, and of a ' +
      'decompressed body or gRPC message. Binary tensors after JSON, and gRPC messages, may have 2 GiB.' },
  { name: 'http-restricted-api', kind: 'string', value: 'apis:key=value', default: null, list: true, isSecret: true,
    group: 'HTTP', state: 'active',
    meaning: 'Accept requests to these APIs (a comma-separated list) only if they have the header <key> with this ' +
      'value. APIs: health, metadata, inference, shared-memory, model-config, model-repository, statistics, ' +
      'trace, logging.' },
  { name: 'http-cors-origin', kind: 'string', value: 'origins', default: null, list: true, group: 'HTTP',
    state: 'active',
    meaning: 'Origins of web pages (a comma-separated list) that may send HTTP requests and read the responses, ' +
      'such as https://app.example; * permits any, without credentials. Not in Triton.' },
  { name: 'http-use-ssl', kind: 'boolean', default: false, group: 'HTTP', state: 'active',
    meaning: 'Serve HTTP over TLS. Needs --http-server-cert and --http-server-key. Not in Triton.' },
  { name: 'http-server-cert', kind: 'string', value: 'path', default: '', group: 'HTTP', state: 'active',
    meaning: 'PEM file with the certificate of the server and its intermediates; or several files, joined by commas: ' +
      'the server sends the first one that matches the host name of the client. Changed files are read again. Not in ' +
      'Triton.' },
  { name: 'http-server-key', kind: 'string', value: 'path', default: '', group: 'HTTP', state: 'active',
    meaning: 'PEM file with the key of the certificate; or as many files as certificates, in the same order. Not ' +
      'in Triton.' },
  { name: 'http-root-cert', kind: 'string', value: 'path', default: '', group: 'HTTP', state: 'active',
    meaning: 'PEM file of certificates. With --http-use-ssl, clients must present one of them, or a certificate that ' +
      'one of them signed. Not in Triton.' },

  // Chat
  { name: 'openai-port', kind: 'integer', default: null, min: 0, max: 65535, group: 'Chat', state: 'active',
    meaning: "Serve HTTP also here, as Triton's OpenAI front end does at 9000, with /metrics and /health/ready." },
  { name: 'openai-restricted-api', kind: 'string', value: 'apis key value', words: 3, default: null, list: true,
    isSecret: true, group: 'Chat', state: 'active',
    meaning: 'Requests to these APIs (a comma-separated list of inference, model-repository, metrics and health) at ' +
      '--openai-port need a header of this name and value: --openai-restricted-api inference,metrics KEY VALUE.' },
  { name: 'openai-errors', kind: 'choice', choices: ['openai', 'triton'], anyCase: false, default: 'openai',
    group: 'Chat', state: 'active',
    meaning: "Form of the errors of text endpoints. openai: bodies and statuses of OpenAI's API. triton: bodies " +
      "and statuses of Triton's OpenAI front end, such as 422 for unknown fields. Not in Triton." },
  { name: 'tokenizer', kind: 'string', value: 'folder', default: '', to: 'chat.tokenizer', group: 'Chat',
    state: 'active',
    meaning: "Folder with the tokenizer and the chat template of all models, or a model's name in the cache of " +
      'Hugging Face; nothing is downloaded. Without it, each model has its own (nereid.chat.tokenizer).' },
  { name: 'chat-template', kind: 'string', value: 'path', default: '', to: 'chat.template', group: 'Chat',
    state: 'active',
    meaning: 'File with the chat template (Jinja) of all models, in the place of that of their tokenizers.' },
  { name: 'tool-call-parser', kind: 'choice', choices: TOOL_PARSERS, anyCase: false, default: '', group: 'Chat',
    state: 'active', to: 'chat.toolParser', meaning: 'Format of the tool calls that models write.' },
  { name: 'max-tool-call-parse-bytes', kind: 'bytes', default: 131072, min: 0, max: INT32_MAX, group: 'Chat',
    state: 'active', to: 'chat.callBytesMax',
    meaning: 'Maximum bytes of a tool call in a stream; a longer one ends the choice.' },
  { name: 'default-max-tokens', kind: 'integer', default: 16, min: 0, max: INT32_MAX, group: 'Chat', state: 'active',
    to: 'chat.maxTokensDefault', meaning: 'Maximum tokens of a choice whose request names none.' },
  { name: 'lora-separator', kind: 'string', value: 'text', default: '', group: 'Chat', state: 'active',
    to: 'chat.loraSeparator', meaning: 'Text between the names of a model and of a LoRA, such as _lora_.' },

  // GRPC
  { name: 'allow-grpc', kind: 'boolean', default: true, group: 'GRPC', state: 'active', meaning: 'Serve gRPC.' },
  { name: 'grpc-address', kind: 'string', value: 'address', default: '0.0.0.0', group: 'GRPC', state: 'active',
    to: 'grpc.address',
    meaning: 'Address to bind, or unix:PATH for a Unix socket, which has no port.' },
  { name: 'grpc-port', kind: 'integer', default: 8001, min: -INT32_MAX, max: INT32_MAX, group: 'GRPC', state: 'active',
    to: 'grpc.port',
    meaning: 'Port to bind; 0 picks a free one.' },
  { name: 'reuse-grpc-port', kind: 'boolean', default: false, group: 'GRPC', state: 'active', to: 'grpc.reusePort',
    meaning: 'Bind with SO_REUSEPORT.' },
  { name: 'grpc-header-forward-pattern', kind: 'string', value: 'regex', default: '', group: 'GRPC', state: 'active',
    to: 'grpc.headerForwardPattern',
    meaning: 'Request metadata whose keys match this pattern becomes request parameters; case does not matter.' },
  { name: 'grpc-infer-thread-count', kind: 'integer', default: 2, min: 2, max: 128,
    outOfBound: 'invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.', group: 'GRPC',
    state: 'accepted',
    meaning: 'Threads; see --reactor-threads.' },
  { name: 'grpc-infer-allocation-pool-size', kind: 'integer', default: 8, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'accepted',
    meaning: 'Request objects kept for reuse.' },
  { name: 'grpc-max-response-pool-size', kind: 'integer', default: INT32_MAX, min: 1, max: INT32_MAX,
    outOfBound: 'Error: --grpc-max-response-pool-size must be greater than 0.', group: 'GRPC', state: 'accepted',
    meaning: 'Maximum responses of a stream that are held at the same time.' },
  { name: 'grpc-use-ssl', kind: 'boolean', default: false, group: 'GRPC', state: 'active',
    meaning: 'Serve gRPC over TLS. Needs --grpc-server-cert and --grpc-server-key.' },
  { name: 'grpc-use-ssl-mutual', kind: 'boolean', default: false, group: 'GRPC', state: 'active',
    meaning: 'Require clients to present a certificate that one of --grpc-root-cert signed; implies --grpc-use-ssl.' },
  { name: 'grpc-server-cert', kind: 'string', value: 'path', default: '', group: 'GRPC', state: 'active',
    meaning: 'PEM file with the certificate of the server and its intermediates; or several files, joined by commas: ' +
      'the server sends the first one that matches the host name of the client. Changed files are read again.' },
  { name: 'grpc-server-key', kind: 'string', value: 'path', default: '', group: 'GRPC', state: 'active',
    meaning: 'PEM file with the key of the certificate; or as many files as certificates, in the same order.' },
  { name: 'grpc-root-cert', kind: 'string', value: 'path', default: '', group: 'GRPC', state: 'active',
    meaning: 'PEM file of the certificates that clients are checked against; see --grpc-use-ssl-mutual.' },
  { name: 'grpc-infer-response-compression-level', kind: 'choice', choices: ['none', 'low', 'medium', 'high'],
    anyCase: true, default: 'none', group: 'GRPC', state: 'active', to: 'grpc.inferResponseCompressionLevel',
    meaning: 'Compression of inference responses.' },
  { name: 'grpc-keepalive-time', kind: 'integer', default: 7200000, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.keepaliveTimeMs',
    meaning: 'Time without activity after which the server pings a connection, in ms.' },
  { name: 'grpc-keepalive-timeout', kind: 'integer', default: 20000, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.keepaliveTimeoutMs',
    meaning: 'Time within which a ping must be acknowledged, in ms.' },
  { name: 'grpc-keepalive-permit-without-calls', kind: 'boolean', default: false, group: 'GRPC', state: 'active',
    to: 'grpc.keepalivePermitWithoutCalls',
    meaning: 'Ping also connections without calls.' },
  { name: 'grpc-http2-max-pings-without-data', kind: 'integer', default: 2, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.http2MaxPingsWithoutData',
    meaning: 'Pings that may be sent without data between them; 0 is unlimited.' },
  { name: 'grpc-http2-min-recv-ping-interval-without-data', kind: 'integer', default: 300000, min: 0, max: INT32_MAX,
    group: 'GRPC', state: 'active', to: 'grpc.http2MinRecvPingIntervalWithoutDataMs',
    meaning: 'Shortest interval between the pings of a client while no data is sent, in ms.' },
  { name: 'grpc-http2-max-ping-strikes', kind: 'integer', default: 2, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.http2MaxPingStrikes',
    meaning: 'Too frequent pings after which the connection is closed; 0 is unlimited.' },
  { name: 'grpc-max-connection-age', kind: 'integer', default: 0, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.maxConnectionAgeMs',
    meaning: 'Age at which a connection is closed, in ms; 0 is unlimited.' },
  { name: 'grpc-max-connection-age-grace', kind: 'integer', default: 0, min: 0, max: INT32_MAX, group: 'GRPC',
    state: 'active', to: 'grpc.maxConnectionAgeGraceMs',
    meaning: 'Time for calls to finish after --grpc-max-connection-age, in ms; 0 is unlimited.' },
  { name: 'grpc-restricted-protocol', kind: 'string', value: 'apis:key=value', default: null, list: true,
    isSecret: true, group: 'GRPC', state: 'active',
    meaning: 'Like --http-restricted-api, for gRPC; the metadata key is triton-grpc-protocol-<key>.' },

  // Metrics
  { name: 'allow-metrics', kind: 'boolean', default: true, group: 'Metrics', state: 'active',
    meaning: 'Serve Prometheus metrics.' },
  { name: 'allow-gpu-metrics', kind: 'boolean', default: true, group: 'Metrics', state: 'active',
    meaning: 'Include GPU metrics. Linux.' },
  { name: 'allow-cpu-metrics', kind: 'boolean', default: true, group: 'Metrics', state: 'active',
    meaning: 'Include CPU and memory metrics of the host (Linux only).' },
  { name: 'metrics-address', kind: 'string', value: 'address', default: '', group: 'Metrics', state: 'active',
    meaning: 'Address to bind. Default: the address of the HTTP port.' },
  { name: 'metrics-port', kind: 'integer', default: 8002, min: -INT32_MAX, max: INT32_MAX, group: 'Metrics',
    state: 'active', meaning: 'Port to bind; 0 picks a free one.' },
  { name: 'metrics-interval-ms', kind: 'integer', default: 2000, min: 1, max: INT32_MAX, group: 'Metrics',
    state: 'active',
    meaning: 'Interval between two samples of the CPU and GPU metrics, in ms.' },
  { name: 'metrics-config', kind: 'string', value: 'setting=value', default: null, list: true, group: 'Metrics',
    state: 'active',
    meaning: 'counter_latencies, histogram_latencies, summary_latencies (true or false), summary_quantiles ' +
      '(quantile:error,...). histograms=false turns off the histograms that Triton does not have.' },

  // Tracing
  { name: 'trace-config', kind: 'string', value: '[mode,]setting=value', default: null, list: true, group: 'Tracing',
    state: 'active',
    meaning: 'Traces of requests. mode=triton (the default) with triton,file=<path> and triton,log-frequency=<n> ' +
      'writes files; mode=opentelemetry with opentelemetry,url=<collector>, resource=<key>=<value>, ' +
      'bsp_max_queue_size, bsp_schedule_delay (ms) and bsp_max_export_batch_size sends spans. level=TIMESTAMPS or ' +
      'TENSORS, rate=<n> (every n-th request) and count=<n> choose the traced requests, and may be changed while the ' +
      'server runs.' },

  // Backend
  { name: 'backend-config', kind: 'string', value: '[backend,]setting=value', default: null, list: true,
    group: 'Backend', state: 'active',
    meaning: 'Setting of one backend, or of all backends.' },
  { name: 'strict-batching-delay', kind: 'boolean', default: false, group: 'Backend', state: 'active',
    to: 'engine.strictBatchingDelay',
    meaning: 'Wait for max_queue_delay_microseconds even while an instance is idle. Not in Triton.' },
  { name: 'backend-directory', kind: 'string', value: 'path', default: '/opt/tritonserver/backends', group: 'Backend',
    state: 'active',
    meaning: 'Directory of backends: <name>/libtriton_<name>.so or <name>/model.py for each.' },
  { name: 'host-per-model', kind: 'switch', default: false, group: 'Backend', state: 'active',
    meaning: 'Run each model of a backend library in a process of its own. Otherwise all models of a library ' +
      'share one process, and a load that crashes interrupts the others for some seconds. Not in Triton.' },
  { name: 'host-user', kind: 'string', value: 'user', default: 'nobody', group: 'Backend', state: 'active',
    meaning: 'User of the processes of backend libraries if root starts the server: a name, or <uid>:<gid>. root ' +
      'keeps all rights. Not in Triton.' },
  { name: 'gpu-fallback', kind: 'choice', choices: ['error', 'cpu'], anyCase: true, default: 'error', group: 'Backend',
    state: 'active',
    meaning: 'How to load instance groups for a GPU on a machine without one. error: the model fails to load, as in ' +
      'Triton. cpu: it is served on the CPU, with a warning. Not in Triton.' },
  { name: 'min-supported-compute-capability', kind: 'number', default: 6.0, min: 0, group: 'Backend', state: 'active',
    meaning: 'Lowest compute capability of the GPUs that models use.' },
  { name: 'host-policy', kind: 'string', value: 'policy,setting=value', default: null, list: true, group: 'Backend',
    state: 'accepted',
    meaning: 'CPU affinity of instances. It is passed to backend libraries and has no other effect.' },
  { name: 'model-load-gpu-limit', kind: 'string', value: 'gpu:fraction', default: null, list: true, group: 'Backend',
    state: 'active',
    meaning: 'Share of the memory of a GPU, from 0 to 1: a load fails if the memory in use, or the memory that ' +
      'models need, would exceed it. Default: all of it.' },

  // Repository Agent
  { name: 'repoagent-directory', kind: 'string', value: 'path', default: '/opt/tritonserver/repoagents',
    notEmpty: '--repoagent-directory can not be empty', group: 'Repository Agent', state: 'active',
    meaning: 'Directory of repository agents, <name>/libtritonrepoagent_<name>.so; each runs in a process of its ' +
      'own. The agent checksum is built in.' },

  // Response Cache
  { name: 'cache-config', kind: 'string', value: 'cache,setting=value', default: null, list: true,
    group: 'Response Cache', state: 'active',
    meaning: 'Response cache; local,size=<bytes> is in the memory of the server, redis,host=<host> and ' +
      'redis,port=<port> in a Redis that several servers may share. Put its password into ' +
      'TRITONCACHE_REDIS_PASSWORD, because every user of the machine can read the command line. It serves models ' +
      'with response_cache { enable: true }.' },
  { name: 'cache-directory', aliases: ['cache-dir'], kind: 'string', value: 'path', default: '/opt/tritonserver/caches',
    group: 'Response Cache', state: 'active',
    meaning: 'Directory of response caches, <name>/libtritoncache_<name>.so, for ' +
      '--cache-config=<name>,<setting>=<value>; each runs in a process of its own. The caches local and redis are ' +
      'built in.' },

  // Rate Limiter
  { name: 'rate-limit', kind: 'choice', choices: ['off', 'execution_count'], anyCase: true, default: 'off',
    group: 'Rate Limiter', state: 'active',
    meaning: 'execution_count: instances run when the resources of their rate_limiter are free, in the order of ' +
      'executions times priority.' },
  { name: 'rate-limit-resource', kind: 'string', value: 'name:count[:device]', default: null, list: true,
    group: 'Rate Limiter', state: 'active',
    meaning: 'Available units of a resource. If any is given, other resources have none; if none is given, each ' +
      'has as many units as its most demanding instance needs.' },

  // Memory Management
  { name: 'memory-limit', kind: 'bytes', default: 0, min: 0, group: 'Memory Management', state: 'active',
    to: 'core.memoryLimitBytes',
    meaning: 'Maximum bytes of all request bodies, heads and unread responses in flight, at least 1m. One connection ' +
      'may hold a quarter, and an eighth is reserved for small requests. When it is used up, reading pauses for up ' +
      'to 5 s; then requests are rejected with 503 and Retry-After, or RESOURCE_EXHAUSTED. The default, 0, is half ' +
      'of the memory of the machine, or three quarters of the memory that a container has left after the start of ' +
      'the process. Memory that models and other processes of the container use beyond that counts as well. Not in ' +
      'Triton.' },
  { name: 'sequence-limit', kind: 'integer', default: 65536, min: 1, max: INT32_MAX, group: 'Memory Management',
    state: 'active', to: 'engine.sequenceLimit',
    meaning: 'Maximum sequences of a model, in progress or waiting for a slot; a request that starts one more is ' +
      'rejected with 503 or UNAVAILABLE. Not in Triton.' },
  { name: 'pinned-memory-pool-byte-size', kind: 'bytes', default: 268435456, min: 0, group: 'Memory Management',
    state: 'active', to: 'deviceMemory.pinnedPoolBytes',
    meaning: 'Bytes of page-locked memory for copies to and from GPUs. Allocated when it is first needed, and ' +
      'never without a GPU; 0 turns it off. When it is used up, copies use ordinary memory.' },
  { name: 'cuda-memory-pool-byte-size', kind: 'string', value: 'gpu:bytes', default: null, list: true,
    group: 'Memory Management', state: 'active',
    meaning: 'Bytes of a GPU for outputs, and for tensors between the steps of ensembles; 67108864 by default. ' +
      'Allocated when it is first needed; 0 turns it off. If it is given several times for a GPU, the last one ' +
      'counts. When it is used up, outputs use pinned memory.' },
  { name: 'pinned-region-byte-size', kind: 'bytes', default: 1073741824, min: 0, group: 'Memory Management',
    state: 'active', to: 'deviceMemory.lockedRegionBytesMax',
    meaning: 'Bytes of system shared memory whose pages are locked when clients register it, all regions together, ' +
      'on a machine with a GPU: copies between them and the GPU are then direct. Regions beyond the limit work ' +
      'without being locked; 0 locks none. Not in Triton.' },
  { name: 'cuda-virtual-address-size', kind: 'string', value: 'gpu:bytes', default: null, list: true,
    group: 'Memory Management', state: 'accepted',
    meaning: 'Virtual address space for growing state on a GPU.' },
  { name: 'buffer-manager-thread-count', kind: 'integer', default: 0, min: 0, max: INT32_MAX,
    group: 'Memory Management', state: 'accepted',
    meaning: 'Threads for copies.' },

  // Sagemaker
  { name: 'allow-sagemaker', kind: 'boolean', default: false, group: 'Sagemaker', state: 'accepted',
    meaning: 'Serve the Sagemaker endpoint.' },
  { name: 'sagemaker-port', kind: 'integer', default: 8080, min: 0, max: 65535, group: 'Sagemaker', state: 'accepted',
    meaning: 'Port to bind.' },
  { name: 'sagemaker-safe-port-range', kind: 'string', value: 'from-to', default: '', group: 'Sagemaker',
    state: 'accepted',
    meaning: 'Ports that may be used.' },
  { name: 'sagemaker-thread-count', kind: 'integer', default: 8, min: 1, max: INT32_MAX, group: 'Sagemaker',
    state: 'accepted',
    meaning: 'Threads.' },

  // Vertex
  { name: 'allow-vertex-ai', kind: 'boolean', default: false, group: 'Vertex', state: 'accepted',
    meaning: 'Serve the Vertex AI endpoint.' },
  { name: 'vertex-ai-port', kind: 'integer', default: 8080, min: 0, max: 65535, group: 'Vertex', state: 'accepted',
    meaning: 'Port to bind.' },
  { name: 'vertex-ai-thread-count', kind: 'integer', default: 8, min: 1, max: INT32_MAX, group: 'Vertex',
    state: 'accepted',
    meaning: 'Threads.' },
  { name: 'vertex-ai-default-model', kind: 'string', value: 'name', default: '', group: 'Vertex', state: 'accepted',
    meaning: 'Model of redirected predictions.' },

  // Deprecated
  { name: 'strict-model-config', kind: 'boolean', default: null, group: 'Deprecated', state: 'active',
    meaning: 'Use --disable-auto-complete-config.' },
  { name: 'response-cache-byte-size', kind: 'bytes', default: null, min: 0, group: 'Deprecated', state: 'active',
    meaning: 'Use --cache-config=local,size=<bytes>.' },
  { name: 'trace-file', kind: 'string', value: 'path', default: '', group: 'Deprecated', state: 'active',
    meaning: 'Use --trace-config=triton,file=<path>.' },
  { name: 'trace-level', kind: 'string', value: 'level', default: null, list: true, group: 'Deprecated',
    state: 'active',
    meaning: 'Use --trace-config=level=<level>.' },
  { name: 'trace-rate', kind: 'integer', default: null, min: 0, max: 4294967295, group: 'Deprecated', state: 'active',
    meaning: 'Use --trace-config=rate=<n>.' },
  { name: 'trace-count', kind: 'integer', default: null, min: -1, max: INT32_MAX, group: 'Deprecated', state: 'active',
    meaning: 'Use --trace-config=count=<n>.' },
  { name: 'trace-log-frequency', kind: 'integer', default: null, min: 0, max: 4294967295, group: 'Deprecated',
    state: 'active',
    meaning: 'Use --trace-config=triton,log-frequency=<n>.' },
] as const satisfies readonly Flag[]

type Row = (typeof FLAGS)[number]
type Camel<S extends string> = S extends `${infer Head}-${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S
type Scalar<F> = F extends { kind: 'switch' | 'boolean' }
  ? boolean
  : F extends { kind: 'choice'; choices: readonly (infer C)[] }
    ? C
    : F extends { kind: 'string' }
      ? string
      : number
type OptionValue<F> = F extends { list: true }
  ? Scalar<F>[]
  : F extends { default: null }
    ? Scalar<F> | null
    : Scalar<F>

/** Option names without dashes: `modelRepository`, `httpPort`, …. */
export type OptionName = Camel<Row['name']>

/** The value of every option: the given one, or else the default. */
export type Options = { [F in Row as Camel<F['name']>]: OptionValue<F> }

/** Converts `http-max-input-size` to `httpMaxInputSize`. */
export function optionName(flag: string): OptionName {
  return flag.replace(/-([a-z0-9])/g, (_, c: string) => c.toUpperCase()) as OptionName
}

export function defaultOptions(): Options {
  const flags: readonly Flag[] = FLAGS
  return Object.fromEntries(
    flags.map((f) => [optionName(f.name), f.list === true ? [] : f.default]),
  ) as unknown as Options
}

type PassedTo<P extends Part> = {
  [F in Row as F extends { to: `${P}.${infer Field}` } ? Field : never]: OptionValue<F>
}

/** The values that a part of the core receives unchanged. */
export function passedTo<P extends Part>(part: P, options: Options): PassedTo<P> {
  const flags: readonly Flag[] = FLAGS
  const fields = flags.flatMap(({ name, to = '' }) =>
    to.startsWith(`${part}.`) ? [[to.slice(part.length + 1), options[optionName(name)]]] : [],
  )
  return Object.fromEntries(fields) as PassedTo<P>
}
