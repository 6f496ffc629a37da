/** Repository agents: what the checksum agent reads and reports, and when it runs in a load. */

import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server, ServerError } from '../../src/index.js'
import { CHECKSUM_BYTES_MAX, CHECKSUM_FILES_MAX, checkSums } from '../../src/repository/checksum.js'
import { writeTestRepositories } from '../models/generate.mjs'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-agents-'))
const MODEL = join(ROOT, 'model')
const md5 = (data: string | Buffer): string => createHash('md5').update(data).digest('hex')
const ABC = '900150983cd24fb0d6963f7d28e17f72'
const EMPTY = 'd41d8cd98f00b204e9800998ecf8427e'

beforeAll(() => {
  writeTestRepositories(ROOT)
  mkdirSync(join(MODEL, '1'), { recursive: true })
  mkdirSync(join(ROOT, 'model-two'))
  for (const path of ['model/abc', 'model/1/abc', 'outside', 'model-two/abc']) writeFileSync(join(ROOT, path), 'abc')
  writeFileSync(join(MODEL, 'empty'), '')
  writeFileSync(join(MODEL, 'large'), Buffer.alloc(3_000_001, 7))
  writeFileSync(join(MODEL, 'terabyte'), '')
  truncateSync(join(MODEL, 'terabyte'), 2 ** 40)
  execFileSync('mkfifo', [join(MODEL, 'fifo')])
  symlinkSync('1/abc', join(MODEL, 'link'))
  symlinkSync('../outside', join(MODEL, 'leaves'))
  symlinkSync('/dev/zero', join(MODEL, 'device'))
  symlinkSync('loop', join(MODEL, 'loop'))
  symlinkSync(MODEL, join(ROOT, 'mounted'))
})
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

/** `CODE text` of a rejection; empty on success. */
async function failure(promise: Promise<unknown>): Promise<string> {
  try {
    await promise
    return ''
  } catch (error) {
    return error instanceof ServerError ? `${error.code} ${error.message}` : `not a ServerError: ${String(error)}`
  }
}

const check = (key: string, expected: string, directory = MODEL): Promise<string> =>
  failure(checkSums(directory, [{ key, expected }]))

test.each([
  ['MD5:abc', ABC],
  ['md5:abc', ABC],
  ['Md5:1/abc', ABC],
  ['MD5:./1/../abc', ABC],
  ['MD5:/abc', ABC],
  ['MD5:link', ABC],
  ['MD5:empty', EMPTY],
  ['MD5:large', md5(Buffer.alloc(3_000_001, 7))],
])('R-45: %s with its digest passes', async (key, expected) => {
  expect(await check(key, expected)).toBe('')
  expect(await check(key, expected, join(ROOT, 'mounted'))).toBe('')
})

const unreadable = (name: string, why: string): string =>
  `INVALID_ARG failed to open text file for read ${name}: ${why}`

test.each([
  ['MD5:abc', EMPTY, `INVALID_ARG Mismatched MD5 hash for file abc, expect: ${EMPTY}, got: ${ABC}`],
  [
    'md5:abc',
    ABC.toUpperCase(),
    `INVALID_ARG Mismatched MD5 hash for file abc, expect: ${ABC.toUpperCase()}, got: ${ABC}`,
  ],
  ['abc', ABC, 'INVALID_ARG failed to parse key: abc'],
  ['', ABC, 'INVALID_ARG failed to parse key: '],
  ['SHA256:abc', ABC, 'UNSUPPORTED Unsupported checksum algorithm: SHA256'],
  [':abc', ABC, 'UNSUPPORTED Unsupported checksum algorithm: '],
  ['MD5:nope', ABC, unreadable('nope', 'No such file or directory')],
  ['MD5:abc/x', ABC, unreadable('abc/x', 'Not a directory')],
  ['MD5:', ABC, unreadable('', 'Is a directory')],
  ['MD5:1', ABC, unreadable('1', 'Is a directory')],
  ['MD5:loop', ABC, unreadable('loop', 'Too many levels of symbolic links')],
  ['MD5:fifo', ABC, unreadable('fifo', 'Not a regular file')],
  ['MD5:device', ABC, unreadable('device', "it is outside the model's directory")],
  ['MD5:leaves', ABC, unreadable('leaves', "it is outside the model's directory")],
  ['MD5:../outside', ABC, unreadable('../outside', "it is outside the model's directory")],
  ['MD5:../nowhere', ABC, unreadable('../nowhere', "it is outside the model's directory")],
  ['MD5:../model-two/abc', ABC, unreadable('../model-two/abc', "it is outside the model's directory")],
  ['MD5:a\0b', ABC, unreadable('a\0b', "it is outside the model's directory")],
])('R-45: %j against %s says why not', async (key, expected, text) => {
  expect(await check(key, expected)).toBe(text)
})

