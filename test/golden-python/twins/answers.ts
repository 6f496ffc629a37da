/** Snippets that return responses, errors and exceptions. */

import { setTimeout } from 'node:timers/promises'
import { type ErrorCode, InferenceResponse, type Nested, Tensor, TritonError } from 'nereid/backend'
import type { Snippet } from './scope.ts'
import { RuntimeError, T, ValueError, out } from './show.ts'

export const CODES: readonly ErrorCode[] = [
  'UNKNOWN',
  'INTERNAL',
  'NOT_FOUND',
  'INVALID_ARG',
  'UNAVAILABLE',
  'UNSUPPORTED',
  'ALREADY_EXISTS',
  'CANCELLED',
]

/** Snippets by ids or texts that are made of values. */
export const each = <K>(keys: readonly K[], nameOf: (key: K) => string, make: (key: K) => Snippet) =>
  Object.fromEntries(keys.map((key) => [nameOf(key), make(key)]))

const respond =
  (...outputs: Tensor[]): Snippet =>
  () => [new InferenceResponse(outputs)]
const fail =
  (message: string, code: ErrorCode = 'INTERNAL'): Snippet =>
  () => [InferenceResponse.error(code, message)]
const raise =
  (error: Error): Snippet =>
  () => {
    throw error
  }
const withParameters =
  (parameters: Record<string, string | number | boolean>): Snippet =>
  () => [new InferenceResponse({ outputs: [T('Y', [1])], parameters })]

/** An array that is more than one. */
class Responses extends Array<InferenceResponse> {}

/** An exception that names and describes itself. */
class Mine extends Error {
  override name = 'Mine'
}

class KeyboardInterrupt extends Error {
  override name = 'KeyboardInterrupt'
}

const returned: Record<string, Snippet> = {
  '[out(1)]': () => [out(1)],
  'ret.two': () => [out(1), out(2)],
  '[]': () => [],
  'ret.listsub': () => Responses.of(out(1)),
  'stat.async': () => 1,
  'exc.after': ({ calls }) => [out(calls > 10)],
}

const outputs: Record<string, Snippet> = {
  'out.no.outputs': respond(),
  'out.only.extra': respond(T('NOPE', [1])),
  'out.twice': respond(T('Y', [1]), T('Y', [2])),
  'out.dtype': respond(T('Y', [1], 'INT64')),
  'out.dims': respond(T('Z', [1, 2, 3], 'INT32')),
  'out.rank': respond(T('Z', [[1, 2]], 'INT32')),
  'out.scalar': respond(T('Y', 5)),
  'out.zero': respond(T('Y', [])),
  'out.order': () => [new InferenceResponse([T('Z', [1, 2], 'INT32'), T('Y', [3]), Tensor.fromStrings('OUT', ['1'])])],
  'out.case': respond(T('y', [1])),
  'out.longname': respond(T('N'.repeat(500), [1])),
  'out.in.place': ({ request }) => {
    const [input] = request.inputs.values()
    return [new InferenceResponse([Tensor.fromStrings('OUT', (input as Tensor<'BYTES'>).data)])]
  },
  'out.mutate.after': () => {
    const data = new Float32Array(2)
    const response = new InferenceResponse([Tensor.from('Y', data)])
    data.fill(7)
    return [response]
  },
  'out.both.error': () => [
    new InferenceResponse({ outputs: [T('Y', [1])], error: new TritonError('INTERNAL', 'with outputs') }),
  ],
  'want.twice': respond(T('Y', [1]), T('Z', [1, 2], 'INT32')),
  'want.missing': respond(T('Y', [1])),
  'want.class': respond(T('Y', [3, 9, 5])),
}

const rows = (value: Nested): Snippet => respond(T('Y', value))

const batches: Record<string, Snippet> = {
  'batch.ok': rows([
    [1, 2],
    [3, 4],
  ]),
  'batch.fewer': rows([[1, 2]]),
  'batch.more': rows([
    [1, 2],
    [1, 2],
    [1, 2],
  ]),
  'batch.nobatch': rows([1, 2]),
  'batch.wrong.dims': rows([
    [1, 2, 3],
    [4, 5, 6],
  ]),
}

