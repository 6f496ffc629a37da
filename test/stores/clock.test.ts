/** A machine whose clock is wrong by more than the 15 minutes that S3 accepts. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { all, load, thrown } from './client.js'

const KEYS = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'hidden-secret' }
const SKEW_MS = 3_600_000
const SKEW_MS_MAX = 900_000
const REFUSAL =
  '<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is ' +
  'too large.</Message></Error>'
const LISTING =
  '<ListBucketResult><Name>models</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>'

let server: Server | null = null
afterEach(() => void server?.close())

/** S3 whose clock is ahead by an hour. Returns the URL of a repository and the number of requests so far. */
async function start(tellsTime: boolean) {
  const counted = { url: '', requests: 0 }
  server = createServer((asked, answer) => {
    counted.requests += 1
    const now = Date.now() + SKEW_MS
    answer.sendDate = false
    if (tellsTime) answer.setHeader('date', new Date(now).toUTCString())
    const signed = String(asked.headers['x-amz-date']).replace(/^(....)(..)(..T..)(..)(..Z)$/, '$1-$2-$3:$4:$5')
    const isSkewed = Math.abs(Date.parse(signed) - now) > SKEW_MS_MAX
    answer.writeHead(isSkewed ? 403 : 200, { 'content-type': 'application/xml' }).end(isSkewed ? REFUSAL : LISTING)
  })
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve))
  counted.url = `s3://127.0.0.1:${(server.address() as AddressInfo).port}/models`
  return counted
}

test('requests are signed with the time of the storage after the first answer', async () => {
  const storage = await start(true)
  const client = await (await load('s3'))(storage.url, KEYS)
  expect(await all(client)).toEqual([])
  expect(storage.requests).toBe(2)
  expect(await all(client)).toEqual([])
  expect(storage.requests).toBe(3)
  client.close()
})

test('where the storage does not tell its time, the error names the clock', async () => {
  const storage = await start(false)
  const client = await (await load('s3'))(storage.url, KEYS)
  const { failure, message } = await thrown(() => all(client))
  expect([failure, message]).toEqual([
    'denied',
    expect.stringMatching(
      /answered 403 RequestTimeTooSkewed: the clock of this machine differs from the clock of the storage: set it$/,
    ),
  ])
  expect(storage.requests).toBe(2)
  client.close()
})
