/** The file that comes with a load request. */

import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  execute: (requests) => requests.map(() => new InferenceResponse([Tensor.fromStrings('OUT', ['from files'])])),
})
