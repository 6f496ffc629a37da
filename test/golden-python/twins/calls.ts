/** Snippets that call other models. */

import { setTimeout } from 'node:timers/promises'
import { type CallOptions, InferenceResponse, type Nested, Tensor } from 'nereid/backend'
import { CODES, each } from './answers.ts'
import type { Scope, Snippet } from './scope.ts'
import { T, ValueError, ZeroDivisionError, array, out, show } from './show.ts'

const ONE = [[1, 2, 3, 4]]
const A = T('A', ONE)
const B = T('B', [[10, 20, 30, 40]])

/** Calls `add`. */
const add =
  (options: CallOptions = {}, inputs: readonly Tensor[] = [A, B]): Snippet =>
  ({ exec }) =>
    exec('add', inputs, options)

/** Inputs of `repeat`. */
const times = (count: number, delay = 0) => [T('N', [count], 'INT32'), T('DELAY', [delay])]

/** Reports of `see` about a call. */
const see =
  (options: CallOptions = {}, inputs: readonly Tensor[] = [T('X', [1, 2], 'INT32')]): Snippet =>
  async ({ exec }) => {
    const response = await exec('see', inputs, options)
    return response.error === null ? JSON.parse(first(response)) : response
  }

const first = (response: InferenceResponse) => (response.outputs[0] as Tensor<'BYTES'>).strings()[0] ?? ''

const CODE = (text: string) => Tensor.fromStrings('CODE', [text])

/** Calls `add` several times at once: whether each failed. */
const together =
  (count: number): Snippet =>
  async ({ exec }) => {
    const responses = await Promise.all(Array.from({ length: count }, () => exec('add', [A, B])))
    return responses.map(({ error }) => error !== null)
  }

const wrong = {
  'bls.unknown.input': [T('A', ONE), T('B', ONE), T('C', [1])],
  'bls.dup.input': [T('A', ONE), T('A', ONE), T('B', ONE)],
  'bls.wrong.dtype': [T('A', ONE, 'INT32'), T('B', ONE)],
  'bls.wrong.shape': [T('A', [[1, 2, 3]]), T('B', ONE)],
  'bls.wrong.rank': [T('A', [1, 2, 3, 4]), T('B', [1, 2, 3, 4])],
  'bls.batch.2': [T('A', [...ONE, ...ONE]), T('B', [...ONE, ...ONE])],
  'bls.noncontig': [T('A', [[0, 2, 4, 6]]), T('B', ONE)],
}

const infers: Record<string, Snippet> = {
  'bls.add': add(),
  'bls.unknown.output': add({ outputs: ['NOPE'] }),
  'bls.unknown.model': ({ exec }) => exec('nope', [A, B]),
  'bls.async.unknown.model': ({ exec }) => exec('nope', [A, B]),
  'bls.version.unknown': add({ version: 7 }),
  'bls.version.zero': add({ version: 0 }),
  ...Object.fromEntries(Object.entries(wrong).map(([id, inputs]) => [id, add({}, inputs)])),
  'bls.flags': add({ sequenceStart: true, sequenceEnd: true }),
  'bls.corr': add({ correlationId: 5 }),
  'bls.timeout': add({ timeoutUs: 1_000_000 }),
  'bls.twice.same.request': async ({ exec }) => [await exec('add', [A, B]), await exec('add', [A, B])],
  'bls.decoupled.flag.on.default': async (scope) => ['ResponseIterator', await scope.responses('add', [A, B])],
  'bls.async.parallel': async ({ run }) => {
    const begin = Date.now()
    const responses = await Promise.all([1, 2, 3].map(() => run('many', 'time.sleep(0.6)')))
    return [responses.length, Date.now() - begin < 1500]
  },
  'time.sleep(0.6)': () => setTimeout(600, null),
  'bls.async.task': add(),
  'bls.threads': together(4),
  'bls.pool': together(8),
  'bls.loop': async (scope) => {
    let failed = 0
    for (let i = 0; i < 100; i += 1) failed += (await scope.exec('add', [A, B])).error === null ? 0 : 1
    return failed
  },
  'bls.writes.output': async ({ exec }) => {
    const [sum] = (await exec('add', [A, B])).outputs
    if (sum === undefined) return null
    ;(sum.data as Float32Array).fill(5)
    return [true, array(sum)]
  },
  'bls.keep.output': async ({ exec, keep }) => {
    const [sum] = (await exec('add', [A, B])).outputs
    keep['a'] = sum?.data.slice()
    return 1
  },
  'bls.unsent.deleted': () => 1,
  'bls.many.self': ({ run }) => run('many', '1'),
  1: () => 1,
  5: () => 5,
  '1 + 1': () => 2,
  'bls.big': ({ run }) => run('lab_async', `len("${'x'.repeat(2_000_000)}")`),
}