const parameters: Record<string, Snippet> = {
  'rparam.int': withParameters({ a: 1, n: -7 }),
  'rparam.str': withParameters({ a: 'x', e: '', u: '\u4e2d' }),
  'rparam.bool': withParameters({ t: true, f: false }),
  'rparam.big': withParameters({ a: 2 ** 62 }),
  'rparam.empty': withParameters({}),
  'rparam.float': withParameters({ a: 1.5 }),
  'rparam.reserved': withParameters({ triton_final_response: true }),
  'rparam.nul': withParameters({ a: 'x\0y' }),
}

const errors: Record<string, Snippet> = {
  ...each(
    CODES,
    (code) => `err.${code}`,
    (code) => fail(`text of ${code}`, code),
  ),
  'err.default': fail('plain'),
  'err.empty': fail(''),
  'err.newline': fail('a\nb\ttab'),
  'err.quote': fail('say "hi" \\ /'),
  'err.nul': fail('a\0b'),
  'err.percent': fail('100% %s'),
  'err.json': fail('{"a": 1}'),
  'err.generate': fail('e', 'NOT_FOUND'),
  'stat.error': fail('e'),
  'ens.error': fail('step error', 'NOT_FOUND'),
}

const exceptions: Record<string, Snippet> = {
  'exc.value': raise(new ValueError('bad')),
  'exc.empty': raise(new RuntimeError()),
  'exc.unicode': raise(new ValueError('gr\u00fc\u00df \u4e2d \u{1f600}')),
  'exc.multi': raise(new ValueError('line 1\nline 2')),
  'exc.chain': raise(new RuntimeError('outer', { cause: new Error('division by zero') })),
  'exc.context': raise(new RuntimeError('second')),
  'exc.custom': raise(new Mine('mine')),
  'exc.keyboard': raise(new KeyboardInterrupt()),
  'exc.nested': () => {
    const inner = () => {
      throw new ValueError('deep')
    }
    inner()
  },
  'exc.null': raise(new ValueError('a\0b')),
  'exc.long': raise(new ValueError('y'.repeat(20000))),
  'exc.percent': raise(new ValueError('%s %d {}')),
  'exc.id': raise(new ValueError('x')),
  'ens.raise': raise(new ValueError('in step')),
}

const promised: Record<string, Snippet> = {
  'async.sleep': async () => {
    await setTimeout(50)
    return [out(2)]
  },
  'async.raise': raise(new ValueError('async')),
  'async.raise.after': async () => {
    await setTimeout(50)
    throw new ValueError('async later')
  },
  'async.task': async () => [out(await setTimeout(10, 5))],
  'async.error': fail('async error', 'UNAVAILABLE'),
  'async.sequential': async ({ keep }) => {
    const before = (keep['n'] as number | undefined) ?? 0
    keep['n'] = before + 1
    await setTimeout(300)
    keep['n'] = before
    return [out(before + 1)]
  },
}

/** Calls of this kind of an instance, which it counts itself. */
const count = (keep: Record<string, unknown>, name: string) => (keep[name] = ((keep[name] as number) ?? 0) + 1)

const cached: Record<string, Snippet> = {
  'cache.error.0': ({ keep }) => [InferenceResponse.error('INTERNAL', `call ${count(keep, 'n')}`)],
  'cache.raise.0': ({ keep }) => {
    throw new ValueError(`call ${count(keep, 'm')}`)
  },
  'cache.bls': async ({ exec }) => {
    const X = [T('X', [7], 'INT32')]
    return [await exec('count', X), await exec('count', X)]
  },
  'cache.calls.0': ({ calls }) => [out(calls)],
  'cache.params.0': ({ calls }) => [out(calls, { a: 1 })],
  'cache.sender.0': ({ keep, sender }) => {
    void sender.send(out(count(keep, 's')), { final: true })
    return [null]
  },
  'cache.wrong.0': ({ keep }) => [new InferenceResponse([T('NOPE', [count(keep, 'w')])])],
}

export const answers: Record<string, Snippet> = {
  ...returned,
  ...outputs,
  ...batches,
  ...parameters,
  ...errors,
  ...exceptions,
  ...promised,
  ...cached,
}
