/** Clients that guess keys, or show what is none, where the server asks for keys and takes tokens. */
import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { request, Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { HOLD_MS_MAX, judgedHold } from './lib/control.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const part = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')
const directory = mkdtempSync(join(tmpdir(), 'nereid-keys-'))
const file = (name, value) => {
  const path = join(directory, name)
  writeFileSync(path, JSON.stringify(value))
  return path
}
const hash = (key) => createHash('sha256').update(key).digest('hex')
const everything = [{ verbs: ['all'] }]
/** Rows ask without a key too, as those of other areas do: what is tried here is what a wrong one costs. */
const keyed = server('keys and tokens', {
  flags: [
    `--keys-file=${file('keys.json', {
      anonymous: { scopes: everything },
      keys: [
        { name: 'right', sha256: hash('right'), scopes: everything },
        { name: 'narrow', sha256: hash('narrow'), scopes: [{ verbs: ['all'] }], quota: { concurrency: 1 } },
      ],
      oidc: { rules: [{ name: 'people', claim: 'sub', value: 'ann', scopes: everything }] },
    })}`,
    '--oidc-issuer=https://issuer',
    '--oidc-audience=nereid',
    `--oidc-keys=${file('jwks.json', { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256' }] })}`,
  ],
})

const WRONG = 50_000
const WRONG_USUAL = 2000
const CLIENTS = 16
const FORGED = 10_000
const FORGED_USUAL = 3000

const token = (header, claims, key = privateKey) => {
  const message = `${part(header)}.${part(claims)}`
  return `${message}.${key === null ? '' : sign('sha256', Buffer.from(message), key).toString('base64url')}`
}
const claims = (more = {}) => ({
  iss: 'https://issuer',
  aud: 'nereid',
  sub: 'ann',
  exp: Math.floor(Date.now() / 1000) + 3600,
  ...more,
})

/** Status of a request with this key. */
function ask(t, agent, key, header = 'authorization') {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: '127.0.0.1',
        port: t.httpPort,
        path: '/v2',
        agent,
        headers: { [header]: header === 'authorization' ? `Bearer ${key}` : key },
      },
      (response) => {
        response.resume()
        response.on('end', () => resolve(response.statusCode))
      },
    )
    sent.on('error', reject)
    sent.end()
  })
}

/** Asks with `count` keys from several connections; how many had each status. */
async function flood(t, count, key) {
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS })
  const statuses = new Map()
  let next = 0
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      while (next < count) {
        const status = await ask(t, agent, key(next++))
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    }),
  )
  agent.destroy()
  return statuses
}

