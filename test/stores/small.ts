/** A small S3 on loopback, which can stall in the bodies of objects. */
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** Objects of a page of a listing. */
const PAGE = 1000

export interface SmallStorage {
  /** URL of the bucket as a repository. */
  url: string
  objects: Map<string, Buffer>
  /** Names of objects whose bodies stall after their first byte. */
  stalls: (name: string) => boolean
  /** Names of objects in the order of their requests. */
  read: string[]
  close(): void
}

const etagOf = (content: Buffer): string => `"${createHash('md5').update(content).digest('hex')}"`

export async function startSmallStorage(): Promise<SmallStorage> {
  const server = createServer((asked, answer) => {
    const { pathname, searchParams } = new URL(asked.url ?? '', 'http://x')
    const [, bucket, name = ''] = /^\/([^/]*)\/?(.*)$/s.exec(decodeURIComponent(pathname)) ?? []
    const absent = (code: string): unknown =>
      answer.writeHead(404, { 'content-type': 'application/xml' }).end(`<Error><Code>${code}</Code></Error>`)
    if (bucket !== 'bucket') return absent('NoSuchBucket')
    if (name === '') {
      const from = Number(searchParams.get('continuation-token') ?? 0)
      const found = [...storage.objects].filter(([key]) => key.startsWith(searchParams.get('prefix') ?? ''))
      const rows = found
        .slice(from, from + PAGE)
        .map(
          ([key, content]) =>
            `<Contents><Key>${encodeURIComponent(key)}</Key><ETag>${etagOf(content).replaceAll('"', '&quot;')}</ETag>` +
            `<Size>${content.length}</Size></Contents>`,
        )
      const more = from + PAGE < found.length
      const next = more ? `<NextContinuationToken>${from + PAGE}</NextContinuationToken>` : ''
      answer.writeHead(200, { 'content-type': 'application/xml' })
      return answer.end(
        `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>${more}</IsTruncated>${next}` +
          `${rows.join('')}</ListBucketResult>`,
      )
    }
    storage.read.push(name)
    const content = storage.objects.get(name)
    const [, from = 0, to = 0] = /bytes=(\d+)-(\d+)/.exec(String(asked.headers.range)) ?? []
    const part = content?.subarray(Number(from), Number(to) + 1)
    if (content === undefined || part === undefined) return absent('NoSuchKey')
    answer.writeHead(206, { etag: etagOf(content), 'content-length': part.length })
    return storage.stalls(name) ? answer.write(part.subarray(0, 1)) : answer.end(part)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const storage: SmallStorage = {
    url: `s3://127.0.0.1:${(server.address() as AddressInfo).port}/bucket`,
    objects: new Map(),
    read: [],
    stalls: () => false,
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
  return storage
}
