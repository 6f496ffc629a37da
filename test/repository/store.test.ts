import { createHook } from 'node:async_hooks'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { readLoadParameters } from '../../src/api/control.js'
import { parsePbtxt, type Log } from '../../src/config/index.js'
import type { VersionRow } from '../../src/native/contract.js'
import { asServerError } from '../../src/native/errors.js'
import { warnOfIneffective } from '../../src/repository/ineffective.js'
import { sourceOf } from '../../src/repository/in_place.js'
import { KeyedLock, Limit, SharedLock } from '../../src/stores/limit.js'
import { sweepOverrides, writeOverride } from '../../src/repository/override.js'
import { Places } from '../../src/repository/places.js'
import { requireSafeName } from '../../src/repository/safe_name.js'
import { checkRuntime } from '../../src/repository/runtime.js'
import { findModels, openRepositories } from '../../src/repository/scan.js'
import { settingsOf } from '../../src/repository/settings.js'
import { refuseSpecialFiles } from '../../src/repository/special_files.js'
import { latestChange } from '../../src/repository/stamp.js'
import { indexRows } from '../../src/repository/states.js'
import { findVersions } from '../../src/repository/versions.js'
import { ENTRIES_MAX, walk } from '../../src/repository/walk.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-repository-'))
afterAll(() => rmSync(ROOT, { recursive: true }))
let next = 0

/** A directory with these files (text by path); a path that ends in `/` is a directory. */
function tree(files: Record<string, string> = {}): string {
  next += 1
  const root = join(ROOT, String(next))
  mkdirSync(root)
  for (const [path, text] of Object.entries(files)) {
    const full = join(root, path)
    if (path.endsWith('/')) mkdirSync(full, { recursive: true })
    else {
      mkdirSync(dirname(full), { recursive: true })
      writeFileSync(full, text)
    }
  }
  return root
}

function lines(): { log: Log; seen: string[] } {
  const seen: string[] = []
  return { log: (level, message) => void seen.push(`${level} ${message}`), seen }
}

function placesOf(repositories: string[], hasNamespaces = false): Places {
  const places = new Places(hasNamespaces)
  places.open(repositories)
  return places
}

/** `CODE text` of the error of `task`. */
function failure(task: () => unknown): string {
  try {
    task()
  } catch (error) {
    const { code, message } = asServerError(error)
    return `${code} ${message}`
  }
  return 'no failure'
}

test('R-01: each subdirectory is one model, including links', () => {
  const root = tree({ 'b/1/': '', 'a/': '', 'loose.txt': 'x', '.git/x': '' })
  symlinkSync(join(root, 'a'), join(root, 'linked'))
  symlinkSync(join(root, 'loose.txt'), join(root, 'linkedfile'))
  symlinkSync(join(root, 'nowhere'), join(root, 'dangling'))
  expect([...findModels(root, lines().log).keys()]).toEqual(['a', 'b', 'linked'])
})

test('R-02: a repository path that is missing or not a directory is rejected', () => {
  const root = tree({ file: '' })
  expect(failure(() => openRepositories([join(root, 'nope')]))).toBe(
    `INTERNAL failed to stat file ${join(root, 'nope')}`,
  )
  symlinkSync('loop', join(root, 'loop'))
  expect(failure(() => openRepositories([join(root, 'loop')]))).toBe(
    `INTERNAL failed to stat file ${join(root, 'loop')}`,
  )
  const locked = tree({})
  chmodSync(locked, 0)
  // Root can read everything.
  if (process.getuid?.() !== 0)
    expect(failure(() => openRepositories([locked]))).toBe(
      `INTERNAL failed to open directory ${locked}: Permission denied`,
    )
  chmodSync(locked, 0o700)
  expect(failure(() => openRepositories([join(root, 'file')]))).toMatch(
    /^INVALID_ARG repository path is not a valid directory; '.*file' is not a directory, /,
  )
})

