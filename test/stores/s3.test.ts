/** R-41, R-43: repositories in S3, against moto's server. */
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import type { OpenStore, StoreClient, StoredObject } from '../../src/stores/client.js'
import { ROOT } from '../server/harness.js'
import { startBetween } from './between.mjs'
import { all, load, never, read, thrown } from './client.js'
import { startMoto } from './moto.mjs'

const KEYS = { AWS_ACCESS_KEY_ID: 'AKIDPLAIN', AWS_SECRET_ACCESS_KEY: 'hidden-secret' }
const BIG = randomBytes(4 << 20)

let open: OpenStore
let moto: Awaited<ReturnType<typeof startMoto>>
let between: Awaited<ReturnType<typeof startBetween>>
let home: string

/** The repository through the server in between. */
const place = (path = 'models/repository') => `s3://127.0.0.1:${between.port}/${path}`
const file = (name: string, text: string) => {
  const path = join(home, name)
  writeFileSync(path, text)
  return path
}
const big = async (client: StoreClient): Promise<StoredObject> => {
  const found = (await all(client)).find(({ path }) => path === 'simple/1/model.onnx')
  if (found === undefined) throw new Error('no object')
  return found
}
/** Key and region of the last request. */
const lastSigned = () =>
  /Credential=([^/]+)\/\d+\/([^/]+)\//.exec(String(between.requests.at(-1)?.headers.authorization))?.slice(1)

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-s3-'))
  // The library's own places for profiles and keys.
  for (const name of Object.keys(process.env)) if (name.startsWith('AWS_')) delete process.env[name]
  Object.assign(process.env, {
    HOME: home,
    AWS_CONFIG_FILE: join(home, 'config'),
    AWS_SHARED_CREDENTIALS_FILE: join(home, 'credentials'),
    AWS_EC2_METADATA_DISABLED: 'true',
  })
  open = await load('s3')
  moto = await startMoto()
  between = await startBetween(moto.port)
  await moto.put('models')
  await moto.put('models/repository/simple/config.pbtxt', 'name: "simple"')
  await moto.put('models/repository/simple/1/model.onnx', BIG)
  await moto.put('models/repository/simple/1/', '')
  await moto.put('models/repository/simple_other/1/model.onnx', 'other')
  await moto.put('models/beside/1/model.onnx', 'beside')
}, 300_000)

afterEach(() => {
  Object.assign(between, { answers: [], cutAfter: null, holdAfter: null, requests: [] })
})

afterAll(async () => {
  await between?.stop()
  await moto?.stop()
  rmSync(home, { recursive: true, force: true })
})

describe('places', () => {
  test.each([
    's3://HOST/models/repository',
    's3://http://HOST/models/repository',
    's3://HOST//models///repository//',
    's3://http://HOST/models/repository/',
  ])('%s', async (url) => {
    const client = await open(url.replace('HOST', `127.0.0.1:${between.port}`), KEYS)
    expect((await all(client)).map(({ path }) => path)).toEqual([
      'simple/1/',
      'simple/1/model.onnx',
      'simple/config.pbtxt',
      'simple_other/1/model.onnx',
    ])
    client.close()
  })

  test('a bucket without a path is a repository, too', async () => {
    const client = await open(place('models'), KEYS)
    expect((await all(client)).map(({ path }) => path)).toContain('beside/1/model.onnx')
    client.close()
  })

  test('https:// is asked for a certificate', async () => {
    const client = await open(`s3://https://127.0.0.1:${between.port}/models/repository`, KEYS)
    const { failure, message } = await thrown(() => all(client))
    expect(failure).toBe('unavailable')
    expect(message).toContain(`https://127.0.0.1:${between.port} did not respond`)
    client.close()
  })

  test('without a host it is AWS, or what the variables of its library name', async () => {
    process.env.AWS_ENDPOINT_URL_S3 = `http://127.0.0.1:${between.port}`
    const client = await open('s3://models/repository', { ...KEYS, AWS_DEFAULT_REGION: 'eu-west-3' })
    expect(await all(client)).toHaveLength(4)
    expect(lastSigned()).toEqual(['AKIDPLAIN', 'eu-west-3'])
    client.close()
    delete process.env.AWS_ENDPOINT_URL_S3
  })

  test.each([
    's3://',
    's3:///',
    's3://127.0.0.1:9000',
    's3://http://127.0.0.1:9000/',
    's3://user:word@127.0.0.1:9000/models',
  ])('%s is none', async (url) => {
    const { failure, message } = await thrown(() => open(url, KEYS))
    expect(failure).toBe('invalid')
    expect(message).not.toContain('word')
  })
})

