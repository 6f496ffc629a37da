/** The pure parts: JSON with large integers, half-precision floats, strings, events. */
import { describe, expect, test } from 'vitest'
import { joinElements, splitElements } from '../../client/src/bytes.js'
import { bfloat16, float16, fromFloat16, toFloat16 } from '../../client/src/float16.js'
import { decode, encode } from '../../client/src/grpc/schema.js'
import { eventsOf } from '../../client/src/http/events.js'
import { parseJson, printJson } from '../../client/src/json.js'

describe('JSON', () => {
  test('integers beyond 2^53 survive, in both directions', () => {
    const text =
      '{"a":9007199254740993,"b":-18446744073709551615,"c":1.5,"d":[12345678901234567890],"e":"12345678901234567890"}'
    const value = parseJson(text)
    expect(value).toEqual({
      a: 9007199254740993n,
      b: -18446744073709551615n,
      c: 1.5,
      d: [12345678901234567890n],
      e: '12345678901234567890',
    })
    expect(printJson(value)).toBe(text)
  })

  test('numbers that JSON has no names for are read and written', () => {
    expect(parseJson('[NaN,Infinity,-Infinity,-0.0,0.10000000149011612]')).toEqual([
      NaN,
      Infinity,
      -Infinity,
      -0,
      0.10000000149011612,
    ])
    expect(printJson([NaN, Infinity, -0])).toBe('[NaN,Infinity,-0.0]')
  })

  test('both parsers agree on everything else, and refuse the same', () => {
    for (const text of [
      '{"a":{"b":[1,2,{"c":null}]},"d":true,"":"\\u00e9\\n"}',
      '[]',
      ' { } ',
      '1e3',
      '"\\ud83d\\ude00"',
      '{"__proto__":1}',
    ]) {
      // One long integer selects the slower parser.
      expect(parseJson(`[12345678901234567890,${text}]`)).toEqual([12345678901234567890n, JSON.parse(text)])
    }
    for (const text of ['{', '[1,]', '{"a" 1}', '01x', '[1 2]', '12345678901234567890x', '"a', ''])
      expect(() => parseJson(text), text).toThrow(SyntaxError)
  })

  test('a long string is no problem', () => {
    const text = 'x'.repeat(1 << 20)
    expect(parseJson(`[12345678901234567890,"${text}"]`)).toEqual([12345678901234567890n, text])
  })
})

test('every FP16 is itself again, and others are rounded to the nearest', () => {
  for (let half = 0; half < 0x1_0000; half += 1) {
    const value = fromFloat16(half)
    if (!Number.isNaN(value) && toFloat16(value) !== half) throw new Error(`${half} becomes ${toFloat16(value)}`)
  }
  // Ties round to even. 65520 is the first infinite value; 2^-25 is half of the smallest.
  expect([
    ...float16.encode([1 + 2 ** -11, 1 + 3 * 2 ** -11, 65519, 65520, -(2 ** -24), 2 ** -25, 3 * 2 ** -25, NaN]),
  ]).toEqual([0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x8001, 0, 2, 0x7e00])
})

test('BF16 are rounded likewise', () => {
  expect([...bfloat16.encode([1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, Infinity, NaN, 3.4e38])]).toEqual([
    0x3f80, 0x3f80, 0x3f82, 0x7f80, 0x7fc0, 0x7f80,
  ])
  expect([...bfloat16.decode(Uint16Array.of(0x3f80, 0xc000))]).toEqual([1, -2])
})

test('BYTES are joined and split; one that is cut off is refused', () => {
  const joined = joinElements(['a', Uint8Array.of(1, 2), '', '\u{1f600}'])
  expect(splitElements('x', joined).map((one) => [...one])).toEqual([[97], [1, 2], [], [240, 159, 152, 128]])
  expect(() => splitElements('x', joined.subarray(0, -1))).toThrow(/tensor 'x': element 3 reaches past its 22 bytes/)
})

test('events are cut wherever their parts end', async () => {
  const text = 'data: {"a":1}\r\n\r\n: a comment\ndata: two\ndata: lines\n\ndata: ä'
  const bytes = new TextEncoder().encode(text)
  for (let step = 1; step <= bytes.length; step += 1) {
    const parts = (async function* () {
      for (let at = 0; at < bytes.length; at += step) yield bytes.subarray(at, at + step)
    })()
    const events: string[] = []
    for await (const event of eventsOf(parts)) events.push(event)
    expect(events).toEqual(['{"a":1}', 'two\nlines', 'ä'])
  }
})

test('messages by their tables: defaults, maps, and truncated ones', () => {
  const bytes = encode('SystemSharedMemoryRegisterRequest', { name: 'ä', key: '/k', offset: 2n ** 60n, byte_size: 300 })
  expect(decode('SystemSharedMemoryRegisterRequest', bytes)).toEqual({
    name: 'ä',
    key: '/k',
    offset: 2n ** 60n,
    byte_size: 300,
  })
  expect(decode('RepositoryIndexResponse', Buffer.alloc(0))).toEqual({ models: [] })
  const load = {
    repository_name: '',
    model_name: 'm',
    parameters: { config: { string_param: 'x'.repeat(300) }, 'file:1/a': { bytes_param: Uint8Array.of(1) } },
  }
  expect(decode('RepositoryModelLoadRequest', encode('RepositoryModelLoadRequest', load))).toEqual(load)
  for (let end = 1; end < bytes.length; end += 1) {
    try {
      decode('SystemSharedMemoryRegisterRequest', bytes.subarray(0, end))
    } catch (error) {
      expect(error).toMatchObject({ code: 'PROTOCOL' })
    }
  }
})
