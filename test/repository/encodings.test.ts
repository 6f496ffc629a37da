/** How often a load encodes the configuration of a model, counted over the real core. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import * as binary from '../../src/config/binary.js'
import { Server } from '../../src/index.js'
import * as json from '../../src/config/json_out.js'
import { writeTestRepositories } from '../models/generate.mjs'

vi.mock(import('../../src/config/binary.js'), async (original) => {
  const actual = await original()
  return { ...actual, toBinary: vi.fn(actual.toBinary) }
})
vi.mock(import('../../src/config/json_out.js'), async (original) => {
  const actual = await original()
  return { ...actual, toTritonJson: vi.fn(actual.toTritonJson) }
})

/** Configuration of a client's load request. */
const OVERRIDE = { max_batch_size: 4 }
const ROOT = mkdtempSync(join(tmpdir(), 'nereid-encodings-'))
beforeAll(() => writeTestRepositories(ROOT))
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

test('R-23, R-28: a configuration is encoded once to open and once to publish', async () => {
  const server = await Server.start({
    modelRepository: join(ROOT, 'small'),
    modelControlMode: 'explicit',
    log: () => {},
  })
  const encodings = async (act: () => Promise<unknown>): Promise<string> => {
    vi.mocked(binary.toBinary).mockClear()
    vi.mocked(json.toTritonJson).mockClear()
    await act()
    const [bytes, texts] = [vi.mocked(binary.toBinary).mock.calls, vi.mocked(json.toTritonJson).mock.calls]
    return `${bytes.length} binary, ${texts.length} JSON`
  }
  const load = (count: number) => async (): Promise<void> => {
    const config = { ...OVERRIDE, instance_group: [{ count, kind: 'KIND_CPU' }] }
    await server.load('simple', { config: JSON.stringify(config) })
  }
  try {
    // The core compiles the binary form; clients read both forms of what was published.
    expect(await encodings(() => server.load('simple'))).toBe('2 binary, 1 JSON')
    expect(await encodings(() => server.load('simple'))).toBe('0 binary, 0 JSON')
    expect(await encodings(load(1))).toBe('2 binary, 1 JSON')
    // Nothing is opened: the serving version gets other instances.
    expect(await encodings(load(2))).toBe('1 binary, 1 JSON')
    expect(server.model('simple').config()).toMatchObject({ instance_group: [{ count: 2 }] })
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
})