describe('lists', () => {
  test('have the size, the version and the MD5 of each object', async () => {
    const client = await open(place(), KEYS)
    const model = await big(client)
    const md5 = createHash('md5').update(BIG).digest('hex')
    expect(model).toEqual({ path: 'simple/1/model.onnx', size: BIG.length, version: md5, md5 })
    client.close()
  })

  test('of one path have nothing of another that begins alike', async () => {
    const client = await open(place('models/repository/simple'), KEYS)
    expect((await all(client)).map(({ path }) => path)).toEqual(['1/', '1/model.onnx', 'config.pbtxt'])
    client.close()
  })

  test('of more than 1,000 objects come in pages', async () => {
    await moto.put('many')
    for (let i = 0; i < 1050; i += 50)
      await Promise.all(Array.from({ length: 50 }, (_, j) => moto.put(`many/m/${i + j}`, 'x')))
    const client = await open(place('many'), KEYS)
    const pages: number[] = []
    const names = new Set<string>()
    for await (const page of client.list(never)) {
      pages.push(page.length)
      for (const { path } of page) names.add(path)
    }
    expect(pages.length).toBeGreaterThan(1)
    expect(names.size).toBe(1050)
    client.close()
  })

  test('have odd names as they are', async () => {
    await moto.put('odd')
    const names = ['a b+c&d.txt', 'ü/%2e.txt', 'control\x01', 'up/..%5c/x']
    for (const name of names) await moto.put(`odd/${encodeURIComponent(name)}`, 'x')
    const client = await open(place('odd'), KEYS)
    const found = await all(client)
    expect(found.map(({ path }) => path).toSorted()).toEqual(names.toSorted())
    for (const object of found) expect(String(await read(client, object))).toBe('x')
    client.close()
  })
})

describe('reads', () => {
  test('give the bytes that were requested', async () => {
    const client = await open(place(), KEYS)
    const model = await big(client)
    expect(BIG.equals(await read(client, model))).toBe(true)
    expect(BIG.subarray(5, 1 << 20).equals(await read(client, model, 5, 1 << 20))).toBe(true)
    expect(await read(client, model, BIG.length - 1)).toEqual(BIG.subarray(-1))
    expect(await read(client, model, 7, 7)).toHaveLength(0)
    client.close()
  })

  test('are as many at a time as are asked for', async () => {
    const client = await open(place(), KEYS)
    const model = await big(client)
    const part = BIG.length / 64
    const parts = await Promise.all(Array.from({ length: 64 }, (_, i) => read(client, model, i * part, (i + 1) * part)))
    expect(BIG.equals(Buffer.concat(parts))).toBe(true)
    client.close()
  })

  test('of an object that is encrypted by a key of KMS have no MD5', async () => {
    await moto.put('models/encrypted/1/model.onnx', 'abc', { 'x-amz-server-side-encryption': 'aws:kms' })
    await moto.put('models/encrypted/1/empty', '', { 'x-amz-server-side-encryption': 'aws:kms' })
    const client = await open(place('models/encrypted'), KEYS)
    const [empty, object] = await all(client)
    if (object === undefined) throw new Error('no object')
    expect([empty?.md5, object.md5]).toEqual([null, object.version])
    expect(String(await read(client, object))).toBe('abc')
    expect(object.md5).toBeNull()
    client.close()
  })

  test('of an object that was written anew say so', async () => {
    await moto.put('models/changing/1/model.onnx', 'before')
    const client = await open(place('models/changing'), KEYS)
    const [object] = await all(client)
    if (object === undefined) throw new Error('no object')
    await moto.put('models/changing/1/model.onnx', 'behind')
    const { failure, message } = await thrown(() => read(client, object))
    expect(failure).toBe('changed')
    expect(message).toContain('412 PreconditionFailed')
    client.close()
  })

  test('end at once when nobody wants them any more, and leave no connection', async () => {
    const client = await open(place(), KEYS)
    const model = await big(client)
    between.holdAfter = 1000
    const stop = new AbortController()
    const reading = (async () => {
      for await (const part of await client.read(model, 0, model.size, stop.signal))
        if (part.length > 0) setImmediate(() => stop.abort(new Error('enough')))
    })()
    await expect(reading).rejects.toThrow('enough')
    await vi.waitFor(() =>
      expect([...between.connections].filter(({ bytesWritten }) => bytesWritten > 0).length).toBeLessThanOrEqual(1),
    )
    // A read whose body was never consumed ends, too.
    const other = new AbortController()
    await client.read(model, 0, model.size, other.signal)
    other.abort()
    client.close()
    await vi.waitFor(() => expect(between.connections.size).toBe(0))
  })
})

