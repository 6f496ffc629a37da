/** Models of the repository `control`, by name. */

import { type Context, InferenceResponse, Tensor, TritonError } from 'nereid/backend'
import { fine } from './fine.ts'
import { ValueError, dumps } from './show.ts'

/** Value of a call, or the text of its error. */
async function tried(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call()
  } catch (error) {
    const { name, message } = error as Error
    return `${error instanceof TritonError ? 'TritonModelException' : name}: ${message}`
  }
}

export const models: Readonly<Record<string, () => unknown>> = {
  bad: () =>
    fine({
      initialize() {
        throw new ValueError('bad model')
      },
    }),
  /** Loads a model before it is ready itself. */
  loader: () => {
    let text = ''
    return fine({
      async initialize({ models }: Context) {
        const seen = {
          before: await tried(() => models.isReady('small')),
          load: await tried(() => models.load('small')),
          after: await tried(() => models.isReady('small')),
          self: await tried(() => models.isReady('loader')),
          bls: await tried(() => models.infer('small', [Tensor.fromStrings('CODE', [''])])),
        }
        text = dumps(seen)
      },
      execute: (requests: []) => requests.map(() => new InferenceResponse([Tensor.fromStrings('OUT', [text])])),
    })
  },
}
