/** Models in TypeScript that fail in every way there is, and those beside them, which go on answering. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { IN_PROCESS, RUNS, Repository, STREAMS, Served, failureOf, fp32, numbers, parameter, until } from './served.js'

const GRACE_SECONDS = 1
const TIMEOUT_MS = 300
/** Until a worker answers again. A process also starts Node, which other tests may slow down. */
// Other suites run beside this one: alone, a thread is back within 0.4 s.
const BACK_MS_MAX = { thread: 2000, process: 3000 }

/** Nothing is completed at a load, which so starts one worker. */
const io = (name: string, datatype: string, dim: number) =>
  `input [ { name: "${name}" data_type: ${datatype} dims: [ ${dim} ] } ]\n` +
  `output [ { name: "OUT" data_type: ${datatype} dims: [ ${dim} ] } ]\n`
const CODE = io('CODE', 'TYPE_STRING', 1)
const NUMBERS = io('IN', 'TYPE_FP32', -1)

const repository = new Repository()
let served: Served

/** Requests to models that have nothing to do with what happens: each is answered, and right. */
const bystanders = { isOver: false, count: 0, wrong: [] as string[], ended: Promise.resolve() }

async function ask(model: string, input: string, output: string): Promise<void> {
  for (let n = 1; !bystanders.isOver; n += 1) {
    const data = new Float32Array([n, 7])
    const answer = await failureOf(
      served.grpc.infer(model, { [input]: { data, shape: [2], datatype: 'FP32' } }).then((result) => {
        const [first] = result.output(output).floats()
        if (first !== n) throw new Error(`${first} for ${n}`)
      }),
    )
    if (!answer.startsWith('no error')) bystanders.wrong.push(`${model}: ${answer}`)
    bystanders.count += 1
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

afterEach(() => {
  expect(served.server.alive, served.server.output().slice(-2000)).toBe(true)
  expect(bystanders.wrong).toEqual([])
})

afterAll(async () => {
  bystanders.isOver = true
  await bystanders.ended
  expect(bystanders.count).toBeGreaterThan(20)
  await served?.stop()
  repository.remove()
})

interface Fault {
  /** Body of `execute`. */
  code: string
  /** Code and text of the answer. */
  text: RegExp
  /** The worker ends: further configuration of a model of its own. */
  config?: string
}

/** Text for a request whose worker ended. */
const ENDED = /^(INTERNAL|UNAVAILABLE): .*\bInstance '\w+' is not healthy|^Instance '\w+' is not healthy/

const FAULTS: Record<string, Fault> = {
  'an exception': { code: "throw new RangeError('boom')", text: /^INTERNAL: .*RangeError: boom\n +at / },
  'a rejection': { code: "return Promise.reject(new TypeError('later'))", text: /^INTERNAL: .*TypeError: later/ },
  'an exception that is no Error': { code: 'throw 5', text: /^INTERNAL: .*: 5/ },
  'an error with a code': {
    code: "throw new TritonError('NOT_FOUND', 'no such thing')",
    text: /^NOT_FOUND: no such thing/,
  },
  'a number in the place of responses': { code: 'return 5', text: /^INTERNAL: .*Expected an array.*found a number/ },
  'a number in the place of a response': {
    code: 'return [5]',
    text: /^INTERNAL: .*Expected an InferenceResponse.*found a number/,
  },
  'too few responses': { code: 'return []', text: /^INTERNAL: .*Number of InferenceResponse objects/ },
  'too many responses': {
    code: 'return [text(1), text(2)]',
    text: /^INTERNAL: .*Number of InferenceResponse objects/,
  },
  'no answer at all': { code: 'return null', text: /^INTERNAL: .*execute returned null for a request: return an/ },
  'a sender that is forgotten': {
    // That nobody can answer it any more is seen when garbage is collected.
    code:
      "requests.forEach((request) => request.sender)\nload('v8').setFlagsFromString('--expose-gc')\n" +
      "setTimeout(load('vm').runInNewContext('gc'), 50)\nreturn null",
    text: /^INTERNAL: .*(not answered|did not|ended before)/,
  },
  'an output that is not declared': {
    code: "return [new InferenceResponse([Tensor.fromStrings('MORE', ['x'])])]",
    text: /^INTERNAL: .*returned output 'MORE', and its configuration has 'OUT'/,
  },
  'an output of another datatype': {
    code: "return [new InferenceResponse([Tensor.from('OUT', new Float32Array(1))])]",
    text: /^INTERNAL: .*returned output 'OUT' as TYPE_FP32, and its configuration expects TYPE_STRING/,
  },
  'a shape that does not fit': {
    code: "return [new InferenceResponse([Tensor.from('OUT', new Float32Array(1), [3])])]",
    text: /^INTERNAL: .*shape \[3\] expects 3 elements, found 1/,
  },
  'process.exit': { code: 'process.exit(3)', text: ENDED, config: '' },
  'an endless loop': {
    code: 'for (;;) ;',
    text: ENDED,
    config: parameter('execute-timeout-ms', TIMEOUT_MS),
  },
  'a promise that never settles': {
    code: 'return new Promise(() => {})',
    text: ENDED,
    config: parameter('execute-timeout-ms', TIMEOUT_MS),
  },
  'all memory of its heap': {
    code: 'const all = []; for (;;) all.push(new Array(10_000).fill(0).map((_, i) => ({ i })))',
    text: ENDED,
    config: parameter('memory-limit-bytes', 48 << 20),
  },
  'a rejection that nobody handles': {
    code: "void Promise.reject(new Error('nobody waits')); return new Promise(() => {})",
    text: ENDED,
    config: '',
  },
  'an exception of a timer': {
    code: "setTimeout(() => { throw new Error('a timer') }, 1); return new Promise(() => {})",
    text: ENDED,
    config: '',
  },
}

/** Changes of built-in objects that a model shares with the runtime. Their own request may have an answer. */
const SPOILERS = {
  'a spoiled Array.prototype.map': "Array.prototype.map = () => { throw new Error('spoiled') }",
  'an Array.isArray that is never true': 'Array.isArray = () => false',
  'arrays that cannot be iterated': 'Array.prototype[Symbol.iterator] = undefined',
  'a polluted Object.prototype': "Object.defineProperty(Object.prototype, 'error', { get() { throw new Error('x') } })",
  'a spoiled Map.prototype.get': 'Map.prototype.get = () => undefined',
  'a spoiled Buffer': "Buffer.prototype.utf8Write = () => { throw new Error('spoiled') }",
}
for (const [what, code] of Object.entries(SPOILERS))
  FAULTS[what] = { code: `${code}\nreturn [text(1)]`, text: /^/, config: '' }

const WHERE = [
  ['a thread', ''],
  ['a process', IN_PROCESS],
] as const
/** Name of a model for a fault; those that survive share one. */
const nameOf = (where: string, what: string): string => `${where} ${what}`.trim().replaceAll(/\W/g, '_').toLowerCase()

beforeAll(async () => {
  repository.model('other', fp32('return answers(requests)'), NUMBERS)
  repository.write(
    'models/native/config.pbtxt',
    `backend: "identity"\n${NUMBERS.replace('"IN"', '"INPUT0"').replace('"OUT"', '"OUTPUT0"')}`,
  )
  repository.write('models/native/1/.keep', '')
  repository.model('two', RUNS, `${CODE}instance_group [ { count: 2 kind: KIND_CPU } ]\n`)
  repository.model('ends', RUNS, CODE)
  repository.model('dies_late', STREAMS, `${CODE}model_transaction_policy { decoupled: true }\n`)
  for (const [where, isolation] of WHERE) {
    repository.model(nameOf(where, ''), RUNS, CODE + isolation)
    for (const [what, { config }] of Object.entries(FAULTS))
      if (config !== undefined) repository.model(nameOf(where, what), RUNS, CODE + isolation + config)
  }
  served = await Served.start(repository, [
    '--model-control-mode=explicit',
    '--load-model=*',
    '--disable-auto-complete-config',
    `--backend-config=javascript,exit-grace-seconds=${GRACE_SECONDS}`,
  ])
  bystanders.ended = Promise.all([ask('other', 'IN', 'OUT'), ask('native', 'INPUT0', 'OUTPUT0')]).then(() => {})
}, 60_000)

describe.each(WHERE)('B-JS-05: a model in %s answers with', (where, isolation) => {
  test.each(Object.entries(FAULTS))('%s, and is back soon', async (what, { code, text, config }) => {
    const name = nameOf(where, config === undefined ? '' : what)
    expect(await served.run('keep.mark = 1; return keep.mark', name)).toBe(1)
    expect(await served.failure(`=${code}`, name)).toMatch(text)
    const from = performance.now()
    let mark: unknown
    await until('it answers again', async () => {
      mark = await served.run('return keep.mark ?? null', name).catch(() => undefined)
      return mark !== undefined
    })
    expect(performance.now() - from).toBeLessThan(isolation === '' ? BACK_MS_MAX.thread : BACK_MS_MAX.process)
    // It is another worker.
    expect(mark).toBe(config === undefined ? 1 : null)
  })
})

test('B-JS-05: a generator whose worker ends, ends its stream', async () => {
  const got: unknown[] = []
  const failed = failureOf(
    (async () => {
      const generator = 'yield text(1); await new Promise((r) => setTimeout(r, 20)); process.exit(1)'
      for await (const value of served.stream(generator, 'dies_late')) got.push(value)
    })(),
  )
  expect(await failed).toMatch(/Instance 'dies_late_0' is not healthy/)
  expect(got).toEqual([1])
  await until('it is back', async () => {
    const values: unknown[] = []
    await failureOf(
      (async () => {
        for await (const value of served.stream('yield text(2)', 'dies_late')) values.push(value)
      })(),
    )
    return values[0] === 2
  })
})

test('B-JS-05: a model that calls one which ends gets its error', async () => {
  const code =
    "try { await ctx.models.infer('ends', { CODE: Tensor.fromStrings('CODE', ['=process.exit(1)']) }) } " +
    'catch (error) { return error.message }'
  expect(await served.run(code, 'two')).toBe("Instance 'ends_0' is not healthy.")
})

test('B-JS-05: while one instance loops, the other one answers, and so do other models', async () => {
  const threads = served.threads()
  const client = new AbortController()
  const loops = failureOf(served.run('=for (;;) ;', 'two', { signal: client.signal }))
  const { count } = bystanders
  for (let i = 0; i < 50; i += 1) expect(await served.run('return 1', 'two')).toBe(1)
  await until('others answer', () => bystanders.count > count + 4)
  client.abort()
  expect(await loops).toMatch(/CANCEL|abort/i)
  // An unload does not wait for it beyond the grace.
  const from = performance.now()
  await served.http.unload('two')
  expect(performance.now() - from).toBeLessThan(1000 * GRACE_SECONDS + BACK_MS_MAX.thread)
  await until('its threads have ended', () => served.threads() <= threads - 2)
  await served.load('two')
  expect(await served.run('return 1', 'two')).toBe(1)
})

/** Model → code of its file, and the error of its load. */
const BROKEN: Record<string, [code: string, text: (file: string) => RegExp]> = {
  'throws in initialize': [
    fp32('', "initialize() {\n    throw new Error('no weights')\n  },"),
    (file) => new RegExp(`Error: no weights[^]*${file}:\\d+`),
  ],
  'rejects in initialize': [
    fp32('', "async initialize() { await null\n    throw new Error('not today') },"),
    (file) => new RegExp(`not today[^]*${file}:\\d+`),
  ],
  'ends in initialize': [fp32('', 'initialize() { process.exit(4) },'), () => /Instance '\w+_0' is not healthy/],
  'throws at import': [
    'const a = 1\nthrow new Error(`at import ${a}`)\n',
    (file) => new RegExp(`at import 1[^]*${file}:2`),
  ],
  'has a syntax error': ['const a = 1\nconst b = = 2\n', (file) => new RegExp(`${file}:2`)],
  'needs a package that is missing': [
    "import { x } from 'package-of-nobody'\nexport default { execute: () => x }\n",
    () => /package-of-nobody[^]*npm install package-of-nobody/,
  ],
  'needs a file that is missing': [
    "import { x } from './beside.ts'\nexport default { execute: () => x }\n",
    () => /beside\.ts/,
  ],
  'has no execute': ['export default {}\n', () => /does not implement `execute`/],
}

describe.each(WHERE)('B-JS-04: in %s, a load fails', (where, isolation) => {
  test.each(Object.entries(BROKEN))('of a model that %s, with the reason', async (what, [code, text]) => {
    const name = nameOf(where, what)
    const file = repository.model(name, code, NUMBERS + isolation)
    const error = await failureOf(served.load(name))
    expect(error).toMatch(text(file))
    // Mended, it loads.
    repository.model(name, fp32('return answers(requests)'), NUMBERS + isolation)
    await served.load(name)
    expect((await served.http.infer(name, numbers(3))).output('OUT').floats()[0]).toBe(3)
    await served.http.unload(name)
  })
})

test('B-JS-05: an unload ends a load whose code never ends', async () => {
  const name = 'never_imported'
  repository.model(name, 'while (true) {}', NUMBERS)
  const load = failureOf(served.load(name))
  const isLoading = async () => (await served.http.index()).some((row) => row.name === name && row.state === 'LOADING')
  await until('it is loading', isLoading)
  const from = performance.now()
  await served.http.unload(name)
  expect(performance.now() - from).toBeLessThan(BACK_MS_MAX.thread)
  expect(await load).toContain(`Instance '${name}_0' is not healthy.`)
  repository.model(name, fp32('return answers(requests)'), NUMBERS)
  await served.load(name)
  await served.http.unload(name)
})

test('B-JS-05: the log says why a worker ended', () => {
  const output = served.server.output()
  const ends = [/exited with code 3|status 3/, /heap/, /nobody waits/, /a timer/, /changed a built-in object/]
  for (const why of [...ends, new RegExp(`${TIMEOUT_MS} ms`)]) expect(output).toMatch(why)
})

test('B-JS-05: SIGTERM is not delayed by a loop beyond the grace', async () => {
  const client = new AbortController()
  const loops = failureOf(served.run("=console.log('it loops'); for (;;) ;", 'two', { signal: client.signal }))
  await until('it loops', () => served.server.output().includes('it loops'))
  client.abort()
  await loops
  bystanders.isOver = true
  await bystanders.ended
  const from = performance.now()
  served.server.process.kill('SIGTERM')
  expect(await served.server.ended()).toBe(0)
  expect(performance.now() - from).toBeLessThan(1000 * GRACE_SECONDS + 4000)
  served = await Served.start(repository, ['--model-control-mode=explicit'])
})