describe('what storage does not give', () => {
  test('a bucket or an object that is absent', async () => {
    const client = await open(place('nobody/repository'), KEYS)
    const bucket = await thrown(() => all(client))
    expect(bucket.failure).toBe('absent')
    expect(bucket.message).toContain(`the bucket 'nobody' does not exist at http://127.0.0.1:${between.port}`)
    client.close()
    const other = await open(place(), KEYS)
    const model = await big(other)
    const object = await thrown(() => read(other, { ...model, path: 'simple/2/model.onnx' }))
    expect(object.failure).toBe('absent')
    expect(object.message).toContain('404 NoSuchKey')
    other.close()
  })

  test('behind a host, the bucket and the key that were requested', async () => {
    const form = 'set AWS_ENDPOINT_URL_S3=SCHEME://HOST:PORT without it, and name the repository s3://BUCKET/PATH'
    const client = await open(place(), KEYS)
    const absent = await thrown(async () => read(client, { ...(await big(client)), path: 'simple/2/model.onnx' }))
    expect(absent.message).toContain("it was requested for 'repository/simple/2/model.onnx' in the bucket 'models'; ")
    between.answers.push({ status: 400, body: '<Error><Code>InvalidRequest</Code></Error>' })
    const refused = await thrown(() => all(client))
    expect(refused.message).toContain("400 InvalidRequest: it was requested for 'repository' in the bucket 'models'; ")
    for (const { message } of [absent, refused]) expect(message.endsWith(form)).toBe(true)
    client.close()
  })

  test('an answer that comes at a later attempt', async () => {
    const client = await open(place(), KEYS)
    between.answers.push(
      { status: 503, body: '<Error><Code>SlowDown</Code></Error>' },
      { status: 500, body: 'a proxy' },
    )
    expect(await all(client)).toHaveLength(4)
    expect(between.requests).toHaveLength(3)
    client.close()
  })

  test('no answer but that it is busy', async () => {
    const client = await open(place(), KEYS)
    between.answers.push(
      ...Array.from({ length: 20 }, () => ({ status: 503, body: '<Error><Code>SlowDown</Code></Error>' })),
    )
    const { failure, message } = await thrown(() => all(client))
    expect(failure).toBe('unavailable')
    expect(message).toContain('answered 503 SlowDown')
    expect(between.requests).toHaveLength(5)
    client.close()
  })

  test('the rest of an object, when a connection is cut: no byte comes twice', async () => {
    const client = await open(place(), KEYS)
    const model = await big(client)
    Object.assign(between, { cutAfter: 100_000, requests: [] })
    const parts: Uint8Array[] = []
    const { failure, message } = await thrown(async () => {
      for await (const part of await client.read(model, 0, model.size, never)) parts.push(part)
    })
    expect([failure, message]).toEqual(['unavailable', expect.stringContaining('the connection to')])
    const got = Buffer.concat(parts)
    expect(BIG.subarray(0, got.length).equals(got)).toBe(true)
    expect(between.requests).toHaveLength(1)
    between.cutAfter = null
    expect(BIG.subarray(got.length).equals(await read(client, model, got.length))).toBe(true)
    client.close()
  })

  test('anything, where nobody listens', async () => {
    const client = await open('s3://127.0.0.1:1/models/repository', KEYS)
    const { failure, message } = await thrown(() => all(client))
    expect([failure, message]).toEqual(['unavailable', expect.stringContaining('ECONNREFUSED')])
    client.close()
  })
})

