/** Models of the repository `ready`, by name: what `isReady` answers. */

import { setTimeout } from 'node:timers/promises'
import { type Context, Tensor } from 'nereid/backend'
import { answer, fine } from './fine.ts'
import { ValueError } from './show.ts'

const ready = (isReady: (ctx: Context) => unknown) => () => fine({ isReady })

export const models: Readonly<Record<string, () => unknown>> = {
  yes: ready(() => true),
  no: ready(() => false),
  int: ready(() => 1),
  none: ready(() => null),
  npbool: ready(() => Object(true)),
  raises: ready(() => {
    throw new ValueError('not now')
  }),
  aio: ready(async () => true),
  aio_no: ready(() => setTimeout(100, false)),
  slow: ready(() => setTimeout(1000, true)),
  toolong: ready(() => setTimeout(8000, true)),
  flip: () => {
    let asked = 0
    return fine({
      isReady() {
        asked += 1
        return asked % 2 === 1
      },
    })
  },
  static: ready(() => true),
  two: ready(({ instanceName }) => instanceName.endsWith('_0')),
  busy: () =>
    fine({
      isReady: () => true,
      async execute(requests: []) {
        await setTimeout(2000)
        return answer('fine')(requests)
      },
    }),
  bls: ready(async ({ models }) => {
    await models.infer('yes', [Tensor.fromStrings('CODE', [''])])
    return true
  }),
  without: () => fine(),
}
