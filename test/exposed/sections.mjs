/**
 * The tables of docs/security/permissions.md: for each server that somebody may start, what each verb answers to
 * whom. A column is an origin (`where`) and what the client brings (`brings`). What it answers is one rule for each
 * column; the table that comes of it is in that page, where a change of a rule shows as changed rows.
 *
 * Rules take a verb (verbs.mjs) and a transport, and return the status: of HTTP as three digits, of gRPC by its name.
 */

import { AUDIENCE, ISSUER, NO_TOKENS } from './tokens.mjs'

/** Answer of the verb if nothing forbids it. */
const open = (verb, transport) => verb.allowed[transport]
const either = (http, grpc) => (transport) => (transport === 'http' ? http : grpc)

/**
 * Answers of a server that was told nothing: models are not loaded over the network, and clients have no shared memory.
 */
const OFF = {
  load: either('503', 'UNAVAILABLE'),
  load_files: either('503', 'UNAVAILABLE'),
  unload: either('503', 'UNAVAILABLE'),
  register: either('501', 'UNIMPLEMENTED'),
  unregister: either('501', 'UNIMPLEMENTED'),
  cuda_register: either('501', 'UNIMPLEMENTED'),
  cuda_unregister: either('501', 'UNIMPLEMENTED'),
}
const off = (verb, transport) => OFF[verb.id]?.(transport) ?? open(verb, transport)

/** Settings are changed and the console is seen from this machine, or with a secret for them. */
const isSetting = (verb) => verb.act === 'write' && (verb.category === 'logging' || verb.category === 'trace')
/** The same rule, for callers from elsewhere without a secret. */
const far = (rule) => (verb, transport) =>
  isSetting(verb) || verb.id === 'console' ? either('403', 'PERMISSION_DENIED')(transport) : rule(verb, transport)

/** A verb of a category that asks for a header. The port of the metrics and what has no category are not covered. */
const restricted = (verb, transport) =>
  verb.category === null ? open(verb, transport) : either('403', 'UNAVAILABLE')(transport)
/** A connection that does not come to be; the port of the metrics speaks plain text. */
const closed = (verb) => (verb.id.startsWith('metrics') ? '200' : 'no connection')

const CATEGORIES = 'health,metadata,inference,shared-memory,model-config,model-repository,statistics,trace,logging'
/** Everything that is off unless it is asked for. */
const EVERYTHING = ['--model-control-mode=explicit', '--load-model=*', '--allow-client-shm=true']

const headers = (name, value) => ({ http: { [name]: value }, grpc: { [`triton-grpc-protocol-${name}`]: value } })

/** Categories that manage the server: only the control address serves them, and it serves no inference. */
const MANAGES = ['model-repository', 'shared-memory', 'logging', 'trace']
const PLACE = either('403', 'PERMISSION_DENIED')
const apart = (verb, transport) => (MANAGES.includes(verb.category) ? PLACE(transport) : open(verb, transport))
const control = (verb, transport) => (verb.category === 'inference' ? PLACE(transport) : open(verb, transport))

export const bearer = (key) => ({ http: { Authorization: `Bearer ${key}` }, grpc: { authorization: `Bearer ${key}` } })
/** A key is asked for by what has a category. */
const unknown = (verb, transport) =>
  verb.category === null ? open(verb, transport) : either('401', 'UNAUTHENTICATED')(transport)
/** Without one there is health. */
const keyless = (verb, transport) => (verb.category === 'health' ? open(verb, transport) : unknown(verb, transport))
/** Verbs that a key for inferences and metadata of `simple` opens. Server metadata names no other model. */
const OF_APP = [
  'metadata',
  'openapi',
  'docs',
  'model',
  'infer',
  'version_infer',
  'stream_infer',
  'chat',
  'completions',
  'responses',
  'embeddings',
  'cohere_embed',
  'rerank',
  'score',
  'classify',
  'tei_embed',
  'tei_predict',
  'tei_tokenize',
  'tei_info',
  'invocations',
  'text_models',
  'text_model',
]
const ofApp = (verb, transport) => {
  // The stream goes on: it may have requests for the model that is allowed.
  if (verb.id === 'other_stream') return 'error in the stream'
  return verb.category === null || OF_APP.includes(verb.id)
    ? open(verb, transport)
    : either('403', 'PERMISSION_DENIED')(transport)
}

