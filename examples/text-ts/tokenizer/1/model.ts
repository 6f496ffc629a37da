/** Texts to the ids of their pieces. */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'
import { WordPiece } from './wordpiece.ts'

export default defineModel({
  maxBatchSize: 8,
  inputs: { text: { datatype: 'BYTES', dims: [1] } },
  outputs: {
    input_ids: { datatype: 'INT64', dims: [-1] },
    attention_mask: { datatype: 'INT64', dims: [-1] },
  },
  state: () => ({ tokenizer: new WordPiece('') }),

  async initialize(ctx) {
    this.tokenizer = new WordPiece(await readFile(join(ctx.versionDirectory, 'vocab.txt'), 'utf8'))
    ctx.logger.info(`${ctx.modelName}: ${this.tokenizer.size} pieces`)
  },

  execute(requests) {
    return requests.map((request) => {
      const rows = request
        .input('text')
        .strings()
        .map((text) => this.tokenizer.encode(text))
      // Rows of one request are padded to the longest of them.
      const longest = Math.max(...rows.map((row) => row.length))
      const ids = new BigInt64Array(rows.length * longest)
      const mask = new BigInt64Array(rows.length * longest)
      for (const [i, row] of rows.entries()) {
        ids.set(row.map(BigInt), i * longest)
        mask.fill(1n, i * longest, i * longest + row.length)
      }
      const shape = [rows.length, longest]
      return new InferenceResponse([Tensor.from('input_ids', ids, shape), Tensor.from('attention_mask', mask, shape)])
    })
  },
})