test('R-45: the bytes and files that one load may check are limited', async () => {
  expect(await check('MD5:terabyte', EMPTY)).toMatch(
    /^INVALID_ARG the checksum of file terabyte, which has 1099511627776 bytes, is too much/,
  )
  expect(CHECKSUM_BYTES_MAX).toBeLessThan(2 ** 40)
  const abc = { key: 'MD5:abc', expected: ABC }
  expect(await failure(checkSums(MODEL, [abc, abc], () => false, 6))).toBe('')
  expect(await failure(checkSums(MODEL, [abc, abc], () => false, 5))).toMatch(
    /^INVALID_ARG the checksum of file abc, which has 3 bytes, is too much/,
  )
  const many = Array.from({ length: CHECKSUM_FILES_MAX + 1 }, () => abc)
  expect(await failure(checkSums(MODEL, many))).toBe(
    'INVALID_ARG 1025 checksums, at most 1024 are checked for one model',
  )
  expect(await failure(checkSums(MODEL, many.slice(1)))).toBe('')
})

test('R-45: stopping the server cancels a long checksum', async () => {
  let asked = 0
  const stopped = (): boolean => ++asked > 2
  expect(await failure(checkSums(MODEL, [{ key: 'MD5:large', expected: EMPTY }], stopped))).toMatch(
    /^UNAVAILABLE the checksum of file large was cancelled/,
  )
  expect(asked).toBe(3)
})

const agents = (text: string): string => `backend: "onnxruntime" model_repository_agents { agents [ ${text} ] }`
const agent = (name: string, key: string, value: string): string =>
  `{ name: "${name}" parameters { key: "${key}" value: "${value}" } }`

/** A repository with copies of the model `simple` under these configurations. */
function repository(name: string, configs: Record<string, string>): string {
  const root = join(ROOT, name)
  for (const [model, config] of Object.entries(configs)) {
    cpSync(join(ROOT, 'small/simple/1'), join(root, model, '1'), { recursive: true })
    writeFileSync(join(root, model, 'config.pbtxt'), config)
  }
  return root
}

test('R-45, R-46: agents run in order before a model loads', async () => {
  const sum = md5(readFileSync(join(ROOT, 'small/simple/1/model.onnx')))
  const wrong = 'f'.repeat(32)
  const modelRepository = repository('with-agents', {
    good: agents(`${agent('checksum', 'MD5:1/model.onnx', sum)}, { name: "checksum" }`),
    bad: agents(agent('checksum', 'MD5:1/model.onnx', wrong)),
    // Agents run before the rest of the configuration is checked, which has an error too.
    early: `${agents(agent('checksum', 'MD5:nope', sum))} name: "other"`,
    absent: agents(`${agent('relocation', 'k', 'v')}, ${agent('checksum', 'MD5:1/model.onnx', wrong)}`),
  })
  const server = await Server.start({
    modelRepository,
    exitOnError: false,
    repoagentDirectory: '/agents',
    log: () => {},
  })
  try {
    expect(server.failures).toEqual([
      {
        model: 'absent',
        reason: "unable to find 'libtritonrepoagent_relocation.so' for repo agent 'relocation', searched: /agents",
      },
      { model: 'bad', reason: `Mismatched MD5 hash for file 1/model.onnx, expect: ${wrong}, got: ${sum}` },
      { model: 'early', reason: 'failed to open text file for read nope: No such file or directory' },
    ])
    expect(server.index()).toEqual([
      { name: 'absent' },
      { name: 'bad' },
      { name: 'early' },
      { name: 'good', version: '1', state: 'READY' },
    ])
    expect(server.model('good').config()).toMatchObject({
      model_repository_agents: {
        agents: [
          { name: 'checksum', parameters: { 'MD5:1/model.onnx': sum } },
          { name: 'checksum', parameters: {} },
        ],
      },
    })
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
})

test('R-45: a reload with a wrong checksum keeps the loaded version', async () => {
  const file = readFileSync(join(ROOT, 'small/simple/1/model.onnx'))
  const sum = md5(file)
  const modelRepository = repository('reloaded', { m: agents(agent('checksum', 'MD5:1/model.onnx', sum)) })
  const server = await Server.start({ modelRepository, modelControlMode: 'explicit', loadModel: ['m'], log: () => {} })
  try {
    writeFileSync(join(modelRepository, 'm/1/model.onnx'), Buffer.concat([file, Buffer.from([0])]))
    const refused = "INTERNAL failed to load 'm', failed to poll from model repository"
    expect(await failure(server.load('m'))).toBe(refused)
    expect(server.index()).toEqual([{ name: 'm', version: '1', state: 'READY' }])
    const config = (expected: string): object => ({
      backend: 'onnxruntime',
      model_repository_agents: { agents: [{ name: 'checksum', parameters: { 'MD5:1/model.onnx': expected } }] },
    })
    const files = { '1/model.onnx': file }
    expect(await failure(server.load('m', { config: config(EMPTY), files }))).toBe(refused)
    expect(await failure(server.load('m', { config: config(sum), files }))).toBe('')
    expect(await failure(server.load('m', { config: config(sum) }))).toBe(refused)
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
})
