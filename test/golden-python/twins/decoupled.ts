/** Snippets of decoupled models, and of cancelled requests. */

import { setTimeout } from 'node:timers/promises'
import { InferenceResponse, Tensor } from 'nereid/backend'
import type { Scope, Snippet } from './scope.ts'
import { T, ValueError, array, attempt, out } from './show.ts'

const FINAL = { final: true }

/** Sends outputs as the last response. */
const last =
  (...outputs: Tensor[]): Snippet =>
  ({ sender }) =>
    sender.send(new InferenceResponse(outputs), FINAL)

/** Sends 0, 1, …, then the end. */
const counts =
  (count: number): Snippet =>
  async (scope) => {
    for (let i = 0; i < count; i += 1) await scope.send(i)
    await scope.sender.end()
  }

/** Sends a value as the last response, and returns another one from `execute`. */
const returning =
  (value: unknown): Snippet =>
  async (scope) => {
    await scope.send(1, true)
    return value
  }

const raise =
  (message: string): Snippet =>
  () => {
    throw new ValueError(message)
  }

/** Sends in its own time, after `execute` has ended. */
const later =
  (send: (scope: Scope) => Promise<void>): Snippet =>
  (scope) => {
    void send(scope)
  }

const sent: Record<string, Snippet> = {
  'dec.one': (scope) => scope.send('a', true),
  'dec.one.then.final': async (scope) => {
    await scope.send('a')
    await scope.sender.end()
  },
  'dec.three': counts(3),
  'dec.three.last': async (scope) => {
    for (let i = 0; i < 3; i += 1) await scope.send(i, i === 2)
  },
  'dec.none': ({ sender }) => sender.end(),
  'dec.error': ({ sender }) => sender.send(InferenceResponse.error('NOT_FOUND', 'e1'), FINAL),
  'dec.error.then.final': async ({ sender }) => {
    await sender.send(InferenceResponse.error('INTERNAL', 'e1'))
    await sender.end()
  },
  'dec.ok.error.ok': async (scope) => {
    await scope.send(1)
    await scope.sender.send(InferenceResponse.error('INTERNAL', 'e2'))
    await scope.send(3)
    await scope.sender.end()
  },
  'dec.raise': raise('dec'),
  'dec.raise#2': (scope) => scope.send('after', true),
  'dec.raise.after.one': async (scope) => {
    await scope.send(1)
    throw new ValueError('dec2')
  },
  'dec.raise.after.final': async (scope) => {
    await scope.send(1, true)
    throw new ValueError('dec3')
  },
  'dec.return.list': returning([out(1)]),
  'dec.return.list.unsent': () => [out(1)],
  'dec.return.int': returning(5),
  'dec.return.emptylist': returning([]),
  'dec.return.false': returning(false),
  'dec.thread': later(async (scope) => {
    await setTimeout(200)
    await scope.send('t')
    await scope.sender.end()
  }),
  'dec.thread.raise': later(async (scope) => {
    await attempt(() => raise('unseen')(scope))
    await scope.send('end', true)
  }),
  'dec.interleaved': later(async (scope) => {
    for (let i = 0; i < 3; i += 1) {
      await scope.send(['a', i])
      await setTimeout(200)
    }
    await scope.sender.end()
  }),
  'dec.interleaved#2': async (scope) => {
    for (let i = 0; i < 3; i += 1) await scope.send(['b', i])
    await scope.sender.end()
  },
  'dec.two.senders': async ({ keep, request }) => {
    const [a, b] = [request.sender, request.sender]
    await a.send(out(['a', a === b]))
    await b.send(out('b'))
    keep['r'] = [await attempt(() => a.end()), await attempt(() => b.send(out('late')))]
  },
  'dec.two.senders.what': (scope) => scope.send(scope.keep['r'], true),
  'dec.cancelled': (scope) => scope.send([scope.request.cancelled, scope.sender.cancelled], true),
  'dec.params': async ({ sender }) => {
    await sender.send(out(1, { a: 1, b: 'x', c: true }))
    await sender.end()
  },
  'dec.empty.response.final': last(),
  'dec.extra.output': async ({ sender }) => {
    await sender.send(new InferenceResponse([T('NOPE', [1])]))
    await sender.end()
  },
  'dec.outputs.requested': (scope) => scope.send([...scope.request.requestedOutputs].sort(), true),
  'dec.big': async ({ sender }) => {
    for (let i = 0; i < 3; i += 1)
      await sender.send(new InferenceResponse([Tensor.fromStrings('OUT', ['x'.repeat(100_000)])]))
    await sender.end()
  },
  'dec.many': counts(200),
  'dec.reuse.response': async ({ sender }) => {
    const response = out('same')
    await sender.send(response)
    await sender.send(response)
    await sender.end()
  },
  'dec.grpcerror': raise('as status'),
  'dec.grpcerror.ok': (scope) => scope.send(1, true),
  'dec.id': (scope) => scope.send(scope.request.id, true),
  'dec.async.sleep': async (scope) => {
    await setTimeout(100)
    await scope.send('a')
    await setTimeout(100)
    await scope.sender.end()
  },
  'dec.batch.raise': raise('batch'),
  'dec.stat.error': async (scope) => {
    await scope.send(1)
    await scope.sender.send(InferenceResponse.error('INTERNAL', 'e'), FINAL)
  },
  'dec.stat.raise': raise('x'),
}