test('R-39: repositories are used once each, in byte-wise order', () => {
  const [one, two] = [tree({ 'm/': '', 'x/': '' }), tree({ 'm/': '' })]
  expect(openRepositories([two, one, `${one}/`, two])).toEqual([one, two].sort())
  const places = placesOf([one, two])
  expect(places.found(lines().log)).toEqual(
    new Map([
      ['m', [join(one, 'm'), join(two, 'm')]],
      ['x', [join(one, 'x')]],
    ]),
  )
  expect(places.directories('m')).toEqual([join(one, 'm'), join(two, 'm')])
  expect(places.directories('nope')).toEqual([])
})

test('R-40: a name that was assigned to a directory means only that one', () => {
  const [one, two] = [tree({ 'm/': '', 'x/': '' }), tree({ 'm/': '', 'a/': '', 'b/': '', loose: '' })]
  const places = placesOf([one])
  places.register(
    two,
    new Map([
      ['given', 'a'],
      ['m', 'b'],
      ['x', 'nope'],
      ['file', 'loose'],
    ]),
  )
  const { log } = lines()
  expect(places.found(log)).toEqual(
    new Map([
      ['a', [join(two, 'a')]],
      ['b', [join(two, 'b')]],
      ['given', [join(two, 'a')]],
      ['m', [join(one, 'm'), join(two, 'b')]],
      ['x', [join(one, 'x')]],
    ]),
  )
  rmSync(join(two, 'b'), { recursive: true })
  expect(places.found(log).get('m')).toEqual([join(one, 'm')])
})

test('R-04, R-05: which directories are versions', () => {
  const model = tree({
    '1/': '',
    '10/': '',
    '2/': '',
    '0/': '',
    '01/': '',
    'v1/': '',
    '3abc/': '',
    '-1/': '',
    'warmup/': '',
    'initial_state/': '',
    'configs/': '',
    '4': 'file',
    '99999999999999999999/': '',
  })
  const { log, seen } = lines()
  expect([...findVersions(model, log)]).toEqual([0, 1, 2, 10].map((v) => [v, join(model, String(v))]))
  expect(seen.sort()).toEqual([
    "warning ignore version directory '-1' which fails to convert to integral number",
    "warning ignore version directory '01' which contains leading zeros in its directory name",
    "warning ignore version directory '3abc' which fails to convert to integral number",
    "warning ignore version directory '99999999999999999999' which fails to convert to integral number",
    "warning ignore version directory 'v1' which fails to convert to integral number",
  ])
})

test('a directory that a parameter names is no version, and needs no warning', () => {
  const model = tree({ '1/': '', 'tokenizer/': '', 'env/': '', '02/': '', 'other/': '' })
  const parameter = (key: string, text: string): string =>
    `parameters { key: "${key}" value { string_value: "${text}" } }\n`
  const config = parsePbtxt(
    parameter('nereid.chat.tokenizer', './tokenizer/llm') +
      parameter('EXECUTION_ENV_PATH', '$$TRITON_MODEL_DIRECTORY/env') +
      parameter('x', '02'),
    'config.pbtxt',
  )
  const { log, seen } = lines()
  expect([...findVersions(model, log, config).keys()]).toEqual([1])
  expect(seen.sort()).toEqual([
    "warning ignore version directory '02' which contains leading zeros in its directory name",
    "warning ignore version directory 'other' which fails to convert to integral number",
  ])
})

test('R-23: the latest change includes nested, replaced and removed files', async () => {
  const model = tree({ '1/model.onnx': 'a', 'config.pbtxt': '' })
  const past = new Date(2001, 1, 1)
  const pause = (): Promise<void> => new Promise((done) => setTimeout(done, 15))
  const first = await latestChange(model)
  expect(await latestChange(model)).toBe(first)
  await pause()
  writeFileSync(join(model, '1/extra'), 'b')
  const second = await latestChange(model)
  expect(second).toBeGreaterThan(first)
  await pause()
  // Moves an older file into place: its mtime is in the past, its ctime is now.
  writeFileSync(join(model, 'old'), 'c')
  utimesSync(join(model, 'old'), past, past)
  renameSync(join(model, 'old'), join(model, '1/model.onnx'))
  const third = await latestChange(model)
  expect(third).toBeGreaterThan(second)
  await pause()
  rmSync(join(model, '1'), { recursive: true })
  expect(await latestChange(model)).toBeGreaterThan(third)
  expect(await latestChange(join(model, 'gone'))).toBe(0n)
})

