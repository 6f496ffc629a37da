/** Finds recurrent state by the names of tensors: an output that is an input of the next request. Pure. */

import type { TensorConfig } from './model_io.js'

/** An input, and the output whose value it has in the next request of a sequence. */
export interface StatePair {
  input: TensorConfig
  output: TensorConfig
}

/** Words for state: `state`, `h`, `c`, and names that end in such a word. */
const STATE = /^(?:.*[_.])?(?:states?|hidden|cell|memory|h|c)\d*$/i
/** Ends of names for the value before (`h0`, `h_in`) and the value after a request (`hn`, `stateN`, `h_out`). */
const BEFORE = /(?:_?(?:in|prev|old)|_?0)$/i
const AFTER = /_?(?:out|next|new|n)$/i

/** Pairs of the same datatype whose shapes can be equal. */
export function statesOf(inputs: readonly TensorConfig[], outputs: readonly TensorConfig[]): StatePair[] {
  return inputs.flatMap((input) => {
    const stem = input.name.replace(BEFORE, '')
    if (!STATE.test(stem)) return []
    const fits = (a: number, b: number | undefined): boolean => a === b || a === -1 || b === -1
    const output = outputs.find(
      ({ name, data_type, dims }) =>
        name !== input.name &&
        [name, name.replace(AFTER, '')].includes(stem) &&
        data_type === input.data_type &&
        dims.length === input.dims.length &&
        dims.every((dim, i) => fits(dim, input.dims[i])),
    )
    return output === undefined ? [] : [{ input, output }]
  })
}
