/** HTTP/1.1 responses in pieces of any size, and invalid ones. */
import { expect, test } from 'vitest'
import { ClientError } from '../../client/src/index.js'
import { connect } from '../../client/src/node.js'
import { Frames } from '../../client/src/grpc/frames.js'
import { Parser, type Head } from '../../client/src/http/parser.js'

interface Seen {
  heads: Head[]
  body: string
  ends: number
}

function parse(text: string, step: number): Seen {
  const seen: Seen = { heads: [], body: '', ends: 0 }
  const parser = new Parser()
  const bytes = Buffer.from(text, 'latin1')
  const answer = {
    head: (head: Head) => void seen.heads.push(head),
    body: (part: Buffer) => void (seen.body += part.toString('latin1')),
    end: () => void (seen.ends += 1),
  }
  for (let at = 0; at < bytes.length; at += step) parser.push(bytes.subarray(at, at + step), answer)
  if (seen.ends === 0) parser.finish(answer)
  return seen
}

const each = (text: string, check: (seen: Seen) => void): void => {
  for (let step = 1; step <= text.length; step += 1) check(parse(text, step))
}

test('a body with a length, in chunks, or until the end is read, wherever it is cut', () => {
  each('HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: a\r\nx: b\r\n\r\nhello', ({ heads, body, ends }) => {
    expect([heads[0]?.status, heads[0]?.length, heads[0]?.isKept, heads[0]?.headers.get('x'), body, ends]).toEqual([
      200,
      5,
      true,
      'a, b',
      'hello',
      1,
    ])
  })
  each(
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\n' +
      'lo\r\n0\r\nTrailer: x\r\n\r\n',
    ({ heads, body, ends }) => {
      expect([heads.length, body, ends, heads[0]?.isKept]).toEqual([1, 'hello', 1, true])
    },
  )
  each('HTTP/1.0 200 OK\r\n\r\nhello', ({ heads, body, ends }) =>
    expect([heads[0]?.isKept, body, ends]).toEqual([false, 'hello', 1]),
  )
  each('HTTP/1.1 204 No Content\r\n\r\n', ({ body, ends }) => expect([body, ends]).toEqual(['', 1]))
})

test('invalid responses are rejected, and so are bytes after one', () => {
  const refused = [
    'SSH-2.0-OpenSSH\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello',
    'HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello',
    'HTTP/1.1 200 OK\r\nno colon\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloo',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhelo\r\n0\r\n\r\n',
    `HTTP/1.1 200 OK\r\nX: ${'a'.repeat(70_000)}\r\n\r\n`,
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${'1'.repeat(5000)}`,
  ]
  for (const text of refused) expect(() => parse(text, text.length), text.slice(0, 80)).toThrow(Error)
})

test('a header with a line break, or of the protocol, is rejected without its value', () => {
  for (const headers of [
    { x: 'secret\r\nhost: other' },
    { 'x\r\nhost': 'a' },
    { 'Content-Length': '5' },
    { 'Transfer-Encoding': 'chunked' },
  ]) {
    let error: unknown = null
    try {
      connect('http://127.0.0.1:1', { headers })
    } catch (thrown) {
      error = thrown
    }
    expect(error).toBeInstanceOf(ClientError)
    expect(String(error)).not.toContain('secret')
  }
})

test('messages of gRPC come whole, wherever they are cut', () => {
  const message = (length: number, fill: number) => {
    const bytes = Buffer.alloc(5 + length, fill)
    bytes[0] = 0
    bytes.writeUInt32BE(length, 1)
    return bytes
  }
  const all = Buffer.concat([message(3, 1), message(0, 0), message(40_000, 2), message(1, 3)])
  for (const step of [1, 4, 5, 6, 1000, 40_000, all.length]) {
    const frames = new Frames(50_000)
    const lengths: number[] = []
    for (let at = 0; at < all.length; at += step)
      frames.push(all.subarray(at, at + step), ({ bytes }) => lengths.push(bytes.length))
    expect(lengths).toEqual([3, 0, 40_000, 1])
    expect(frames.isEmpty).toBe(true)
  }
  expect(() => new Frames(10).push(message(11, 0), () => {})).toThrow(/a message has 11 bytes, more than 10/)
})