test('a loop of links ends', async () => {
  const model = tree({ '1/': '' })
  symlinkSync(model, join(model, '1/loop'))
  expect(await latestChange(model)).toBeGreaterThan(0n)
})

test('with loops of links, every directory is visited once', async () => {
  const model = tree({ '1/': '', '1/a/': '', '1/b/': '' })
  // Two links back at each level: a walk that follows all of them visits 2^32 paths.
  for (const at of ['1', '1/a', '1/b']) for (const link of ['x', 'y']) symlinkSync(model, join(model, at, link))
  const started = performance.now()
  expect(await latestChange(model)).toBeGreaterThan(0n)
  expect(performance.now() - started).toBeLessThan(1000)
  const root = tree({ 'good/': '' })
  symlinkSync('itself', join(root, 'itself'))
  symlinkSync('two', join(root, 'one'))
  symlinkSync('one', join(root, 'two'))
  expect([...findModels(root, lines().log).keys()]).toEqual(['good'])
  expect(placesOf([root]).directories('itself')).toEqual([])
  symlinkSync('11', join(root, 'good/11'))
  expect([...findVersions(join(root, 'good'), lines().log)]).toEqual([])
})

test('visiting a model of many files does not block the thread', async () => {
  const many = tree(Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`${i % 20}/${i}`, ''])))
  for (const look of [
    () => latestChange(many),
    () => refuseSpecialFiles(many, 'm', 1),
    () => sourceOf(many, parsePbtxt('', ''), null),
  ]) {
    let turns = 0
    const each = setInterval(() => (turns += 1), 1)
    await look()
    clearInterval(each)
    expect(turns).toBeGreaterThan(20)
  }
})

test('at most ENTRIES_MAX entries are visited', () => {
  const many = tree(Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`d/${i}`, ''])))
  expect([...walk(many, 20)]).toHaveLength(20)
  expect([...walk(many)]).toHaveLength(52)
  expect(ENTRIES_MAX).toBe(100_000)
})

test('a FIFO, a socket or a device in a version directory is rejected by name', async () => {
  const version = tree({ 'model.onnx': 'x', 'data/': '' })
  symlinkSync(join(version, 'model.onnx'), join(version, 'linked'))
  expect(await laterFailure(refuseSpecialFiles(version, 'm', 1))).toBe('no failure')
  execFileSync('mkfifo', [join(version, 'data/weights')])
  expect(await laterFailure(refuseSpecialFiles(version, 'm', 1))).toBe(
    `INVALID_ARG unable to load model 'm' version 1: '${version}/data/weights' is a FIFO; a version ` +
      'directory may hold files and directories only',
  )
  const zero = tree({})
  symlinkSync('/dev/zero', join(zero, 'model.onnx'))
  expect(await laterFailure(refuseSpecialFiles(zero, 'm', 1))).toContain('is a device;')
})

/** Like `failure`, for an asynchronous task. */
async function laterFailure(work: Promise<unknown>): Promise<string> {
  const [outcome] = await Promise.allSettled([work])
  return failure(() => {
    if (outcome.status === 'rejected') throw outcome.reason
  })
}

