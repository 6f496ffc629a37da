/** The counts of `npm run bench` agree with a program whose calls are known, and with the tables of its tools. */
import { execFileSync, spawn, type ChildProcessByStdio } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseStrace } from '../../bench/counts/kernel.mjs'
import { Shim, buildShim, combine, summarise } from '../../bench/counts/shim.mjs'
import { group, parseFrames } from '../../bench/counts/sites.mjs'

const SOURCE = fileURLToPath(new URL('known.c', import.meta.url))
const REQUESTS = 20

describe.skipIf(process.platform !== 'linux')('the counting library', () => {
  let directory: string
  let shim: Shim
  let program: ChildProcessByStdio<Writable, Readable, null>
  let line: (text: string) => Promise<void>

  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'nereid-counts-'))
    const cc = (...args: string[]) => execFileSync('cc', ['-O1', '-fno-builtin', SOURCE, ...args], { stdio: 'inherit' })
    const [library, binary] = [join(directory, 'known.so'), join(directory, 'known')]
    cc('-shared', '-fPIC', '-DLIBRARY', '-o', library)
    cc('-o', binary, '-ldl')
    shim = new Shim(buildShim(directory), directory, library)
    program = spawn(binary, [library], { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...shim.env } })
    const { stdin, stdout } = program
    const answers = createInterface({ input: stdout })[Symbol.asyncIterator]()
    line = async (text) => {
      stdin.write(`${text}\n`)
      expect((await answers.next()).value).toBe('done')
    }
  })

  afterAll(() => {
    program?.stdin.end()
    shim?.close()
    rmSync(directory, { recursive: true, force: true })
  })

  test('counts each call once, for the library that made it', async () => {
    await shim.begin(() => line('nothing'))
    const before = shim.read()
    for (let i = 0; i < REQUESTS; i += 1) await line('r')
    const after = shim.read()
    const per = combine(after.counters, before.counters, (to, from) => (to - from) / REQUESTS)
    expect(summarise(per.ours, after.systemCalls)).toEqual({
      allocations: 6,
      allocatedBytes: 3 * 100 + 100 + 200 + 128,
      copies: 3,
      copiedBytes: 2 * 65_002 + 32,
      largeCopies: 2,
      largeCopiedBytes: 2 * 65_002,
      systemCalls: 5,
      calls: { write: 5 },
    })
    expect(per.ours?.write).toEqual({ calls: 5, bytes: 50 })
    // The program's own: a copy and an allocation per line, and nothing of the library's.
    expect([per.rest?.memcpy, per.rest?.malloc]).toEqual([
      { calls: 1, bytes: 8002 },
      { calls: 1, bytes: 77 },
    ])
    expect(summarise(per.onnxruntime, after.systemCalls).copies).toBe(0)
  })

  test('takes stacks only when asked, and they add up', async () => {
    expect(shim.sites()).toEqual([])
    shim.stacks(1, 1)
    for (let i = 0; i < REQUESTS; i += 1) await line('r')
    shim.stacks(0, 0)
    await line('r')
    const sum = (kind: string, key: 'calls' | 'bytes') =>
      shim
        .sites()
        .filter((s) => s.kind === kind)
        .reduce((n, s) => n + (s[key] ?? 0), 0)
    expect(sum('malloc', 'calls')).toBe(3 * REQUESTS)
    expect(sum('memcpy', 'bytes')).toBe(2 * 65_002 * REQUESTS)
    expect(shim.sites().every((s) => s.frames.length >= 1)).toBe(true)
    // Every seventh stands for seven.
    shim.stacks(7, 0)
    const before = sum('malloc', 'calls')
    for (let i = 0; i < 7 * REQUESTS; i += 1) await line('r')
    shim.stacks(0, 0)
    expect(sum('malloc', 'calls') - before).toBe(3 * 7 * REQUESTS)
    expect(sum('memcpy', 'bytes')).toBe(2 * 65_002 * REQUESTS)
  })
})

test('strace -c is read with and without errors in a row', () => {
  const text = `strace: Process 7 attached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300           3       100           sendto
 40.00    0.000200           1       160        60 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500           1       260        60 total`
  expect(parseStrace(text)).toEqual({ sendto: 100, recvfrom: 160 })
})

test('a stack is named after who asked, and for whom', () => {
  const frames = parseFrames(
    [
      [
        '0x0000000000000010',
        'alloc::vec::with_capacity',
        '/rustc/abc/library/alloc/src/vec.rs:1',
        'protocol::http::encode',
        '/x/crates/protocol/src/encode.rs:9 (discriminator 2)',
      ],
      ['0x0000000000000020', 'frontend::reply', '/x/crates/frontend/src/reply.rs:4'],
    ]
      .flat()
      .join('\n'),
  )
  const site = { key: 1, kind: 'malloc', calls: 2, bytes: 20, frames: [0x10, 0x20] }
  expect(group([site, { ...site, key: 2, calls: 1, bytes: 5 }], frames)).toEqual([
    {
      kind: 'allocation',
      by: 'protocol: protocol::http::encode (encode.rs:9)',
      under: 'frontend: frontend::reply (reply.rs:4)',
      calls: 3,
      bytes: 25,
    },
  ])
})
