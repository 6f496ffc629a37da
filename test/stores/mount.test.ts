/** Triton's variables for the directory of downloads, one for each cloud, against small fakes of the storage. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { ROOT, TestServer } from '../server/harness.js'

const EXAMPLE = join(ROOT, 'examples/models/simple')
const OBJECTS = new Map(
  ['config.pbtxt', '1/model.onnx'].map((name) => [`simple/${name}`, readFileSync(join(EXAMPLE, name))]),
)
const CACHE = `nereid-models-${process.getuid?.() ?? 0}`
const ROOTS = /^(\/models|\/storage\/v1\/b\/models\/o|\/account\/models)\/?(.*)$/
let home: string
let host: string

const S3 = () =>
  `<ListBucketResult><Name>models</Name><IsTruncated>false</IsTruncated>${[...OBJECTS]
    .map(([name, { length }]) => `<Contents><Key>${name}</Key><Size>${length}</Size><ETag>"e"</ETag></Contents>`)
    .join('')}</ListBucketResult>`
const GOOGLE = () =>
  JSON.stringify({ items: [...OBJECTS].map(([name, { length }]) => ({ name, size: length, generation: 'e' })) })
const AZURE = () =>
  `<?xml version="1.0"?><EnumerationResults><Blobs>${[...OBJECTS]
    .map(
      ([name, { length }]) =>
        `<Blob><Name>${name}</Name><Properties><Content-Length>${length}</Content-Length><Etag>e</Etag>` +
        '<BlobType>BlockBlob</BlobType></Properties></Blob>',
    )
    .join('')}</Blobs><NextMarker/></EnumerationResults>`

/** Sends a range of an object, or its metadata. */
function send(answer: ServerResponse, name: string, range: string): void {
  const [, from, to] = /bytes=(\d+)-(\d+)/.exec(range) ?? []
  const part = OBJECTS.get(name)?.subarray(Number(from), Number(to) + 1)
  const headers = { etag: '"e"', 'x-goog-generation': 'e', 'content-length': part?.length ?? 0 }
  answer.writeHead(part === undefined ? 404 : 206, headers).end(part)
}

const server = createServer((asked, answer) => {
  const { pathname, searchParams } = new URL(asked.url ?? '', 'http://x')
  const range = String(asked.headers.range ?? asked.headers['x-ms-range'])
  const [, root = '', name = ''] = ROOTS.exec(pathname) ?? []
  if (asked.method === 'HEAD') answer.writeHead(200, { etag: '"e"' }).end()
  else if (name !== '' && searchParams.has('fields')) answer.end('{}')
  else if (name !== '') send(answer, decodeURIComponent(name), range)
  else if (root === '/models') answer.writeHead(200, { 'content-type': 'application/xml' }).end(S3())
  else if (root === '/account/models') answer.writeHead(200, { 'content-type': 'application/xml' }).end(AZURE())
  else answer.end(GOOGLE())
})

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-mount-'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => {
  server.close()
  server.closeAllConnections()
  rmSync(home, { recursive: true, force: true })
})

const filesIn = (mount: string, name: string): string[] => readdirSync(join(mount, CACHE, name))

test.each([
  ['TRITON_AWS_MOUNT_DIRECTORY', () => `s3://${host}/models`],
  ['TRITON_GCS_MOUNT_DIRECTORY', () => 'gs://models'],
  ['TRITON_AZURE_MOUNT_DIRECTORY', () => `as://http://${host}/account/models`],
])(
  '%s names the directory of downloads; the end of the server removes its links',
  { timeout: 60_000 },
  async (variable, url) => {
    // Only the variable of the cloud counts.
    const variables = ['TRITON_AWS_MOUNT_DIRECTORY', 'TRITON_GCS_MOUNT_DIRECTORY', 'TRITON_AZURE_MOUNT_DIRECTORY']
    const environment = Object.fromEntries(variables.map((name) => [name, join(home, `other-than-${variable}`)]))
    const mount = join(home, variable)
    mkdirSync(mount)
    const env = {
      ...process.env,
      AWS_ACCESS_KEY_ID: 'id',
      AWS_SECRET_ACCESS_KEY: 's',
      STORAGE_EMULATOR_HOST: host,
      ...environment,
      [variable]: mount,
    }
    const running = await TestServer.start(url(), [], { env })
    onTestFinished(async () => void (await running.stop()))
    expect((await fetch(`${running.url}/v2/models/simple/ready`)).status).toBe(200)
    expect([filesIn(mount, 'objects').length, filesIn(mount, 'trees').length]).toEqual([OBJECTS.size, 1])
    await running.stop()
    expect(filesIn(mount, 'trees')).toEqual([])
    expect(existsSync(join(home, `other-than-${variable}`))).toBe(false)
  },
)

test('--repository-cache-directory is used instead of the variable', { timeout: 60_000 }, async () => {
  const [named, mount] = [join(home, 'named'), join(home, 'unused')]
  mkdirSync(named)
  const running = await TestServer.start('gs://models', [`--repository-cache-directory=${named}`], {
    env: { ...process.env, STORAGE_EMULATOR_HOST: host, TRITON_GCS_MOUNT_DIRECTORY: mount },
  })
  onTestFinished(async () => void (await running.stop()))
  expect([filesIn(named, 'objects').length, existsSync(mount)]).toEqual([OBJECTS.size, false])
})
