/** Runs openai-node's tests and an example of it, unchanged, in its own sources: NEREID_TEXT_NODE is its directory. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const there = process.env.NEREID_TEXT_NODE

export default {
  root: there,
  resolve: {
    alias: [
      { find: /^openai$/, replacement: join(there, 'src/index.ts') },
      { find: /^openai\/(.*)$/, replacement: join(there, 'src/$1') },
    ],
  },
  server: { fs: { strict: false } },
  test: {
    globals: true,
    include: [
      'tests/api-resources/{embeddings,models}.test.ts',
      fileURLToPath(new URL('*.check.mjs', import.meta.url)),
    ],
  },
}