test('override directories of ended processes are removed, all others stay', async () => {
  const mine = await writeOverride(new Map([['a', Buffer.from('x')]]))
  const [, namespace = ''] = /nereid-model-(\d+)-/.exec(mine) ?? []
  const past = new Date(Date.now() - 2 * 3_600_000)
  const leave = (name: string, age: Date | null = null): string => {
    const path = join(tmpdir(), `nereid-model-${name}`)
    mkdirSync(join(path, '1'), { recursive: true })
    if (age !== null) utimesSync(path, age, age)
    return path
  }
  const rows: [string, boolean][] = [
    // 4194304 is the largest process id Linux gives: none has one above.
    [leave(`${namespace}-4999999-1-dead01`), false],
    // This process, with a reused id.
    [leave(`${namespace}-${process.pid}-1-reuse1`), false],
    [leave('7-1-1-young1'), true],
    [leave('7-1-1-older1', past), false],
    [leave('of-somebody-else', past), true],
    [mine, true],
  ]
  const file = join(tmpdir(), `nereid-model-${namespace}-4999999-1-afile1`)
  writeFileSync(file, '')
  rows.push([file, true])
  try {
    expect(await sweepOverrides()).toBeGreaterThanOrEqual(3)
    expect(rows.map(([path]) => [path, existsSync(path)])).toEqual(rows)
  } finally {
    for (const [path] of rows) rmSync(path, { recursive: true, force: true })
  }
})

test('R-35: an override directory holds exactly the given files', async () => {
  const directory = await writeOverride(
    new Map([
      ['1/model.onnx', Buffer.from('x')],
      ['labels.txt', Buffer.from('y')],
    ]),
  )
  expect(readFileSync(join(directory, '1/model.onnx'), 'utf8')).toBe('x')
  expect(readFileSync(join(directory, 'labels.txt'), 'utf8')).toBe('y')
  rmSync(directory, { recursive: true })
})

test('one job of libuv writes a large file of a request', async () => {
  let jobs = 0
  const hook = createHook({ init: (_, type) => (jobs += type.startsWith('FSREQ') ? 1 : 0) }).enable()
  const contents = Buffer.alloc(16 * 1024 * 1024, 'x')
  const directory = await writeOverride(new Map([['1/model.onnx', contents]])).finally(() => hook.disable())
  expect(readFileSync(join(directory, '1/model.onnx')).equals(contents)).toBe(true)
  rmSync(directory, { recursive: true })
  // Open, write, close; and unrelated work of this process.
  expect(jobs).toBeLessThan(10)
})

test.each([['../x'], ['1/../../x'], ['..'], ['.'], ['']])(
  'R-35: file:%s is rejected and leaves nothing behind',
  async (name) => {
    const escaped = join(tmpdir(), 'x')
    const before = existsSync(escaped)
    expect(await laterFailure(writeOverride(new Map([[name, Buffer.from('x')]])))).toMatch(
      /^INVALID_ARG Invalid file parameter 'file:.*' with normalized path '.*' must stay within model directory\.$/,
    )
    expect(existsSync(escaped)).toBe(before)
  },
)

test('R-35: the number of files in a request is limited', async () => {
  const files = new Map(Array.from({ length: 1025 }, (_, i) => [`1/${i}`, Buffer.from('x')]))
  expect(await laterFailure(writeOverride(files))).toBe('INVALID_ARG 1025 file parameters, at most 1024 are taken')
})

test('R-35: an absolute path lands inside the directory', async () => {
  const directory = await writeOverride(new Map([['/1/m', Buffer.from('x')]]))
  expect(readFileSync(join(directory, '1/m'), 'utf8')).toBe('x')
  rmSync(directory, { recursive: true })
})

test.each([[['1', '1/m']], [['1/m', '1']]])('R-35: %j collide', async (names) => {
  const files = new Map(names.map((name) => [name, Buffer.from('x')]))
  expect(await laterFailure(writeOverride(files))).toMatch(/directory has been created as a file$/)
})

test.each([
  ['', 'Model name cannot be empty. Please enter a valid name to deploy.'],
  ['  ', 'Model name cannot be empty. Please enter a valid name to deploy.'],
  ['..', "invalid model name '..', model name must not contain path traversal characters"],
  ['a/b', "invalid model name 'a/b', model name must not contain path traversal characters"],
  ['../x', "invalid model name '../x', model name must not contain path traversal characters"],
])('R-26: the name %j is refused', (name, text) => {
  expect(failure(() => requireSafeName(name))).toBe(`INVALID_ARG ${text}`)
})