describe('credentials', () => {
  const PROFILES =
    '[profile plain]\nregion = eu-north-1\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s\n\n' +
    '[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key = s\n'

  test('of a profile: its keys and its region; without a name, of the default one', async () => {
    file('config', PROFILES)
    for (const [environment, signed] of [
      [{ AWS_PROFILE: 'plain' }, ['AKIDPROFILE', 'eu-north-1']],
      [{ AWS_PROFILE: 'plain', AWS_DEFAULT_REGION: 'eu-west-1' }, ['AKIDPROFILE', 'eu-west-1']],
      [{}, ['AKIDDEFAULT', 'us-east-1']],
      [{ ...KEYS, AWS_PROFILE: 'plain' }, ['AKIDPLAIN', 'us-east-1']],
    ] as const) {
      const client = await open(place(), environment)
      await all(client)
      expect(lastSigned()).toEqual(signed)
      client.close()
    }
    rmSync(join(home, 'config'))
  })

  test('of a program that a profile names, which runs again when they are refused', async () => {
    const program = file(
      'program',
      `#!/bin/sh\necho run >> ${join(home, 'runs')}\necho '{"Version":1,"AccessKeyId":"AKID'$(wc -l < ` +
        `${join(home, 'runs')})'","SecretAccessKey":"s","SessionToken":"t"}'\n`,
    )
    chmodSync(program, 0o755)
    file('config', `[profile program]\ncredential_process = ${program}\n`)
    const client = await open(place(), { AWS_PROFILE: 'program' })
    expect(await all(client)).toHaveLength(4)
    expect(lastSigned()?.[0]).toBe('AKID1')
    expect(between.requests.at(-1)?.headers['x-amz-security-token']).toBe('t')
    between.answers.push({ status: 400, body: '<Error><Code>ExpiredToken</Code></Error>' })
    expect(await all(client)).toHaveLength(4)
    expect(lastSigned()?.[0]).toBe('AKID2')
    client.close()
    file('config', '[profile program]\ncredential_process = sh -c "echo hidden-secret; exit 3"\n')
    const broken = await open(place(), { AWS_PROFILE: 'program' })
    const { failure, message } = await thrown(() => all(broken))
    expect(failure).toBe('denied')
    expect(message).not.toContain('hidden-secret')
    broken.close()
    rmSync(join(home, 'config'))
  })

  test('that are wrong are refused, and the message says what to set', async () => {
    const { id, secret } = await moto.requireKeys()
    try {
      const good = await open(`s3://127.0.0.1:${moto.port}/models/repository`, {
        AWS_ACCESS_KEY_ID: id,
        AWS_SECRET_ACCESS_KEY: secret,
      })
      expect(await all(good)).toHaveLength(4)
      good.close()
      for (const [environment, code] of [
        [KEYS, 'InvalidAccessKeyId'],
        [{ AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: 'hidden-secret' }, 'SignatureDoesNotMatch'],
      ] as const) {
        const client = await open(`s3://127.0.0.1:${moto.port}/models/repository`, environment)
        const { failure, message } = await thrown(() => all(client))
        expect(failure, code).toBe('denied')
        expect(message).toContain(code)
        expect(message).toContain('set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY')
        expect(message).not.toContain('hidden-secret')
        client.close()
      }
      // A file that is rotated while the server runs is read again.
      const path = file('keys.json', JSON.stringify({ s3: { '': { key_id: id, secret_key: 'hidden-secret' } } }))
      const client = await open(`s3://127.0.0.1:${moto.port}/models/repository`, { TRITON_CLOUD_CREDENTIAL_PATH: path })
      const { failure, message } = await thrown(() => all(client))
      expect([failure, message]).toEqual(['denied', expect.stringContaining(path)])
      file('keys.json', JSON.stringify({ s3: { '': { key_id: id, secret_key: secret } } }))
      expect(await all(client)).toHaveLength(4)
      client.close()
    } finally {
      await moto.takeAllKeys()
    }
  })

  test('that are nowhere are enough for what everybody may list, and no more', async () => {
    const client = await open(place(), {})
    const model = await big(client)
    expect(between.requests.at(-1)?.headers).not.toHaveProperty('authorization')
    const { failure, message } = await thrown(() => read(client, model))
    expect([failure, message]).toEqual([
      'denied',
      expect.stringContaining('no credentials were found: set AWS_ACCESS_KEY_ID'),
    ])
    client.close()
  })

  test.each([
    [
      'one that is named',
      '[profile hangs]',
      { AWS_PROFILE: 'hangs' },
      /^s3:.* cannot be listed: the profile that has the credentials did not respond \(ETIMEDOUT\): set AWS_ACCESS_KEY_ID/,
    ],
    ['the default', '[default]', {}, null],
  ])(
    'a program of a profile that hangs, %s, is waited for a while',
    { timeout: 60_000 },
    async (_, section, environment, words) => {
      file('begun', '')
      const program = file('hangs.sh', `#!/bin/sh\necho $$ >> ${join(home, 'begun')}\nexec sleep 300\n`)
      chmodSync(program, 0o755)
      file('config', `${section}\ncredential_process = ${program}\n`)
      try {
        const client = await open(place(), environment)
        if (words === null) expect(await all(client)).toHaveLength(4)
        else
          expect(await thrown(() => all(client))).toMatchObject({
            failure: 'denied',
            message: expect.stringMatching(words) as string,
          })
        client.close()
      } finally {
        const begun = readFileSync(join(home, 'begun'), 'utf8').trim().split('\n').map(Number)
        for (const pid of begun) process.kill(pid)
        expect(begun).toHaveLength(1)
        rmSync(join(home, 'config'))
      }
    },
  )

  test.each(['head -c 10000000 /dev/zero', '/nothing/here'])(
    'a program of a profile that is no such program: %s',
    async (program) => {
      file('config', `[profile program]\ncredential_process = ${program}\n`)
      const client = await open(place(), { AWS_PROFILE: 'program' })
      const { failure, message } = await thrown(() => all(client))
      expect([failure, message]).toEqual([
        'denied',
        expect.stringContaining('the profile that has the credentials did not respond (CredentialsProviderError)'),
      ])
      expect(message.length).toBeLessThan(1000)
      client.close()
      rmSync(join(home, 'config'))
    },
  )

  test('R-43: of the file, those with the longest beginning of the URL, and no variables', async () => {
    file('config', PROFILES)
    const path = file(
      'keys.json',
      JSON.stringify({
        s3: {
          '': { key_id: 'AKIDREST', secret_key: 's', region: 'eu-central-1' },
          [place('models')]: { key_id: 'AKIDBUCKET', secret_key: 's' },
          [place('models/rep')]: { key_id: 'AKIDLONGEST', secret_key: 's', session_token: 't' },
          [place('models/beside')]: { profile: 'plain' },
          [place('many')]: {},
        },
      }),
    )
    const environment = {
      ...KEYS,
      AWS_DEFAULT_REGION: 'eu-west-1',
      AWS_PROFILE: 'absent',
      TRITON_CLOUD_CREDENTIAL_PATH: path,
    }
    for (const [at, signed] of [
      ['models/repository', ['AKIDLONGEST', 'us-east-1']],
      ['models/other', ['AKIDBUCKET', 'us-east-1']],
      ['models/beside', ['AKIDPROFILE', 'eu-north-1']],
      ['many', ['AKIDDEFAULT', 'us-east-1']],
      ['odd', ['AKIDREST', 'eu-central-1']],
    ] as const) {
      const client = await open(place(at), environment)
      await all(client)
      expect(lastSigned(), at).toEqual(signed)
      client.close()
    }
    rmSync(join(home, 'config'))
  })

  test('R-43: a file without them, or that cannot be read, is told without what is in it', async () => {
    const url = place()
    for (const [text, words] of [
      ['{"s3":{"s3://other":{}}}', `Cannot match credential for path  ${url}`],
      ['{"gs":{"":"/x"}}', `Cannot match credential for path  ${url}`],
      ['{"s3":{"":{"secret_key": hidden-secret', 'is not a JSON object'],
      ['{"s3":{"":{"secret_key":["hidden-secret"]}}}', '"secret_key" below "s3" must be a string'],
      ['{"s3":{"":"hidden-secret"}}', 'must be an object with secret_key, key_id'],
    ] as const) {
      const { failure, message } = await thrown(() =>
        open(url, { ...KEYS, TRITON_CLOUD_CREDENTIAL_PATH: file('bad.json', text) }),
      )
      expect([failure, message]).toEqual(['invalid', expect.stringContaining(words)])
      expect(message).not.toContain('hidden-secret')
    }
    const { message } = await thrown(() => open(url, { TRITON_CLOUD_CREDENTIAL_PATH: join(home, 'nothing.json') }))
    expect(message).toContain('cannot be read (ENOENT)')
  })
})

