/** Reads server-sent events in pieces of every size. */
import { describe, expect, test } from 'vitest'
import { EVENT_CHARS_MAX, EventParser } from '../../src/console/events.js'

/** The events of a text that comes in pieces of so many bytes. */
function events(text: string, bytes: number): [name: string, data: string][] {
  const parser = new EventParser()
  const all = new TextEncoder().encode(text)
  const found: [string, string][] = []
  for (let at = 0; at < all.length; at += bytes)
    found.push(...parser.push(all.subarray(at, at + bytes)).map(({ name, data }): [string, string] => [name, data]))
  return found
}

/** The events of a text, the same for pieces of each size. */
function check(text: string, expected: [name: string, data: string][]): void {
  for (let bytes = 1; bytes <= new TextEncoder().encode(text).length; bytes += 1)
    expect(events(text, bytes), `pieces of ${bytes} bytes`).toEqual(expected)
}

describe('events', () => {
  test('have a name and data, and end with an empty line', () => {
    check('event: now\ndata: {"waiting":3}\n\nevent: index\ndata: []\n\n', [
      ['now', '{"waiting":3}'],
      ['index', '[]'],
    ])
    check('data: 1\n\ndata: 2', [['message', '1']])
  })

  test('may end their lines with CR, LF or both', () => {
    check('event: a\r\ndata: 1\r\n\r\nevent: b\rdata: 2\r\revent: c\ndata: 3\n\n', [
      ['a', '1'],
      ['b', '2'],
      ['c', '3'],
    ])
  })

  test('join lines of data, and leave only one blank after the colon out', () => {
    check('data: one\ndata:two\ndata:  three\ndata\n\n', [['message', 'one\ntwo\n three\n']])
  })

  test('have letters of several bytes, and comments and unknown fields are ignored', () => {
    check(': waits\nid: 7\ndata: größe 模型 🌊\n\n: still here\n\n', [['message', 'größe 模型 🌊']])
  })

  test('without data are none', () => {
    check('event: empty\n\ndata: x\n\n', [['message', 'x']])
  })

  test('end the stream if one is longer than the limit, also over many pieces', () => {
    const parser = new EventParser()
    const piece = new TextEncoder().encode('x'.repeat(1 << 20))
    parser.push(new TextEncoder().encode('data: '))
    expect(() => {
      for (let i = 0; i <= EVENT_CHARS_MAX >> 20; i += 1) parser.push(piece)
    }).toThrow(`an event has more than ${EVENT_CHARS_MAX} characters`)
    const long = new EventParser()
    for (let i = 0; i < 100; i += 1)
      expect(long.push(new TextEncoder().encode(`data: ${'y'.repeat(1 << 19)}\n\n`))).toHaveLength(1)
  })
})
