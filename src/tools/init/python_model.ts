/** The Python model that `nereid init --python` writes. */

import { templateFile } from '../new/templates.js'
import type { ModelIoConfig } from './model_io.js'

export const PYTHON_IO: Pick<ModelIoConfig, 'input' | 'output'> = {
  input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [-1] }],
  output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [-1] }],
}

export const pythonModel = (): { to: string; text: string } => templateFile('model-python', '1/model.py')