describe('answers of something else than storage', () => {
  const page = (text: string) => Array.from({ length: 20 }, () => ({ status: 200, body: text }))

  test.each(['<html><body>Please log in</body></html>', '<!doctype html><br>Please log in', '<Error/>', '', '{}'])(
    'a list that is %j is none, and not one of no models',
    { timeout: 60_000 },
    async (text) => {
      const client = await open(place(), KEYS)
      between.answers = page(text)
      const { failure, message } = await thrown(() => all(client))
      expect([failure, message]).toEqual([
        'unavailable',
        expect.stringMatching(
          /^s3:.*models\/repository cannot be listed: http:.* answered 200 .*: this is not a response of the storage: check that no proxy responds in its place$/,
        ),
      ])
      client.close()
    },
  )

  test('an object that is a page without a length is not read', async () => {
    const client = await open(place(), KEYS)
    const model = (await all(client)).find(({ path }) => path === 'simple/1/model.onnx')
    if (model === undefined) throw new Error('no object')
    between.answers = page('<html>Please log in</html>')
    const { failure, message } = await thrown(() => read(client, model))
    expect([failure, message]).toEqual([
      'unavailable',
      expect.stringContaining('this is not a response of the storage'),
    ])
    client.close()
  })

  test.each([1, 2, 3])('a list whose tokens repeat after %d pages ends', async (round) => {
    const client = await open(place(), KEYS)
    const list = (token: string) =>
      '<ListBucketResult><Name>models</Name><IsTruncated>true</IsTruncated>' +
      `<NextContinuationToken>${token}</NextContinuationToken></ListBucketResult>`
    between.answers = Array.from({ length: 50 }, (_, i) => ({ status: 200, body: list(`token${i % round}`) }))
    const { failure, message } = await thrown(() => all(client))
    expect([failure, message]).toEqual([
      'invalid',
      expect.stringMatching(/models\/repository cannot be listed: http:.* returns the same pages repeatedly$/),
    ])
    client.close()
  })
})

test('a client prints nothing, and its process ends when it is closed', async () => {
  const program = `
    const { open } = await import(${JSON.stringify(`file://${ROOT}/dist/stores/s3.mjs`)})
    const client = await open(process.argv[1], process.env)
    const signal = new AbortController().signal
    for await (const page of client.list(signal))
      for (const object of page) if (object.size > 0) for await (const _ of await client.read(object, 0, 1, signal));
    client.close()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program, place()], {
    env: { ...process.env, ...KEYS, AWS_PROFILE: 'x' },
  })
  let printed = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (printed += String(text)))
  const code = await new Promise((resolve) => child.once('exit', resolve))
  expect([code, printed]).toEqual([0, ''])
})