const sees: Record<string, Snippet> = {
  'bls.see.plain': see(),
  'bls.see.corr.int': see({ correlationId: 77 }),
  'bls.see.corr.str': see({ correlationId: 'c77' }),
  'bls.see.flags.start': see({ sequenceStart: true, correlationId: 4 }),
  'bls.see.params.request': (scope) => see({ parameters: scope.request.parameters })(scope),
  'bls.see.trace': see(),
  'bls.see.zero': see({}, [T('X', [], 'INT32')]),
  'bls.see.string.zero': see({}, [T('X', [1], 'INT32'), T('S', [], 'BYTES')]),
  'bls.see.forward.input': ({ run }) => run('lab_async', '1 + 1'),
}

const failures: Record<string, Snippet> = {
  ...each(
    CODES,
    (code) => `bls.err.${code}`,
    (code) =>
      ({ run }) =>
        run('raw', errorOf(code)),
  ),
  ...each(CODES, errorOf, (code) => () => [InferenceResponse.error(code, `t ${code}`)]),
  'raise ValueError(5)': () => {
    throw new ValueError('5')
  },
  'bls.err.raise': ({ run }) => run('raw', 'raise ValueError(5)'),
  'bls.err.pass': async ({ run }) => {
    const { error, outputs } = await run('raw', 'raise ValueError(5)')
    return [error !== null, outputs.length, error?.constructor.name]
  },
  'bls.err.forwarded': async ({ exec }) => [new InferenceResponse({ error: orThrow(await exec('nope', [])) })],
  'bls.response.forwarded': async ({ run }) => [new InferenceResponse((await run('lab', '5')).outputs)],
  'bls.response.as.is': async ({ run }) => [await run('lab', '5')],
  'bls.missing.output': ({ run }) => run('raw', '[out(1)]'),
  'bls.list.bad': ({ run }) => run('raw', '[]'),
}

function errorOf(code: string): string {
  return `[pb.InferenceResponse(error=pb.TritonError('t ${code}', pb.TritonError.${code}))]`
}

function orThrow({ error }: InferenceResponse) {
  if (error === null) throw new Error('expected an error')
  return error
}

const streams: Record<string, Snippet> = {
  'bls.dec.refused': ({ exec }) => exec('repeat', times(3)),
  'bls.dec.refused.async': ({ exec }) => exec('repeat', times(3)),
  'bls.dec.drop': async ({ ctx }) => {
    const responses = ctx.models.stream('repeat', times(4))
    await responses.next()
    await responses.return()
    return 'dropped'
  },
  'bls.dec.iter.1': (scope) => scope.responses('repeat', times(1)),
  'bls.dec.unknown': (scope) => scope.responses('nope', times(3)),
  'bls.dec.badinput': (scope) => scope.responses('repeat', []),
  'bls.dec.raise': (scope) => scope.responses('dec', [CODE('send(1)\nraise ValueError(5)')]),
  'send(1)\nraise ValueError(5)': async (scope) => {
    await scope.send(1)
    throw new ValueError('5')
  },
  'bls.dec.cancel': async (scope) => {
    const { rest, start } = await cancelled(scope, times(30, 0.1))
    return [[start], null, rest.length < 10, rest.at(-1)]
  },
  'bls.dec.cancel.twice': async (scope) => {
    const { rest } = await cancelled(scope, times(5, 0.1))
    return [null, null, rest.length < 5]
  },
  'bls.dec.ensemble': (scope) => scope.responses('ens_dec', [T('N', [2], 'INT32')]),
  'bls.dec.ensemble.refused': ({ exec }) => exec('ens_dec', [T('N', [2], 'INT32')]),
  'bls.from.dec': async (scope) => scope.send(await scope.exec('add', [A, B]), true),
  'bls.from.dec.iter': async (scope) => {
    for await (const response of scope.ctx.models.stream('repeat', times(2))) await scope.send(response)
    await scope.sender.end()
  },
}

