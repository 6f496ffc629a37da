/** Answers each request with the same text. */

import { type Context, type InferenceRequest, InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export const answer = (text: string) => (requests: readonly InferenceRequest[]) =>
  requests.map(() => new InferenceResponse([Tensor.fromStrings('OUT', [text])]))

/** A model that answers `fine`, with other members besides. */
export const fine = (members: object = {}) => defineModel({ execute: answer('fine'), ...members })

/** Where `finalize` writes: the model's directory. */
export const finalized = ({ modelDirectory }: Context) => `${modelDirectory}/finalized`

export default fine()
