import { expect, test } from 'vitest'
import { statesOf } from '../../src/tools/init/state.js'

const tensor = (text: string): { name: string; data_type: string; dims: number[] } => {
  const [name = '', type = '', dims = ''] = text.split(' ')
  return { name, data_type: `TYPE_${type}`, dims: dims === '' ? [] : dims.split(',').map(Number) }
}

test.each([
  ['input FP32 -1,-1; state FP32 2,-1,128', 'output FP32 -1,1; stateN FP32 -1,-1,-1', ['state stateN']],
  ['x FP32 4; h FP32 1,4; c FP32 1,4', 'y FP32 4; hn FP32 1,4; cn FP32 1,4', ['h hn', 'c cn']],
  ['h_in FP32 4', 'h_out FP32 4', ['h_in h_out']],
  ['h0 FP32 4; c0 FP32 4', 'hn FP32 4; cn FP32 4', ['h0 hn', 'c0 cn']],
  ['encoder.hidden FP32 4', 'encoder.hidden_next FP32 4', ['encoder.hidden encoder.hidden_next']],
  // Other datatypes, ranks or sizes, and names that say nothing of a state.
  ['state FP32 4', 'stateN FP16 4', []],
  ['state FP32 4', 'stateN FP32 4,1', []],
  ['h FP32 4', 'hn FP32 8', []],
  ['i FP32 4; x_in FP32 4', 'in FP32 4; x_out FP32 4', []],
  ['state FP32 4', 'state FP32 4', []],
])('inputs %s, outputs %s', (inputs, outputs, expected) => {
  const list = (text: string): ReturnType<typeof tensor>[] => text.split('; ').map(tensor)
  const found = statesOf(list(inputs), list(outputs))
  expect(found.map(({ input, output }) => `${input.name} ${output.name}`)).toEqual(expected)
})