test.each(['a', 'dots.in.name', 'name with space', 'percent%20name', '.hidden'])(
  'R-26: the name %j is fine',
  (name) => {
    expect(() => requireSafeName(name)).not.toThrow()
  },
)

test('R-38: rows of the index', () => {
  const states: VersionRow[] = [
    { model: 'b', version: 1, state: 'UNLOADED', reason: 'unloaded' },
    { model: 'b', version: 2, state: 'READY', reason: '' },
    { model: 'b', version: 3, state: 'READY', reason: 'its process ended' },
    { model: 'gone', version: 1, state: 'READY', reason: '' },
  ]
  const found = new Map([
    ['dup', ['/1/dup', '/2/dup']],
    ['b', ['/1/b']],
    ['never', ['/1/never']],
    ['empty', ['/1/empty']],
  ])
  const attempted = new Set(['b', 'empty'])
  const duplicate = { name: 'dup', state: 'UNAVAILABLE', reason: 'model appears in two or more repositories' }
  const ready = { name: 'b', version: '2', state: 'READY' }
  const unusable = { name: 'b', version: '3', state: 'READY', reason: 'its process ended' }
  expect(indexRows(found, attempted, false, states)).toEqual([
    { name: 'b', version: '1', state: 'UNAVAILABLE', reason: 'unloaded' },
    ready,
    unusable,
    duplicate,
    { name: 'never' },
  ])
  expect(indexRows(found, attempted, true, states)).toEqual([ready, unusable, duplicate])
  expect(JSON.stringify(indexRows(new Map([['b', ['/1/b']]]), attempted, false, states)[0])).toBe(
    '{"name":"b","version":"1","state":"UNAVAILABLE","reason":"unloaded"}',
  )
})

test('R-27: changes of one model are serialised, those of another are not', async () => {
  const lock = new KeyedLock()
  const order: string[] = []
  let release = (): void => {}
  const held = new Promise<void>((done) => (release = done))
  const first = lock.run('a', async () => {
    await held
    order.push('a1')
    throw new Error('failed')
  })
  const second = lock.run('a', async () => void order.push('a2'))
  await lock.run('b', async () => void order.push('b'))
  release()
  await expect(first).rejects.toThrow('failed')
  await second
  expect(order).toEqual(['b', 'a1', 'a2'])
})

test('the limit of parallel tasks holds, and all of them run', async () => {
  const limit = new Limit(2)
  let running = 0
  let most = 0
  const results = await Promise.allSettled(
    Array.from({ length: 7 }, (_, i) =>
      limit.run(async () => {
        running += 1
        most = Math.max(most, running)
        await new Promise((done) => setImmediate(done))
        running -= 1
        if (i === 3) throw new Error('one fails')
        return i
      }),
    ),
  )
  expect(most).toBe(2)
  expect(results.filter((r) => r.status === 'fulfilled')).toHaveLength(6)
})

test('an exclusive task waits for running ones, and later ones wait for it', async () => {
  const lock = new SharedLock()
  const log: string[] = []
  const task =
    (name: string, fails = false) =>
    async (): Promise<void> => {
      log.push(`+${name}`)
      await new Promise((done) => setImmediate(done))
      log.push(`-${name}`)
      if (fails) throw new Error(name)
    }
  await Promise.allSettled([
    lock.shared(task('a')),
    lock.shared(task('b', true)),
    lock.exclusive(task('X', true)),
    lock.shared(task('c')),
    lock.exclusive(task('Y')),
    lock.exclusive(task('Z')),
    lock.shared(task('d')),
  ])
  expect(log.join(' ')).toBe('+a +b -a -b +X -X +c -c +Y -Y +Z -Z +d -d')
})

test('settings of a backend: its own override global ones, later ones earlier ones', () => {
  const backendConfig = [
    { backend: 'onnxruntime', key: 'a', value: '1' },
    { backend: null, key: 'a', value: '2' },
    { backend: null, key: 'b', value: '3' },
    { backend: null, key: 'b', value: '4' },
    { backend: 'python', key: 'c', value: '5' },
  ]
  const settings = { backendConfig } as Parameters<typeof settingsOf>[0]
  expect(settingsOf(settings, 'onnxruntime')).toEqual([
    { key: 'a', value: '1' },
    { key: 'b', value: '4' },
  ])
})

