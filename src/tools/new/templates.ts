/** Files that `nereid new model` writes. */

import { PYTHON_MODEL } from '../init/python_model.js'
import type { ModelFile } from '../init/place.js'

const TYPESCRIPT_MODEL = `import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

export default defineModel({
  maxBatchSize: 8,
  inputs: { INPUT0: { datatype: 'FP32', dims: [-1] } },
  outputs: { OUTPUT0: { datatype: 'FP32', dims: [-1] } },
  /** Runs requests that came together. Returns one response for each, in their order. */
  execute(requests) {
    return requests.map((request) => {
      const { data, shape } = request.input('INPUT0')
      const doubled = data.map((value) => value * 2) // your code
      return new InferenceResponse([Tensor.from('OUTPUT0', doubled, shape)])
    })
  },
})
`

const TYPESCRIPT_TEST = `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

test('values are doubled', async () => {
  const model = await testModel(new URL('./1/model.ts', import.meta.url))
  const response = await model.infer({ INPUT0: Tensor.from('INPUT0', new Float32Array([1, 2, 3]), [1, 3]) })
  assert.deepEqual(response.output('OUTPUT0')?.toNested(), [[2, 4, 6]])
  await model.close()
})
`

const PYTHON_TEST = `import os
import unittest

import numpy as np
from nereid_runner.harness import Model

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "1", "model.py")


class Test(unittest.TestCase):
    def test_values_are_doubled(self):
        with Model(PATH) as model:
            outputs = model.infer(INPUT0=np.array([1, 2, 3], np.float32))
            self.assertEqual(outputs["OUTPUT0"].tolist(), [2, 4, 6])


if __name__ == "__main__":
    unittest.main()
`

export interface Template {
  kind: 'javascript' | 'python'
  files: ModelFile[]
  /** The test, below the model's directory. */
  test: string
}

export const TEMPLATES: Readonly<Record<'ts' | 'python', Template>> = {
  ts: {
    kind: 'javascript',
    files: [
      { to: '1/model.ts', text: TYPESCRIPT_MODEL },
      { to: 'model.test.mjs', text: TYPESCRIPT_TEST },
    ],
    test: 'model.test.mjs',
  },
  python: {
    kind: 'python',
    files: [
      { to: '1/model.py', text: PYTHON_MODEL },
      { to: 'test_model.py', text: PYTHON_TEST },
    ],
    test: 'test_model.py',
  },
}