/** Sent by `generate` and `generate_stream`. */
const generated: Record<string, Snippet> = {
  'dec.gs.two.then.final': async (scope) => {
    await scope.send(1)
    await scope.send(2)
    await scope.sender.end()
  },
  'dec.gs.raise': raise('gen'),
  'dec.gs.one.raise': async (scope) => {
    await scope.send(1)
    throw new ValueError('gen')
  },
  'dec.gs.empty.twice': async ({ sender }) => {
    await sender.send(new InferenceResponse([]))
    await sender.send(new InferenceResponse([]), FINAL)
  },
  'dec.gs.array': last(T('Y', [1, 2.5, 3])),
  'dec.gs.scalar': last(T('Y', [1.5]), T('B', [true], 'BOOL')),
  'dec.gs.zero': last(T('Y', [])),
  'dec.gs.nan': last(T('Y', [Number.NaN])),
  'dec.gs.badutf': last(Tensor.fromStrings('OUT', [Uint8Array.of(0xff)])),
  'dec.gs.request.params': (scope) => scope.send(scope.request.parameters, true),
  'dec.gs.X': (scope) => {
    const input = scope.request.input('X')
    return scope.send(input === undefined ? null : array(input), true)
  },
  'dec.gs.later': later(async (scope) => {
    for (let i = 0; i < 3; i += 1) {
      await setTimeout(100)
      await scope.send(i)
    }
    await scope.sender.end()
  }),
}

/** Notes every 0.1 s whether the request is cancelled, until it is. */
async function watch({ keep, request }: Scope, rounds: number): Promise<void> {
  const noted: boolean[] = []
  keep['seen'] = noted
  for (let i = 0; i < rounds && noted.at(-1) !== true; i += 1) {
    noted.push(request.cancelled)
    if (!request.cancelled) await setTimeout(100)
  }
}

const LOOK = (rounds: number, cancelled: string) =>
  `self.keep['seen'] = []\nfor i in range(${rounds}):\n    self.keep['seen'].append(${cancelled})\n` +
  "    if self.keep['seen'][-1]: break\n    time.sleep(0.1)\n"

const ends = ({ keep }: Scope) => {
  const noted = keep['seen'] as boolean[]
  return [noted[0], noted.at(-1)]
}

const cancelled: Record<string, Snippet> = {
  [`${LOOK(40, 'request.is_cancelled() or sender.is_cancelled()')}sender.send(flags=1)`]: async (scope) => {
    await watch(scope, 40)
    await scope.sender.end()
  },
  'dec.cancel.what': (scope) => scope.send(ends(scope), true),
  [`${LOOK(40, 'requests[0].is_cancelled()')}return [pb.InferenceResponse(error=pb.TritonError('stopped', ` +
  'pb.TritonError.CANCELLED))]']: async (scope) => {
    await watch(scope, 40)
    return [InferenceResponse.error('CANCELLED', 'stopped')]
  },
  'cancel.unary.what': (scope) => [out(ends(scope))],
  [`${LOOK(15, 'requests[0].is_cancelled()')}return [out(1)]`]: async (scope) => {
    await watch(scope, 15)
    return [out(1)]
  },
}

export const decoupled: Record<string, Snippet> = { ...sent, ...generated, ...cancelled }