export const rows = [
  {
    attack: `${WRONG} wrong keys from ${CLIENTS} clients`,
    limit:
      'A key is looked up by its SHA-256 and compared in constant time (`access::Hash`). Wrong keys are counted and ' +
      'not kept: `nereid_key_requests_total{result="unknown"}`.',
    server: keyed,
    async run(t) {
      const wrong = t.volume(WRONG_USUAL, WRONG)
      const before = t.rssMiB()
      const counted = await t.metric('nereid_key_requests_total', 'key="",result="unknown"')
      const { result: statuses, worstMs } = await t.health(() => flood(t, wrong, (i) => hash(String(i))))
      t.check(statuses.get(401) === wrong, `answered ${JSON.stringify([...statuses])}`)
      const grown = t.rssMiB() - before
      t.check(grown < 32, `resident memory grew by ${grown.toFixed(0)} MiB`)
      t.check(
        (await t.metric('nereid_key_requests_total', 'key="",result="unknown"')) === counted + wrong,
        'they are not counted',
      )
      t.check((await ask(t, undefined, 'right')) === 200, 'the right key afterwards')
      return `${wrong} keys, +${grown.toFixed(0)} MiB, health at worst ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: 'two keys in one request, one of them good, in headers of one name',
    limit:
      'The answer is 400 and INVALID_ARGUMENT, with the name of the header ' +
      '(`frontend::gate_error::GateError::Repeated`).',
    server: keyed,
    async run(t) {
      const pairs = [
        ['Authorization: Bearer right', 'Authorization: Bearer wrong'],
        ['Authorization: Bearer wrong', 'authorization: Bearer right'],
        ['Authorization: Basic cHJveHk=', 'Authorization: Bearer right'],
        ['X-API-Key: right', 'X-Api-Key: right'],
      ]
      for (const fields of pairs) {
        const connection = await t.socket(t.httpPort)
        await connection.send(
          Buffer.from(['GET /v2 HTTP/1.1', 'Host: a', ...fields, 'Connection: close', '\r\n'].join('\r\n')),
        )
        await connection.endsWithin(15_000)
        connection.destroy()
        const text = String(connection.received)
        const name = fields[0].split(':')[0].toLowerCase()
        t.check(
          text.startsWith('HTTP/1.1 400 ') && text.includes(`more than one header '${name}'`),
          `${fields.join(', ')}: ${text.slice(0, 40)} … ${text.slice(-90)}`,
        )
      }
      t.check((await ask(t, undefined, 'right')) === 200, 'the right key afterwards')
      return `${pairs.length} requests refused`
    },
  },
  {
    attack: 'bodies of 2 GB that are announced, or begun in chunks, with a wrong key',
    limit:
      'A request without a valid key gets 401 before its body arrives, and the connection closes ' +
      '(`http::connection`, `DISCARD_BYTES_MAX`).',
    server: keyed,
    async run(t) {
      const asked = ['Authorization: Bearer wrong\r\n', 'X-API-Key: wrong\r\n'].flatMap((key) =>
        ['Content-Length: 2000000000', 'Transfer-Encoding: chunked'].map((framing) => [key, framing]),
      )
      for (const [key, framing] of asked) {
        const connection = await t.socket(t.httpPort)
        await connection.send(
          Buffer.from(
            'POST /v2/models/simple/infer HTTP/1.1\r\nHost: ' +
              `a\r\n${key}${framing}\r\n\r\n${framing.startsWith('T') ? '7fffffff\r\n' : ''}begun`,
          ),
        )
        await connection.endsWithin(15_000)
        connection.destroy()
        const text = String(connection.received)
        t.check(
          text.startsWith('HTTP/1.1 401 ') && text.split('HTTP/1.1 ').length === 2,
          `${key}${framing}: ${text.slice(0, 80)}`,
        )
      }
      t.check((await ask(t, undefined, 'right')) === 200, 'the right key afterwards')
      return `${asked.length} requests refused`
    },
  },
  {
    attack: 'keys of 1 MiB, of 16 KiB, of nothing, with NUL, beyond ASCII, and twice in one request',
    limit:
      'A head has at most `frontend::limits::HEAD_BYTES_MAX`. Keys longer than `access::limits::KEY_BYTES_MAX` and ' +
      'tokens longer than `TOKEN_BYTES_MAX` are not hashed.',
    server: keyed,
    async run(t) {
      const statuses = []
      for (const value of [
        'a'.repeat(1 << 20),
        'a'.repeat(16 << 10),
        'a'.repeat(513),
        '',
        '\0',
        'right\0',
        'ri\0ght',
        '\xff\xfe',
        'right, right',
        'right right',
      ]) {
        for (const field of [`Authorization: Bearer ${value}`, `X-API-Key: ${value}`]) {
          const connection = await t.socket(t.httpPort)
          connection.send(Buffer.from(`GET /v2 HTTP/1.1\r\nHost: a\r\n${field}\r\nConnection: close\r\n\r\n`, 'latin1'))
          await connection.endsWithin(15_000)
          connection.destroy()
          const status = Number(/^HTTP\/1\.1 (\d+)/.exec(String(connection.received))?.[1] ?? 0)
          statuses.push(status)
          t.check([0, 400, 401, 431].includes(status), `${JSON.stringify(field.slice(0, 40))} is answered ${status}`)
        }
      }
      return `answered ${[...new Set(statuses)].join(', ')}`
    },
  },
  {
    attack:
      'over one connection the right key, then each key that differs in one byte, shorter and longer ones, ' +
      'and tokens of 1 to 8 KiB in turn',
    limit:
      'The last credential of a connection is compared by all its bytes (`access::LastShown`), up to ' +
      '`access::limits::SHOWN_KEPT_BYTES_MAX`. Only its hash is kept, and its identity is looked up each time.',
    server: keyed,
    async run(t) {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      const right = 'right'
      const others = [...right].map(
        (_, i) => `${right.slice(0, i)}${String.fromCharCode(right.charCodeAt(i) ^ 1)}${right.slice(i + 1)}`,
      )
      const tokens = [0, 900, 1400, 5500].map((bytes) =>
        token({ alg: 'RS256', kid: 'k' }, claims({ pad: 'a'.repeat(bytes) })),
      )
      const asked = [
        right,
        ...others,
        right.slice(1),
        right.slice(0, -1),
        `${right}${right}`,
        ...tokens,
        ...tokens.map((one) => `${one.slice(0, -20)}${'A'.repeat(20)}`),
      ]
      const before = t.rssMiB()
      for (let round = 0; round < 50; round += 1) {
        for (const key of asked) {
          // Twice: the second time it is what was shown last.
          for (const again of [false, true]) {
            const expected = key === right || tokens.includes(key) ? 200 : 401
            const status = await ask(t, agent, key)
            t.check(
              status === expected,
              `${key.slice(0, 20)} of ${key.length} bytes${again ? ', again,' : ''} is answered ${status}`,
            )
          }
          t.check((await ask(t, agent, right)) === 200, 'the right key behind it')
        }
      }
      agent.destroy()
      const grown = t.rssMiB() - before
      t.check(grown < 32, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${50 * 3 * asked.length} requests, +${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: `${FORGED} tokens that are forged, with a signature that has to be computed for each`,
    limit:
      'A verification uses some 30 µs of a reactor, with an answer between two. Valid tokens are kept, up to ' +
      '`access::limits::TOKENS_KEPT_MAX`, and then cost a hash.',
    server: keyed,
    measures: true,
    async run(t) {
      const count = t.volume(FORGED_USUAL, FORGED)
      const good = token({ alg: 'RS256', kid: 'k' }, claims())
      t.check((await ask(t, undefined, good)) === 200, 'a good token')
      const forged = (i) => `${part({ alg: 'RS256', kid: 'k' })}.${part(claims({ jti: i }))}.${good.split('.')[2]}`
      const before = t.rssMiB()
      const { ms, result: statuses, unknown } = await judgedHold(t, HOLD_MS_MAX, () => flood(t, count, forged))
      const answered = statuses.result ?? statuses
      t.check(answered.get(401) === count, `answered ${JSON.stringify([...answered])}`)
      const grown = t.rssMiB() - before
      t.check(grown < 32, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${count} tokens, held ≤ ${ms} ms${unknown}, +${grown.toFixed(0)} MiB`
    },
  },
  {
    attack:
      'tokens without a signature, signed with the public key as a secret, packed, of 100,000 brackets, of ' +
      'many claims, with times that are not numbers, and of keys that the token brings along',
    limit:
      'Only RS256, PS256, ES256 and EdDSA with a key of the set are accepted (`options::IssuerOptions`), up to ' +
      '`access::limits::TOKEN_BYTES_MAX`. Nothing is unpacked or fetched.',
    server: keyed,
    async run(t) {
      const jwk = publicKey.export({ format: 'jwk' })
      const own = generateKeyPairSync('rsa', { modulusLength: 2048 })
      const secret = `${part({ alg: 'HS256', kid: 'k' })}.${part(claims())}`
      const pem = publicKey.export({ format: 'pem', type: 'spki' })
      const inputs = [
        token({ alg: 'none' }, claims(), null),
        token({ alg: 'None', kid: 'k' }, claims(), null),
        `${secret}.${createHmac('sha256', pem).update(secret).digest('base64url')}`,
        token({ alg: 'RS256', kid: 'k', jwk: own.publicKey.export({ format: 'jwk' }) }, claims(), own.privateKey),
        token({ alg: 'RS256', kid: 'other', jku: `http://127.0.0.1:${t.httpPort}/jwks` }, claims(), own.privateKey),
        token({ alg: 'RS256', kid: 'k', zip: 'DEF' }, gzipSync(JSON.stringify(claims())).toString('latin1')),
        token({ alg: 'RS256', kid: 'k', crit: ['b64'], b64: false }, claims()),
        token({ alg: 'RS256', kid: 'k' }, '['.repeat(100_000)),
        token({ alg: 'RS256', kid: 'k' }, '['.repeat(3000)),
        token('{'.repeat(3000), claims()),
        token(
          { alg: 'RS256', kid: 'k' },
          claims(Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`c${i}`, i]))),
        ),
        ...[
          { exp: '99999999999' },
          { exp: null },
          { exp: undefined },
          { exp: -1 },
          { nbf: '0' },
          { nbf: 1e18 },
          { iss: ['a'] },
          { aud: [] },
        ].map((more) => token({ alg: 'RS256', kid: 'k' }, claims(more))),
        `${JSON.stringify(jwk)}..`,
        'ey..',
        'ey.ey.ey',
      ]
      for (const [i, input] of inputs.entries()) {
        const status = await ask(t, undefined, input)
        t.check(status === 401 || status === 431 || status === 400, `input ${i} is answered ${status}`)
      }
      t.check((await ask(t, undefined, token({ alg: 'RS256', kid: 'k' }, claims()))) === 200, 'a good token afterwards')
      return `${inputs.length} tokens refused`
    },
  },
  {
    attack: '2,000 clients of a key with one place that leave before their answers',
    limit: '`access::QuotaHold` returns its place when its answer is written or its connection closes.',
    server: keyed,
    async run(t) {
      for (let i = 0; i < 2000; i += 50) {
        await Promise.all(
          Array.from({ length: 50 }, async () => {
            const connection = await t.socket(t.httpPort)
            await connection.send(
              'POST /v2/models/simple/infer HTTP/1.1\r\nHost: a\r\nX-API-Key: narrow\r\nContent-Length: 1000\r\n\r\n{',
            )
            connection.destroy()
          }),
        )
      }
      let status = 0
      await until(async () => (status = await ask(t, undefined, 'narrow')) === 200)
      t.check(status === 200, `the key is answered ${status} afterwards`)
      // The last of them is the request above, which is held until its answer was written.
      let held = 0
      await until(async () => (held = await t.metric('nereid_key_requests_in_flight', 'key="narrow"')) === 0)
      t.check(held === 0, `${held} requests are held`)
      return 'its place was free again'
    },
  },
]