test('fields without effect are named in one line, except for defaults', () => {
  const warned = (text: string): string[] => {
    const { log, seen } = lines()
    warnOfIneffective(parsePbtxt(`name: "m" ${text}`, ''), log)
    return seen
  }
  expect(
    warned(
      'response_cache { } optimization { priority: PRIORITY_DEFAULT graph { level: 1 } } parameters { key: ' +
        '"intra_op_thread_count" value { string_value: "1" } }',
    ),
  ).toEqual([])
  expect(
    warned(`response_cache { enable: true }
      optimization { priority: PRIORITY_MAX cuda { graphs: true } eager_batching: true }
      instance_group [ { count: 1 }, { rate_limiter { priority: 2 } host_policy: "p" } ]
      cc_model_filenames { key: "7.5" value: "x" }
      parameters { key: "gpu_mem_limit" value { string_value: "1" } }`),
  ).toEqual([
    "warning model 'm' has settings without effect in this release: instance_group.host_policy, " +
      'optimization.priority, optimization.cuda, optimization.eager_batching, cc_model_filenames, ' +
      'parameters.gpu_mem_limit',
  ])
})

test('R-13: a runtime other than the own library of the backend is rejected', () => {
  const place = { modelDirectory: '/r/m', versionDirectory: '/r/m/1', backendDirectory: '/opt/b' }
  const config = (runtime: string) =>
    parsePbtxt(`name: "m" backend: "onnxruntime" runtime: "${runtime}"`, 'config.pbtxt')
  expect(failure(() => checkRuntime(config('../nope.so'), place))).toBe(
    "INVALID_ARG unable to find backend library '../nope.so' for model 'm', searched: '/r/m/1' '/r/m' " +
      "'/opt/b/onnxruntime' ",
  )
  const model = tree({ 'x.so': '', '1/own.so': '' })
  const there = { versionDirectory: join(model, '1'), modelDirectory: model, backendDirectory: '/opt/b' }
  expect(failure(() => checkRuntime(config('../x.so'), there))).toBe(
    `INVALID_ARG backend library name '../x.so' escapes backend directory '${model}/1', for model 'm', check ` +
      'model config runtime field',
  )
  expect(failure(() => checkRuntime(config('own.so'), there))).toMatch(
    /^INVALID_ARG unable to find backend library 'own.so'/,
  )
  for (const runtime of ['', 'libtriton_onnxruntime.so'])
    expect(() => checkRuntime(config(runtime), place)).not.toThrow()
})

test('R-34, R-35: load parameters', () => {
  const { config, files } = readLoadParameters(
    { config: '{}', 'file:1/m': Buffer.from('abc').toString('base64') },
    'http',
  )
  expect(config).toBe('{}')
  expect([...files].map(([path, bytes]) => [path, Buffer.from(bytes).toString()])).toEqual([['1/m', 'abc']])
  expect(readLoadParameters(undefined, 'http')).toEqual({ config: null, files: new Map() })
  const decoded = [{ parameter: 'file:1/m', contents: Buffer.from('abc') }]
  expect(readLoadParameters({ config: '{}' }, 'http', decoded).files).toEqual(new Map([['1/m', Buffer.from('abc')]]))
})

test.each<[unknown, string]>([
  [{ config: 1 }, 'INTERNAL attempt to access JSON non-string as string'],
  ['x', 'INTERNAL attempt to get members for non-object'],
  [{ zz: '1' }, 'INTERNAL unexpected error on creating Triton parameter'],
  [{ 'file:1/m': '!!!' }, "INVALID_ARG load parameter 'file:1/m' is not valid base64"],
  [{ 'file:1/m': 'abc def=' }, "INVALID_ARG load parameter 'file:1/m' is not valid base64"],
])('R-36: load parameters %j are refused', (parameters, expected) => {
  expect(failure(() => readLoadParameters(parameters, 'http'))).toBe(expected)
})
