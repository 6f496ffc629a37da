/** Which objects are compared with the checksum that storage has, and what becomes of damaged downloads. */
import { spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import zlib from 'node:zlib'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { DownloadCache } from '../../src/stores/cache.js'
import { readDigests } from '../../src/stores/checksum.js'
import type { ChecksumAlgorithm, StoreClient, StoredObject } from '../../src/stores/client.js'
import { Mirror } from '../../src/stores/mirror.js'
import { ROOT, TestServer } from '../server/harness.js'
import { all, load, never, thrown } from './client.js'
import { motoEnvironment, startMoto } from './moto.mjs'

const home = mkdtempSync(join(tmpdir(), 'nereid-checksum-'))
const KEYS = { AWS_ACCESS_KEY_ID: 'reader', AWS_SECRET_ACCESS_KEY: 'hidden', AWS_DEFAULT_REGION: 'us-east-1' }
/** Three parts of a client that uploads in parts of 8 MiB. */
const CONTENT = randomBytes(20_000_003)
const closing: Server[] = []
let made = 0

/** Listens on a free port of loopback, until the tests end. */
async function listen(server: Server): Promise<number> {
  closing.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

/** Downloads a model through a client, as a server does. Returns its directory. */
async function download(client: StoreClient, model = 'm'): Promise<string> {
  made += 1
  const directory = join(home, String(made))
  const cache = new DownloadCache(join(directory, 'cache'), 0, 1)
  await cache.open()
  const mirror = new Mirror(client, 'repository', cache, join(directory, 'models'))
  const stamp = (await mirror.list(never)).get(model)?.stamp ?? ''
  onTestFinished(() => client.close())
  try {
    return await mirror.materialise(model, stamp, never, () => {})
  } finally {
    expect(readdirSync(join(directory, 'cache/parts'))).toEqual([])
  }
}

afterAll(() => {
  for (const server of closing) {
    server.close()
    server.closeAllConnections()
  }
  rmSync(home, { recursive: true, force: true })
})

describe('digests of files', () => {
  const file = join(home, 'digest')
  const digest = async (content: Buffer, algorithm: ChecksumAlgorithm, partBytes: number | null = null) => {
    writeFileSync(file, content)
    return (await readDigests(file, [{ algorithm, partBytes }], never)).digests[0] ?? ''
  }

  /** The definition, bit by bit. */
  function crc(content: Uint8Array, polynomial: bigint, bits: number): string {
    const ones = (1n << BigInt(bits)) - 1n
    let found = ones
    for (const byte of content) {
      found ^= BigInt(byte)
      for (let bit = 0; bit < 8; bit += 1) found = (found >> 1n) ^ (found & 1n ? polynomial : 0n)
    }
    return (found ^ ones).toString(16).padStart(bits / 4, '0')
  }

  // The check values of the catalogue of parametrised CRC algorithms, and those of OpenSSL.
  test.each([
    ['CRC32', 'cbf43926'],
    ['CRC32C', 'e3069283'],
    ['CRC64NVME', 'ae8b14860a799888'],
    ['MD5', '25f9e794323b453885f5181f1b624d0b'],
    ['SHA1', 'f7c3bc1d808e04732adf679965ccc34ca7ae3441'],
  ] as const)('%s of the digits from 1 to 9 is %s', async (algorithm, known) => {
    expect(await digest(Buffer.from('123456789'), algorithm)).toBe(known)
  })

  test.each([
    ['CRC32', 0xedb88320n, 32],
    ['CRC32C', 0x82f63b78n, 32],
    ['CRC64NVME', 0x9a6c9329ac4bc9b5n, 64],
  ] as const)(
    '%s of any length is that of its definition, also of parts at odd offsets',
    async (algorithm, polynomial, bits) => {
      for (const length of [0, 1, 7, 8, 9, 4099]) {
        const content = randomBytes(length)
        expect(await digest(content, algorithm), `${length} bytes`).toBe(crc(content, polynomial, bits))
      }
      const content = randomBytes(1003)
      const parts: Buffer[] = []
      for (let at = 0; at < content.length; at += 37)
        parts.push(Buffer.from(crc(content.subarray(at, at + 37), polynomial, bits), 'hex'))
      expect(await digest(content, algorithm, 37)).toBe(crc(Buffer.concat(parts), polynomial, bits))
    },
  )

  test('CRC32 is the same on versions of Node without zlib.crc32', async () => {
    const content = randomBytes(4099)
    const native = zlib.crc32
    const expected = await digest(content, 'CRC32')
    Object.assign(zlib, { crc32: undefined })
    try {
      expect(await digest(content, 'CRC32')).toBe(expected)
    } finally {
      Object.assign(zlib, { crc32: native })
    }
  })

  test.each([1000, 3000, 3001])('the MD5 of MD5s of parts: %d bytes in parts of 1000', async (length) => {
    const content = randomBytes(length)
    const sums = createHash('md5')
    for (let at = 0; at < length; at += 1000)
      sums.update(
        createHash('md5')
          .update(content.subarray(at, at + 1000))
          .digest(),
      )
    expect(await digest(content, 'MD5', 1000)).toBe(sums.digest('hex'))
  })
})

/**
 * Forwards to an emulator, and flips a bit in each object that it sends, as often as `damaged` says. `head` has headers
 * that answers to HEAD get.
 */
async function startDamaging(port: number) {
  const state = { port: 0, damaged: 0, head: {} as Record<string, string>, requests: [] as string[] }
  const server = createServer((asked, answer) => {
    const { method, url = '', headers } = asked
    state.requests.push(`${method} ${url}`)
    const sent = request({ port, host: '127.0.0.1', method, path: url, headers }, (storage) => {
      answer.writeHead(storage.statusCode ?? 0, { ...storage.headers, ...(method === 'HEAD' ? state.head : {}) })
      let isDamaged = headers.range !== undefined && url.includes('/1/') && state.damaged > 0
      if (isDamaged) state.damaged -= 1
      storage.on('data', (chunk: Buffer) => {
        if (isDamaged && chunk.length > 0) chunk.writeUInt8(chunk.readUInt8(0) ^ 1)
        isDamaged = false
        answer.write(chunk)
      })
      storage.on('end', () => answer.end())
    })
    sent.on('error', () => asked.socket.destroy())
    asked.pipe(sent)
  })
  state.port = await listen(server)
  return state
}

describe('S3', () => {
  let moto: Awaited<ReturnType<typeof startMoto>>
  let proxy: Awaited<ReturnType<typeof startDamaging>>
  const open = async (path: string) => (await load('s3'))(`s3://127.0.0.1:${proxy.port}/${path}`, KEYS)

  /** Uploads with Amazon's client for Python, each object as a model of its own. */
  const FILL = `
import boto3, io, sys
s3 = boto3.client('s3', endpoint_url=sys.argv[1])
body = open(sys.argv[2], 'rb').read()
s3.create_bucket(Bucket='sums')
def upload(model, **extra):
    s3.upload_fileobj(io.BytesIO(body), 'sums', f'{model}/m/1/weights', ExtraArgs=extra)
upload('default')
upload('full', ChecksumAlgorithm='CRC32', ChecksumType='FULL_OBJECT')
upload('kms', ServerSideEncryption='aws:kms')
def put(model, **extra):
    s3.put_object(Bucket='sums', Key=f'{model}/m/1/weights', Body=body, **extra)
put('single')
put('single-kms', ChecksumAlgorithm='SHA256', ServerSideEncryption='aws:kms')
cuts = [0, 6 << 20, 14 << 20, len(body)]
target = {'Bucket': 'sums', 'Key': 'uneven/m/1/weights'}
target['UploadId'] = s3.create_multipart_upload(**target)['UploadId']
parts = []
for i in range(3):
    part = s3.upload_part(**target, PartNumber=i + 1, Body=body[cuts[i]:cuts[i + 1]])
    parts.append({'PartNumber': i + 1, 'ETag': part['ETag']})
s3.complete_multipart_upload(**target, MultipartUpload={'Parts': parts})
`

  beforeAll(async () => {
    for (const name of Object.keys(process.env)) if (name.startsWith('AWS_')) delete process.env[name]
    process.env.AWS_EC2_METADATA_DISABLED = 'true'
    moto = await startMoto()
    proxy = await startDamaging(moto.port)
    writeFileSync(join(home, 'content'), CONTENT)
    const { python } = await motoEnvironment()
    const filled = spawnSync(python, ['-c', FILL, moto.url, join(home, 'content')], {
      env: { ...process.env, ...KEYS },
      encoding: 'utf8',
    })
    expect(filled.stderr).toBe('')
  }, 300_000)

  beforeEach(() => {
    Object.assign(proxy, { damaged: 0, head: {}, requests: [] })
  })

  afterAll(async () => {
    await moto?.stop()
  })

  const weights = async (client: StoreClient): Promise<StoredObject> => {
    const object = (await all(client)).find(({ path }) => path === 'm/1/weights')
    if (object === undefined) throw new Error('no object')
    // A read shows the encryption.
    for await (const part of await client.read(object, 0, 1, never)) expect(part).toHaveLength(1)
    return object
  }

  const COMPARED = [
    ['upload of boto3, in parts of 8 MiB', 'default', 'MD5 of its parts'],
    ['upload in parts with a checksum of the whole', 'full', 'CRC32'],
    ['upload in one piece', 'single', 'MD5'],
    ['upload with KMS encryption and a checksum', 'single-kms', 'SHA256'],
  ] as const

  test.each(COMPARED)('an %s is compared, and downloaded again when it is damaged', async (_, name) => {
    proxy.damaged = 1
    const directory = await download(await open(`sums/${name}`))
    expect(readFileSync(join(directory, '1/weights')).equals(CONTENT)).toBe(true)
    expect(proxy.damaged).toBe(0)
    expect(proxy.requests.filter((line) => line.startsWith('GET /sums') && line.includes('weights'))).toHaveLength(6)
  })

  test.each(COMPARED)('an %s that is damaged twice fails its model', async (_, name, kind) => {
    proxy.damaged = Infinity
    const { failure, message } = await thrown(async () => download(await open(`sums/${name}`)))
    expect(failure).toBe('damaged')
    const words = `^the received 'm/1/weights' has the ${kind} [0-9a-f]+, but storage reports [0-9a-f]+: it was damaged`
    expect(message).toMatch(new RegExp(words))
  })

  test('a checksum of parts that is cheaper than MD5 is compared instead', async () => {
    const path = join(home, 'parts')
    writeFileSync(path, CONTENT)
    const [crc = ''] = (await readDigests(path, [{ algorithm: 'CRC32', partBytes: 8 << 20 }], never)).digests
    const stored = (digest: string) => ({
      'x-amz-checksum-crc32': `${Buffer.from(digest, 'hex').toString('base64')}-3`,
      'x-amz-checksum-type': 'COMPOSITE',
    })
    proxy.head = stored(crc)
    const directory = await download(await open('sums/default'))
    expect(readFileSync(join(directory, '1/weights')).equals(CONTENT)).toBe(true)
    proxy.head = stored('01234567')
    const { message } = await thrown(async () => download(await open('sums/default')))
    expect(message).toContain(`has the CRC32 of its parts ${crc}, but storage reports 01234567: `)
  })

  test.each([
    [
      'parts of different sizes, without a checksum of the whole',
      'uneven',
      'it was uploaded in parts of different or unknown sizes, without a checksum of the whole',
    ],
    ['KMS encryption, without a checksum', 'kms', 'it was stored without a checksum that is compared here'],
  ])('an upload with %s is not compared, and the client says why', async (_, name, missing) => {
    const client = await open(`sums/${name}`)
    expect(await client.checksum?.(await weights(client), never)).toEqual({ missing })
    const directory = await download(client)
    expect(readFileSync(join(directory, '1/weights')).equals(CONTENT)).toBe(true)
  })

  test('an object that has an MD5 costs no further request', async () => {
    await download(await open('sums/single'))
    expect(proxy.requests.filter((line) => line.startsWith('HEAD'))).toEqual([])
  })

  test(
    'a server repeats a damaged download, logs a lasting damage',
    {
      timeout: 60_000,
    },
    async () => {
      const examples = join(ROOT, 'examples/models/simple')
      await moto.put('served')
      await moto.put('served/simple/1/model.onnx', readFileSync(join(examples, '1/model.onnx')))
      const kms = { 'x-amz-server-side-encryption': 'aws:kms' }
      await moto.put('served/simple/config.pbtxt', readFileSync(join(examples, 'config.pbtxt')), kms)
      proxy.damaged = 1
      const server = await TestServer.start(
        `s3://127.0.0.1:${proxy.port}/served`,
        ['--model-control-mode=explicit', `--repository-cache-directory=${home}`, '--load-model=simple'],
        { env: { ...process.env, ...KEYS, NODE_DEBUG: 'nereid-stores' } },
      )
      onTestFinished(async () => void (await server.stop()))
      const post = async (path: string) =>
        fetch(`${server.url}/v2/repository/models/simple/${path}`, { method: 'POST' })
      expect((await fetch(`${server.url}/v2/models/simple/ready`)).status).toBe(200)
      expect(server.output()).toMatch(/NEREID-STORES .*'simple\/1\/model.onnx' has the MD5 .*; it is downloaded again/)
      const uncompared = "the download of 'simple/config.pbtxt' is not compared with a checksum: it was stored without"
      expect(server.output()).toContain(uncompared)
      // A new version of the file, so that the cache does not have it.
      const onnx = Buffer.concat([readFileSync(join(examples, '1/model.onnx')), Buffer.from([0])])
      await moto.put('served/simple/1/model.onnx', onnx)
      proxy.damaged = Infinity
      expect((await post('load')).status).toBe(500)
      expect(server.output()).toMatch(
        /'simple\/1\/model\.onnx' has the MD5 \w+, but storage reports \w+: it was damaged/,
      )
      expect((await fetch(`${server.url}/v2/models/simple/ready`)).status).toBe(200)
    },
  )
})

describe('other clouds', () => {
  type Answer = (asked: IncomingMessage, answer: ServerResponse) => void
  const content = Buffer.from('123456789')
  const md5 = createHash('md5').update(content).digest('base64')

  /** Answers a range of the content. */
  function sendRange(asked: IncomingMessage, answer: ServerResponse, headers: Record<string, string>): void {
    const range = String(asked.headers.range ?? asked.headers['x-ms-range'])
    const [, from, to] = /bytes=(\d+)-(\d+)/.exec(range) ?? []
    const part = content.subarray(Number(from), Number(to) + 1)
    answer.writeHead(206, { ...headers, 'content-length': part.length }).end(part)
  }

  /** A bucket with one object, which has this CRC32C, or what `metadata` answers. */
  async function google(crc32c: string | undefined, metadata?: Answer): Promise<StoreClient> {
    const port = await listen(
      createServer((asked, answer) => {
        const url = new URL(asked.url ?? '', 'http://x')
        if (url.pathname === '/storage/v1/b/bucket/o')
          return answer.end(JSON.stringify({ items: [{ name: 'm/1/weights', size: '9', generation: '7' }] }))
        expect([url.pathname, url.searchParams.get('ifGenerationMatch')]).toEqual([
          '/storage/v1/b/bucket/o/m%2F1%2Fweights',
          '7',
        ])
        if (url.searchParams.get('alt') === 'media') return sendRange(asked, answer, { 'x-goog-generation': '7' })
        if (metadata !== undefined) return metadata(asked, answer)
        return answer.end(JSON.stringify({ crc32c }))
      }),
    )
    return (await load('gs'))('gs://bucket', { STORAGE_EMULATOR_HOST: `127.0.0.1:${port}` })
  }

  /** A container with one blob, which has this MD5. */
  async function azure(contentMd5: string): Promise<StoreClient> {
    const port = await listen(
      createServer((asked, answer) => {
        const url = new URL(asked.url ?? '', 'http://x')
        if (url.searchParams.get('comp') !== 'list') return sendRange(asked, answer, { etag: '"7"' })
        answer.setHeader('content-type', 'application/xml')
        return answer.end(
          '<?xml version="1.0"?><EnumerationResults ContainerName="c"><Blobs><Blob><Name>m/1/weights</Name><Properties>' +
            `<Content-Length>9</Content-Length><Etag>7</Etag><BlobType>BlockBlob</BlobType>${contentMd5}</Properties>` +
            '</Blob></Blobs><NextMarker/></EnumerationResults>',
        )
      }),
    )
    return (await load('as'))(`as://http://127.0.0.1:${port}/account/c`, {})
  }

  const contentOf = async (client: StoreClient): Promise<string> =>
    readFileSync(join(await download(client), '1/weights'), 'utf8')
  const only = async (client: StoreClient): Promise<StoredObject> => (await all(client))[0] ?? expect.fail('no object')

  test('Google: an object without MD5 is compared with its CRC32C', async () => {
    expect(await contentOf(await google('4waSgw=='))).toBe('123456789')
    const { failure, message } = await thrown(async () => download(await google('4waSgg==')))
    expect([failure, message]).toEqual([
      'damaged',
      expect.stringContaining("'m/1/weights' has the CRC32C e3069283, but storage reports e3069282"),
    ])
  })

  test('Google: an object without any is not compared', async () => {
    const client = await google(undefined)
    expect(await client.checksum?.(await only(client), never)).toEqual({ missing: 'it has neither MD5 nor CRC32C' })
    expect(await contentOf(client)).toBe('123456789')
  })

  test.each([
    [412, 'changed'],
    [404, 'absent'],
    [503, 'unavailable'],
  ])('an answer %d instead of the checksum fails the download', async (status, failure) => {
    let requests = 0
    const client = await google('', (_, answer) => {
      requests += 1
      answer.writeHead(status).end()
    })
    const found = await thrown(() => download(client))
    expect(found.failure).toBe(failure)
    expect(found.message).toContain('the checksum of gs://bucket/m/1/weights cannot be read')
    expect(requests).toBe(failure === 'unavailable' ? 5 : 1)
  })

  test('a key that may read the content but not its metadata is enough', async () => {
    const client = await google('', (_, answer) => void answer.writeHead(403).end())
    expect(await contentOf(client)).toBe('123456789')
    const found = await client.checksum?.(await only(client), never)
    expect(found).toEqual({ missing: expect.stringContaining('answered 403') as string })
  })

  test('Azure: a blob is compared with its Content-MD5', async () => {
    expect(await contentOf(await azure(`<Content-MD5>${md5}</Content-MD5>`))).toBe('123456789')
    const wrong = createHash('md5').update('other').digest('base64')
    const { message } = await thrown(async () => download(await azure(`<Content-MD5>${wrong}</Content-MD5>`)))
    expect(message).toContain("'m/1/weights' has the MD5 25f9e794323b453885f5181f1b624d0b, but storage reports")
    for (const none of ['', '<Content-MD5 />']) {
      const client = await azure(none)
      const object = await only(client)
      expect(object.md5).toBeNull()
      expect(await client.checksum?.(object, never)).toEqual({ missing: 'it has no Content-MD5' })
      expect(await contentOf(client)).toBe('123456789')
    }
  })
})