/**
 * `pki` has the paths of certificates, `keys` that of a keys file, and keys and tokens; see pki.mjs, keys.mjs and
 * tokens.mjs.
 */
export const sections = (pki, keys, places) => {
  const tls = (service) => [
    `--${service}-use-ssl=true`,
    `--${service}-server-cert=${pki.server.cert}`,
    `--${service}-server-key=${pki.server.key}`,
  ]
  const trusted = { root: pki.root.cert }
  return [
    {
      id: 'no-flag',
      title: 'Without any flag',
      flags: [],
      // Verbs whose answers do not change after a stranger tried everything.
      unchanged: ['index', 'log', 'trace', 'model_trace', 'regions', 'cuda_regions'],
      columns: [
        { where: 'network', brings: 'nothing', expect: far(off) },
        // A proxy on this machine hands on what comes from anywhere.
        {
          where: 'loopback',
          brings: 'a proxy header',
          headers: { http: { 'X-Forwarded-For': '127.0.0.1' }, grpc: { 'x-forwarded-for': '127.0.0.1' } },
          expect: far(off),
        },
        { where: 'loopback', brings: 'nothing', expect: off },
      ],
    },
    {
      id: 'remote-settings',
      title: 'Settings from anywhere, as in Triton',
      flags: ['--allow-remote-settings=true'],
      columns: [
        { where: 'network', brings: 'nothing', expect: off },
        { where: 'loopback', brings: 'nothing', expect: off },
      ],
    },
    {
      id: 'everything',
      title: 'Models loaded over the network, and shared memory of clients',
      flags: EVERYTHING,
      columns: [
        { where: 'network', brings: 'nothing', expect: far(open) },
        { where: 'loopback', brings: 'nothing', expect: open },
      ],
    },
    {
      id: 'restricted',
      title: 'Restricted APIs',
      flags: [
        ...EVERYTHING,
        `--http-restricted-api=${CATEGORIES}:admin=s3cret`,
        `--grpc-restricted-protocol=${CATEGORIES}:admin=s3cret`,
      ],
      columns: [
        {
          where: 'network',
          brings: 'no header',
          expect: restricted,
          says: /expecting header '(triton-grpc-protocol-)?admin'/,
        },
        {
          where: 'network',
          brings: 'a wrong header',
          headers: headers('admin', 's3creT'),
          expect: restricted,
          says: /expecting header/,
        },
        { where: 'network', brings: 'the header', headers: headers('admin', 's3cret'), expect: open },
        { where: 'loopback', brings: 'no header', expect: restricted, says: /expecting header/ },
      ],
    },
    {
      id: 'control',
      title: 'A control address',
      flags: [...EVERYTHING, `--control-address=127.0.0.1:${places.control}`],
      columns: [
        { where: 'network', brings: 'nothing', expect: far(apart) },
        { where: 'loopback', brings: 'nothing', expect: apart },
        { where: 'loopback', brings: 'at the control address', at: 'control', expect: control },
        { where: 'network', brings: 'at the control address', at: 'control', expect: closed },
      ],
    },
    {
      id: 'unix',
      title: 'Unix sockets',
      flags: [
        ...EVERYTHING,
        ...['http', 'grpc'].map((service) => `--${service}-address=unix:${places.sockets}/${service}`),
        `--control-address=unix:${places.sockets}/control`,
        '--metrics-address=127.0.0.1',
      ],
      columns: [
        { where: 'Unix socket', brings: 'nothing', at: 'socket', expect: apart },
        { where: 'Unix socket', brings: 'at the control address', at: 'control socket', expect: control },
        { where: 'loopback', brings: 'nothing', expect: closed },
      ],
    },
    {
      id: 'keys',
      title: 'Keys',
      flags: [...EVERYTHING, `--keys-file=${keys.file}`],
      columns: [
        { where: 'network', brings: 'no key', expect: keyless, says: /This needs a key with a scope for/ },
        { where: 'loopback', brings: 'no key', expect: keyless, says: /This needs a key with a scope for/ },
        {
          where: 'network',
          brings: 'an unknown key',
          headers: bearer('nk_this-is-no-key-of-this-server-but-long'),
          expect: unknown,
          says: /key is unknown to this server/,
        },
        {
          where: 'network',
          brings: 'a key that has expired',
          headers: bearer(keys.ended),
          expect: unknown,
          says: /'ended' has expired/,
        },
        {
          where: 'network',
          brings: 'a key for `inference,metadata:simple`',
          headers: bearer(keys.app),
          expect: ofApp,
          says: /'app' has no scope for/,
        },
        { where: 'network', brings: 'a key for `all`', headers: bearer(keys.operator), expect: open },
      ],
    },
    {
      id: 'tokens',
      title: 'Tokens of an OpenID Connect issuer',
      flags: [
        ...EVERYTHING,
        `--keys-file=${keys.tokens.file}`,
        `--oidc-issuer=${ISSUER}`,
        `--oidc-audience=${AUDIENCE}`,
        `--oidc-keys=${keys.tokens.set}`,
      ],
      columns: [
        { where: 'network', brings: 'a token for `all`', headers: bearer(keys.tokens.all), expect: open },
        {
          where: 'network',
          brings: 'a token for `inference,metadata:simple`',
          headers: bearer(keys.tokens.some),
          expect: ofApp,
          says: /'people' has no scope for/,
        },
        {
          where: 'network',
          brings: 'a token that has expired',
          headers: bearer(keys.tokens.expired),
          expect: unknown,
          says: /^(\{"error":("|\{"message":"))?The token has expired/,
        },
        {
          where: 'network',
          brings: 'a token for another audience',
          headers: bearer(keys.tokens.audience),
          expect: unknown,
          says: /has another audience/,
        },
        {
          where: 'network',
          brings: 'a token of another issuer',
          headers: bearer(keys.tokens.issuer),
          expect: unknown,
          says: /has another issuer/,
        },
        {
          where: 'network',
          brings: 'a token without a signature',
          headers: bearer(keys.tokens.unsigned),
          expect: unknown,
          says: /is malformed|algorithm that is not accepted/,
        },
        {
          where: 'network',
          brings: 'a token signed with the public key as a secret (HS256)',
          headers: bearer(keys.tokens.confused),
          expect: unknown,
          says: /is signed with an algorithm that is not accepted/,
        },
        {
          where: 'network',
          brings: "a token signed by another key under the issuer's `kid`",
          headers: bearer(keys.tokens.forged),
          expect: unknown,
          says: /is not signed by its issuer/,
        },
        {
          where: 'network',
          brings: 'a token with an unknown `kid`',
          headers: bearer(keys.tokens.unknown),
          expect: unknown,
          says: /is signed with an unknown key/,
        },
      ],
    },
    {
      id: 'tls',
      title: 'TLS',
      flags: [...EVERYTHING, ...tls('http'), ...tls('grpc')],
      columns: [
        {
          where: 'network',
          brings: 'no TLS',
          expect: (verb, transport) =>
            verb.id.startsWith('metrics') ? '200' : either('400', 'no connection')(transport),
          says: /this port uses TLS/,
        },
        { where: 'network', brings: 'TLS', tls: trusted, expect: far(open) },
      ],
    },
    {
      id: 'mutual',
      title: 'TLS with certificates of clients',
      flags: [
        ...EVERYTHING,
        ...tls('http'),
        `--http-root-cert=${pki.root.cert}`,
        '--grpc-use-ssl-mutual=true',
        ...tls('grpc'),
        `--grpc-root-cert=${pki.root.cert}`,
      ],
      columns: [
        { where: 'network', brings: 'no certificate', tls: trusted, expect: closed },
        {
          where: 'network',
          brings: 'a certificate of another root',
          tls: { ...trusted, ...pki.foreign },
          expect: closed,
        },
        {
          where: 'network',
          brings: 'a certificate of the root',
          tls: { ...trusted, ...pki.client },
          expect: far(open),
        },
      ],
    },
  ]
}

/** Paths as the page has them, which names no file of this run. */
const named = (name) => ({ cert: `${name}.crt`, key: `${name}.key` })
export const shownSections = () =>
  sections(
    { root: named('ca'), server: named('tls'), client: named('client'), foreign: named('foreign') },
    { file: 'keys.json', app: '', operator: '', ended: '', tokens: NO_TOKENS },
    { control: 8003, sockets: '/run/nereid' },
  )