/** Responses of `repeat`, whose call is cancelled after the first one. */
async function cancelled({ ctx, request }: Scope, inputs: readonly Tensor[]) {
  const abort = new AbortController()
  const responses = ctx.models.stream('repeat', inputs, { request, signal: abort.signal })
  const start = (await responses.next()).value
  abort.abort()
  const rest: unknown[] = []
  try {
    for await (const response of responses) rest.push(response)
  } catch (error) {
    rest.push({ error })
  }
  return { start, rest }
}

/** A request of a sequence of `seq`. */
const inSequence = async ({ exec }: Scope, value: number, options: CallOptions): Promise<unknown> => {
  const response = await exec('seq', [T('INPUT', [[value]] as Nested, 'INT32')], { outputs: ['OUT'], ...options })
  return response.error === null ? JSON.parse(first(response)) : show(response)
}

const SENDER = 'sn = requests[0].get_response_sender()\n'

const sequences: Record<string, Snippet> = {
  'bls.seq': async (scope) => [
    await inSequence(scope, 1, { correlationId: 901, sequenceStart: true }),
    await inSequence(scope, 2, { correlationId: 901 }),
    await inSequence(scope, 3, { correlationId: 901, sequenceEnd: true }),
  ],
  'bls.seq.string': (scope) => inSequence(scope, 1, { correlationId: 'abc', sequenceStart: true, sequenceEnd: true }),
  "'1+1'": () => '1+1',
  '1/0': () => {
    throw new ZeroDivisionError('division by zero')
  },
  'warm.code': ({ calls, keep }) => [keep, calls],
  'self.keep.update(warm=1)': ({ keep }) => void (keep['warm'] = 1),
  'instances.three': async ({ ctx }) => {
    await setTimeout(500)
    return ctx.instanceName
  },
  'import os\nos._exit(0)': () => process.exit(0),
  'import os\nos._exit(3)': () => process.exit(3),
  'os._exit(3)': () => process.exit(3),
  'send(1)\nos._exit(3)': async (scope) => {
    await scope.send(1)
    process.exit(3)
  },
  'threading.Thread(target=lambda: os._exit(5)).start()\ntime.sleep(1)\nreturn [out(1)]': async () => {
    setImmediate(() => process.exit(5))
    await setTimeout(1000)
    return [out(1)]
  },
  [`pb.InferenceRequest(model_name='raw', requested_output_names=['OUT'], inputs=[pb.Tensor('CODE', ` +
  `np.array(['os._exit(3)'], dtype=object))]).exec()`]: ({ run }) => run('raw', 'os._exit(3)'),
  "[out('next')]": () => [out('next')],
  "send('next', 1)": (scope) => scope.send('next', true),
  [`${SENDER}raise ValueError('not sent')`]: ({ sender }) => {
    throw new ValueError(`not sent${sender.cancelled ? ', cancelled' : ''}`)
  },
  [`${SENDER}sn.send(out('sent'), 1)\nraise ValueError('after final')`]: ({ sender }) => {
    void sender.send(out('sent'), { final: true })
    throw new ValueError('after final')
  },
  [`${SENDER}sn.send(out('sent'))\nraise ValueError('after non-final')`]: ({ sender }) => {
    void sender.send(out('sent'))
    throw new ValueError('after non-final')
  },
  [`f = pb.MetricFamily(name='golden_u', description='d', kind=pb.MetricFamily.HISTOGRAM)\nm = f.Metric(labels={}, ` +
  `buckets=[2.0, 1.0])\nm.observe(1)\nreturn 'ok'`]: ({ ctx }) => {
    ctx.metrics.histogram('golden_u', 'd', [2, 1]).labels().observe(1)
    return 'ok'
  },
  "[pb.InferenceResponse([T('Y', [1])], parameters={'a': 2**63})]": () => [
    new InferenceResponse({ outputs: [T('Y', [1])], parameters: { a: 2 ** 63 } }),
  ],
  '[out(2)]': () => [out(2)],
  'hang.after': () => [out('still works')],
  'hang.sender.notfinal': () => null,
}

export const calls: Record<string, Snippet> = { ...infers, ...sees, ...failures, ...streams, ...sequences }
